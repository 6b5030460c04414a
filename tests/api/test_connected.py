"""ConnectedStreams: two inputs, with and without keys."""

import pytest

from headgate.base.elements import MIN_WATERMARK_MS
from headgate.base.errors import PlanInvalid
from headgate.common import Types
from headgate.core.operators.two_inputs import CoProcessOperator, KeyedCoProcessOperator
from headgate.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    ConnectedStreams,
    CoProcessFunction,
    KeyedCoProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeDomain,
)
from headgate.datastream.state import ValueStateDescriptor


class Texts(CoMapFunction[int, str, str]):
    def map1(self, value: int) -> str | None:
        return f"n{value}" if value > 1 else None

    def map2(self, value: str) -> str:
        return f"t{value}"


class Parts(CoFlatMapFunction[int, str, str]):
    def flat_map1(self, value: int) -> list[str]:
        return [str(value)] * value

    def flat_map2(self, value: str) -> None:
        return None


class Both(CoProcessFunction[int, str, object]):
    def process_element1(self, value, ctx):  # type: ignore[no-untyped-def]
        yield 1, value

    def process_element2(self, value, ctx):  # type: ignore[no-untyped-def]
        yield 2, value


class BothWithKey(KeyedCoProcessFunction[object, int, str, object]):
    def process_element1(self, value, ctx):  # type: ignore[no-untyped-def]
        yield ctx.get_current_key(), value

    def process_element2(self, value, ctx):  # type: ignore[no-untyped-def]
        yield ctx.get_current_key(), value


@pytest.fixture
def pair(env: StreamExecutionEnvironment) -> ConnectedStreams:
    env.set_parallelism(2)
    return env.from_collection([1, 2]).connect(env.from_collection(["x"]))


def test_each_stream_is_an_input_of_its_own(
    env: StreamExecutionEnvironment, pair: ConnectedStreams
) -> None:
    stream = pair.map(Texts(), Types.STRING())
    edges = [(edge.source, edge.target, edge.input) for edge in env.get_stream_graph().edges]
    assert edges == [(1, 3, 0), (2, 3, 1)]
    assert (stream.get_type(), stream.get_name()) == (Types.STRING(), "Co-Map")
    assert stream.execute_and_collect(limit=9) == ["n2", "tx"]


def test_flat_map_and_process(pair: ConnectedStreams) -> None:
    assert pair.flat_map(Parts()).execute_and_collect(limit=9) == ["1", "2", "2"]
    assert pair.process(Both()).execute_and_collect(limit=9) == [(1, 1), (1, 2), (2, "x")]


def test_keys_of_both_lead_to_the_same_task(
    env: StreamExecutionEnvironment, pair: ConnectedStreams
) -> None:
    stream = pair.key_by(lambda n: n % 2, lambda t: 1, Types.INT()).process(BothWithKey())
    graph = env.get_stream_graph()
    assert [(edge.input, edge.ship.name) for edge in graph.edges] == [(0, "HASH"), (1, "HASH")]
    assert type(graph.nodes[3].make()) is KeyedCoProcessOperator
    assert stream.execute_and_collect(limit=9) == [(1, 1), (0, 2), (1, "x")]


def test_streams_may_bring_their_keys(
    env: StreamExecutionEnvironment, pair: ConnectedStreams
) -> None:
    keyed = pair.stream1.key_by(lambda n: n).connect(pair.stream2.key_by(len))
    keyed.process(Both())
    assert type(env.get_stream_graph().nodes[3].make()) is KeyedCoProcessOperator
    keyed.key_by(lambda n: -n, len).process(BothWithKey())
    edges = env.get_stream_graph().inputs_of(4)
    assert [edge.source for edge in edges] == [1, 2]
    assert edges[0].ship.key_of is not None and edges[0].ship.key_of(5) == -5


def test_one_keyed_side_makes_no_keyed_pair(
    env: StreamExecutionEnvironment, pair: ConnectedStreams
) -> None:
    half = pair.stream1.key_by(lambda n: n).connect(pair.stream2)
    half.process(Both())
    assert type(env.get_stream_graph().nodes[3].make()) is CoProcessOperator


def test_what_does_not_fit_is_refused(pair: ConnectedStreams) -> None:
    with pytest.raises(PlanInvalid, match="CoMapFunction, which has map1 and map2"):
        pair.map(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="CoFlatMapFunction"):
        pair.flat_map(Texts())  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="process_element1 and process_element2"):
        pair.process(5)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"BothWithKey, a KeyedCoProcessFunction.*key_by"):
        pair.process(BothWithKey())
    with pytest.raises(PlanInvalid, match="key selector 'id'"):
        pair.key_by("id", lambda t: 1)  # type: ignore[arg-type]


class Latest(CoMapFunction[int, str, object], CoFlatMapFunction[int, str, object]):
    """Both sides know what came last for the key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def map1(self, value: object) -> object:
        before = self.last.value()
        self.last.update(value)
        return value, before

    map2 = map1  # type: ignore[assignment]

    def flat_map1(self, value: object) -> list[object]:
        return [self.map1(value)]

    flat_map2 = flat_map1  # type: ignore[assignment]


def test_maps_of_two_keyed_streams_share_keyed_state(pair: ConnectedStreams) -> None:
    keyed = pair.key_by(lambda n: n % 2, lambda t: 0)
    expected = [(1, None), (2, None), ("x", 2)]
    assert keyed.map(Latest()).execute_and_collect(limit=9) == expected
    assert keyed.flat_map(Latest()).execute_and_collect(limit=9) == expected


def test_maps_without_keys_have_no_state(pair: ConnectedStreams) -> None:
    with pytest.raises(RuntimeError, match="'last' was asked for by 'Co-Map'"):
        pair.map(Latest()).execute_and_collect(limit=9)


class Ending(KeyedCoProcessFunction[object, int, str, object]):
    """A timer for each record of either side."""

    def process_element1(self, value, ctx):  # type: ignore[no-untyped-def]
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1000)

    process_element2 = process_element1

    def on_timer(self, timestamp, ctx):  # type: ignore[no-untyped-def]
        yield ctx.get_current_key(), timestamp, ctx.timestamp(), ctx.time_domain()


def test_keyed_pairs_have_timers(pair: ConnectedStreams) -> None:
    stream = pair.key_by(lambda n: n, lambda t: 7).process(Ending())
    time = MIN_WATERMARK_MS + 1000
    found = stream.execute_and_collect(limit=9)
    assert sorted(found) == [(k, time, time, TimeDomain.EVENT_TIME) for k in (1, 2, 7)]  # type: ignore[arg-type]


def test_a_keyed_function_says_which_stream_has_no_keys(pair: ConnectedStreams) -> None:
    keyed = pair.key_by(lambda n: n, lambda t: 7)
    for left, right, which in (
        (pair.stream1, pair.stream2, "streams"),
        (keyed.stream1, pair.stream2, "a second stream"),
        (pair.stream1, keyed.stream2, "a first stream"),
    ):
        with pytest.raises(PlanInvalid, match=f"on {which} without keys; call key_by"):
            left.connect(right).process(Ending())
