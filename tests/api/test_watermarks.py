"""Watermark strategies, as a user writes them, and the operators that come of them."""

import pickle
from typing import Any

import cloudpickle
import pytest

from headgate.base.elements import MAX_WATERMARK_MS, Bundle, Watermark
from headgate.base.errors import PlanInvalid
from headgate.common import Configuration, Duration, Time, Types, WatermarkStrategy
from headgate.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
)
from headgate.core.chain.operator import Operator
from headgate.core.chain.watermarks import OWN_TIME
from headgate.datastream import DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from headgate.functions.context import RuntimeContext
from tests.api.kit import ListSource
from tests.core.chain.time_kit import HandClock, Line, open_with


class ByFirst(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[0]  # type: ignore[no-any-return]


class EveryRecord(WatermarkGenerator):
    def on_event(self, event: Any, timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(Watermark(timestamp))

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


def seconds(count: int) -> Duration:
    return Duration.of_seconds(count)


def operator_of(stream: DataStream) -> Operator:
    """What a task makes of the last step, after a journey."""
    graph = stream.get_execution_environment().get_stream_graph()
    node = graph.nodes[stream._origins[0].transformation.id]
    make = pickle.loads(cloudpickle.dumps(node.make))
    made: Operator = make()
    return made


def lived(strategy: WatermarkStrategy, *times: int, env: Any = None) -> list[Any]:
    """What goes out if the records come in one bundle and the clock ticks afterwards."""
    env = env or StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([(1,)]).assign_timestamps_and_watermarks(strategy)
    operator, clock = operator_of(stream), HandClock()
    line = open_with(operator, clock)
    operator.process(Bundle([(time,) for time in times]), 0)
    clock.pass_ms(200)
    operator.finish()
    operator.close()
    return [
        element.timestamp if isinstance(element, Watermark) else element[1] for element in line.seen
    ]


def test_monotonous_timestamps_lag_by_a_millisecond() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByFirst())
    assert lived(strategy, 5, 9) == [5, 9, 8, MAX_WATERMARK_MS]


@pytest.mark.parametrize("span", [Duration.of_millis(3), Time.milliseconds(3)])
def test_bounded_timestamps_lag_by_the_bound_and_a_millisecond(span: Any) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(span)
    assert lived(strategy.with_timestamp_assigner(ByFirst()), 9, 5) == [9, 5, 5, MAX_WATERMARK_MS]


def test_a_plain_callable_assigns_timestamps_too() -> None:
    strategy = WatermarkStrategy.no_watermarks()
    assigned = strategy.with_timestamp_assigner(lambda value, before: 2 * value[0])
    assert lived(assigned, 9, 5) == [18, 10, MAX_WATERMARK_MS]
    assert not strategy.assigns_times, "a strategy never changes"


def test_without_an_assigner_records_stay_without_times() -> None:
    assert lived(WatermarkStrategy.for_monotonous_timestamps(), 9) == [None, MAX_WATERMARK_MS]


class Supplier:
    def create_watermark_generator(self, context: RuntimeContext) -> EveryRecord:
        assert context.get_number_of_parallel_subtasks() == 1
        return EveryRecord()


@pytest.mark.parametrize(
    "supplier",
    [EveryRecord, lambda: EveryRecord(), lambda context: EveryRecord(), Supplier()],
    ids=["class", "lambda", "with context", "object"],
)
def test_a_generator_of_the_user_speaks_after_its_records(supplier: Any) -> None:
    strategy = WatermarkStrategy.for_generator(supplier).with_timestamp_assigner(ByFirst())
    assert lived(strategy, 3, 7, 5) == [3, 3, 7, 7, 5, MAX_WATERMARK_MS]


def test_the_interval_is_a_setting(env: StreamExecutionEnvironment) -> None:
    assert env.get_config().get_auto_watermark_interval() == 200
    env.get_config().set_auto_watermark_interval(0)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByFirst())
    operator = operator_of(env.from_collection([1]).assign_timestamps_and_watermarks(strategy))
    clock = HandClock()
    open_with(operator, clock)
    assert clock.waiting == 0
    texts = Configuration().set_string("pipeline.auto-watermark-interval", "2 s".replace(" ", ""))
    assert env.configure(texts).get_config().get_auto_watermark_interval() == 2000


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "200"])
def test_an_interval_that_cannot_be_is_refused(env: StreamExecutionEnvironment, wrong: Any) -> None:
    with pytest.raises(PlanInvalid, match="give milliseconds, 0 or more"):
        env.get_config().set_auto_watermark_interval(wrong)


def test_a_batch_job_has_timestamps_and_only_the_last_watermark(
    env: StreamExecutionEnvironment,
) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    strategy = WatermarkStrategy.for_generator(EveryRecord).with_timestamp_assigner(ByFirst())
    strategy = strategy.with_idleness(seconds(1))
    assert lived(strategy, 3, 7, env=env) == [3, 7, MAX_WATERMARK_MS]


def source_line(env: StreamExecutionEnvironment, *arguments: Any) -> tuple[Line, HandClock]:
    operator = operator_of(env.from_source(ListSource([(5,), (3,)]), *arguments))
    clock = HandClock()
    line = open_with(operator, clock)
    operator.poll()  # type: ignore[attr-defined]
    clock.pass_ms(200)
    operator.poll()  # type: ignore[attr-defined]
    clock.pass_ms(200)
    operator.finish()
    operator.close()
    return line, clock


def test_a_source_takes_a_strategy(env: StreamExecutionEnvironment) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByFirst())
    line, _ = source_line(env, strategy, "numbers", Types.TUPLE([Types.INT()]))
    assert line.seen == [
        ((5,), 5),
        ((3,), 3),
        Watermark(2),
        Watermark(MAX_WATERMARK_MS),
    ], "the second split is not late after the first"


def test_a_source_without_a_strategy_has_no_clock(env: StreamExecutionEnvironment) -> None:
    line, clock = source_line(env)
    assert line.seen == [((5,), None), ((3,), None), Watermark(MAX_WATERMARK_MS)]
    assert clock.waiting == 0
    operator = operator_of(env.from_source(ListSource([])))
    assert operator._plan == OWN_TIME  # type: ignore[attr-defined]


def test_the_strategy_shows_in_the_graph_with_its_functions(
    env: StreamExecutionEnvironment,
) -> None:
    strategy = WatermarkStrategy.no_watermarks()
    stream = env.from_source(ListSource([]), strategy).assign_timestamps_and_watermarks(strategy)
    source, assigner = env.get_stream_graph().nodes.values()
    assert [role for role, _ in source.functions] == ["source", "watermark strategy"]
    assert assigner.functions == (("watermark strategy", strategy),)
    assert assigner.name == "Timestamps/Watermarks" == stream.get_name()


def test_the_type_of_a_stream_stays(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1], Types.INT())
    timed = stream.assign_timestamps_and_watermarks(WatermarkStrategy.no_watermarks())
    assert timed.get_type() == Types.INT()


STRATEGY = WatermarkStrategy.no_watermarks()


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda: WatermarkStrategy.for_bounded_out_of_orderness(5), "give a span of time"),
        (lambda: WatermarkStrategy.for_bounded_out_of_orderness(seconds(-1)), "0 ms or more"),
        (lambda: STRATEGY.with_idleness(Duration.of_millis(0)), "1 ms or more"),
        (lambda: STRATEGY.with_idleness("1 s"), "give a span of time"),
        (lambda: STRATEGY.with_timestamp_assigner("f0"), "give a TimestampAssigner"),
        (lambda: STRATEGY.with_timestamp_assigner(ByFirst), "give a TimestampAssigner"),
        (lambda: WatermarkStrategy.for_generator(EveryRecord()), "give a callable that makes"),
        (lambda: STRATEGY.with_watermark_alignment("", seconds(1)), "a text that is not empty"),
        (lambda: STRATEGY.with_watermark_alignment("g", 1), "give a span of time"),
        (lambda: STRATEGY.with_watermark_alignment("g", seconds(1), seconds(0)), "1 ms or more"),
    ],
)
def test_a_strategy_that_cannot_be_is_refused(write: Any, problem: str) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        write()


def test_what_is_no_strategy_is_refused(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1])
    with pytest.raises(PlanInvalid, match=r"was given None as its watermark strategy; give one su"):
        stream.assign_timestamps_and_watermarks(None)  # type: ignore[arg-type]


def test_alignment_is_for_sources(env: StreamExecutionEnvironment) -> None:
    strategy = STRATEGY.with_watermark_alignment("group", seconds(1))
    env.from_source(ListSource([]), strategy)
    with pytest.raises(PlanInvalid, match="give that strategy to from_source"):
        env.from_collection([1]).assign_timestamps_and_watermarks(strategy)
