"""DataStream: the nodes and edges that its methods write."""

import pickle
from collections.abc import Callable, Iterator

import cloudpickle
import pytest

from headgate.base.errors import PlanInvalid
from headgate.common import Types
from headgate.core.operators.one_input import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
)
from headgate.datastream import (
    DataStream,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessFunction,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from headgate.plan.job_graph import build_job_graph
from headgate.plan.stream_graph import Chaining, NodeKind, StreamGraph

Method = Callable[[DataStream], DataStream]


class Twice(MapFunction[int, int]):
    def map(self, value: int) -> int:
        return value * 2


class Parts(FlatMapFunction[int, int]):
    def flat_map(self, value: int) -> list[int]:
        return [value, value]


class Odd(FilterFunction[int]):
    def filter(self, value: int) -> bool:
        return value % 2 == 1


class Sorted(ProcessFunction[int, int]):
    def process_element(self, value: int, ctx: ProcessFunction.Context):  # type: ignore[no-untyped-def]
        yield (OutputTag("odd"), value) if value % 2 else value


class Keyed(KeyedProcessFunction[int, int, int]):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        pass


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.set_parallelism(2).from_collection([1, 2, 3], Types.INT())


def graph_of(stream: DataStream) -> StreamGraph:
    return stream.get_execution_environment().get_stream_graph()


def edges_of(stream: DataStream) -> list[tuple[int, int, str, bool]]:
    graph = graph_of(stream)
    return [(edge.source, edge.target, edge.ship.name, edge.ship.chosen) for edge in graph.edges]


@pytest.mark.parametrize(
    ("name", "method", "operator", "role"),
    [
        ("Map", lambda s: s.map(str), MapOperator, "map function"),
        ("Map", lambda s: s.map(Twice()), MapOperator, "map function"),
        ("Flat Map", lambda s: s.flat_map(range), FlatMapOperator, "flat map function"),
        ("Flat Map", lambda s: s.flat_map(Parts()), FlatMapOperator, "flat map function"),
        ("Filter", lambda s: s.filter(bool), FilterOperator, "filter function"),
        ("Filter", lambda s: s.filter(Odd()), FilterOperator, "filter function"),
        ("Projection", lambda s: s.project(0), MapOperator, "fields"),
        ("Process", lambda s: s.process(Sorted()), ProcessOperator, "process function"),
    ],
)
def test_operator_is_a_node_after_the_stream(
    numbers: DataStream, name: str, method: Method, operator: type, role: str
) -> None:
    stream = method(numbers)
    node = graph_of(stream).nodes[2]
    assert (node.id, node.name, node.kind, node.parallelism) == (2, name, NodeKind.OPERATOR, 2)
    assert type(node.make()) is operator
    assert node.functions[0][0] == role
    assert edges_of(stream) == [(1, 2, "FORWARD", False)]


def test_function_that_yields_is_refused_where_a_result_is_wanted(numbers: DataStream) -> None:
    def yields(value: int) -> Iterator[int]:
        yield value

    for name in ("map", "filter", "add_sink"):
        with pytest.raises(PlanInvalid, match=rf"{name}\(\) was given .* yields; .*flat_map"):
            getattr(numbers, name)(yields)
    numbers.flat_map(yields)


def test_function_that_is_async_is_refused(numbers: DataStream) -> None:
    async def later(value: int) -> int:
        return value

    with pytest.raises(PlanInvalid, match=r"map\(\) was given .* async; give a plain function"):
        numbers.map(later)


def test_function_that_is_none_is_refused_where_it_is_written(numbers: DataStream) -> None:
    for name in ("map", "flat_map", "filter", "process"):
        with pytest.raises(PlanInvalid, match=rf"{name}\(\) was given 5; give a"):
            getattr(numbers, name)(5)
    with pytest.raises(PlanInvalid, match=r"map\(\) was given .*a callable or a MapFunction"):
        numbers.map(Odd())  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"map\(\) was given the class Twice; .*Twice\(\)"):
        numbers.map(Twice)
    with pytest.raises(PlanInvalid, match=r"process_element"):
        numbers.process(lambda value: [value])  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"Keyed, a KeyedProcessFunction.*call key_by\(\)"):
        numbers.process(Keyed())  # type: ignore[arg-type]
    assert len(graph_of(numbers).nodes) == 1


def test_types_are_those_declared(numbers: DataStream) -> None:
    assert numbers.get_type() == Types.INT()
    assert numbers.map(str, Types.STRING()).get_type() == Types.STRING()
    assert numbers.map(str).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert numbers.filter(bool).rebalance().get_type() == Types.INT()
    assert numbers.union(numbers).get_type() == Types.INT()
    with pytest.raises(PlanInvalid, match="such as Types.INT"):
        numbers.map(str, output_type=str)  # type: ignore[arg-type]


def test_projection_takes_fields_of_tuples(env: StreamExecutionEnvironment) -> None:
    kind = Types.TUPLE([Types.INT(), Types.STRING(), Types.LONG()])
    stream = env.from_collection([(1, "a", 2)], kind).project(2, 0)
    assert stream.get_type() == Types.TUPLE([Types.LONG(), Types.INT()])
    assert stream.execute_and_collect(limit=2) == [(2, 1)]
    for wrong in ((), ("name",)):
        with pytest.raises(PlanInvalid, match="give positions"):
            stream.project(*wrong)


@pytest.mark.parametrize(
    ("method", "ship"),
    [
        (lambda s: s.rebalance(), "REBALANCE"),
        (lambda s: s.rescale(), "RESCALE"),
        (lambda s: s.shuffle(), "SHUFFLE"),
        (lambda s: s.forward(), "FORWARD"),
        (lambda s: s.broadcast(), "BROADCAST"),
        (lambda s: s.global_(), "GLOBAL"),
        (lambda s: s.partition_custom(lambda key, n: key % n, lambda x: x), "CUSTOM"),
        (lambda s: s.rebalance().shuffle(), "SHUFFLE"),
    ],
)
def test_way_of_shipping_belongs_to_the_edge(
    numbers: DataStream, method: Method, ship: str
) -> None:
    stream = method(numbers.map(str)).map(str)
    assert edges_of(stream)[1] == (2, 3, ship, True)


def test_custom_partitioner_may_be_an_object(numbers: DataStream) -> None:
    class Second(Partitioner[int]):
        def partition(self, key: int, num_partitions: int) -> int:
            return key % num_partitions

    numbers.partition_custom(Second(), lambda x: x + 1).map(str)
    (edge,) = graph_of(numbers).edges
    router = edge.ship.make_router(0)
    router.set_up(3)
    assert router.pick(1) == 2
    for arguments in ((5, bool), ("text", bool), (lambda k, n: 0, "field")):
        with pytest.raises(PlanInvalid, match=r"partition_custom\(\) was given the"):
            numbers.partition_custom(*arguments)  # type: ignore[arg-type]


def test_union_joins_the_origins_of_all_streams(numbers: DataStream) -> None:
    plain, rebalanced = numbers.map(str), numbers.map(str).rebalance()
    stream = plain.union(rebalanced, numbers).map(str)
    assert edges_of(stream)[2:] == [
        (2, 4, "FORWARD", False),
        (3, 4, "REBALANCE", True),
        (1, 4, "FORWARD", False),
    ]
    assert {edge.input for edge in graph_of(stream).edges} == {0}


def test_union_of_a_stream_with_itself_doubles_records(numbers: DataStream) -> None:
    twice = numbers.union(numbers).map(lambda x: x)
    assert edges_of(twice) == [(1, 2, "FORWARD", False)] * 2
    assert len(build_job_graph(graph_of(twice)).vertices) == 2
    assert twice.execute_and_collect(limit=9) == [1, 2, 3, 1, 2, 3]


def test_streams_that_do_not_belong_together_are_refused(numbers: DataStream) -> None:
    other = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(PlanInvalid, match=r"union\(\) of streams of two environments"):
        numbers.union(other)
    with pytest.raises(PlanInvalid, match=r"connect\(\) of streams of two environments"):
        numbers.connect(other)
    with pytest.raises(PlanInvalid, match=r"union\(\) was given 5; give another DataStream"):
        numbers.union(5)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"union\(\) of a stream of Types.INT\(\) and one of"):
        numbers.union(numbers.map(str, Types.STRING()))


def test_side_output_is_an_edge_with_a_tag(numbers: DataStream) -> None:
    main = numbers.process(Sorted())
    side = main.get_side_output(OutputTag("odd", Types.INT()))
    side.map(str)
    edge = graph_of(main).edges[1]
    assert (edge.source, edge.target, edge.tag) == (2, 3, "odd")
    assert side.get_type() == Types.INT()
    assert side.execute_and_collect(limit=9) == [1, 3]
    assert main.execute_and_collect(limit=9) == [2]


def test_side_output_needs_a_tag_and_an_operator(numbers: DataStream) -> None:
    with pytest.raises(PlanInvalid, match="give the OutputTag"):
        numbers.get_side_output("odd")  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"get_side_output\(\) belongs to an operator"):
        numbers.union(numbers).get_side_output(OutputTag("odd"))


def test_split_names_records_and_select_takes_them(numbers: DataStream) -> None:
    halves = numbers.split(lambda x: ["odd"] if x % 2 else ["even", "all"])
    odd = halves.select("odd")
    odd.map(str)
    graph = graph_of(numbers)
    assert graph.edges[0].selected == frozenset({"odd"})
    assert len(graph.nodes[1].selectors) == 1
    assert odd.execute_and_collect(limit=9) == [1, 3]
    assert halves.select("even", "odd").execute_and_collect(limit=9) == [1, 2, 3]
    assert halves.select("nothing").execute_and_collect(limit=9) == []


def test_second_split_does_not_hear_the_names_of_the_first(numbers: DataStream) -> None:
    first_half = numbers.split(lambda x: ["a"] if x == 1 else []).select("a")
    second_half = numbers.split(lambda x: ["a"] if x == 2 else []).select("a")
    rest = first_half.split(lambda x: ["b"]).select("b")
    assert first_half.execute_and_collect(limit=9) == [1]
    assert second_half.execute_and_collect(limit=9) == [2]
    assert rest.execute_and_collect(limit=9) == [1]


def test_split_and_select_refuse_what_they_cannot_use(numbers: DataStream) -> None:
    with pytest.raises(PlanInvalid, match="returns a list of names"):
        numbers.split("odd")  # type: ignore[arg-type]
    for names in ((), (1,)):
        with pytest.raises(PlanInvalid, match="give names"):
            numbers.split(lambda x: []).select(*names)


def test_operator_is_described_by_its_stream(numbers: DataStream) -> None:
    stream = numbers.map(str)
    described = (
        stream.name("texts")
        .uid("texts-1")
        .set_description("numbers as texts")
        .set_parallelism(3)
        .set_max_parallelism(6)
        .set_buffer_timeout(5)
        .start_new_chain()
        .slot_sharing_group(SlotSharingGroup.builder("slow").build())
    )
    assert described is stream
    assert stream.get_name() == "texts"
    node = graph_of(stream).nodes[2]
    assert (node.name, node.uid, node.description) == ("texts", "texts-1", "numbers as texts")
    assert (node.parallelism, node.max_parallelism, node.buffer_timeout_ms) == (3, 6, 5)
    assert (node.chaining, node.group) == (Chaining.HEAD, "slow")
    stream.disable_chaining().set_uid_hash("0" * 32)
    node = graph_of(stream).nodes[2]
    assert (node.chaining, node.uid) == (Chaining.NEVER, "0" * 32)


def test_forced_operator_stays_in_one_task(numbers: DataStream) -> None:
    stream = numbers.map(str).force_non_parallel()
    node = graph_of(stream).nodes[2]
    assert (node.parallelism, node.max_parallelism) == (1, 1)
    with pytest.raises(PlanInvalid, match="one task only"):
        stream.set_parallelism(2)


def test_slot_group_is_inherited_if_all_inputs_agree(numbers: DataStream) -> None:
    slow = numbers.map(str).slot_sharing_group("slow")
    texts = slow.map(str)
    mixed = texts.union(numbers.map(str)).map(str)
    groups = {name: node.group for name, node in graph_of(mixed).nodes.items()}
    assert groups == {1: "default", 2: "slow", 3: "slow", 4: "default", 5: "default"}


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        (lambda s: s.set_parallelism(0), "Map: the parallelism is 0"),
        (lambda s: s.set_parallelism("2"), "whole number"),
        (lambda s: s.set_max_parallelism(0), "Map: the maximum parallelism is 0"),
        (lambda s: s.set_max_parallelism(2).set_parallelism(3), "3 is above the maximum"),
        (lambda s: s.set_parallelism(3).set_max_parallelism(2), "3 is above the maximum"),
        (lambda s: s.set_buffer_timeout(-2), "Map: the buffer timeout is -2"),
        (lambda s: s.name(""), r"name\(\) was given ''"),
        (lambda s: s.uid(3), r"uid\(\) was given 3"),
        (lambda s: s.set_uid_hash("abc"), "32 hexadecimal digits"),
        (lambda s: s.slot_sharing_group(""), "SlotSharingGroup"),
        (lambda s: s.rebalance().name("x"), r"name\(\) belongs to an operator"),
        (lambda s: s.union(s).set_parallelism(2), r"set_parallelism\(\) belongs to an operator"),
    ],
)
def test_description_that_cannot_be_is_refused(
    numbers: DataStream, method: Method, problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        method(numbers.map(str))


def test_key_groups_follow_the_parallelism_unless_they_are_set(
    env: StreamExecutionEnvironment,
) -> None:
    stream = env.from_collection([1]).map(str).set_parallelism(100).map(str).set_max_parallelism(7)
    env.set_max_parallelism(512)
    groups = [node.max_parallelism for node in graph_of(stream.set_parallelism(1)).nodes.values()]
    assert groups == [512, 512, 7]
    assert not any(node.default_groups for node in graph_of(stream).nodes.values())
    env.get_configuration().remove_config("pipeline.max-parallelism")
    groups = [node.max_parallelism for node in graph_of(stream).nodes.values()]
    assert groups == [128, 256, 7]
    assert [node.default_groups for node in graph_of(stream).nodes.values()] == [True, True, False]


def test_forward_to_another_parallelism_is_refused_by_the_plan(numbers: DataStream) -> None:
    numbers.forward().map(str).set_parallelism(2)
    with pytest.raises(PlanInvalid, match="rebalance"):
        numbers.get_execution_environment().get_job_graph()


def test_stream_knows_its_environment(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1])
    assert stream.get_execution_environment() is env
    assert stream.get_execution_config() is env.get_config()


def test_graph_can_travel(numbers: DataStream) -> None:
    words = numbers.map(Twice()).key_by(lambda x: x % 2).reduce(max)
    words.process(Sorted()).get_side_output(OutputTag("odd")).project(0)
    words.partition_custom(lambda key, n: 0, lambda x: x).flat_map(lambda x: [x]).print()
    words.connect(numbers)
    twin = pickle.loads(cloudpickle.dumps(graph_of(numbers)))
    assert [node.name for node in twin.nodes.values()] == [
        node.name for node in graph_of(numbers).nodes.values()
    ]
    assert all(node.make() is not None for node in twin.nodes.values())
