"""Operators that nobody gave key groups have those of the checkpoint they go on from."""

import pytest

from headgate.base.errors import KeyGroupsDiffer
from headgate.plan import ship_strategies as ships
from headgate.plan.state_assignment import inherit_groups, restore
from headgate.plan.stream_graph import StreamGraph, default_max_parallelism
from tests.plan.programs import Program, key_of, reads
from tests.plan.recording import planned, recording


def words(parallelism: int, groups: int | None = None, more: bool = False) -> StreamGraph:
    """A keyed operator with a sink in its chain; nobody has named key groups unless given."""
    has = default_max_parallelism(parallelism) if groups is None else groups
    own = {"parallelism": parallelism, "max_parallelism": has, "default_groups": groups is None}
    program = Program()
    source = program.source(uid="read", **own)
    count = program.operator("count", reads(source, ships.hash_by(key_of)), uid="count", **own)
    program.sink("sink", count, uid="write", **own)
    if more:
        program.sink("more", count, uid="more", **own)
    return program.graph


@pytest.mark.parametrize(("before", "now"), [(85, 86), (86, 85), (2, 128)])
def test_the_parallelism_may_cross_the_border_of_a_default(before: int, now: int) -> None:
    metadata = recording(planned(words(before)))
    with pytest.raises(KeyGroupsDiffer):
        restore(metadata, planned(words(now)))
    job = planned(inherit_groups(words(now), metadata))
    had = default_max_parallelism(before)
    assert [vertex.max_parallelism for vertex in job.vertices] == [had, had]
    assert len(restore(metadata, job)) == 2 * now


def test_what_a_user_has_named_stays() -> None:
    metadata = recording(planned(words(2, groups=128)))
    job = planned(inherit_groups(words(2, groups=64), metadata))
    assert {vertex.max_parallelism for vertex in job.vertices} == {64}
    with pytest.raises(KeyGroupsDiffer):
        restore(metadata, job)


def test_more_tasks_than_there_are_groups_are_refused() -> None:
    metadata = recording(planned(words(2)))
    job = planned(inherit_groups(words(129), metadata))
    with pytest.raises(KeyGroupsDiffer):
        restore(metadata, job)


def test_an_operator_that_is_new_has_its_own() -> None:
    metadata = recording(planned(words(86)))
    graph = inherit_groups(words(2, more=True), metadata)
    assert [node.max_parallelism for node in graph.nodes.values()] == [256, 256, 256, 128]
