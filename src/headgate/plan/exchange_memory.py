"""How much memory the exchange of a job's task managers gets: what the job needs, if that fits.

Law: a job that is sized here never asks the pool of a task manager for more than it has. One that
cannot fit into ``taskmanager.memory.network.max`` is refused before it starts, with the number it
needs. All task managers of a job have the same settings, so the busiest slot decides.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headgate.base.errors import JobExceedsMemory
from headgate.base.messages import TaskOrder
from headgate.base.settings import ExchangeSettings
from headgate.core.buffers.sizing import BufferNeed, GateShape, buffer_need, segment_count
from headgate.plan.execution_graph import build_execution_graph
from headgate.plan.job_graph import JobGraph


@dataclass(frozen=True, slots=True)
class ExchangeMemory:
    """What every task manager of a job has."""

    settings: ExchangeSettings
    """The settings of the job, with fewer landing buffers for each connection if need be."""
    segments: int
    need: BufferNeed
    """What the busiest slot needs."""


@dataclass(slots=True)
class ExchangeShape:
    """What some tasks of one slot write and read."""

    partitions: list[int] = field(default_factory=list)
    """Subpartitions of each."""
    gates: list[GateShape] = field(default_factory=list)
    peers: set[int] = field(default_factory=set)
    """Slots of the task managers that they connect to: those of their producers."""

    def add(self, other: "ExchangeShape") -> None:
        self.partitions += other.partitions
        self.gates += other.gates
        self.peers |= other.peers

    def need(self, settings: ExchangeSettings) -> BufferNeed:
        return buffer_need(settings, self.partitions, self.gates, len(self.peers))


def size_exchange(
    graph: JobGraph, settings: ExchangeSettings, heap_bytes: int = 0
) -> ExchangeMemory:
    """Raises JobExceedsMemory. ``heap_bytes``: the other memory of a worker, if it is known."""
    most = settings.memory_max_bytes // settings.segment_bytes
    by_slot = _shapes_by_slot(build_execution_graph(graph, "", 0).tasks).values()
    slots = [_at_once(tasks) if graph.batch else [_whole(tasks)] for tasks in by_slot]
    shapes = [shape for at_once in slots for shape in at_once]
    fitted = replace(settings, landing_buffers=_landing(shapes, settings, most))
    need, busiest = max(
        ((shape.need(fitted), shape) for shape in shapes),
        key=lambda pair: pair[0].total,
        default=(BufferNeed(), ExchangeShape()),
    )
    if need.total > most:
        parts = _words(need, busiest)
        raise JobExceedsMemory(graph.name, need.total, most, settings.segment_bytes, parts)
    # Branches of a batch job that do not depend on each other read at the same time.
    wholes = [_whole(tasks).need(fitted) for tasks in by_slot]
    wanted = max((whole.total + whole.spare for whole in wholes), default=0)
    count = min(most, max(segment_count(settings, heap_bytes), wanted))
    return ExchangeMemory(fitted, count, need)


def _shapes_by_slot(tasks: Iterable[TaskOrder]) -> dict[int, list[ExchangeShape]]:
    tasks = list(tasks)
    slot_of = {task.id: task.slot for task in tasks}
    slots: dict[int, list[ExchangeShape]] = {}
    for task in tasks:
        slots.setdefault(task.slot, []).append(_shape_of(task, slot_of))
    return slots


def _shape_of(task: TaskOrder, slot_of: Mapping[str, int]) -> ExchangeShape:
    shape = ExchangeShape([output.subpartitions for output in task.outputs])
    for gate in task.gates:
        homes = [slot_of[channel.producer] for channel in gate]
        remote = sum(home != task.slot for home in homes)
        shape.gates.append(GateShape(len(gate), remote))
        shape.peers.update(homes)
    shape.peers.discard(task.slot)
    return shape


def _whole(tasks: list[ExchangeShape]) -> ExchangeShape:
    whole = ExchangeShape()
    for shape in tasks:
        whole.add(shape)
    return whole


def _at_once(tasks: list[ExchangeShape]) -> list[ExchangeShape]:
    """Tasks of a batch job that depend on each other run one after the other.

    What they have written stays until the job ends; what they read with does not. Branches that do
    not depend on each other may overlap; if memory is too short for both, the second fails.
    """
    written = [count for shape in tasks for count in shape.partitions]
    return [ExchangeShape(list(written), shape.gates, shape.peers) for shape in tasks]


def _landing(shapes: list[ExchangeShape], settings: ExchangeSettings, most: int) -> int:
    """Landing buffers of a connection: as set, or as many as all connections can have."""
    bare = replace(settings, landing_buffers=1)
    rooms = [
        1 + (most - shape.need(bare).total) // len(shape.peers) for shape in shapes if shape.peers
    ]
    return max(1, min([settings.landing_buffers, *rooms]))


def _words(need: BufferNeed, shape: ExchangeShape) -> str:
    parts = [
        f"{need.partitions} for what its tasks write",
        f"{need.gates + need.exclusive} for what they read",
        f"{need.landing} for connections to {len(shape.peers)} other task managers",
    ]
    return ", ".join(part for part in parts if not part.startswith("0 "))
