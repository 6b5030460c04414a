"""Broadcast streams: how they travel, what fits them, and a whole program."""

from collections.abc import Iterable
from typing import Any

import pytest

from headgate.base.errors import PlanInvalid
from headgate.common import Types
from headgate.core.operators.broadcast import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from headgate.datastream import (
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastStream,
    KeyedBroadcastProcessFunction,
    KeySelector,
    StreamExecutionEnvironment,
)
from headgate.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Apply(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value, dict(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        ctx.get_broadcast_state(RULES).put(*value)
        yield "rule", value


class KeyedApply(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.seen.update((self.seen.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(10)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(*value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        limit = ctx.get_broadcast_state(RULES).get("limit")
        yield ctx.get_current_key(), self.seen.value(), limit, ctx.timestamp()


class ByFirst(KeySelector[Any, Any]):
    def get_key(self, value: Any) -> Any:
        return value[0]


@pytest.fixture
def rules(env: StreamExecutionEnvironment) -> BroadcastStream:
    return env.set_parallelism(2).from_collection([("limit", 3)]).broadcast(RULES)


def test_broadcast_with_a_descriptor_makes_a_broadcast_stream(
    env: StreamExecutionEnvironment, rules: BroadcastStream
) -> None:
    assert isinstance(rules, BroadcastStream)
    connected = env.from_collection(["a"]).connect(rules)
    assert isinstance(connected, BroadcastConnectedStream)
    stream = connected.process(Apply(), Types.STRING())
    graph = env.get_stream_graph()
    assert [(edge.input, edge.ship.name) for edge in graph.inputs_of(3)] == [
        (0, "FORWARD"),
        (1, "BROADCAST"),
    ]
    assert type(graph.nodes[3].make()) is BroadcastProcessOperator
    assert (stream.get_type(), stream.get_name()) == (Types.STRING(), "Broadcast Process")


def test_broadcast_without_a_descriptor_is_a_way_to_travel(
    env: StreamExecutionEnvironment,
) -> None:
    env.from_collection([1]).broadcast().map(str)
    (edge,) = env.get_stream_graph().edges
    assert edge.ship.name == "BROADCAST"


def test_the_normal_side_reads_what_the_broadcast_side_wrote(
    env: StreamExecutionEnvironment, rules: BroadcastStream
) -> None:
    after = env.from_collection(["a"])
    found = after.connect(rules).process(Apply()).execute_and_collect(limit=9)
    assert found == [("a", {}), ("rule", ("limit", 3))]


def test_a_keyed_side_travels_by_its_keys_and_has_state_and_timers(
    env: StreamExecutionEnvironment, rules: BroadcastStream
) -> None:
    keyed = env.from_collection([("a", 1), ("b", 1), ("a", 1)]).key_by(ByFirst())
    stream = keyed.connect(rules).process(KeyedApply())
    graph = env.get_stream_graph()
    assert [edge.ship.name for edge in graph.inputs_of(3)] == ["HASH", "BROADCAST"]
    assert type(graph.nodes[3].make()) is KeyedBroadcastProcessOperator
    found = stream.execute_and_collect(limit=9)
    assert sorted(found) == [("a", 2, 3, 10), ("b", 1, 3, 10)]


def test_an_undeclared_descriptor_is_accepted(
    env: StreamExecutionEnvironment,
) -> None:
    other = env.from_collection([("limit", 3)]).broadcast(MapStateDescriptor("other"))
    found = env.from_collection(["a"]).connect(other).process(Apply()).execute_and_collect(limit=9)
    assert found == [("a", {}), ("rule", ("limit", 3))]


def test_what_does_not_fit_is_refused(
    env: StreamExecutionEnvironment, rules: BroadcastStream
) -> None:
    stream = env.from_collection([("a", 1)])
    with pytest.raises(PlanInvalid, match=r"broadcast\(\) was given ListState.*MapStateDescriptor"):
        stream.broadcast(RULES, ListStateDescriptor("list"))  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="process_element and process_broadcast_element"):
        stream.connect(rules).process(5)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"KeyedApply, a KeyedBroadcast.*without keys; make it"):
        stream.connect(rules).process(KeyedApply())
    with pytest.raises(PlanInvalid, match=r"Apply, a BroadcastProcessFunction.*with keys; make it"):
        stream.key_by(ByFirst()).connect(rules).process(Apply())
    with pytest.raises(PlanInvalid, match="travels by its keys"):
        stream.key_by(ByFirst()).broadcast(RULES)
    elsewhere = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    with pytest.raises(PlanInvalid, match="two environments"):
        elsewhere.connect(rules)
