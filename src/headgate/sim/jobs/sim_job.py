"""The parts of a simulated job that outlive its runs, and the loss of its driver: the storage.

A driver's memory (the recovery and its history) goes with the driver; the next one finds what the
storage holds.
"""

from collections.abc import Mapping, Sequence
from math import inf
from random import Random
from typing import Final

from headgate.base.checkpoints import SourceState, TaskRestore
from headgate.base.errors import ChannelsDiffer, FinishedAlready
from headgate.base.messages import CheckpointOrder
from headgate.control.checkpoint_history import CheckpointHistory
from headgate.control.deployment import RunPlan
from headgate.control.effects import StoreCheckpoint
from headgate.control.recovery import FixedDelay, Recovery
from headgate.plan.execution_graph import (
    build_execution_graph,
    checkpointed_job,
    planned_sources,
)
from headgate.plan.job_graph import JobGraph
from headgate.plan.state_assignment import restore
from headgate.sim.clock import Clock
from headgate.sim.jobs.scenario import SCALES, JobScenario, RecoveryScenario
from headgate.sim.jobs.storage import SimStorage

MOST_RESTARTS: Final = 60
WALL_MS: Final = 1_000_000


class SimJob:
    """A job that takes no checkpoints: it has one attempt."""

    def __init__(self, seed: int) -> None:
        self.storage = SimStorage()
        self.attempts = 0
        self.stores = 0
        """Checkpoints and savepoints so far."""
        self.recovery: Recovery | None = None
        self.random = Random(f"job {seed}")
        self.write_fails = self.store_fails = 0.0
        """Shares of what cannot be written: snapshots of tasks, metadata."""
        self.notices_ms = inf
        """The driver gives up a worker that is silent for so long."""

    def plan_attempt(self, graph: JobGraph) -> RunPlan:
        """From the beginning."""
        self.attempts += 1
        return self._plan_run(graph, {})

    def stored(self, store: StoreCheckpoint) -> None:
        """The storage has a checkpoint of the present run."""
        self.storage.store(store)
        self.stores += 1

    def ends_with(self, savepoint: StoreCheckpoint) -> None:
        """A savepoint has ended the job."""

    def _plan_run(
        self,
        graph: JobGraph,
        given: Mapping[str, TaskRestore],
        checkpoints: CheckpointOrder | None = None,
        restored: int | None = None,
        sources: Sequence[SourceState] = (),
    ) -> RunPlan:
        execution = build_execution_graph(graph, "job", self.attempts, given)
        return RunPlan(
            f"run {self.attempts}",
            "sim",
            execution.tasks,
            execution.slots,
            b"",
            self.attempts,
            batch=graph.batch,
            checkpoints=checkpoints,
            checkpointed=checkpointed_job(graph, execution) if checkpoints else None,
            restored=restored,
            sources=planned_sources(graph, execution, given, sources),
        )


class RecoveringJob(SimJob):
    """Plans runs and attempts."""

    recovery: Recovery

    def __init__(self, plan: RecoveryScenario, clock: Clock) -> None:
        super().__init__(plan.seed)
        self.plan = plan
        self.write_fails, self.store_fails = plan.write_fails, plan.store_fails
        self.notices_ms = plan.notices_ms
        self._clock = clock
        self._scale_of: dict[int, int] = {}  # with which a checkpoint was taken
        self._scale = 0
        self._origin: StoreCheckpoint | None = None
        self.recovery = self._remember(CheckpointHistory(plan.retained))

    def wall_ms(self) -> int:
        return WALL_MS + int(self._clock.now_ms)

    # Drivers.

    def new_driver(self) -> None:
        """All that is known is what the storage holds, and how the job was started."""
        self.storage.clean()
        found, next_id = self.storage.found, self.storage.next_id
        origin, newest = self._origin, max((known.checkpoint for known in found), default=0)
        if origin is not None and origin.metadata.checkpoint < newest:
            origin = None
        history = CheckpointHistory(self.plan.retained, found, origin, next_id)
        self.recovery = self._remember(history)

    def go_on_from(self, savepoint: StoreCheckpoint) -> None:
        """A new driver is told to start from a savepoint, which is a job of its own."""
        self._origin = savepoint
        self.storage.complete.clear()
        self.storage.clean()
        history = CheckpointHistory(self.plan.retained, (), savepoint, self.storage.next_id)
        self.recovery = self._remember(history)

    def ends_with(self, savepoint: StoreCheckpoint) -> None:
        """Sinks commit with it, so nobody may go on from before it: a new driver is told of it."""
        self._origin = savepoint

    def stored(self, store: StoreCheckpoint) -> None:
        super().stored(store)
        self._scale_of[store.metadata.checkpoint] = self._scale

    # Runs and attempts.

    def next_run(self) -> JobScenario:
        """Where the next run takes place; perhaps with another parallelism."""
        latest = self.recovery.history.latest
        known = self._scale if latest is None else self._scale_of[latest.metadata.checkpoint]
        scale = self.random.randrange(SCALES) if self.plan.rescales else known
        scenario = self.plan.scaled(scale, self.random)
        if latest is not None and scale != known:
            try:
                restore(latest.metadata, scenario.job_graph)
            except (ChannelsDiffer, FinishedAlready):  # records or ends that nobody can be given
                scale = known
                scenario = self.plan.scaled(scale, self.random)
        self._scale = scale
        return scenario

    def plan_attempt(self, graph: JobGraph) -> RunPlan:
        """From the newest complete checkpoint, or from the beginning."""
        self.attempts += 1
        latest, order = self.recovery.history.latest, self._order()
        given = {} if latest is None else restore(latest.metadata, graph)
        if latest is None:
            return self._plan_run(graph, given, order)
        metadata = latest.metadata
        return self._plan_run(graph, given, order, metadata.checkpoint, metadata.sources)

    def _order(self) -> CheckpointOrder:
        """How tasks take checkpoints."""
        settings = self.plan.settings
        folder = "memory" if settings.is_enabled else ""
        return CheckpointOrder(folder, "sim", settings.is_exact, settings.overtake_after_ms)

    def _remember(self, history: CheckpointHistory) -> Recovery:
        return Recovery(
            self.plan.settings,
            FixedDelay(MOST_RESTARTS, self.plan.pause_ms),
            history,
            wall_ms=self.wall_ms,
        )
