"""Interval joins: bounds, late records and a whole program."""

from collections.abc import Iterable
from typing import Any

import pytest

from headgate.api.draft import TranslationContext
from headgate.base.errors import PlanInvalid
from headgate.common import Duration, Time, Types
from headgate.core.operators.interval_join import IntervalJoinOperator
from headgate.datastream import (
    DataStream,
    KeyedStream,
    OutputTag,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)
from headgate.functions.watermarks import TimestampAssigner, WatermarkStrategy


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Pair(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left[2], right[2], ctx.timestamp()


def timed(env: StreamExecutionEnvironment, records: list[Any]) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    return env.from_collection(records).assign_timestamps_and_watermarks(strategy)


def first(value: Any) -> Any:
    return value[0]


@pytest.fixture
def streams(env: StreamExecutionEnvironment) -> tuple[KeyedStream, KeyedStream]:
    left = timed(env, [("a", 10, "l10"), ("b", 10, "other"), ("a", 20, "l20")])
    right = timed(env, [("a", 9, "r9"), ("a", 10, "r10"), ("a", 15, "r15"), ("a", 16, "r16")])
    return left.key_by(first), right.key_by(first)


def collected(stream: DataStream) -> list[Any]:
    return sorted(stream.execute_and_collect(limit=99))


def test_pairs_within_both_bounds_are_found(streams: tuple[KeyedStream, KeyedStream]) -> None:
    left, right = streams
    join = left.interval_join(right).between(Time.milliseconds(-1), Duration.of_millis(5))
    stream = join.process(Pair(), Types.PICKLED_BYTE_ARRAY())
    assert stream.get_name() == "Interval Join"
    assert collected(stream) == [("l10", "r10", 10), ("l10", "r15", 15), ("l10", "r9", 10)]


def test_bounds_may_be_left_out(streams: tuple[KeyedStream, KeyedStream]) -> None:
    left, right = streams
    join = left.interval_join(right).in_event_time()
    between = join.between(Time.milliseconds(-1), Time.milliseconds(5))
    between.lower_bound_exclusive().upper_bound_exclusive()
    assert collected(between.process(Pair())) == [("l10", "r10", 10)]


def test_both_sides_travel_by_their_keys(
    env: StreamExecutionEnvironment, streams: tuple[KeyedStream, KeyedStream]
) -> None:
    left, right = streams
    stream = left.interval_join(right).between(Time(0), Time(0)).process(Pair())
    graph = env.get_stream_graph()
    edges = graph.inputs_of(stream._origins[0].transformation.id)
    assert [(edge.input, edge.ship.name) for edge in edges] == [(0, "HASH"), (1, "HASH")]
    assert type(graph.nodes[edges[0].target].make()) is IntervalJoinOperator


def test_late_records_can_be_read_by_tags(streams: tuple[KeyedStream, KeyedStream]) -> None:
    left, right = streams
    tags = OutputTag("late left"), OutputTag("late right")
    between = left.interval_join(right).between(Time(0), Time(0))
    between.side_output_left_late_data(tags[0]).side_output_right_late_data(tags[1])
    stream = between.process(Pair())
    operator = stream._origins[0].transformation.translate(TranslationContext(1, False))()
    assert operator._interval.late_tags == ("late left", "late right")  # type: ignore[attr-defined]
    assert collected(stream.get_side_output(tags[0])) == []


def test_what_does_not_fit_is_refused(
    env: StreamExecutionEnvironment, streams: tuple[KeyedStream, KeyedStream]
) -> None:
    left, right = streams
    with pytest.raises(PlanInvalid, match=r"interval_join\(\) was given a stream without keys"):
        left.interval_join(right.original)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"interval_join\(\) was given 5"):
        left.interval_join(5)  # type: ignore[arg-type]
    join = left.interval_join(right)
    with pytest.raises(PlanInvalid, match=r"between\(\) was given 5; give a span of time"):
        join.between(5, Time(1))
    with pytest.raises(PlanInvalid, match="from 2 to 1 ms, so that no pair can be in it"):
        join.between(Time(2), Time(1))
    with pytest.raises(PlanInvalid, match="from 1 to 0 ms"):
        join.between(Time(0), Time(0)).lower_bound_exclusive().process(Pair())
    with pytest.raises(PlanInvalid, match="needs event time"):
        join.in_processing_time()
    between = join.between(Time(0), Time(0))
    with pytest.raises(PlanInvalid, match=r"side_output_left_late_data\(\) was given 'late'"):
        between.side_output_left_late_data("late")  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="ProcessJoinFunction, which has process_element"):
        between.process(5)  # type: ignore[arg-type]
    untimed = env.from_collection([("a", 1)]).key_by(first)
    with pytest.raises(PlanInvalid, match="the records on its right have no timestamps"):
        left.interval_join(untimed).between(Time(0), Time(0)).process(Pair())
