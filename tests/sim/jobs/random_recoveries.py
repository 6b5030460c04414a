"""Scenarios of random jobs that take checkpoints: how, with what faults, and with how many tasks.

Law: faults are finite, so that a job comes to its end; then its sinks have committed what
the reference says. A program may go on with another parallelism where that does not change what it
means: tasks that were as many as others stay so, and nothing is broadcast.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from headgate.base.recovery_settings import CheckpointSettings, Consistency
from headgate.base.settings import FlowControl
from headgate.plan.execution_graph import build_execution_graph
from headgate.plan.job_graph import build_job_graph
from headgate.sim.faults import Fault
from headgate.sim.jobs.scenario import SCALES, RecoveryScenario, draw_workers
from tests.sim.jobs.commit_log import CommitLog
from tests.sim.jobs.functions import Behavior, Run
from tests.sim.jobs.graphs import Draft
from tests.sim.jobs.random_jobs import DrawnJob, NoThreads, draw_shape, plan_failure, plan_job
from tests.sim.jobs.records import Observations

NETWORK_FAULTS: Final = ("cut", "cut", "stall", "freeze", "kill", "kill", "refuse", "black-hole")
DEEDS: Final = ("savepoint", "suspend", "suspend", "drain", "cancel", "driver")
"""What people do to a job; the last is the loss of its driver."""
LONG_MS: Final = 20_000
"""No checkpoint of a calm run may take so long."""
SLOW_WRITE_MS: Final = (5.0, 40.0, 250.0)
SLOW_STORE_MS: Final = (20.0, 100.0, 400.0)
LATE_MS: Final = (1.0, 25.0, 120.0)
PARALLELISMS: Final[tuple[dict[int, int], ...]] = ({}, {1: 2, 2: 3, 3: 1}, {1: 3, 2: 1, 3: 2})


@dataclass(slots=True)
class DrawnRecovery(RecoveryScenario):
    """All runs of a job, before the first."""

    first: DrawnJob

    @property
    def calm(self) -> bool:
        return self.first.calm

    def scaled(self, scale: int, random: Random) -> DrawnJob:
        assert scale < SCALES == len(PARALLELISMS)
        parallelism = PARALLELISMS[scale]
        nodes = {
            number: replace(node, parallelism=parallelism.get(node.parallelism, node.parallelism))
            for number, node in self.graph.nodes.items()
        }
        job_graph = build_job_graph(replace(self.graph, nodes=nodes))
        execution = build_execution_graph(job_graph, "job", 0)
        worker_of = draw_workers(execution.slots, random)
        return replace(
            self.first,
            job_graph=job_graph,
            execution=execution,
            worker_of=worker_of,
            arrive_ms=[random.random() * 5 for _ in worker_of],
            roomy=max(map(worker_of.count, worker_of)) > 1,
        )

    def describe(self) -> list[str]:
        """The scenario in a few lines."""
        s = self.settings
        return [
            *self.first.describe(),
            f"  checkpoints: {s.mode.value}, every {s.interval_ms} ms, "
            f"overtaking after {s.overtake_after_ms}, timeout {s.timeout_ms}, "
            f"pause {s.min_pause_ms}, at once {s.max_concurrent}, "
            f"tolerable {s.tolerable_failures}, kept {self.retained}",
            f"  {self.write_fails:.3f} of writings fail, {self.store_fails} of metadata; restart "
            f"after {self.pause_ms} ms, silence noticed after {self.notices_ms} ms",
            f"  {self.first.delays}",
        ]


def draw_recovery(seed: int) -> DrawnRecovery:
    """The scenario of a seed."""
    random = Random(f"recovery {seed}")
    calm = random.random() < 0.15
    behavior = Behavior(
        slow=random.choice((0, 0.02, 0.2)),
        slow_ms=random.choice((1.0, 5.0, 20.0)),
        changes=random.random() < 0.7,
    )
    run = Run(seed, Observations(), NoThreads(), behavior, CommitLog())
    records = random.choice((10, 40, 60))
    discovers = Random(f"by demand {seed}").random() < 0.3
    shape = replace(
        draw_shape(random), batch=False, commits=True, records=records, discovers=discovers
    )
    draft = Draft(run, shape, random)
    draft.grow()
    first = plan_job(draft, calm, run, shape, random)
    # Checkpoints take round trips: with the smallest buffers over the longest wires nothing ends.
    first.settings = replace(
        first.settings,
        flow_control=FlowControl.CREDIT,
        segment_bytes=max(64, first.settings.segment_bytes),
        min_buffer_bytes=60,
        debloat_period_ms=10,
    )
    broken_storage = not calm and random.random() < 0.3
    settings = _draw_checkpoints(random, calm)
    scenario = DrawnRecovery(
        first,
        draft.graph,
        settings,
        retained=random.choice((1, 1, 3)),
        write_fails=0.2 / len(first.execution.tasks) if broken_storage else 0,
        store_fails=0.1 if broken_storage else 0,
        pause_ms=random.choice((0, 3, 50)),
        notices_ms=random.choice((150, LONG_MS)),
        rescales=all(edge.ship != "BROADCAST" for edge in first.job_graph.edges),
    )
    if not calm:
        _disturb(scenario, random)
        _disturb_control(scenario, Random(f"control {seed}"))
    return scenario


def _draw_checkpoints(random: Random, calm: bool) -> CheckpointSettings:
    is_hasty = not calm and random.random() < 0.2
    return CheckpointSettings(
        interval_ms=random.choice((5, 5, 12, 30)),
        mode=random.choice((*[Consistency.EXACTLY_ONCE] * 5, Consistency.AT_LEAST_ONCE)),
        timeout_ms=60 if is_hasty else LONG_MS,
        min_pause_ms=random.choice((0, 0, 4)),
        max_concurrent=random.choice((1, 2, 3)),
        tolerable_failures=1000 if is_hasty else random.choice((2, 1000)),
        unaligned=random.random() < 0.5,
        aligned_timeout_ms=random.choice((0, 0, 1, 5, 30)),
    )


def _disturb(scenario: DrawnRecovery, random: Random) -> None:
    first = scenario.first
    for _ in range(random.choice((1, 2, 3))):
        dice = random.random()
        if dice < 0.3:
            plan_failure(first, random)
        elif dice < 0.65:
            kind = random.choice(NETWORK_FAULTS)
            lasts_ms = first.settings.heartbeat_timeout_ms * random.uniform(1.2, 3)
            first.faults.append(Fault(kind, _draw_step(random), lasts_ms))
        else:
            first.faults.append(Fault(random.choice(DEEDS), _draw_step(random)))


def _disturb_control(scenario: DrawnRecovery, random: Random) -> None:
    """Slow disks, and messages between driver and workers that are late or lost.

    Not slower than the timeout of checkpoints allows: none would ever be complete.
    """
    first, is_hasty = scenario.first, scenario.settings.timeout_ms < LONG_MS
    if random.random() < 0.2 and not is_hasty:
        first.delays = replace(first.delays, write=SLOW_WRITE_MS, store=SLOW_STORE_MS)
    if random.random() < 0.2 and not is_hasty:
        first.delays = replace(first.delays, message=LATE_MS)
    if random.random() < 0.15:
        first.faults.append(Fault("hang-up", _draw_step(random)))


def _draw_step(random: Random) -> int:
    return int(10 ** random.uniform(2.4, 3.5))
