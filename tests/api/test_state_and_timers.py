"""What functions rely on: state, timers, side outputs and None, a test for each sentence."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from headgate.common import Row, Types
from headgate.datastream import (
    CoMapFunction,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from headgate.datastream.functions import AggregateFunction
from headgate.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from headgate.functions.watermarks import TimestampAssigner, WatermarkStrategy


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def timed(env: StreamExecutionEnvironment, records: Iterable[Any]) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    return env.from_collection(list(records)).assign_timestamps_and_watermarks(strategy)


def first(record: Any) -> Any:
    return record[0]


def collected(stream: DataStream) -> list[Any]:
    return list(stream.execute_and_collect(limit=999))


class Gather(AggregateFunction[Any, Any, Any]):
    """Its accumulator is a list that is changed in place."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return list(accumulator)

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        return acc_a + acc_b


class AllStates(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("v", Types.INT()))
        self.list = runtime_context.get_list_state(ListStateDescriptor("l"))
        self.map = runtime_context.get_map_state(MapStateDescriptor("m"))
        self.reduced = runtime_context.get_reducing_state(
            ReducingStateDescriptor("r", lambda a, b: a + b)
        )
        self.folded = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("a", Gather())
        )

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield from self.handled(value)

    def handled(self, value: Any) -> Iterator[Any]:
        raise NotImplementedError


# State


def test_empty_state_is_none_or_an_empty_iterable(env: StreamExecutionEnvironment) -> None:
    class Look(AllStates):
        def handled(self, value: Any) -> Iterator[Any]:
            yield self.value.value(), list(self.list.get()), self.map.get("x"), self.map["x"]
            yield self.reduced.get(), self.folded.get(), self.map.is_empty(), "x" in self.map

    found = collected(env.from_collection([("a", 1)]).key_by(first).process(Look()))
    assert found == [(None, [], None, None), (None, None, True, False)]


def test_typed_state_refuses_none(env: StreamExecutionEnvironment) -> None:
    class Forget(AllStates):
        def handled(self, value: Any) -> Iterator[Any]:
            self.value.update(None)
            yield 0

    with pytest.raises(TypeError, match="'v'"):
        collected(env.from_collection([("a", 1)]).key_by(first).process(Forget()))


def test_map_state_takes_a_whole_dict_and_brackets_in_and_del(
    env: StreamExecutionEnvironment,
) -> None:
    class Fill(AllStates):
        def handled(self, value: Any) -> Iterator[Any]:
            self.map.put_all({"a": 1, "b": 2, "c": 3})
            del self.map["b"]
            self.map["d"] = 4
            yield sorted(self.map.items()), "a" in self.map, "b" in self.map, sorted(self.map)

    found = collected(env.from_collection([("a", 1)]).key_by(first).process(Fill()))
    assert found == [([("a", 1), ("c", 3), ("d", 4)], True, False, ["a", "c", "d"])]


def test_state_exists_only_on_keyed_streams(env: StreamExecutionEnvironment) -> None:
    class Plain(ProcessFunction[Any, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_state(ValueStateDescriptor("v"))

        def process_element(self, value: Any, ctx: Any) -> Any: ...

    with pytest.raises(RuntimeError, match="only accessible by functions executed on a KeyedStr"):
        collected(env.from_collection([1]).process(Plain()))


def test_timers_exist_only_on_keyed_streams(env: StreamExecutionEnvironment) -> None:
    class Plain(ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Any:
            ctx.timer_service().register_event_time_timer(1)

    with pytest.raises(RuntimeError, match="timers are only there for functions on a keyed stream"):
        collected(env.from_collection([1]).process(Plain()))


def test_an_accumulator_is_never_shared_between_keys(env: StreamExecutionEnvironment) -> None:
    class Add(AllStates):
        def handled(self, value: Any) -> Iterator[Any]:
            self.folded.add(value[1])
            yield value[0], self.folded.get()

    found = collected(
        env.from_collection([("a", 1), ("b", 2), ("a", 3), ("b", 4)]).key_by(first).process(Add())
    )
    assert found == [("a", [1]), ("b", [2]), ("a", [1, 3]), ("b", [2, 4])]


def test_each_key_sees_its_own_state_of_every_kind(env: StreamExecutionEnvironment) -> None:
    class Fill(AllStates):
        def handled(self, value: Any) -> Iterator[Any]:
            self.value.update(value[1])
            self.list.add(value[1])
            self.map.put(value[1], True)
            self.reduced.add(value[1])
            yield (
                value[0],
                self.value.value(),
                list(self.list.get()),
                sorted(self.map.keys()),
                self.reduced.get(),
            )

    records = [("a", 1), ("b", 10), ("a", 2)]
    found = collected(env.from_collection(records).key_by(first).process(Fill()))
    assert found[1:] == [("b", 10, [10], [10], 10), ("a", 2, [1, 2], [1, 2], 3)]


# Time


class Timers(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        timers = ctx.timer_service()
        for time_ms in value[2:]:
            timers.register_event_time_timer(time_ms)
        timers.register_processing_time_timer(timers.current_processing_time() + 3_600_000)
        yield "record", ctx.timestamp(), timers.current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        timers = ctx.timer_service()
        yield ctx.time_domain().name, timestamp, ctx.timestamp(), timers.current_watermark()


def test_the_end_of_input_fires_every_timer_of_event_time_in_order_and_each_once(
    env: StreamExecutionEnvironment,
) -> None:
    stream = timed(env, [("a", 1, 30, 10, 30), ("a", 2, 20, 10)]).key_by(first).process(Timers())
    last = MAX_WATERMARK_MS
    assert collected(stream) == [
        ("record", 1, MIN_WATERMARK_MS),
        ("record", 2, MIN_WATERMARK_MS),
        ("EVENT_TIME", 10, 10, last),
        ("EVENT_TIME", 20, 20, last),
        ("EVENT_TIME", 30, 30, last),
    ]


def test_the_timestamp_without_an_assigner_is_the_smallest_not_none(
    env: StreamExecutionEnvironment,
) -> None:
    stream = env.from_collection([("a", 1)]).key_by(first).process(Timers())
    assert collected(stream) == [("record", MIN_WATERMARK_MS, MIN_WATERMARK_MS)]


def test_a_timer_that_was_deleted_does_not_fire(env: StreamExecutionEnvironment) -> None:
    class Undo(Timers):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield from super().process_element(value, ctx)
            ctx.timer_service().delete_event_time_timer(20)
            ctx.timer_service().delete_event_time_timer(99)

    stream = timed(env, [("a", 1, 10, 20, 30)]).key_by(first).process(Undo())
    assert [found[1] for found in collected(stream)] == [1, 10, 30]


def test_what_on_timer_yields_has_the_time_of_the_timer(env: StreamExecutionEnvironment) -> None:
    class Times(ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value[0], ctx.timestamp()

    stream = timed(env, [("a", 7, 10)]).key_by(first).process(Timers()).process(Times())
    assert collected(stream) == [("record", 7), ("EVENT_TIME", 10)]


# Side outputs


class Sides(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(5)
        yield value
        yield OutputTag("side"), value[1]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield OutputTag("side"), "timer"


def test_an_equal_new_tag_reads_a_side_output_also_of_timers(
    env: StreamExecutionEnvironment,
) -> None:
    stream = env.from_collection([("a", 1)]).key_by(first).process(Sides())
    assert collected(stream.get_side_output(OutputTag("side"))) == [1, "timer"]


def test_a_side_output_that_nobody_reads_does_not_leak_into_the_main_stream(
    env: StreamExecutionEnvironment,
) -> None:
    stream = env.from_collection([("a", 1)]).key_by(first).process(Sides())
    assert collected(stream) == [("a", 1)]


def test_the_same_tag_on_two_operators_is_two_streams(env: StreamExecutionEnvironment) -> None:
    ones = env.from_collection([("a", 1)]).key_by(first).process(Sides())
    twos = env.from_collection([("a", 2)]).key_by(first).process(Sides())
    tag = OutputTag("side")
    assert collected(ones.get_side_output(tag)) == [1, "timer"]
    assert collected(twos.get_side_output(tag)) == [2, "timer"]


# None, and emission by value


def test_a_map_may_return_none(env: StreamExecutionEnvironment) -> None:
    assert collected(env.from_collection([1, 2]).map(lambda value: None)) == [None, None]


def test_a_flat_map_that_returns_none_is_an_error(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(TypeError, match="a flat_map function must return an iterable"):
        collected(env.from_collection([1]).flat_map(lambda value: None))  # type: ignore[arg-type]


def test_an_on_timer_that_returns_none_is_an_error(env: StreamExecutionEnvironment) -> None:
    class Nothing(Sides):
        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            return None

    with pytest.raises(TypeError, match="on_timer must return an iterable"):
        collected(env.from_collection([("a", 1)]).key_by(first).process(Nothing()))


def test_a_co_map_drops_none(env: StreamExecutionEnvironment) -> None:
    class Odd(CoMapFunction[int, int, int]):
        def map1(self, value: int) -> int | None:
            return value if value % 2 else None

        def map2(self, value: int) -> None:
            return None

    pair = env.from_collection([1, 2, 3]).connect(env.from_collection([4]))
    assert collected(pair.map(Odd())) == [1, 3]


def test_a_process_element_may_return_none(env: StreamExecutionEnvironment) -> None:
    class Nothing(ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Any:
            return None

    assert collected(env.from_collection([1]).process(Nothing())) == []


def test_a_row_that_is_changed_after_it_was_sent_stays_as_it_was(
    env: StreamExecutionEnvironment,
) -> None:
    class Sum(KeyedProcessFunction[Any, Any, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.row = Row("a", 0)

        def process_element(self, value: Any, ctx: Any) -> Any:
            self.row[1] += value[1]
            yield self.row

    stream = env.from_collection([("a", n) for n in (1, 2, 3)]).key_by(first).process(Sum())
    assert collected(stream) == [Row("a", 1), Row("a", 3), Row("a", 6)]


@pytest.mark.parametrize("key", [None, ["a"], {"a": 1}], ids=str)
def test_keys_need_not_be_hashable_and_none_is_a_key_like_any_other(
    env: StreamExecutionEnvironment, key: Any
) -> None:
    class Count(AllStates):
        def handled(self, value: Any) -> Iterator[Any]:
            self.value.update((self.value.value() or 0) + 1)
            yield value[0], self.value.value()

    keyed = env.from_collection([(key, 1), ("other", 1), (key, 1)]).key_by(first)
    assert collected(keyed.process(Count())) == [(key, 1), ("other", 1), (key, 2)]
    assert [n for _, n in collected(keyed.sum(1))] == [1, 1, 2]
