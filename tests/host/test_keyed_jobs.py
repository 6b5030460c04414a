"""Whole programs with keyed state, timers and two inputs, in several tasks on a real exchange.

Each task has a copy of the functions, as it has when they travel; sinks keep their lists.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pytest

import headgate
from headgate.api.program import build_graph
from headgate.api.runtime import set_runtime
from headgate.base.elements import MAX_WATERMARK_MS
from headgate.base.errors import UserFunctionFailed
from headgate.common import Time
from headgate.core.operators.one_input import KeyedProcessOperator
from headgate.datastream import (
    BroadcastProcessFunction,
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)
from headgate.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from headgate.functions.watermarks import TimestampAssigner, WatermarkStrategy
from headgate.host.net.exchange import Exchange
from headgate.plan import ship_strategies as ships
from headgate.plan.stream_graph import NodeKind
from tests.api.kit import OneTaskRuntime
from tests.host.conftest import MakeExchange
from tests.host.local_job import Job, Run, reads
from tests.host.rig import eventually


@pytest.fixture
def exchange(make_exchange: MakeExchange) -> Exchange:
    return make_exchange(local_only=True)


@pytest.fixture
def env() -> Iterator[StreamExecutionEnvironment]:
    set_runtime(OneTaskRuntime)
    yield StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    set_runtime(headgate._open_runtime)


def deployed(env: StreamExecutionEnvironment, exchange: Exchange) -> Run:
    job = Job()
    job.graph = build_graph(env._draft, "test job", env._draft.pending)
    for node in job.graph.nodes.values():
        if node.kind is not NodeKind.SINK:
            node.make = Copied(node.make)
    return Run(job, exchange)


class Copied:
    def __init__(self, make: Any) -> None:
        self.make = make

    def __call__(self) -> Any:
        return copy.deepcopy(self.make)()


def run(env: StreamExecutionEnvironment, exchange: Exchange) -> None:
    running = deployed(env, exchange)
    running.run()
    running.close()


def kept(stream: DataStream) -> list[Any]:
    found: list[Any] = []
    stream.add_sink(found.append)
    return found


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def timed(env: StreamExecutionEnvironment, records: Iterable[Any]) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    return env.from_collection(list(records)).assign_timestamps_and_watermarks(strategy)


def first(record: Any) -> Any:
    return record[0]


class Numbering(MapFunction[Any, Any]):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def map(self, value: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        return first(value), self.count.value()


@pytest.mark.parametrize("key", ["text", None, ["list", 1], {"a": [1]}], ids=str)
def test_the_state_of_a_key_is_in_one_task_whatever_the_key_is(
    env: StreamExecutionEnvironment, exchange: Exchange, key: Any
) -> None:
    records = [(copy.deepcopy(key) if n % 2 else n % 5, n) for n in range(100)]
    found = kept(env.from_collection(records).rebalance().key_by(first).map(Numbering()))
    run(env, exchange)
    assert sorted(n for k, n in found if k == key) == list(range(1, 51))
    assert Counter(repr(k) for k, _ in found if k != key) == Counter(
        repr(n % 5) for n in range(0, 100, 2)
    )


class Closing(KeyedProcessFunction[Any, Any, Any]):
    """A timer for each record; tells event time when it fires."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.seen.add(value[1])
        timers = ctx.timer_service()
        timers.register_event_time_timer(ctx.timestamp() + 1000)
        timers.register_event_time_timer(ctx.timestamp() + 1000)
        timers.register_processing_time_timer(timers.current_processing_time() + 3_600_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        assert ctx.timestamp() == timestamp
        yield ctx.get_current_key(), timestamp, ctx.timer_service().current_watermark()
        yield OutputTag("state"), (timestamp, sorted(self.seen.get()))


def test_at_the_end_every_timer_of_event_time_fires_once_in_order_and_those_of_the_clock_do_not(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    records = [(key, time_ms) for time_ms in range(50) for key in "abc"]
    stream = timed(env, records).key_by(first).process(Closing())
    found, states = kept(stream), kept(stream.get_side_output(OutputTag("state")))
    run(env, exchange)
    assert sorted(found) == sorted((k, t + 1000, MAX_WATERMARK_MS) for k, t in records)
    for key in "abc":
        times = [time_ms for k, time_ms, _ in found if k == key]
        assert times == sorted(times)
    assert {time_ms for time_ms, _ in states} == set(range(1000, 1050))
    assert all(seen == list(range(50)) for _, seen in states)


class Ringing(KeyedProcessFunction[Any, Any, Any]):
    """Sends each record a little later, by the clock."""

    def process_element(self, value: Any, ctx: Any) -> None:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 5)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key()


def test_timers_of_the_clock_fire_while_the_input_goes_on(exchange: Exchange) -> None:
    job = Job()
    numbers = job.source(range(20), endless=True)
    make = partial(KeyedProcessOperator, Ringing(), str)
    found = job.collect(job.operator(make, reads(numbers, ships.hash_by(str))))
    running = Run(job, exchange)
    running.deploy()
    eventually(lambda: len(found) == 20, "all timers")
    running.close()
    assert sorted(found) == sorted(map(str, range(20)))


class Meeting(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def open(self, runtime_context: Any) -> None:
        self.sides = runtime_context.get_map_state(MapStateDescriptor("sides"))

    def process_element1(self, value: Any, ctx: Any) -> Any:
        self.sides.put("one", (self.sides.get("one") or 0) + 1)
        ctx.timer_service().register_event_time_timer(1)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        self.sides.put("two", (self.sides.get("two") or 0) + 1)
        ctx.timer_service().register_event_time_timer(1)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return [(ctx.get_current_key(), dict(self.sides.items()))]


def test_both_inputs_of_a_keyed_pair_meet_in_one_task(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    left = env.from_collection([(n % 7, n) for n in range(70)])
    right = env.from_collection([(n, n % 7) for n in range(140)])
    found = kept(left.connect(right).key_by(first, lambda pair: pair[1]).process(Meeting()))
    run(env, exchange)
    assert sorted(found) == [(key, {"one": 10, "two": 20}) for key in range(7)]


RULES = MapStateDescriptor("rules")


class Sharing(BroadcastProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: Any) -> None:
        self.task = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: Any, ctx: Any) -> Any:
        return [("normal", value)]

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(value, self.task)
        yield "rule", self.task, sorted(ctx.get_broadcast_state(RULES).keys())


def test_every_subtask_sees_every_broadcast_record_and_its_outputs_appear_once_per_subtask(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    rules = env.from_collection(["a", "b"]).broadcast(RULES)
    found = kept(env.from_collection(range(10)).connect(rules).process(Sharing()))
    run(env, exchange)
    assert sorted(value for kind, value, *_ in found if kind == "normal") == list(range(10))
    expected = [("rule", task, keys) for task in (0, 1) for keys in (["a"], ["a", "b"])]
    assert sorted(record for record in found if record[0] == "rule") == expected


class Pair(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left[0], left[1], right[1], ctx.timestamp()


def test_an_interval_join_in_several_tasks_finds_all_pairs(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    lefts = [(n % 3, n) for n in range(60)]
    rights = [(n % 3, n + 1) for n in range(60)]
    left, right = timed(env, lefts).key_by(first), timed(env, rights).key_by(first)
    join = left.interval_join(right).between(Time.milliseconds(-2), Time.milliseconds(4))
    found = kept(join.process(Pair()))
    run(env, exchange)
    assert sorted(found) == sorted(
        (key, one_ms, two_ms, max(one_ms, two_ms))
        for key, one_ms in lefts
        for other, two_ms in rights
        if key == other and -2 <= two_ms - one_ms <= 4
    )


def test_an_error_of_a_key_selector_names_the_operator_that_is_keyed(
    env: StreamExecutionEnvironment, exchange: Exchange
) -> None:
    records = env.from_collection([{"id": 1}, {}]).map(dict).name("before")
    kept(records.key_by(lambda record: record["id"]).map(str).name("behind"))
    running = deployed(env, exchange)
    running.deploy()
    eventually(lambda: bool(running.errors), "the failure")
    running.close()
    failures = [error for error in running.errors.values() if isinstance(error, UserFunctionFailed)]
    assert {str(error) for error in failures} == {
        "operator 'behind' failed when the key of a record was selected: KeyError: 'id'"
    }
