"""The stream graph: order of its nodes, names, what an edge ships by, and its description."""

import pytest
from hypothesis import given

from headgate.plan import ship_strategies as ships
from headgate.plan.stream_graph import StreamEdge, StreamGraph, default_max_parallelism
from tests.plan.programs import Program, programs, reads


@given(programs())
def test_every_node_comes_behind_its_inputs(graph: StreamGraph) -> None:
    places = {node.id: place for place, node in enumerate(graph.in_order())}
    assert sorted(places) == sorted(graph.nodes)
    assert all(places[edge.source] < places[edge.target] for edge in graph.edges)


def test_nodes_keep_the_order_in_which_they_were_written() -> None:
    program = Program()
    source = program.source("one")
    program.sink("print", source)
    other = program.source("other")
    program.sink("store", source, other)
    assert [node.id for node in program.graph.in_order()] == [1, 2, 3, 4]


def test_a_cycle_is_a_bug() -> None:
    program = Program("round")
    source = program.source()
    first = program.operator("one", source)
    program.operator("other", first)
    program.graph.edges.append(StreamEdge(3, 2, 0, ships.forward()))
    with pytest.raises(AssertionError, match="'round' has a cycle"):
        program.graph.in_order()


def test_sources_and_sinks_say_what_they_are_once() -> None:
    program = Program()
    source = program.source("words")
    operator = program.operator("Source of joy", source)
    program.sink("Sink: Print to Std. Out", operator)
    program.sink("print", operator)
    assert [node.title for node in program.graph.nodes.values()] == [
        "Source: words",
        "Source of joy",
        "Sink: Print to Std. Out",
        "Sink: print",
    ]


def test_key_groups_by_default_leave_room_to_grow() -> None:
    assert [default_max_parallelism(n) for n in (1, 85, 86, 128, 200, 30_000)] == [
        128,
        128,
        256,
        256,
        512,
        32_768,
    ]


def test_a_description_has_a_line_for_each_node() -> None:
    program = Program("word count")
    source = program.source("words", parallelism=1)
    split = program.operator("split", source)
    program.sink("late", reads(split, tag="late"), parallelism=1)
    program.sink("odd", reads(split, ships.hash_by(len), 1, selected=frozenset({"odd", "all"})))
    assert program.graph.describe() == (
        "stream graph of 'word count', streaming\n"
        "node  operator       tasks  reads\n"
        "1     Source: words  x1\n"
        "2     split          x2     1 REBALANCE\n"
        "3     Sink: late     x1     2 REBALANCE of side output 'late'\n"
        "4     Sink: odd      x2     2 HASH to input 1 selecting all, odd\n"
    )
