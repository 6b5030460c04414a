"""KeyedStream: hash edges, rolling results, and what it refuses."""

from collections.abc import Callable

import pytest

from headgate.base.errors import PlanInvalid
from headgate.common import Row, Types
from headgate.core.operators.one_input import KeyedProcessOperator, MapOperator
from headgate.datastream import (
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeyedStream,
    KeySelector,
    MapFunction,
    ReduceFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from headgate.datastream.state import ValueStateDescriptor
from headgate.plan.job_graph import build_job_graph

PAIRS = [("a", 3), ("b", 1), ("a", 1), ("a", 5), ("b", 1)]


class First(KeySelector[tuple[str, int], str]):
    def get_key(self, value: tuple[str, int]) -> str:
        return value[0]


class WithKey(KeyedProcessFunction[str, tuple[str, int], str]):
    def process_element(self, value, ctx: KeyedProcessFunction.Context):  # type: ignore[no-untyped-def]
        yield f"{ctx.get_current_key()}{value[1]}"


class Add(ReduceFunction[tuple[str, int]]):
    def reduce(self, value1: tuple[str, int], value2: tuple[str, int]) -> tuple[str, int]:
        return value1[0], value1[1] + value2[1]


@pytest.fixture
def keyed(env: StreamExecutionEnvironment) -> KeyedStream:
    return env.set_parallelism(2).from_collection(PAIRS).key_by(First(), Types.STRING())


def collected(stream: DataStream) -> object:
    return stream.execute_and_collect(limit=100)


def test_keys_are_an_edge_by_hash_at_the_parallelism_of_the_stream(keyed: KeyedStream) -> None:
    keyed.map(str).set_max_parallelism(64)
    graph = keyed.get_execution_environment().get_stream_graph()
    (edge,) = graph.edges
    assert (edge.source, edge.target, edge.ship.name) == (1, 2, "HASH")
    assert edge.ship.key_of is not None and edge.ship.key_of(("k", 1)) == "k"
    (job_edge,) = build_job_graph(graph).edges
    assert (job_edge.ship, job_edge.pointwise) == ("HASH", False)
    assert keyed.get_type() == Types.PICKLED_BYTE_ARRAY()


@pytest.mark.parametrize("selector", ["name", 0, None])
def test_selector_that_is_no_callable_is_refused(
    env: StreamExecutionEnvironment, selector: object
) -> None:
    with pytest.raises(PlanInvalid, match=r"key_by\(\) was given the key selector.*lambda record"):
        env.from_collection(PAIRS).key_by(selector)  # type: ignore[arg-type]


def test_class_of_a_selector_is_refused(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(PlanInvalid, match=r"the class First.*First\(\)"):
        env.from_collection(PAIRS).key_by(First)  # type: ignore[arg-type]


def test_reduce_sends_running_results_in_a_streaming_job(keyed: KeyedStream) -> None:
    running = [("a", 3), ("b", 1), ("a", 4), ("a", 9), ("b", 2)]
    assert collected(keyed.reduce(Add())) == running
    assert collected(keyed.reduce(lambda a, b: (a[0], a[1] + b[1]))) == running


def test_reduce_sends_final_results_in_a_batch_job(keyed: KeyedStream) -> None:
    stream = keyed.reduce(Add())
    keyed.get_execution_environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    assert collected(stream) == [("a", 9), ("b", 2)]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (lambda s: s.sum(1), [("a", 3), ("b", 1), ("a", 4), ("a", 9), ("b", 2)]),
        (lambda s: s.min(1), [("a", 3), ("b", 1), ("a", 1), ("a", 1), ("b", 1)]),
        (lambda s: s.max(1), [("a", 3), ("b", 1), ("a", 3), ("a", 5), ("b", 1)]),
        (lambda s: s.min_by(1), [("a", 3), ("b", 1), ("a", 1), ("a", 1), ("b", 1)]),
        (lambda s: s.max_by(1), [("a", 3), ("b", 1), ("a", 3), ("a", 5), ("b", 1)]),
    ],
)
def test_aggregations_roll(
    keyed: KeyedStream, method: Callable[[KeyedStream], DataStream], expected: object
) -> None:
    assert collected(method(keyed)) == expected


def test_min_keeps_the_other_fields_of_the_first_record_and_min_by_the_whole_record(
    env: StreamExecutionEnvironment,
) -> None:
    kind = Types.ROW_NAMED(["k", "n", "x"], [Types.INT(), Types.INT(), Types.STRING()])
    keyed = env.from_collection([(0, 2, "p"), (0, 1, "q")], kind).key_by(lambda row: row.k)
    assert collected(keyed.min("n")) == [Row(k=0, n=2, x="p"), Row(k=0, n=1, x="p")]
    assert collected(keyed.min_by("n")) == [Row(k=0, n=2, x="p"), Row(k=0, n=1, x="q")]
    assert keyed.sum("n").get_type() == kind


def test_plain_values_are_their_own_field(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection([1, 2, 3]).key_by(lambda x: 0)
    assert collected(keyed.sum()) == [1, 3, 6]
    with pytest.raises(PlanInvalid, match=r"sum\(\) was given None"):
        keyed.sum(None)  # type: ignore[arg-type]


def test_process_knows_the_key(keyed: KeyedStream) -> None:
    stream = keyed.process(WithKey(), Types.STRING())
    node = keyed.get_execution_environment().get_stream_graph().nodes[2]
    assert type(node.make()) is KeyedProcessOperator
    assert collected(stream) == ["a3", "b1", "a1", "a5", "b1"]
    with pytest.raises(PlanInvalid, match="process_element"):
        keyed.process(5)  # type: ignore[arg-type]


def test_other_operators_follow_the_hash_too(keyed: KeyedStream) -> None:
    keyed.map(str), keyed.filter(bool), keyed.flat_map(list), keyed.print(), keyed.union(keyed)
    keyed.add_sink(print)
    ships = [edge.ship.name for edge in keyed.get_execution_environment().get_stream_graph().edges]
    assert ships == ["HASH"] * 5


def test_records_of_a_keyed_stream_are_collected_as_they_are(keyed: KeyedStream) -> None:
    assert collected(keyed) == PAIRS


def test_second_key_by_keys_the_original_stream(keyed: KeyedStream) -> None:
    keyed.key_by(lambda pair: pair[1]).map(str)
    (edge,) = keyed.get_execution_environment().get_stream_graph().edges
    assert edge.ship.key_of is not None and edge.ship.key_of(("k", 1)) == 1


@pytest.mark.parametrize(
    "method",
    [
        lambda s: s.name("x"),
        lambda s: s.get_name(),
        lambda s: s.uid("x"),
        lambda s: s.set_uid_hash("0" * 32),
        lambda s: s.set_parallelism(2),
        lambda s: s.set_max_parallelism(2),
        lambda s: s.force_non_parallel(),
        lambda s: s.set_buffer_timeout(1),
        lambda s: s.start_new_chain(),
        lambda s: s.disable_chaining(),
        lambda s: s.slot_sharing_group("x"),
        lambda s: s.set_description("x"),
    ],
)
def test_keyed_stream_is_no_operator(
    keyed: KeyedStream, method: Callable[[KeyedStream], object]
) -> None:
    with pytest.raises(PlanInvalid, match=r"\(\) is not possible on a KeyedStream"):
        method(keyed)


@pytest.mark.parametrize(
    "method",
    [
        lambda s: s.rebalance(),
        lambda s: s.rescale(),
        lambda s: s.shuffle(),
        lambda s: s.forward(),
        lambda s: s.broadcast(),
        lambda s: s.global_(),
        lambda s: s.partition_custom(lambda key, n: 0, lambda x: x),
    ],
)
def test_keyed_stream_travels_by_its_keys(
    keyed: KeyedStream, method: Callable[[KeyedStream], object]
) -> None:
    with pytest.raises(PlanInvalid, match="travels by its keys"):
        method(keyed)


class Numbering(
    MapFunction[object, object], FlatMapFunction[object, object], FilterFunction[object]
):
    """Numbers the records of each key, in keyed state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def map(self, value: object) -> object:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        return value, number

    def flat_map(self, value: object) -> list[object]:
        return [self.map(value)]

    def filter(self, value: object) -> bool:
        return self.map(value) == (value, 1)


class Most(ReduceFunction[tuple[str, int]]):
    """Adds at most one record to the first of each key, counting in keyed state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.added = runtime_context.get_state(ValueStateDescriptor("added"))

    def reduce(self, value1: tuple[str, int], value2: tuple[str, int]) -> tuple[str, int]:
        if self.added.value():
            return value1
        self.added.update(True)
        return value1[0], value1[1] + value2[1]


def test_map_filter_flat_map_and_reduce_have_keyed_state_in_open(keyed: KeyedStream) -> None:
    numbered = [(("a", 3), 1), (("b", 1), 1), (("a", 1), 2), (("a", 5), 3), (("b", 1), 2)]
    assert collected(keyed.map(Numbering())) == numbered
    assert collected(keyed.flat_map(Numbering())) == numbered
    assert collected(keyed.filter(Numbering())) == [("a", 3), ("b", 1)]
    assert collected(keyed.reduce(Most())) == [("a", 3), ("b", 1), ("a", 4), ("a", 4), ("b", 2)]


def test_functions_without_open_keep_the_quick_operators(keyed: KeyedStream) -> None:
    class Same(MapFunction[object, object]):
        def map(self, value: object) -> object:
            return value

    keyed.map(str), keyed.map(Same()), keyed.map(Numbering())
    nodes = keyed.get_execution_environment().get_stream_graph().nodes
    operators = [nodes[number].make() for number in (2, 3, 4)]
    assert all(type(operator) is MapOperator for operator in operators)
    assert [operator._key_of is None for operator in operators] == [True, True, False]  # type: ignore[attr-defined]


def test_without_keys_there_is_no_state(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(RuntimeError, match=r"'count' was asked for by 'Map'.*key_by\(\) before"):
        env.from_collection(PAIRS).map(Numbering()).execute_and_collect(limit=9)


def test_a_key_selector_with_an_open_is_refused(env: StreamExecutionEnvironment) -> None:
    class Opened(First):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.table = {"a": 1}

    with pytest.raises(PlanInvalid, match=r"Opened, which has an open\(\) that would never be"):
        env.from_collection(PAIRS).key_by(Opened())
