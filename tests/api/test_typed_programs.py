"""Where a program declares types, and what the plan makes of it."""

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.api.types.wires import TypedSerializer
from headgate.base.elements import Serializer
from headgate.base.errors import PlanInvalid
from headgate.common import Row, Types
from headgate.datastream import (
    DataStream,
    OutputTag,
    ProcessFunction,
    StreamExecutionEnvironment,
)

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
ROW = Types.ROW([Types.STRING(), Types.INT()])


class Sides(ProcessFunction[Any, Any]):
    """Everything to the side."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield OutputTag("side"), value


def types_of(stream: DataStream) -> Any:
    """What the plan says about the stream's operator."""
    (origin,) = stream._origins
    return (
        stream.get_execution_environment().get_stream_graph().nodes[origin.transformation.id].types
    )


def kind_of(serializer: Serializer | None) -> Any:
    return serializer.kind if isinstance(serializer, TypedSerializer) else None


def test_nothing_declared_means_nothing_to_do(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1])
    assert types_of(numbers) is None
    assert types_of(numbers.map(abs)) is None
    assert types_of(numbers.map(abs, Types.PICKLED_BYTE_ARRAY())) is None


def test_a_filter_trusts_what_nobody_can_change(env: StreamExecutionEnvironment) -> None:
    pairs = env.from_collection([("a", 1)], PAIR)
    rows = env.from_collection([("a", 1)], ROW)
    assert types_of(pairs.filter(bool)).is_kept
    assert not types_of(rows.filter(bool)).is_kept
    assert not types_of(pairs.key_by(len).reduce(max)).is_kept
    assert types_of(pairs.filter(bool)).main == PAIR


def test_both_ends_of_an_edge_have_the_serializer_of_its_type(
    env: StreamExecutionEnvironment,
) -> None:
    sides = env.from_collection([1]).process(Sides(), ROW).name("sides")
    sides.rebalance().map(len).name("main").print()
    tag = OutputTag("side", PAIR)
    sides.get_side_output(tag).rebalance().map(len).name("side").print()
    sides.get_side_output(OutputTag("other")).rebalance().map(len).name("other").print()
    graph = env.get_job_graph()
    written = {
        name: kind_of(partition.serializer)
        for vertex in graph.vertices
        for name, partition in zip(
            [graph.vertices[edge.target].name for edge in graph.outputs_of(vertex.id)],
            vertex.chain.partitions,
            strict=True,
        )
    }
    read = {
        vertex.name: kind_of(vertex.gate_serializers[0])
        for vertex in graph.vertices
        if vertex.gate_serializers
    }
    assert written == read
    found = {name.split()[0]: kind for name, kind in read.items()}
    assert (found["main"], found["side"], found["other"]) == (ROW, PAIR, None)


def test_a_union_has_a_type_only_if_all_parts_have_it(env: StreamExecutionEnvironment) -> None:
    pairs, others = env.from_collection([("a", 1)], PAIR), env.from_collection([1])
    assert pairs.union(pairs).get_type() == PAIR
    assert pairs.union(others).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert others.union(pairs).get_type() == Types.PICKLED_BYTE_ARRAY()
    with pytest.raises(PlanInvalid, match="map one of them"):
        pairs.union(env.from_collection([1], Types.INT()))


def test_a_side_output_has_one_type(env: StreamExecutionEnvironment) -> None:
    sides = env.from_collection([("a", 1)]).process(Sides())
    assert sides.get_side_output(OutputTag("side")).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert sides.get_side_output(OutputTag("side", ROW)).get_type() == ROW
    with pytest.raises(PlanInvalid, match="give both the same type"):
        sides.get_side_output(OutputTag("side", PAIR))
    found = sides.get_side_output(OutputTag("side", ROW)).execute_and_collect(limit=5)
    assert found == [Row(f0="a", f1=1)]


def test_an_operator_that_emits_another_type_fails(env: StreamExecutionEnvironment) -> None:
    texts = env.from_collection([1]).map(str, Types.INT())
    with pytest.raises(TypeError, match="'1' does not fit the declared type Types.INT"):
        texts.execute_and_collect(limit=5)


def test_a_tuple_projected_keeps_the_types_of_its_fields(env: StreamExecutionEnvironment) -> None:
    swapped = env.from_collection([("a", 1)], PAIR).project(1, 0)
    assert swapped.get_type() == Types.TUPLE([Types.INT(), Types.STRING()])
    assert swapped.execute_and_collect(limit=5) == [(1, "a")]
