"""How a job is simulated: where its tasks run, with what delays, and what happens to it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from headgate.base.recovery_settings import CheckpointSettings
from headgate.base.settings import ExchangeSettings, FlowControl
from headgate.core.buffers.sizing import PoolBounds, gate_bounds, partition_bounds
from headgate.core.task.idling import LINGER_MS
from headgate.plan.execution_graph import ExecutionGraph
from headgate.plan.job_graph import JobGraph, JobVertex
from headgate.plan.stream_graph import StreamGraph
from headgate.sim.faults import Fault
from headgate.sim.network import NetworkConditions


@dataclass(frozen=True, slots=True)
class Delays:
    """Values to draw from."""

    message: tuple[float, ...] = (0.1, 1.0, 6.0)
    """Between driver and workers."""
    store: tuple[float, ...] = (0.1, 2.0, 15.0)
    """Until the metadata of a checkpoint is stored."""
    write: tuple[float, ...] = (0.0, 0.1, 1.0, 12.0)
    """Until the snapshot of a task is written."""
    answer: tuple[float, ...] = (0.0, 0.1, 1.0, 20.0)
    """Until the answer of an asynchronous call."""
    post: tuple[float, ...] = (0.0, 0.1)
    """Until a notification of another thread has reached the task."""
    linger_ms: float = LINGER_MS
    """After a wake of a source, until the next one counts."""


AT_ONCE: Final = Delays((0.0,), (0.0,), (0.0,), (0.0,), (0.0,), 0.0)


@dataclass(slots=True)
class JobScenario:
    """A whole run, before it runs."""

    seed: int
    calm: bool
    settings: ExchangeSettings
    job_graph: JobGraph
    execution: ExecutionGraph
    worker_of: list[int]
    """The worker of each slot."""
    arrive_ms: list[float]
    """When the worker of each slot registers."""
    spare: int
    roomy: bool
    """Tasks are not set up together, so there must be memory for all they may take."""
    called_in: float
    marker_ms: float
    step_ms: float
    tick_ms: float
    weights: tuple[int, int, int]
    wire_conditions: list[NetworkConditions]
    faults: list[Fault] = field(default_factory=list)
    delays: Delays = field(default_factory=Delays)
    code: Callable[[], Mapping[int, JobVertex]] | None = None
    """Loads the program anew, as a worker does; None: operators make functions of their own."""
    name: str = "sim"
    parameters: Mapping[str, str] = field(default_factory=dict)
    """For ``RuntimeContext.get_job_parameter``."""

    def load(self) -> Mapping[int, JobVertex]:
        """The vertices by their ids."""
        if self.code is not None:
            return self.code()
        return {vertex.id: vertex for vertex in self.job_graph.vertices}

    @property
    def workers(self) -> int:
        return max(self.worker_of) + 1

    def segments(self, worker: int) -> int:
        """The least arena with which the tasks of a worker can end, and the spare."""
        settings, need = self.settings, self.spare
        slots = {task.id: task.slot for task in self.execution.tasks}
        places = {task: self.worker_of[slot] for task, slot in slots.items()}
        uses_credit = settings.flow_control is FlowControl.CREDIT
        remote: dict[int, None] = {}
        for task in self.execution.tasks:
            if places[task.id] != worker:
                continue
            for output in task.outputs:
                need += self._size(partition_bounds(settings, output.subpartitions, True))
                need += settings.overdraft_buffers if self.roomy else 0
            for gate in task.gates:
                need += self._size(gate_bounds(settings, len(gate), True))
                for channel in gate:
                    is_remote = places[channel.producer] != worker
                    if is_remote:
                        remote[places[channel.producer]] = None
                    if uses_credit and (is_remote or slots[channel.producer] != task.slot):
                        need += settings.buffers_per_channel  # of another slot: unknown at first
        return need + len(remote) * settings.landing_buffers

    def _size(self, bounds: PoolBounds) -> int:
        assert bounds.maximum is not None
        return bounds.maximum if self.roomy else bounds.minimum


def draw_workers(slots: int, random: Random) -> list[int]:
    """One for each slot, or fewer; every worker has a slot."""
    if random.random() < 0.6:
        return list(range(slots))
    chosen = [random.randrange(slots) for _ in range(slots)]
    ranks = {worker: rank for rank, worker in enumerate(sorted(dict.fromkeys(chosen)))}
    return [ranks[worker] for worker in chosen]


SCALES: Final = 3
"""Runs of a job have so many parallelisms to choose from."""


@dataclass(slots=True)
class RecoveryScenario(ABC):
    """All runs of a job, before the first."""

    first: JobScenario
    graph: StreamGraph
    settings: CheckpointSettings
    retained: int
    write_fails: float
    """Share of snapshots of tasks that cannot be written …"""
    store_fails: float
    """… and of checkpoints whose metadata cannot."""
    pause_ms: float
    """Before a restart."""
    notices_ms: float
    """The driver gives up a worker that is silent for so long."""
    rescales: bool

    @property
    def seed(self) -> int:
        return self.first.seed

    @abstractmethod
    def scaled(self, scale: int, random: Random) -> JobScenario:
        """The same program with another parallelism, for another run; ``scale`` is below SCALES."""
