"""A run whose driver finds splits: when it looks, what a checkpoint holds, how it ends."""

from dataclasses import replace

import pytest

from headgate.base.checkpoints import SourceState, SplitData
from headgate.base.messages import (
    CheckpointAcked,
    CheckpointTriggered,
    Failure,
    SplitsAssigned,
    SplitsWanted,
    TaskState,
)
from headgate.base.recovery_settings import CheckpointSettings
from headgate.control.deployment import RunPlan
from headgate.control.effects import (
    Effect,
    EndDiscovery,
    Replan,
    Send,
    StartDiscovery,
    StoreCheckpoint,
)
from headgate.control.job import JobRun
from headgate.control.life_cycle import JobState
from headgate.control.recovery import FixedDelay, Recovery
from headgate.control.split_assignment import PlannedSource
from headgate.functions.source import SplitEnumerator
from tests.control.checkpoint_kit import FIGURES, row, state, wall
from tests.control.kit import BOOM, TIMES, address, plan

RUN = "job/0/0"
ALL = ("0.0", "0.1", "1.0", "1.1")


def no_enumerator(position: bytes) -> SplitEnumerator:
    raise AssertionError("the machine never makes one")


def planned(run: str = RUN, restored: SourceState | None = None) -> RunPlan:
    source = PlannedSource("uid", "shelf", {"0.0": 0, "0.1": 1}, True, no_enumerator, restored)
    return replace(plan(), run=run, checkpointed=row(2, 2), sources=(source,))


def running() -> tuple[JobRun, list[Effect]]:
    settings = CheckpointSettings(interval_ms=1_000, unaligned=False)
    run = JobRun(planned(), TIMES, Recovery(settings, FixedDelay(9, 500), wall_ms=wall))
    effects: list[Effect] = []
    for slot in (0, 1):
        effects += run.manager_registered(slot, address(slot), 0)
    for task in ALL:
        effects += run.task_changed(RUN, task, TaskState.RUNNING, None, 0)
    return run, effects


def assigned(effects: list[Effect]) -> list[tuple[str, str]]:
    messages = [effect.message for effect in effects if isinstance(effect, Send)]
    return [
        (message.task, split.mark.decode())
        for message in messages
        if isinstance(message, SplitsAssigned)
        for split in message.splits
    ]


def found(run: JobRun, *names: str, is_last: bool = False) -> list[Effect]:
    splits = [SplitData(name.encode(), b"") for name in names]
    return run.splits_discovered(RUN, "uid", b"position", splits, is_last)


def test_looking_begins_once_when_the_first_tasks_are_deployed() -> None:
    _, effects = running()
    (start,) = [effect for effect in effects if isinstance(effect, StartDiscovery)]
    assert (start.run, start.source.name) == (RUN, "shelf")
    assert isinstance(effects[0], Send), "tasks come first"


def test_splits_go_to_the_task_that_asks() -> None:
    run, _ = running()
    assert found(run, "a", "b") == []
    assert assigned(run.splits_wanted(SplitsWanted(RUN, "0.1", 1, 0))) == [("0.1", "a")]
    assert run.unassigned_splits == {"0.0": 1}
    assert run.splits_wanted(SplitsWanted("another", "0.1", 1, 0)) == []
    assert run.splits_wanted(SplitsWanted(RUN, "1.0", 1, 0)) == [], "no source"
    assert run.splits_discovered("another", "uid", b"", [], True) == []
    run.check()


def test_a_checkpoint_holds_what_was_unassigned_when_its_triggers_were_sent() -> None:
    run, _ = running()
    found(run, "a", "b", "c")
    run.splits_wanted(SplitsWanted(RUN, "0.0", 1, 0))
    triggers = run.tick(1_000)
    assert [type(e.message) for e in triggers if isinstance(e, Send)] == [CheckpointTriggered] * 2
    run.splits_wanted(SplitsWanted(RUN, "0.1", 1, 0))  # too late for this one
    effects: list[Effect] = []
    for task in ALL:
        ack = CheckpointAcked(RUN, 1, state(task, 1), FIGURES)
        effects += run.checkpoint_reported(ack, 1_001)
    (store,) = [effect for effect in effects if isinstance(effect, StoreCheckpoint)]
    unassigned = tuple(SplitData(name, b"") for name in (b"b", b"c"))
    assert store.metadata.sources == (SourceState("uid", "shelf", b"position", unassigned),)


def test_a_failed_look_fails_the_attempt_and_the_next_one_looks_again() -> None:
    run, _ = running()
    effects = run.discovery_failed(RUN, Failure("OSError", "no shelf"), 5)
    assert run.state is JobState.FAILING
    assert EndDiscovery() in effects
    assert found(run, "a") == [], "it is over"
    for task in ALL:
        effects = run.task_changed(RUN, task, TaskState.CANCELLED, None, 6)
    assert Replan() in run.tick(2_000)
    restored = SourceState("uid", "shelf", b"7", (SplitData(b"z", b""),))
    effects = run.planned(planned("job/0/1", restored), 2_001)
    assert any(isinstance(effect, StartDiscovery) for effect in effects)
    wanted = SplitsWanted("job/0/1", "0.0", 1, 0)
    assert assigned(run.splits_wanted(wanted)) == [("0.0", "z")]
    assert run.discovery_failed(RUN, BOOM, 2_002) == [], "of the attempt before"


@pytest.mark.parametrize("how", ["cancel", "given_up", "finish", "lose"])
def test_however_a_run_ends_looking_ends_once(how: str) -> None:
    run, _ = running()
    effects: list[Effect] = []
    match how:
        case "cancel":
            effects = run.cancel("enough", 5)
        case "given_up":
            effects = run.given_up("the driver closes", 5)
        case "lose":
            effects = run.manager_lost(1, "it is gone", 5)
        case _:
            for task in ALL:
                effects += run.task_changed(RUN, task, TaskState.FINISHED, None, 5)
    effects += run.given_up("the driver closes", 6)
    assert effects.count(EndDiscovery()) == 1
    assert run.splits_wanted(SplitsWanted(RUN, "0.0", 1, 0)) == []
