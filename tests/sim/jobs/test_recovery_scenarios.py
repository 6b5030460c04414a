"""What a seed of a job that recovers draws and reaches; a run can be repeated."""

from collections import Counter

import pytest

from headgate.base.recovery_settings import Consistency
from headgate.core.checkpoint.snapshot import ChannelData
from headgate.core.ingress.gate import Gate
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.core.task.task import Task
from headgate.sim.jobs.storage import SimWriting
from tests.sim.jobs.random_recoveries import LATE_MS, SLOW_WRITE_MS, draw_recovery
from tests.sim.jobs.recovery_world import RecoveryWorld, simulate_recovery

SEEDS = (8, 35, 64, 92, 152)
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("seed", [3, 26])
def test_a_seed_replays_exactly(seed: int) -> None:
    def traced() -> tuple[list[str], object]:
        lines: list[str] = []
        return lines, simulate_recovery(seed, lines.append)

    assert traced() == traced()


def test_seeds_reach_every_corner() -> None:
    scenarios = [draw_recovery(seed) for seed in range(300)]
    kinds = {fault.kind for scenario in scenarios for fault in scenario.first.faults}
    assert kinds == {
        *("cut", "stall", "freeze", "kill", "refuse", "black-hole"),
        *("savepoint", "suspend", "drain", "cancel", "driver", "hang-up"),
    }
    delays = [scenario.first.delays for scenario in scenarios]
    assert 15 < sum(delay.message == LATE_MS for delay in delays) < 75
    assert 15 < sum(delay.write == SLOW_WRITE_MS for delay in delays) < 75
    modes = {
        (scenario.settings.mode is Consistency.EXACTLY_ONCE, scenario.settings.overtake_after_ms)
        for scenario in scenarios
    }
    assert modes == {(True, None), (True, 0), (True, 1), (True, 5), (True, 30), (False, None)}
    assert {scenario.settings.max_concurrent for scenario in scenarios} == {1, 2, 3}
    assert 60 < sum(bool(scenario.first.job_graph.discoveries) for scenario in scenarios) < 120
    assert any(scenario.first.run.behavior.fails for scenario in scenarios)
    assert any(scenario.write_fails for scenario in scenarios)
    assert 60 < sum(scenario.rescales for scenario in scenarios) < 300
    assert 20 < sum(scenario.calm for scenario in scenarios) < 80


def test_seeds_reach_what_is_rare_in_a_real_run(monkeypatch: Patch) -> None:
    """Records in flight on both sides, restores of all kinds, blocked channels, commits again."""
    seen: Counter[str] = Counter()

    def watch(owner: type, name: str, note: "object") -> None:
        real = getattr(owner, name)

        def watched(itself: object, *given: object) -> object:
            note(itself, *given)  # type: ignore[operator]
            return real(itself, *given)

        monkeypatch.setattr(owner, name, watched)

    def completed(writing: SimWriting, in_flight: list[ChannelData], align_ms: float) -> None:
        seen.update("input" if channel.is_input else "output" for channel in in_flight)
        seen["aligned"] += align_ms > 0

    def started(task: Task) -> None:
        restored = task._restored
        seen["finished"] += restored.finished
        seen["reassigned"] += len(restored.reassigned)
        seen["state"] += any(operator.source for operator in restored.operators.values())

    def opened(operator: TwoPhaseSinkOperator, context: object) -> None:
        restored = getattr(context, "restored", None)
        seen["commits again"] += restored is not None and bool(restored.sinks)

    watch(SimWriting, "complete", completed)
    watch(SimWriting, "abort", lambda writing: seen.update(["aborted"]))
    watch(Task, "_start", started)
    watch(TwoPhaseSinkOperator, "open", opened)
    watch(Gate, "block", lambda gate, channel: seen.update(["blocked"]))
    for seed in SEEDS:
        world = RecoveryWorld(draw_recovery(seed))
        world.run()
        seen["rescaled"] += world.job.rescaled
        seen["new runs"] += world.runs - 1
        seen["in place"] += world.job.attempts - world.runs
    wanted = ("input", "output", "aligned", "finished", "state", "commits again", "aborted")
    missing = [
        event
        for event in (*wanted, "reassigned", "blocked", "rescaled", "new runs", "in place")
        if not seen[event]
    ]
    assert not missing, seen
