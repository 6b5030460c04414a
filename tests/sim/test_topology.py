"""Topologies: every subpartition has its reader, every reader has its channels."""

from random import Random

import pytest

from headgate.core.egress.partition import PartitionKind
from tests.sim.routes import RouteKind
from tests.sim.topology import Vertex, draw_vertices


@pytest.mark.parametrize("seed", range(100))
def test_every_subpartition_is_read_once_by_each_consumer_vertex(seed: int) -> None:
    vertices = draw_vertices(Random(seed))
    for producer in vertices:
        readers = [vertex for vertex in vertices if producer in vertex.upstream]
        assert bool(readers) == producer.writes
        assert len(readers) <= 1 or producer.kind is PartitionKind.BLOCKING
        for reader in readers:
            feeds = [feed for index in range(reader.parallelism) for feed in producer.feeds(index)]
            read = sorted((feed.partition, feed.subpartition) for feed in feeds)
            assert read == sorted(
                (producer.partition(index), number)
                for index in range(producer.parallelism)
                for number in range(producer.subpartitions(index))
            )
            assert all(producer.feeds(index) for index in range(reader.parallelism))


def test_rescale_feeds_neighbours() -> None:
    narrow = Vertex("n", 2, writes=True, route=RouteKind.RESCALE, width=5)
    assert [len(narrow.feeds(index)) for index in range(5)] == [1] * 5
    wide = Vertex("w", 5, writes=True, route=RouteKind.RESCALE, width=2)
    assert [len(wide.feeds(index)) for index in range(2)] == [3, 2]
    assert [wide.subpartitions(index) for index in range(5)] == [1] * 5
