"""The execution graph: every task of a job, its slot, partitions and channels.

``build_execution_graph`` makes one for each attempt. Law: every subpartition is read by exactly one
channel. A slot holds at most one task of each vertex, and only vertices of one slot sharing group.
A group has as many slots as its widest vertex has tasks; task i of every vertex goes to the i-th. A
worker is a process with as many neighbouring slots as the graph says, all of one group.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from headgate.base.checkpoints import (
    EdgeShape,
    OperatorState,
    SourceState,
    SubtaskState,
    TaskRestore,
)
from headgate.base.ids import PartitionId
from headgate.base.messages import ChannelOrder, OutputOrder, TaskOrder
from headgate.control.pending_checkpoint import CheckpointedJob, CheckpointedTask
from headgate.control.split_assignment import PlannedSource
from headgate.core.egress.partition import PartitionKind
from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex
from headgate.plan.table import aligned

ALONE_PER_CORE: Final = 4
WORKERS_PER_CORE: Final = 2


@dataclass(frozen=True, slots=True)
class GroupSlots:
    """The slots of one sharing group: ``count`` of them from ``first`` on."""

    group: str
    first: int
    count: int
    vertices: tuple[JobVertex, ...]
    first_worker: int
    per_worker: int

    @property
    def workers(self) -> int:
        return -(-self.count // self.per_worker)

    def worker_of(self, subtask: int) -> int:
        """Who has the slot of this task of every vertex."""
        return self.first_worker + subtask // self.per_worker


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """All groups, in the order in which the job graph meets them."""

    groups: tuple[GroupSlots, ...]

    @property
    def slots(self) -> int:
        """How many the job has."""
        return sum(group.count for group in self.groups)

    @property
    def workers(self) -> int:
        """How many it needs, each a task of Spark."""
        return sum(group.workers for group in self.groups)

    def group(self, name: str) -> GroupSlots:
        return next(slots for slots in self.groups if slots.group == name)

    def describe(self) -> str:
        """A line for each slot, a column for each vertex, and who the vertices are."""
        vertices = sorted((v for slots in self.groups for v in slots.vertices), key=lambda v: v.id)
        shared = self.workers < self.slots
        rows = [
            (
                *([str(slots.worker_of(index))] if shared else []),
                str(slots.first + index),
                slots.group,
                *(_cell(slots, v, index) for v in vertices),
            )
            for slots in self.groups
            for index in range(slots.count)
        ]
        columns = ("slot", "slot group", *(f"v{vertex.id}" for vertex in vertices))
        head = ("worker", *columns) if shared else columns
        names = "".join(f"v{vertex.id}: {vertex.name}\n" for vertex in vertices)
        noun = "slot" if self.slots == 1 else "slots"
        title = f"{self.slots} {noun}" + (f" in {self.workers} workers" if shared else "")
        return f"{title}\n{aligned(head, rows)}{names}"


def usual_slots_per_worker(slots: int, cores: int) -> int:
    """For a job that has a machine with so many cores to itself.

    Each slot has a worker of its own, as long as there are few for each core: then a blocked or
    broken function harms the fewest others. Many processes would only throw each other out of the
    processor's caches, so beyond that there are two workers for each core.
    """
    if slots <= ALONE_PER_CORE * cores:
        return 1
    return -(-slots // (WORKERS_PER_CORE * cores))


def place(graph: JobGraph) -> SlotAssignment:
    """Slots for all groups, one group after the other."""
    members: dict[str, list[JobVertex]] = {}
    for vertex in graph.vertices:
        members.setdefault(vertex.group, []).append(vertex)
    groups: list[GroupSlots] = []
    first, first_worker, per_worker = 0, 0, graph.slots_per_worker
    for group, vertices in members.items():
        count = max(vertex.parallelism for vertex in vertices)
        groups.append(GroupSlots(group, first, count, tuple(vertices), first_worker, per_worker))
        first += count
        first_worker += groups[-1].workers
    return SlotAssignment(tuple(groups))


def _cell(slots: GroupSlots, vertex: JobVertex, index: int) -> str:
    here = vertex.group == slots.group and index < vertex.parallelism
    return f"{index + 1}/{vertex.parallelism}" if here else "."


SHOWN_CHANNELS: Final = 6
"""``describe`` names so many channels of a gate and counts the others."""


@dataclass(frozen=True, slots=True)
class ExecutionGraph:
    """All tasks, in topological order of their vertices, and how many slots they need of Spark."""

    job: str
    attempt: int
    tasks: tuple[TaskOrder, ...]
    slots: int

    def describe(self) -> str:
        """A line for each task: its slot, its partitions, and for each gate its channels."""
        rows = [
            (
                task.id,
                str(task.slot),
                _describe_outputs(task),
                " | ".join(map(_describe_gate, task.gates)),
            )
            for task in self.tasks
        ]
        title = f"job {self.job}, attempt {self.attempt}: {len(self.tasks)} tasks"
        return f"{title} in {self.slots} slots\n" + aligned(
            ("task", "slot", "writes", "reads (producer:subpartition)"), rows
        )


def build_execution_graph(
    job_graph: JobGraph,
    job_id: str,
    attempt: int,
    restores: Mapping[str, TaskRestore] | None = None,
) -> ExecutionGraph:
    """Wire the tasks of all vertices and give each its slot.

    ``restores``: what tasks get back of a checkpoint, by their ids.
    """
    given = restores or {}
    placement = place(job_graph)
    vertices = job_graph.vertices
    ids = {  # made once: a wide edge has many channels on one partition
        (edge.source, edge.output): [
            PartitionId(f"{job_id}/{edge.source}.{edge.output}/{subtask}#{attempt}")
            for subtask in range(vertices[edge.source].parallelism)
        ]
        for edge in job_graph.edges
    }
    tasks = []
    for vertex in vertices:
        written = [
            (edge, wiring_of(vertices, edge), ids[edge.source, edge.output])
            for edge in job_graph.outputs_of(vertex.id)
        ]
        read = [
            (edge.source, wiring_of(vertices, edge), ids[edge.source, edge.output])
            for edge in job_graph.inputs_of(vertex.id)
        ]
        slots = placement.group(vertex.group)
        tasks += [
            TaskOrder(
                id=task_id(vertex.id, subtask),
                vertex=vertex.id,
                subtask=subtask,
                slot=slots.worker_of(subtask),
                outputs=tuple(
                    OutputOrder(names[subtask], edge.kind.name, len(wiring.consumers_of(subtask)))
                    for edge, wiring, names in written
                ),
                gates=tuple(
                    _channels(source, wiring, names, subtask) for source, wiring, names in read
                ),
                restore=given.get(task_id(vertex.id, subtask)),
            )
            for subtask in range(vertex.parallelism)
        ]
    return ExecutionGraph(job_id, attempt, tuple(tasks), placement.workers)


def task_id(vertex: int, subtask: int) -> str:
    """How a task is called in messages and logs, e.g. ``2.0``."""
    return f"{vertex}.{subtask}"


@dataclass(frozen=True, slots=True)
class Wiring:
    """Which of ``producers`` and ``consumers`` parallel tasks an edge connects.

    Law: subpartition ``n`` of a producer is read by the ``n``-th of its consumers and by nobody
    else. All-to-all connects each with each. Pointwise gives every producer and every consumer at
    least one partner, neighbours share, and the shares differ by one at most.
    """

    producers: int
    consumers: int
    pointwise: bool

    def consumers_of(self, producer: int) -> range:
        if not self.pointwise:
            return range(self.consumers)
        if self.producers < self.consumers:
            return range(self._first_consumer(producer), self._first_consumer(producer + 1))
        last = ((producer + 1) * self.consumers - 1) // self.producers
        return range(last, last + 1)

    def producers_of(self, consumer: int) -> range:
        if not self.pointwise:
            return range(self.producers)
        first = consumer * self.producers // self.consumers
        if self.producers < self.consumers:
            return range(first, first + 1)
        return range(first, (consumer + 1) * self.producers // self.consumers)

    def subpartition(self, producer: int, consumer: int) -> int:
        """Which one of the producer's the consumer reads."""
        return consumer - self.consumers_of(producer).start

    def _first_consumer(self, producer: int) -> int:
        return -(-producer * self.consumers // self.producers)


def wiring_of(vertices: tuple[JobVertex, ...], edge: JobEdge) -> Wiring:
    """Which tasks this edge connects."""
    source, target = vertices[edge.source], vertices[edge.target]
    return Wiring(source.parallelism, target.parallelism, edge.pointwise)


def _channels(
    source: int, wiring: Wiring, names: list[PartitionId], consumer: int
) -> tuple[ChannelOrder, ...]:
    return tuple(
        ChannelOrder(
            names[producer], wiring.subpartition(producer, consumer), task_id(source, producer)
        )
        for producer in wiring.producers_of(consumer)
    )


def _describe_outputs(task: TaskOrder) -> str:
    return ", ".join(
        f"{output.partition} [{output.subpartitions}]"
        + ("" if PartitionKind[output.kind].is_pipelined else " blocking")
        for output in task.outputs
    )


def _describe_gate(gate: tuple[ChannelOrder, ...]) -> str:
    shown = [
        f"{channel.producer}:{channel.subpartition}" for channel in islice(gate, SHOWN_CHANNELS)
    ]
    more = len(gate) - len(shown)
    return " ".join(shown) + (f" and {more} more" if more else "")


def planned_sources(
    graph: JobGraph,
    execution: ExecutionGraph,
    restores: Mapping[str, TaskRestore],
    states: Iterable[SourceState] = (),
) -> tuple[PlannedSource, ...]:
    """The sources whose splits the driver hands out, as far as they have tasks to run.

    ``states``: what a checkpoint holds of them.
    """
    known = {state.uid: state for state in states}
    planned = []
    for vertex, discovery in graph.discoveries.items():
        head = graph.vertices[vertex].chain.operators[0]
        slots = {
            task.id: task.slot
            for task in execution.tasks
            if task.vertex == vertex and not (task.id in restores and restores[task.id].finished)
        }
        if slots:
            by_demand, create = discovery.by_demand, discovery.create
            restored = known.get(head.uid)
            planned.append(PlannedSource(head.uid, head.name, slots, by_demand, create, restored))
    return tuple(planned)


def checkpointed_job(graph: JobGraph, execution: ExecutionGraph) -> CheckpointedJob:
    """The job as its checkpoint coordinator sees it.

    Law: a task is listed with all operators of its chain, also those without state, so that a later
    program can tell which of its own had finished.
    """
    return CheckpointedJob(
        execution.job,
        graph.name,
        tuple(
            CheckpointedTask(
                _blank(graph.vertices[task.vertex], task), task.slot, tuple(task.producers)
            )
            for task in execution.tasks
        ),
        tuple(
            EdgeShape(e.source, e.output, e.target, e.gate, e.ship, e.pointwise, e.tag)
            for e in graph.edges
        ),
    )


def _blank(vertex: JobVertex, task: TaskOrder) -> SubtaskState:
    return SubtaskState(
        task=task.id,
        vertex=task.vertex,
        subtask=task.subtask,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        operators=tuple(OperatorState(spec.uid, spec.name) for spec in vertex.chain.operators),
        finished=True,
    )
