"""Keyed state, timers, broadcast state and interval joins, on a local Spark from end to end."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from headgate.base.errors import HeadgateError
from headgate.common import Time, Types
from headgate.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from headgate.datastream import (
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)
from headgate.datastream.state import MapStateDescriptor, ValueStateDescriptor
from tests.spark.programs import collected, environment

pytestmark = pytest.mark.usefixtures("spark")


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def timed(env: StreamExecutionEnvironment, records: Iterable[Any]) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    return env.from_collection(list(records)).assign_timestamps_and_watermarks(strategy)


def first(record: Any) -> Any:
    return record[0]


class Total(KeyedProcessFunction[Any, Any, Any]):
    """Adds up, and sends the sum of a key when its timer fires."""

    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.sum.update((self.sum.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(1_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), self.sum.value(), timestamp


def test_state_and_timers_of_a_key_are_in_one_task() -> None:
    records = [(f"k{n % 7}", n) for n in range(700)]
    found = collected(timed(environment(), records).rebalance().key_by(first).process(Total()))
    sums = {f"k{k}": sum(range(k, 700, 7)) for k in range(7)}
    assert found == [(key, total, 1_000) for key, total in sums.items()]


FACTORS = MapStateDescriptor("factors", Types.STRING(), Types.INT())


class Scaled(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Waits for the end, when every task surely knows the factors."""

    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.sum.update((self.sum.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(1_000)

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(FACTORS).put(*value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        factor = ctx.get_broadcast_state(FACTORS).get("all")
        yield ctx.get_current_key(), self.sum.value() * factor


def test_every_task_has_the_broadcast_state() -> None:
    env = environment()
    factors = env.from_collection([("all", 10)]).broadcast(FACTORS)
    keyed = timed(env, [(n % 5, n) for n in range(50)]).key_by(first)
    found = collected(keyed.connect(factors).process(Scaled()))
    assert found == [(key, 10 * sum(range(key, 50, 5))) for key in range(5)]


class Pair(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left[0], left[1], right[1]


def test_an_interval_join_finds_its_pairs() -> None:
    env = environment()
    records = [(n % 3, n) for n in range(30)]
    left, right = timed(env, records).key_by(first), timed(env, records).key_by(first)
    bounds = Time.milliseconds(0), Time.milliseconds(3)
    found = collected(left.interval_join(right).between(*bounds).process(Pair()))
    assert found == sorted((n % 3, n, m) for n in range(30) for m in (n, n + 3) if m < 30)


def test_a_key_selector_that_fails_names_the_operator_that_is_keyed() -> None:
    stream = environment().from_collection([{}]).map(dict).name("before")
    keyed = stream.key_by(lambda record: record["id"]).process(Total()).name("totals")
    with pytest.raises(HeadgateError, match="'totals' failed when the key of a record.*'id'"):
        collected(keyed)
