"""Programs that cannot work are refused where they are written, with what to write instead."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.base.errors import PlanInvalid
from headgate.common import Time, WatermarkStrategy
from headgate.datastream import (
    BroadcastProcessFunction,
    CoProcessFunction,
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessAllWindowFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from headgate.datastream.window import CountTrigger, TumblingEventTimeWindows
from tests.api.bad_functions import made

SECOND = TumblingEventTimeWindows.of(Time.seconds(1))
RECORDS = [("a", 1), ("b", 2)]


def first(record: Any) -> Any:
    return record[0]


def timed(env: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, before: int(record[1])
    )
    return env.from_collection(RECORDS).assign_timestamps_and_watermarks(strategy)


Write = Callable[[DataStream], object]
WRONG: dict[str, tuple[Write, str]] = {
    "keyed function without keys": (
        lambda s: s.process(made(KeyedProcessFunction)),
        r"MyKeyedProcessFunction, a KeyedProcessFunction, on a stream without keys; call key_by",
    ),
    "join function in process": (
        lambda s: s.process(made(ProcessJoinFunction)),
        "given MyProcessJoinFunction, which is made for another kind of stream; derive it from",
    ),
    "broadcast function in process": (
        lambda s: s.process(made(BroadcastProcessFunction)),
        "given MyBroadcastProcessFunction, .*; derive it from ProcessFunction",
    ),
    "join function on keys": (
        lambda s: s.key_by(first).process(made(ProcessJoinFunction)),
        "given MyProcessJoinFunction, .*; derive it from KeyedProcessFunction",
    ),
    "process function in an interval join": (
        lambda s: (
            s.key_by(first)
            .interval_join(s.key_by(first))
            .between(Time.seconds(0), Time.seconds(1))
            .process(made(KeyedProcessFunction))
        ),
        "given MyKeyedProcessFunction, .*; derive it from ProcessJoinFunction",
    ),
    "two-input function in process": (
        lambda s: s.process(made(CoProcessFunction)),  # type: ignore[arg-type]
        "give a ProcessFunction, which has process_element",
    ),
    "flat map function in map": (
        lambda s: s.map(made(FlatMapFunction)),
        r"map\(\) was given .*; give a callable or a MapFunction",
    ),
    "map function in filter": (
        lambda s: s.filter(made(MapFunction)),
        r"filter\(\) was given .*; give a callable or a FilterFunction",
    ),
    "map function in flat_map": (
        lambda s: s.flat_map(made(MapFunction)),
        r"flat_map\(\) was given .*; give a callable or a FlatMapFunction",
    ),
    "map function in reduce": (
        lambda s: s.key_by(first).reduce(made(MapFunction)),
        r"reduce\(\) was given .*; give a callable or a ReduceFunction",
    ),
    "map function in key_by": (
        lambda s: s.key_by(made(MapFunction)),
        r"key_by\(\) was given the key selector .*; give a callable or a KeySelector",
    ),
    "class of a map function": (
        lambda s: s.map(type(made(MapFunction))),
        r"map\(\) was given the class MyMapFunction; give an object of it: MyMapFunction\(\)",
    ),
    "class of a process function": (
        lambda s: s.key_by(first).process(type(made(KeyedProcessFunction))),  # type: ignore[arg-type]
        r"the class MyKeyedProcessFunction; give an object of it",
    ),
    "callable in process": (
        lambda s: s.process(lambda value: value),  # type: ignore[arg-type]
        "give a ProcessFunction, which has process_element",
    ),
    "function for all windows on windows of keys": (
        lambda s: s.key_by(first).window(SECOND).process(made(ProcessAllWindowFunction)),
        "no function for windows of a keyed stream; derive it from ProcessWindowFunction",
    ),
    "function for windows of keys on all windows": (
        lambda s: s.window_all(SECOND).process(made(ProcessWindowFunction)),
        "no function for windows without keys; derive it from ProcessAllWindowFunction",
    ),
    "window function in process": (
        lambda s: s.key_by(first).window(SECOND).process(made(WindowFunction)),
        "give a ProcessWindowFunction, which has process",
    ),
    "class of an assigner": (
        lambda s: s.key_by(first).window(TumblingEventTimeWindows),  # type: ignore[arg-type]
        "the class TumblingEventTimeWindows; give an object",
    ),
    "number in place of a time": (
        lambda s: s.key_by(first).window(TumblingEventTimeWindows.of(5)),
        r"was given 5; give a span of time, for instance Time.seconds\(5\)",
    ),
    "callable in aggregate": (
        lambda s: s.key_by(first).window(SECOND).aggregate(max),  # type: ignore[arg-type]
        "give an AggregateFunction, which has create_accumulator",
    ),
    "class of a trigger": (
        lambda s: s.key_by(first).window(SECOND).trigger(CountTrigger),  # type: ignore[arg-type]
        "the class CountTrigger; give an object",
    ),
    "lateness below 0": (
        lambda s: s.key_by(first).window(SECOND).allowed_lateness(-1),
        "was given -1; give milliseconds, 0 or more",
    ),
    "nothing as a sink": (
        lambda s: s.add_sink(None),  # type: ignore[arg-type]
        r"add_sink\(\) was given None; give a callable or a SinkFunction",
    ),
    "type of Python": (
        lambda s: s.map(str, str),  # type: ignore[arg-type]
        r"the type is <class 'str'>; give one such as Types.INT\(\)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_slip_is_told_where_it_is_written(env: StreamExecutionEnvironment, case: str) -> None:
    write, message = WRONG[case]
    with pytest.raises(PlanInvalid, match=message):
        write(timed(env))


@pytest.mark.parametrize("keyed", [True, False])
def test_windows_in_event_time_on_records_without_times_are_refused(
    env: StreamExecutionEnvironment, keyed: bool
) -> None:
    records = env.from_collection(RECORDS)
    with pytest.raises(PlanInvalid, match=r"no timestamps; call assign_timestamps_and_watermarks"):
        records.key_by(first).window(SECOND) if keyed else records.window_all(SECOND)
