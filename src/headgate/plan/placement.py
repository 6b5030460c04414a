"""Placement: which slot each task runs in.

Law: a slot holds at most one task of each vertex, and only vertices of one slot sharing group. A
group has as many slots as its widest vertex has tasks; task i of every vertex goes to the i-th.
"""

from dataclasses import dataclass

from headgate.plan.job_graph import JobGraph, JobVertex
from headgate.plan.table import aligned


@dataclass(frozen=True, slots=True)
class GroupSlots:
    """The slots of one sharing group: ``count`` of them from ``first`` on."""

    group: str
    first: int
    count: int
    vertices: tuple[JobVertex, ...]


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """All groups, in the order in which the job graph meets them."""

    groups: tuple[GroupSlots, ...]

    @property
    def slots(self) -> int:
        """How many the job needs."""
        return sum(group.count for group in self.groups)

    def first_slot(self, group: str) -> int:
        """Where task 0 of the group's vertices goes; the others follow."""
        return next(slots.first for slots in self.groups if slots.group == group)

    def describe(self) -> str:
        """A line for each slot, a column for each vertex, and who the vertices are."""
        vertices = sorted((v for slots in self.groups for v in slots.vertices), key=lambda v: v.id)
        rows = [
            (str(slots.first + index), slots.group, *(_cell(slots, v, index) for v in vertices))
            for slots in self.groups
            for index in range(slots.count)
        ]
        head = ("slot", "slot group", *(f"v{vertex.id}" for vertex in vertices))
        names = "".join(f"v{vertex.id}: {vertex.name}\n" for vertex in vertices)
        noun = "slot" if self.slots == 1 else "slots"
        return f"{self.slots} {noun}\n{aligned(head, rows)}{names}"


def place(graph: JobGraph) -> SlotAssignment:
    """Slots for all groups, one group behind the other."""
    members: dict[str, list[JobVertex]] = {}
    for vertex in graph.vertices:
        members.setdefault(vertex.group, []).append(vertex)
    groups, first = [], 0
    for group, vertices in members.items():
        count = max(vertex.parallelism for vertex in vertices)
        groups.append(GroupSlots(group, first, count, tuple(vertices)))
        first += count
    return SlotAssignment(tuple(groups))


def _cell(slots: GroupSlots, vertex: JobVertex, index: int) -> str:
    here = vertex.group == slots.group and index < vertex.parallelism
    return f"{index + 1}/{vertex.parallelism}" if here else "."
