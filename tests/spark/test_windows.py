"""Windows from end to end on a local Spark: event time, late records, joins, several tasks."""

from collections.abc import Iterable
from typing import Any

import pytest

from headgate.common import Duration, Time, Types, WatermarkStrategy
from headgate.datastream import (
    AggregateFunction,
    DataStream,
    JoinFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from headgate.datastream.window import (
    EventTimeSessionWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from tests.spark.programs import collected, environment

pytestmark = pytest.mark.usefixtures("spark")

BIDS = [("a", 5, 1_000), ("b", 7, 1_500), ("a", 3, 2_100), ("b", 1, 900), ("a", 9, 1_999)]
"""Who, how much, and when; not in the order of time."""


class Average(AggregateFunction[tuple, tuple, float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithWindow(ProcessWindowFunction[Any, tuple, str, TimeWindow]):
    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[Any],
    ) -> Iterable[Any]:
        for element in elements:
            yield key, context.window().start, element


def bids(env: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_seconds(5)
    ).with_timestamp_assigner(lambda bid, before: bid[2])
    kind = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
    return env.from_collection(BIDS, kind).assign_timestamps_and_watermarks(strategy)


@pytest.mark.spark_smoke
def test_windows_of_a_second_are_aggregated_by_key() -> None:
    windows = (
        bids(environment())
        .key_by(lambda bid: bid[0], Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.seconds(1)))
        .aggregate(
            Average(),
            WithWindow(),
            accumulator_type=Types.TUPLE([Types.LONG(), Types.LONG()]),
            output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()]),
        )
    )
    assert collected(windows) == [
        ("a", 1000, 7.0),
        ("a", 2000, 3.0),
        ("b", 0, 1.0),
        ("b", 1000, 7.0),
    ]


def test_sessions_are_reduced_by_key() -> None:
    windows = (
        bids(environment())
        .key_by(lambda bid: bid[0])
        .window(EventTimeSessionWindows.with_gap(Time.milliseconds(500)))
        .reduce(lambda before, row: (before[0], before[1] + row[1], max(before[2], row[2])))
    )
    assert collected(windows) == [("a", 5, 1000), ("a", 12, 2100), ("b", 1, 900), ("b", 7, 1500)]


class Both(JoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Any:
        return first[0], first[1], second[1]


def test_two_streams_are_joined_in_windows() -> None:
    env = environment()
    joined = (
        bids(env)
        .join(bids(env).filter(lambda bid: bid[1] > 5))
        .where(lambda bid: bid[0])
        .equal_to(lambda bid: bid[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(1)))
        .apply(Both())
    )
    assert collected(joined) == [("a", 5, 9), ("a", 9, 9), ("b", 7, 7)]


def test_window_all_brings_all_tasks_together() -> None:
    total = (
        bids(environment())
        .map(lambda bid: bid[1])
        .window_all(TumblingEventTimeWindows.of(Time.seconds(10)))
    )
    assert collected(total.sum()) == [25]
