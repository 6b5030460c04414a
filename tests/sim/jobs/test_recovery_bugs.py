"""The checkers can fail: bugs planted in checkpoints and restores are found.

Each begins with a seed that finds it, for a job that fails and goes on takes its time; if seeds
draw otherwise one day, one of the next ones does.
"""

from collections.abc import Callable
from functools import partial

import pytest

from headgate.base.checkpoints import SourceState
from headgate.base.messages import SplitsAssigned
from headgate.control.checkpoint_history import CheckpointHistory
from headgate.control.effects import Send
from headgate.control.split_assignment import PlannedSource, SplitAssignment
from headgate.core.chain.operator import Operator
from headgate.core.checkpoint.inputs import CheckpointedInputs
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.gate import Gate
from headgate.core.operators.sinks import RejectedRecords, TwoPhaseSinkOperator
from headgate.core.operators.source import SourceOperator
from headgate.core.task import task as task_module
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.life_cycle import TaskEnding
from headgate.sim.jobs.driver import SimDriver
from tests.sim.jobs.recovery_world import simulate_recovery
from tests.sim.outcome import RunFailed

SEEDS = 40
Patch = pytest.MonkeyPatch


def a_channel_is_not_blocked(patch: Patch) -> None:
    patch.setattr(Gate, "block", lambda gate, channel: None)


def a_channel_stays_blocked(patch: Patch) -> None:
    patch.setattr(CheckpointedInputs, "unblock", lambda incoming, channels: None)


def what_a_task_had_read_is_forgotten(patch: Patch) -> None:
    patch.setattr(NetworkInput, "unread", lambda source, channel: b"")


def what_waits_in_the_input_is_forgotten(patch: Patch) -> None:
    patch.setattr(Gate, "queued", lambda gate, channel: ())


def what_was_overtaken_is_forgotten(patch: Patch) -> None:
    real = RecordWriter.overtake

    def overtake(writer: RecordWriter, *given: object) -> dict[int, list[bytes]]:
        real(writer, *given)  # type: ignore[arg-type]
        return {}

    patch.setattr(RecordWriter, "overtake", overtake)


def records_on_their_way_are_not_restored(patch: Patch) -> None:
    patch.setattr(task_module, "give_back", lambda restored, inputs, gates: None)


def sources_begin_anew(patch: Patch) -> None:
    def restore(operator: SourceOperator, left: object) -> None:
        task = operator.context.task
        for number in range(task.subtask, len(operator._all_splits), task.parallelism):
            operator._open_split(operator._all_splits[number], number)

    patch.setattr(SourceOperator, "_restore", restore)


def a_sink_commits_too_early(patch: Patch) -> None:
    real = TwoPhaseSinkOperator.snapshot

    def snapshot(operator: TwoPhaseSinkOperator, moment: object) -> object:
        taken = real(operator, moment)  # type: ignore[arg-type]
        operator._commit_up_to(None)
        return taken

    patch.setattr(TwoPhaseSinkOperator, "snapshot", snapshot)


def a_sink_does_not_commit_what_was_prepared(patch: Patch) -> None:
    def open_(operator: TwoPhaseSinkOperator, context: object) -> None:
        Operator.open(operator, context)  # type: ignore[arg-type]
        operator._rejected = RejectedRecords(operator.failures)
        operator._committer = operator._sink.create_committer(context)  # type: ignore[arg-type]
        operator._writer = operator._sink.create_writer(context)  # type: ignore[arg-type]

    patch.setattr(TwoPhaseSinkOperator, "open", open_)


def a_task_ends_before_its_last_checkpoint(patch: Patch) -> None:
    patch.setattr(TaskEnding, "may_end", lambda ending: True)


def the_newest_checkpoint_is_dropped(patch: Patch) -> None:
    real = CheckpointHistory.completed

    def completed(history: CheckpointHistory, metadata: object) -> object:
        effects = real(history, metadata)  # type: ignore[arg-type]
        return [type(effect)(metadata) for effect in effects]

    patch.setattr(CheckpointHistory, "completed", completed)


def triggers_overtake_splits(patch: Patch) -> None:
    real = SimDriver._send

    def send(driver: SimDriver, order: Send) -> None:
        if not isinstance(order.message, SplitsAssigned):
            real(driver, order)
            return
        manager = driver._manager(order.slot)
        manager.worker.later(100.0, "splits on another line", partial(manager.receive, order))

    patch.setattr(SimDriver, "_send", send)


def splits_are_sent_between_the_state_of_the_driver_and_the_triggers(patch: Patch) -> None:
    real, before = SplitAssignment._hand_out, {}

    def hand_out(splits: SplitAssignment) -> object:
        before[splits] = tuple(splits._unassigned)
        return real(splits)

    def state(splits: SplitAssignment) -> SourceState:
        source, unassigned = splits.source, before.get(splits, tuple(splits._unassigned))
        return SourceState(source.uid, source.name, splits._position, unassigned)

    patch.setattr(SplitAssignment, "_hand_out", hand_out)
    patch.setattr(SplitAssignment, "state", state)


def the_splits_of_the_driver_are_not_restored(patch: Patch) -> None:
    real = SplitAssignment.__init__

    def init(splits: SplitAssignment, run: str, source: PlannedSource) -> None:
        real(splits, run, source)
        splits._unassigned.clear()

    patch.setattr(SplitAssignment, "__init__", init)


MUCH, LITTLE = "committed too much", "has not committed"
STUCK = "does not go on"
BROKEN = ("ElementBroken", "ElementTooLarge", "middle of an element", LITTLE)
BUGS = {
    a_channel_is_not_blocked: (31, (MUCH,)),
    a_channel_stays_blocked: (25, (STUCK, "blocked channel", "was not complete after")),
    what_a_task_had_read_is_forgotten: (8, BROKEN),
    what_waits_in_the_input_is_forgotten: (118, BROKEN),
    what_was_overtaken_is_forgotten: (8, BROKEN),
    records_on_their_way_are_not_restored: (8, BROKEN),
    sources_begin_anew: (8, (MUCH, "came after")),
    a_sink_commits_too_early: (0, ("is committed before",)),
    a_sink_does_not_commit_what_was_prepared: (170, (LITTLE,)),
    a_task_ends_before_its_last_checkpoint: (0, (LITTLE,)),
    triggers_overtake_splits: (31, (LITTLE,)),
    splits_are_sent_between_the_state_of_the_driver_and_the_triggers: (31, (MUCH, "came after")),
    the_splits_of_the_driver_are_not_restored: (31, (LITTLE,)),
    the_newest_checkpoint_is_dropped: (2, ("is committed before", "is not as it was written")),
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found_and_can_be_replayed(
    bug: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    start, parts = BUGS[bug]
    failure = first_failure(start)
    assert any(part in failure.problem for part in parts), failure.problem
    assert f"make sim SCENARIO=recovery SEED={failure.seed}" in str(failure)


def first_failure(start: int) -> RunFailed:
    for seed in range(start, start + SEEDS):
        try:
            simulate_recovery(seed)
        except RunFailed as failure:
            return failure
    pytest.fail(f"{SEEDS} seeds did not find it")
