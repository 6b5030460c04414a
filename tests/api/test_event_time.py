"""Which streams surely have no timestamps: the answer errs on the safe side."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.api.draft import surely_untimed
from headgate.common import WatermarkStrategy
from headgate.connectors.generator import NumberSequenceSource
from headgate.datastream import (
    DataStream,
    KeyedProcessFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from tests.api.kit import ListSource

TIMED = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda value, before: value)
UNTIMED = WatermarkStrategy.for_monotonous_timestamps()


class Plain(ProcessFunction[Any, Any]):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> list[Any]:
        return [value]


class Timers(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> list[Any]:
        return []

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[Any]:
        return [timestamp]


Write = Callable[[StreamExecutionEnvironment], DataStream]


@pytest.mark.parametrize(
    "write",
    [
        lambda env: env.from_collection([1]),
        lambda env: env.from_collection([1]).map(str).filter(bool).flat_map(list).rebalance(),
        lambda env: env.from_collection([1]).key_by(str).reduce(max),
        lambda env: env.from_collection([(1,)]).key_by(str).sum(0).project(0),
        lambda env: env.from_collection([1]).union(env.from_collection([2])),
        lambda env: env.from_collection([1]).process(Plain()),
        lambda env: env.from_collection([1]).assign_timestamps_and_watermarks(UNTIMED),
        lambda env: env.from_source(NumberSequenceSource(1, 2), UNTIMED),
    ],
)
def test_a_stream_without_any_times_is_surely_untimed(
    env: StreamExecutionEnvironment, write: Write
) -> None:
    assert surely_untimed(write(env)._origins)


@pytest.mark.parametrize(
    "write",
    [
        lambda env: env.from_collection([1]).assign_timestamps_and_watermarks(TIMED).map(str),
        lambda env: env.from_source(NumberSequenceSource(1, 2), TIMED),
        lambda env: env.from_source(ListSource([1])),
        lambda env: env.from_collection([1]).union(env.from_source(ListSource([1]))),
        lambda env: env.from_collection([1]).key_by(str).process(Timers()),
        lambda env: env.from_source(ListSource([1])).assign_timestamps_and_watermarks(UNTIMED),
    ],
)
def test_a_stream_that_may_have_times_is_not(env: StreamExecutionEnvironment, write: Write) -> None:
    assert not surely_untimed(write(env)._origins)


def test_a_stream_read_over_and_over_is_asked_once(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1])
    for _ in range(300):
        stream = stream.map(abs).union(stream.map(abs))
    assert surely_untimed(stream._origins)
