"""Placement: which slot each task runs in, and which worker has the slot.

Law: a slot holds at most one task of each vertex, and only vertices of one slot sharing group. A
group has as many slots as its widest vertex has tasks; task i of every vertex goes to the i-th. A
worker is a process with as many slots as the graph says, neighbours, all of one group.
"""

from dataclasses import dataclass
from typing import Final

from headgate.plan.job_graph import JobGraph, JobVertex
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
