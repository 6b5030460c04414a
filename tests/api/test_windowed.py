"""Windows as a program writes them: what is refused before a job runs, and what the plan says."""

from collections.abc import Iterable
from typing import Any

import pytest

from headgate.api.draft import TranslationContext
from headgate.base.errors import PlanInvalid
from headgate.common import Duration, Time, Types
from headgate.datastream import (
    AggregateFunction,
    AllWindowFunction,
    DataStream,
    KeyedStream,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from headgate.datastream.window import (
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

MINUTE = TumblingProcessingTimeWindows.of(Time.minutes(1))
EVENT_MINUTE = TumblingEventTimeWindows.of(Time.minutes(1))
SESSIONS = EventTimeSessionWindows.with_gap(Time.seconds(5))


class Process(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[Any],
    ) -> Iterable[Any]:
        return [(key, context.window(), list(elements))]


class Apply(WindowFunction[tuple, tuple, str, TimeWindow]):
    def apply(self, key: str, window: TimeWindow, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, window, list(inputs))]


class ProcessAll(ProcessAllWindowFunction[tuple, tuple, TimeWindow]):
    def process(
        self, context: ProcessAllWindowFunction.Context[TimeWindow], elements: Iterable[Any]
    ) -> Iterable[Any]:
        return [list(elements)]


class ApplyAll(AllWindowFunction[tuple, tuple, TimeWindow]):
    def apply(self, window: TimeWindow, inputs: Iterable[Any]) -> Iterable[Any]:
        return [list(inputs)]


class Total(AggregateFunction[Any, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + int(value[1])

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Merging(Total):
    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Stubborn(Trigger[Any, Any]):
    """Cannot merge."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def clear(self, window: Any, ctx: Any) -> None:
        """Nothing is kept."""


@pytest.fixture
def plain(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()]))


@pytest.fixture
def keyed(plain: DataStream) -> KeyedStream:
    return plain.key_by(lambda pair: pair[0])


def timed(stream: DataStream) -> DataStream:
    """Of a stream that may have times as far as anybody can know."""
    stream._origins[0].transformation.assigns_times = True
    return stream


@pytest.mark.parametrize("given", [None, 5, "hour", Time.seconds(5), CountTrigger.of(3)])
def test_only_an_assigner_makes_windows(keyed: KeyedStream, given: Any) -> None:
    with pytest.raises(PlanInvalid, match=r"window\(\) was given .*; give a WindowAssigner"):
        keyed.window(given)
    with pytest.raises(PlanInvalid, match=r"window_all\(\) was given .*; give a WindowAssigner"):
        keyed.window_all(given)


def test_a_class_in_place_of_an_object_is_told(keyed: KeyedStream) -> None:
    with pytest.raises(PlanInvalid, match="given the class TumblingEventTimeWindows; give an obj"):
        keyed.window(TumblingEventTimeWindows)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="given the class CountTrigger; give an object"):
        keyed.window(MINUTE).trigger(CountTrigger)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="given the class Process; give an object"):
        keyed.window(MINUTE).process(Process)  # type: ignore[arg-type]


def test_windows_in_event_time_need_timestamps(plain: DataStream) -> None:
    keyed = plain.map(lambda pair: pair).key_by(lambda pair: pair[0])
    with pytest.raises(PlanInvalid, match="TumblingEventTimeWindows .* no timestamps; call assign"):
        keyed.window(EVENT_MINUTE)
    with pytest.raises(PlanInvalid, match="no timestamps; call assign_timestamps"):
        plain.window_all(SESSIONS)
    timed(plain)
    keyed.window(EVENT_MINUTE).sum(1)


def test_results_of_windows_have_timestamps(keyed: KeyedStream) -> None:
    sums = keyed.window(MINUTE).sum(1)
    sums.key_by(lambda pair: pair[0]).window(EVENT_MINUTE).max(1)


@pytest.mark.parametrize("given", [-1, 1.5, None, True, "5", Time.seconds(-1)])
def test_lateness_is_a_time_from_0_on(keyed: KeyedStream, given: Any) -> None:
    with pytest.raises(PlanInvalid, match=r"allowed_lateness\(\) was given"):
        keyed.window(MINUTE).allowed_lateness(given)


@pytest.mark.parametrize("given", [2000, Time.seconds(2), Duration.of_seconds(2)])
def test_lateness_is_given_in_milliseconds_or_as_a_span(keyed: KeyedStream, given: Any) -> None:
    assert keyed.window(MINUTE).allowed_lateness(given)._lateness_ms == 2000


def test_windows_that_merge_need_a_trigger_that_can(plain: DataStream) -> None:
    keyed = timed(plain).key_by(lambda pair: pair[0])
    with pytest.raises(PlanInvalid, match="Stubborn, which cannot merge, on EventTimeSession"):
        keyed.window(SESSIONS).trigger(Stubborn())
    keyed.window(SESSIONS).trigger(CountTrigger.of(2))
    keyed.window(EVENT_MINUTE).trigger(Stubborn())


def test_windows_that_merge_need_an_aggregate_function_that_can(plain: DataStream) -> None:
    sessions = timed(plain).key_by(lambda pair: pair[0]).window(SESSIONS)
    with pytest.raises(PlanInvalid, match=r"Total, which has no merge\(acc_a, acc_b\)"):
        sessions.aggregate(Total())
    sessions.aggregate(Merging())
    plain.key_by(lambda pair: pair[0]).window(EVENT_MINUTE).aggregate(Total())


def test_late_records_have_one_side_output(keyed: KeyedStream) -> None:
    windows = keyed.window(MINUTE).side_output_late_data(OutputTag("late"))
    windows.side_output_late_data(OutputTag("late"))
    with pytest.raises(PlanInvalid, match=r"OutputTag\('other'\) after OutputTag\('late'\)"):
        windows.side_output_late_data(OutputTag("other"))
    with pytest.raises(PlanInvalid, match="give an OutputTag"):
        windows.side_output_late_data("late")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["process", "apply"])
@pytest.mark.parametrize("function", [None, 3, lambda key, context, elements: elements, Total()])
def test_windows_need_a_function_with_the_method(
    keyed: KeyedStream, method: str, function: Any
) -> None:
    with pytest.raises(PlanInvalid, match=rf"{method}\(\) was given .*; give an? .*WindowFunction"):
        getattr(keyed.window(MINUTE), method)(function)
    with pytest.raises(
        PlanInvalid, match=rf"{method}\(\) was given .*; give an? .*AllWindowFunction"
    ):
        getattr(keyed.window_all(MINUTE), method)(function)


def test_functions_for_windows_with_and_without_keys_are_not_mixed_up(keyed: KeyedStream) -> None:
    windows, all_windows = keyed.window(MINUTE), keyed.window_all(MINUTE)
    with pytest.raises(PlanInvalid, match="ProcessAll, .* of a keyed stream; .* ProcessWindowF"):
        windows.process(ProcessAll())  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="ApplyAll, .* of a keyed stream; derive it from WindowF"):
        windows.apply(ApplyAll())  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="Process, .* without keys; derive it from ProcessAllWi"):
        all_windows.process(Process())  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="Apply, .* without keys; derive it from AllWindowFunct"):
        all_windows.reduce(max, Apply())


def test_process_and_apply_are_not_mixed_up(keyed: KeyedStream) -> None:
    with pytest.raises(PlanInvalid, match=r"process\(\) was given .*ProcessWindowFunction"):
        keyed.window(MINUTE).process(Apply())  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"apply\(\) was given .*WindowFunction"):
        keyed.window(MINUTE).apply(Process())  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [None, 3, ReduceFunction])
def test_reduce_needs_a_callable_or_a_reduce_function(keyed: KeyedStream, function: Any) -> None:
    with pytest.raises(PlanInvalid, match=r"reduce\(\) was given"):
        keyed.window(MINUTE).reduce(function)


@pytest.mark.parametrize("function", [None, max, Process(), Total])
def test_aggregate_needs_an_aggregate_function(keyed: KeyedStream, function: Any) -> None:
    with pytest.raises(PlanInvalid, match=r"aggregate\(\) was given"):
        keyed.window(MINUTE).aggregate(function)


def test_types_of_windows_are_types(keyed: KeyedStream) -> None:
    windows = keyed.window(MINUTE)
    with pytest.raises(PlanInvalid, match="the type is"):
        windows.aggregate(Total(), accumulator_type="int")  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match="the type is"):
        windows.reduce(max, output_type=int)  # type: ignore[arg-type]


def test_a_reduced_window_has_the_type_of_its_records(keyed: KeyedStream) -> None:
    windows = keyed.window(MINUTE)
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    assert windows.get_input_type() == pair
    assert windows.reduce(max).get_type() == pair
    assert windows.min_by(1).get_type() == pair
    assert windows.reduce(max, Process()).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert windows.aggregate(Total(), output_type=Types.INT()).get_type() == Types.INT()
    assert windows.process(Process(), Types.STRING()).get_type() == Types.STRING()


def test_windows_know_their_environment(
    env: StreamExecutionEnvironment, keyed: KeyedStream
) -> None:
    assert keyed.window(MINUTE).get_execution_environment() is env
    assert keyed.window_all(MINUTE).get_execution_environment() is env


def test_operators_of_windows_have_names_of_their_own(keyed: KeyedStream) -> None:
    windows, all_windows = keyed.window(MINUTE), keyed.window_all(MINUTE)
    assert windows.reduce(max).get_name() == "Window Reduce"
    assert windows.max_by(1).get_name() == "Window Max By"
    assert all_windows.process(ProcessAll()).get_name() == "Window All Process"
    assert windows.apply(Apply()).name("mine").get_name() == "mine"


def test_windows_without_keys_run_in_one_task(plain: DataStream) -> None:
    result = plain.window_all(MINUTE).reduce(max)
    assert result._origins[0].transformation.parallelism == 1
    with pytest.raises(PlanInvalid, match="runs in one task only"):
        result.set_parallelism(2)


@pytest.mark.parametrize("sizes", [(0,), (-1,), ("5",), (5, -1), (2.0, 1), (5, 1.0)])
def test_count_windows_have_sizes_from_1_on(keyed: KeyedStream, sizes: Any) -> None:
    with pytest.raises(PlanInvalid, match="count window was given"):
        keyed.count_window(*sizes)
    with pytest.raises(PlanInvalid, match="count window was given"):
        keyed.count_window_all(*sizes)


def test_count_windows_slide_if_they_are_told_to(keyed: KeyedStream) -> None:
    assert type(keyed.count_window(3)._assigner) is CountTumblingWindowAssigner
    assert type(keyed.count_window(3, 0)._assigner) is CountTumblingWindowAssigner
    assert type(keyed.count_window(3, 2)._assigner) is CountSlidingWindowAssigner
    assert type(keyed.count_window_all(3)._assigner) is CountTumblingWindowAssigner


def test_what_is_said_after_an_operator_holds_for_later_ones_only(keyed: KeyedStream) -> None:
    windows = keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
    first = plan_of(windows.reduce(max))
    second = plan_of(windows.trigger(CountTrigger.of(3)).evictor(CountEvictor.of(1)).reduce(max))
    assert first.evictor is None and second.evictor is not None
    assert first.trigger is not second.trigger


def test_the_trigger_is_the_assigners_own_unless_one_is_given(plain: DataStream) -> None:
    windows = timed(plain).key_by(lambda pair: pair[0]).window(EVENT_MINUTE)
    assert type(plan_of(windows.reduce(max)).trigger) is EventTimeTrigger


def plan_of(stream: DataStream) -> Any:
    """The plan from which the operator of the stream will be made."""
    transformation = stream._origins[0].transformation
    make: Any = transformation.translate(TranslationContext(1, False))
    return make.args[0]
