"""Topologies: who writes for whom. Drawn by chance, wired as a plan would wire it.

A vertex is several parallel tasks. Every output has one consuming vertex, a blocking one may have
two. All-to-all: each consumer reads its subpartition of every producer. Pointwise (forward and
rescale): each producer feeds its own few consumers.
"""

from dataclasses import dataclass, field
from random import Random

from headgate.base.ids import PartitionId
from headgate.core.egress.partition import PartitionKind
from tests.sim.routes import RouteKind

_POINTWISE = (RouteKind.FORWARD, RouteKind.RESCALE)


@dataclass(frozen=True, slots=True)
class Feed:
    """What one channel reads: a subpartition of a task's output."""

    producer: str
    partition: PartitionId
    subpartition: int


@dataclass(eq=False, slots=True)
class Vertex:
    """Parallel tasks that do the same."""

    name: str
    parallelism: int
    upstream: list["Vertex"] = field(default_factory=list)
    writes: bool = False
    kind: PartitionKind = PartitionKind.PIPELINED_BOUNDED
    route: RouteKind = RouteKind.ROUND_ROBIN
    width: int = 0
    """Parallelism of its consumers."""

    def task(self, index: int) -> str:
        return f"{self.name}/{index}"

    def partition(self, index: int) -> PartitionId:
        return PartitionId(f"{self.name}/{index}#0")

    def subpartitions(self, index: int) -> int:
        """How many subpartitions the output of one of its tasks has."""
        return len(self._consumers(index))

    def feeds(self, consumer: int) -> list[Feed]:
        """The channels that one consumer has from this vertex."""
        return [
            Feed(self.task(index), self.partition(index), self._consumers(index).index(consumer))
            for index in range(self.parallelism)
            if consumer in self._consumers(index)
        ]

    def _consumers(self, index: int) -> range:
        mine, theirs = self.parallelism, self.width
        if self.route not in _POINTWISE:
            return range(theirs)
        if theirs < mine:
            only = index * theirs // mine
            return range(only, only + 1)
        return range(-(-index * theirs // mine), -(-(index + 1) * theirs // mine))


def draw_vertices(random: Random) -> list[Vertex]:
    """A small graph in the order of the flow: sources, perhaps a relay, sinks."""
    ends = [
        Vertex(f"source{number}", random.randint(1, 3))
        for number in range(random.choice((1, 1, 2, 2, 3)))
    ]
    vertices = list(ends)
    if random.random() < 0.35:
        relay = Vertex("relay", random.randint(1, 3))
        ends, taken = _some(ends, random)
        _join(taken, relay, random)
        ends.append(relay)
        vertices.append(relay)
    number = 0
    while ends:
        sink = Vertex(f"sink{number}", random.choice((1, 1, 2, 2, 3, 5)))
        ends, taken = _some(ends, random)
        _join(taken, sink, random)
        vertices.append(sink)
        number += 1
    for vertex in list(vertices):
        if vertex.kind is PartitionKind.BLOCKING and random.random() < 0.4:
            again = Vertex(f"sink{number}", vertex.width, [vertex])
            vertices.append(again)
            number += 1
    return vertices


def _some(ends: list[Vertex], random: Random) -> tuple[list[Vertex], list[Vertex]]:
    """Split into what stays open and what is taken now."""
    count = random.randint(1, len(ends))
    return ends[count:], ends[:count]


def _join(producers: list[Vertex], consumer: Vertex, random: Random) -> None:
    for producer in producers:
        producer.writes = True
        producer.width = consumer.parallelism
        producer.kind = random.choice(
            (PartitionKind.PIPELINED,) * 3
            + (PartitionKind.PIPELINED_BOUNDED,) * 5
            + (PartitionKind.BLOCKING,)
        )
        routes = list(RouteKind)
        if producer.parallelism != consumer.parallelism:
            routes.remove(RouteKind.FORWARD)
        producer.route = random.choice(routes)
        consumer.upstream.append(producer)
