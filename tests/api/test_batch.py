"""The same programs in streaming and in batch: what comes out is the same, final and in order."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.common import Time, WatermarkStrategy
from headgate.core.operators.sorted_input import SortedInput
from headgate.datastream import (
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    MapFunction,
    ProcessJoinFunction,
    ReduceFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from headgate.datastream.state import ValueStateDescriptor
from headgate.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

BATCH, STREAMING = RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING
RECORDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-30, 30)), min_size=1, max_size=25)
SLOW_FIXTURES = settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def timed(mode: RuntimeExecutionMode, records: list[Any]) -> DataStream:
    """Records (key, time, …) with their times."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(mode)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(time_of)
    return env.from_collection(records).assign_timestamps_and_watermarks(strategy)


def keyed(mode: RuntimeExecutionMode, records: list[Any]) -> KeyedStream:
    return timed(mode, records).key_by(first)


def time_of(record: Any, before: int) -> int:
    return int(record[1])


def first(record: Any) -> Any:
    return record[0]


def collected(stream: DataStream) -> list[Any]:
    with stream.execute_and_collect() as found:
        return list(found)


def sorts(stream: DataStream) -> bool:
    """Whether the operator of a stream gets its records sorted."""
    graph = stream.get_execution_environment().get_stream_graph()
    return isinstance(graph.nodes[stream._origins[0].transformation.id].make(), SortedInput)


LETTERS = [("x", 3, "c"), ("y", 1, "k"), ("x", 1, "a"), ("x", 2, "b"), ("y", 1, "l")]


def joined(left: Any, right: Any) -> Any:
    return left[0], left[1], left[2] + right[2]


def test_reduce_sends_one_result_for_each_key_in_the_order_of_times() -> None:
    results = collected(keyed(BATCH, LETTERS).reduce(joined))
    assert results == [("x", 1, "abc"), ("y", 1, "kl")]
    running = collected(keyed(STREAMING, LETTERS).reduce(joined))
    assert [text for key, _, text in running if key == "x"] == ["c", "ca", "cab"]


def test_sums_are_final() -> None:
    numbers = [("x", 5, 1), ("y", 4, 10), ("x", 3, 2)]
    assert collected(keyed(BATCH, numbers).sum(2)) == [("x", 3, 3), ("y", 4, 10)]
    assert collected(keyed(BATCH, numbers).max_by(1)) == [("x", 5, 1), ("y", 4, 10)]


def test_reduce_is_sorted_only_if_there_may_be_times_or_state() -> None:
    class Stateful(ReduceFunction[Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.state = runtime_context.get_state(ValueStateDescriptor("calls"))

        def reduce(self, value1: Any, value2: Any) -> Any:
            self.state.update((self.state.value() or 0) + 1)
            return (*value1, self.state.value())

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(BATCH)
    untimed = env.from_collection(["a", "b", "a"]).map(lambda word: (word,)).key_by(first)
    assert not sorts(untimed.reduce(lambda total, added: total + added))
    assert not sorts(untimed.sum(0))
    assert sorts(keyed(BATCH, LETTERS).reduce(joined))
    assert not sorts(keyed(STREAMING, LETTERS).reduce(joined))
    assert collected(untimed.reduce(lambda total, added: total + added)) == [("a", "a"), ("b",)]
    stateful = untimed.reduce(Stateful())
    assert sorts(stateful)
    assert sorted(collected(stateful)) == [("a", 1), ("b",)]


class Numbering(MapFunction[Any, Any]):
    """The number of a record among those of its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def map(self, value: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        return value[2], self.count.value()


def test_map_with_state_sees_the_records_of_a_key_by_time() -> None:
    found = collected(keyed(BATCH, LETTERS).map(Numbering()))
    assert found == [("a", 1), ("b", 2), ("c", 3), ("k", 1), ("l", 2)]


class Watching(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(100 - value[1])
        yield value[2], ctx.timer_service().current_watermark()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), timestamp, ctx.timer_service().current_watermark()


def test_process_sees_the_first_watermark_and_its_timers_the_last() -> None:
    least, last = -(2**63), 2**63 - 1
    assert collected(keyed(BATCH, LETTERS).process(Watching())) == [
        ("a", least),
        ("b", least),
        ("c", least),
        ("x", 97, last),
        ("x", 98, last),
        ("x", 99, last),
        ("k", least),
        ("l", least),
        ("y", 99, last),
    ]


def both(write: Any, *records: list[Any]) -> None:
    """A program has the same results in both modes, in whatever order."""
    streamed = collected(write(*(keyed(STREAMING, some) for some in records)))
    assert sorted(collected(write(*(keyed(BATCH, some) for some in records)))) == sorted(streamed)


def gathered(left: Any, right: Any) -> Any:
    """All numbers of a window, in whatever order they came."""
    return left[0], 0, tuple(sorted(left[2] + right[2]))


def numbered(records: list[Any]) -> list[Any]:
    return [(key, time_ms, (number,)) for number, (key, time_ms) in enumerate(records)]


@SLOW_FIXTURES
@given(records=RECORDS)
def test_windows_have_the_same_results(records: list[Any]) -> None:
    for windows in (
        TumblingEventTimeWindows.of(Time.milliseconds(10)),
        SlidingEventTimeWindows.of(Time.milliseconds(12), Time.milliseconds(5)),
        EventTimeSessionWindows.with_gap(Time.milliseconds(4)),
    ):
        both(
            lambda stream, windows=windows: stream.window(windows).reduce(gathered),
            numbered(records),
        )


@SLOW_FIXTURES
@given(records=RECORDS)
def test_windows_of_all_keys_have_the_same_results(records: list[Any]) -> None:
    windows = TumblingEventTimeWindows.of(Time.milliseconds(7))
    streamed, batched = (
        collected(timed(mode, numbered(records)).window_all(windows).reduce(gathered))
        for mode in (STREAMING, BATCH)
    )
    assert sorted(result[2] for result in batched) == sorted(result[2] for result in streamed)


def test_a_trigger_by_number_sees_records_by_time() -> None:
    records = [("a", 3), ("a", 1), ("b", 1), ("a", 2), ("a", 4)]
    windows = TumblingEventTimeWindows.of(Time.milliseconds(100))
    stream = keyed(BATCH, records).window(windows).trigger(CountTrigger.of(2))
    assert collected(stream.sum(1)) == [("a", 3), ("a", 10)]


def test_windows_by_the_clock_fire_at_the_end_of_their_key() -> None:
    windows = TumblingProcessingTimeWindows.of(Time.hours(1))
    assert collected(keyed(STREAMING, LETTERS).window(windows).reduce(joined)) == []
    found = collected(keyed(BATCH, LETTERS).window(windows).reduce(joined))
    assert [(key, text) for key, _, text in found] == [("x", "abc"), ("y", "kl")]


class Pair(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left, right, ctx.timestamp()


@SLOW_FIXTURES
@given(left=RECORDS, right=RECORDS)
def test_joins_have_the_same_results(left: list[Any], right: list[Any]) -> None:
    streams = {mode: of_both(mode, left, right) for mode in (BATCH, STREAMING)}
    windows = TumblingEventTimeWindows.of(Time.milliseconds(20))
    results = {
        mode: [
            sorted(
                collected(
                    lefts.join(rights)
                    .where(first)
                    .equal_to(first)
                    .window(windows)
                    .apply(lambda left, right: (left, right))
                )
            ),
            sorted(
                collected(
                    lefts.key_by(first)
                    .interval_join(rights.key_by(first))
                    .between(Time.milliseconds(-3), Time.milliseconds(5))
                    .process(Pair())
                )
            ),
        ]
        for mode, (lefts, rights) in streams.items()
    }
    assert results[BATCH] == results[STREAMING]


def of_both(mode: RuntimeExecutionMode, left: list[Any], right: list[Any]) -> Any:
    lefts = timed(mode, left)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(time_of)
    env = lefts.get_execution_environment()
    return lefts, env.from_collection(right).assign_timestamps_and_watermarks(strategy)


def test_memory_for_sorting_is_a_setting() -> None:
    stream = keyed(BATCH, LETTERS)
    env = stream.get_execution_environment()
    env.get_configuration().set_string("execution.sorted-inputs.memory", "3 mb")
    stream = stream.process(Watching())
    node = env.get_stream_graph().nodes[stream._origins[0].transformation.id]
    assert node.make.args[-1] == 3 << 20  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", [BATCH, STREAMING])
def test_functions_without_state_need_no_sorting(mode: RuntimeExecutionMode) -> None:
    assert not sorts(keyed(mode, LETTERS).map(first))
    assert sorts(keyed(mode, LETTERS).map(Numbering())) is (mode is BATCH)
