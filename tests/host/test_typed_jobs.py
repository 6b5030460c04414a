"""Whole programs with declared types on real exchanges: chained or not, the same values arrive."""

import datetime
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import headgate
from headgate.api.runtime import set_runtime
from headgate.base.errors import UserFunctionFailed
from headgate.common import Row, Types
from headgate.datastream import (
    CoMapFunction,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    StreamExecutionEnvironment,
)
from headgate.host.net.exchange import Exchange
from tests.api.kit import ListSource, OneTaskRuntime
from tests.host.conftest import MakeExchange
from tests.host.local_job import Run
from tests.host.rig import eventually

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
ODD = OutputTag("odd", Types.ROW_NAMED(["n"], [Types.INT()]))


@pytest.fixture(autouse=True)
def _local_runtime() -> Iterator[None]:
    ours = OneTaskRuntime()
    set_runtime(lambda: ours)
    yield
    set_runtime(headgate._open_runtime)


@pytest.fixture
def exchange(make_exchange: MakeExchange) -> Exchange:
    return make_exchange(local_only=True)


@pytest.fixture(params=["chained", "apart"])
def env(request: pytest.FixtureRequest) -> StreamExecutionEnvironment:
    made = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
    return made if request.param == "chained" else made.disable_operator_chaining()


def arrived(stream: DataStream, exchange: Exchange) -> list[Any]:
    """What a sink behind the stream gets."""
    kept: list[Any] = []
    stream.add_sink(kept.append)
    run = Run(_job(stream), exchange)
    try:
        run.run()
    finally:
        run.close()
    return kept


def failed(stream: DataStream, exchange: Exchange) -> UserFunctionFailed:
    stream.add_sink(str)
    run = Run(_job(stream), exchange)
    try:
        run.deploy()
        eventually(lambda: bool(_culprits(run)), "the failure")
    finally:
        run.close()
    return _culprits(run)[0]


def _culprits(run: Run) -> list[UserFunctionFailed]:
    return [error for error in list(run.errors.values()) if isinstance(error, UserFunctionFailed)]


def _job(stream: DataStream) -> Any:
    return SimpleNamespace(graph=stream.get_execution_environment().get_stream_graph())


def test_a_tuple_declared_as_row_is_a_row_in_the_next_map(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    people = env.from_collection(["Ada"]).map(
        lambda name: (name, 36), Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
    )
    texts = people.map(lambda row: f"{row.name} is {row['age']}", Types.STRING())
    assert arrived(texts, exchange) == ["Ada is 36"]


def test_a_list_declared_as_tuple_is_a_tuple_and_without_type_stays_a_list(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    words = env.from_collection(["a"])
    assert arrived(words.map(lambda word: [word, 1], PAIR), exchange) == [("a", 1)]
    env.close()
    assert arrived(words.map(lambda word: [word, 1]), exchange) == [["a", 1]]


@pytest.mark.parametrize("wrong", ["'text'", "2**40", "1.5"])
def test_a_wrong_value_fails_the_operator_that_made_it(
    env: StreamExecutionEnvironment, exchange: Exchange, wrong: str
) -> None:
    numbers = env.from_collection([1]).map(lambda n: eval(wrong), Types.INT()).name("made")
    error = failed(numbers.map(lambda n: n), exchange)
    assert error.operator == "made"
    assert "Types.INT()" in str(error) and "an int from -2147483648" in str(error)


def test_float_has_32_bits_in_the_next_operator(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    halves = env.from_collection([1]).map(lambda n: 1.1, Types.FLOAT())
    assert arrived(halves.map(lambda x: x), exchange) == [1.100000023841858]


def test_types_survive_what_only_routes_or_chooses(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    pairs = env.from_collection([["a", 1], ["b", 2], ["a", 3]], PAIR)
    chosen = pairs.filter(lambda pair: pair[1] < 3).rebalance().union(pairs)
    sums = chosen.key_by(lambda pair: pair[0]).reduce(lambda x, y: [x[0], x[1] + y[1]])
    assert sums.get_type() == PAIR
    assert sorted(arrived(sums, exchange)) == [("a", 1), ("a", 2), ("a", 5), ("b", 2), ("b", 4)]


def test_sums_of_rows_are_sent_by_value(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    rows = env.from_collection(
        [("a", 1), ("a", 2), ("a", 3)], Types.ROW_NAMED(["k", "n"], PAIR.get_field_types())
    )
    sums = rows.key_by(lambda row: row.k).sum("n")
    assert [row.n for row in arrived(sums, exchange)] == [1, 3, 6]


def test_a_filter_that_changes_a_row_is_found_out(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    def spoil(row: Row) -> bool:
        row["n"] = "text"
        return True

    rows = env.from_collection([(1,)], Types.ROW_NAMED(["n"], [Types.INT()]))
    error = failed(rows.filter(spoil).name("spoils").rebalance().map(str), exchange)
    assert error.operator == "spoils" and "field 'n' is 'text'" in str(error)


def test_side_outputs_and_keyed_results_are_coerced(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    class Halves(KeyedProcessFunction[int, int, Any]):
        def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
            yield (ODD, (value,)) if value % 2 else [str(value), value]

    main = env.from_collection([1, 2]).key_by(lambda n: n % 2).process(Halves(), PAIR)
    assert arrived(main.get_side_output(OutputTag("odd", ODD.type_info)), exchange) == [Row(n=1)]
    env.close()
    assert arrived(main, exchange) == [("2", 2)]


def test_results_of_two_inputs_are_coerced(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    class Both(CoMapFunction[int, str, Any]):
        def map1(self, value: int) -> Any:
            return [str(value), value]

        def map2(self, value: str) -> Any:
            return None

    both = env.from_collection([1]).connect(env.from_collection(["x"])).map(Both(), PAIR)
    assert arrived(both, exchange) == [("1", 1)]


def test_records_of_a_source_are_coerced(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    rows = env.from_source(ListSource([("a", 1)]), None, "rows", Types.ROW(PAIR.get_field_types()))
    assert arrived(rows.map(lambda row: row), exchange) == [Row(f0="a", f1=1)]
    env.close()
    bad = env.from_source(ListSource(["a"]), None, "words", Types.INT())
    assert failed(bad, exchange).operator == "words"


def test_typed_records_cross_the_network(make_exchange: MakeExchange) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    row = Types.ROW_NAMED(["word", "at"], [Types.STRING(), Types.SQL_DATE()])
    day = datetime.date(2024, 2, 29)
    rows = env.from_collection([(str(n), day) for n in range(3000)], row)
    pairs = rows.rebalance().map(lambda row: [row.word, row.at.day], PAIR)
    kept: list[Any] = []
    pairs.rebalance().map(lambda pair: pair, PAIR).add_sink(kept.append)
    run = Run(_job(pairs), make_exchange(), make_exchange())
    try:
        assert (
            [
                vertex.gate_serializers[0].kind  # type: ignore[union-attr]
                for vertex in run.job_graph.vertices[1:]
            ]
            == [row, PAIR]
        )
        run.run()
    finally:
        run.close()
    assert sorted(kept) == sorted((str(n), 29) for n in range(3000))
