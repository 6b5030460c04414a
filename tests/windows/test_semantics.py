"""What windows promise, a promise at a time, in whole jobs with two tasks."""

from collections.abc import Iterable
from typing import Any

import pytest

from headgate.base.errors import UserFunctionFailed
from headgate.common import Time
from headgate.datastream import (
    AggregateFunction,
    AllWindowFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from headgate.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from tests.windows.jobs import Program, WithTime, at, keyed, story_stream
from tests.windows.reference import MAX, Mark, Timed

LATE = OutputTag("late")


class Tell(ProcessWindowFunction[Timed, tuple, str, TimeWindow]):
    """The bounds of the window, and the values in it."""

    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[Timed],
    ) -> Iterable[Any]:
        window = context.window()
        yield window.start, window.end, sorted(element.value for element in elements)


class Values(WindowFunction[Timed, list, str, Any]):
    """The values in the window, in order."""

    def apply(self, key: str, window: Any, inputs: Iterable[Timed]) -> Iterable[Any]:
        return [[element.value for element in inputs]]


def tumbling(size: int, offset: int = 0) -> WindowAssigner[Any, Any]:
    return TumblingEventTimeWindows.of(Time.milliseconds(size), Time.milliseconds(offset))


def sliding(size: int, slide: int) -> WindowAssigner[Any, Any]:
    return SlidingEventTimeWindows.of(Time.milliseconds(size), Time.milliseconds(slide))


def sessions(gap: int) -> WindowAssigner[Any, Any]:
    return EventTimeSessionWindows.with_gap(Time.milliseconds(gap))


@pytest.fixture(autouse=True)
def two_tasks(program: Program) -> None:
    program.env.set_parallelism(2)


# Windows in time


def test_an_offset_shifts_where_windows_start(program: Program) -> None:
    windows = keyed(program.env, *at(-3, 1, 2)).window(tumbling(5, 2)).process(Tell())
    assert program.run(windows) == [(-3, 2, [0, 1]), (2, 7, [2])]


@pytest.mark.parametrize("how", ["reduce", "process"])
def test_a_result_has_the_windows_end_less_one_as_its_time(program: Program, how: str) -> None:
    windows = keyed(program.env, *at(3, 12)).window(tumbling(10))
    results = windows.reduce(max) if how == "reduce" else windows.process(Tell())
    assert [time for _, time in program.run(results.process(WithTime()))] == [9, 19]


# Sessions


class Sum(AggregateFunction[Timed, list, Any]):
    """With an accumulator that is changed in place, as users do."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Timed, accumulator: list[int]) -> list[int]:
        accumulator.append(value.value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> Any:
        return sorted(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


def test_merging_merges_the_state_of_the_trigger(program: Program) -> None:
    story = keyed(program.env, *at(0, 8, 4))
    windows = story.window(sessions(5)).trigger(CountTrigger.of(3)).process(Tell())
    assert program.run(windows) == [(0, 13, [0, 1, 2])]


class GapByValue(SessionWindowTimeGapExtractor):
    def extract(self, element: Timed) -> int:
        return 1 if element.value == 0 else 10


def test_a_dynamic_gap_comes_from_each_record(program: Program) -> None:
    assigner = EventTimeSessionWindows.with_dynamic_gap(GapByValue())
    windows = keyed(program.env, *at(0, 5, 15)).window(assigner).process(Tell())
    assert program.run(windows) == [(0, 1, [0]), (5, 25, [1, 2])]


# Late records


@pytest.mark.parametrize(
    ("watermark", "expected"),
    [(8, ([], [[0, 1]])), (9, ([Timed("a", 1, 5)], [[0]]))],
)
def test_a_window_is_late_when_the_watermark_has_reached_its_last_time(
    program: Program, watermark: int, expected: Any
) -> None:
    story = [*at(0), Mark(watermark), Timed("a", 1, 5)]
    windows = keyed(program.env, *story).window(tumbling(10)).side_output_late_data(LATE)
    results = windows.apply(Values())
    found, late = program.run(results, results.get_side_output(OutputTag("late")))
    assert (late, found) == expected


@pytest.mark.parametrize("how", ["process", "reduce"])
def test_late_but_allowed_it_fires_again_at_once_with_all_it_holds(
    program: Program, how: str
) -> None:
    story = [*at(0, 1), Mark(10), Timed("a", 2, 5), Timed("b", 3, 6), Mark(14), Timed("a", 4, 7)]
    windows = keyed(program.env, *story).window(tumbling(10)).allowed_lateness(5)
    windows = windows.side_output_late_data(LATE)
    if how == "process":
        results = windows.process(Tell()).map(lambda result: result[2])
    else:
        results = windows.reduce(
            lambda total, added: Timed(total.key, [*listed(total), *listed(added)], 0)  # type: ignore[arg-type]
        ).map(lambda result: listed(result))
    found, late = program.run(results, results_side(results))
    assert sorted(found) == [[0, 1], [0, 1, 2], [3]]
    assert late == [Timed("a", 4, 7)]


def listed(record: Timed) -> list[int]:
    return record.value if isinstance(record.value, list) else [record.value]


def results_side(mapped: Any) -> Any:
    """The late records of the windows before a map."""
    (origin,) = mapped._origins[0].transformation.inputs[0]
    return type(mapped)(mapped._draft, [origin]).get_side_output(LATE)


def test_too_late_without_a_tag_it_is_dropped(program: Program) -> None:
    story = [*at(0), Mark(10), Timed("a", 1, 5)]
    windows = keyed(program.env, *story).window(tumbling(10)).apply(Values())
    assert program.run(windows) == [[0]]


def test_late_records_that_nobody_reads_do_not_leak_into_the_main_output(
    program: Program,
) -> None:
    story = [*at(0), Mark(10), Timed("a", 1, 5)]
    windows = keyed(program.env, *story).window(tumbling(10)).side_output_late_data(LATE)
    assert program.run(windows.apply(Values())) == [[0]]


def test_records_and_watermarks_stay_in_line(program: Program) -> None:
    """Records in front of the watermark are on time, those behind it late, in any bundle."""
    story: list[Timed | Mark] = []
    for number in range(200):
        story += [Timed("a", number, number), Mark(number), Timed("a", -1, number)]
    windows = keyed(program.env, *story).window(tumbling(1)).side_output_late_data(LATE)
    results = windows.apply(Values())
    found, late = program.run(results, results.get_side_output(LATE))
    assert found == [[number] for number in range(200)]
    assert len(late) == 200


# Windows by number


def test_a_count_window_drops_the_incomplete_rest(program: Program) -> None:
    records = program.env.from_collection(at(*range(5))).key_by(lambda record: record.key)
    assert program.run(records.count_window(2).apply(Values())) == [[0, 1], [2, 3]]


def test_count_windows_that_slide_are_full(program: Program) -> None:
    records = program.env.from_collection(at(*range(6))).key_by(lambda record: record.key)
    assert program.run(records.count_window(3, 2).apply(Values())) == [[0, 1, 2], [2, 3, 4]]


def test_a_count_trigger_on_a_global_window_does_not_purge(program: Program) -> None:
    records = program.env.from_collection(at(*range(5))).key_by(lambda record: record.key)
    windows = records.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
    assert program.run(windows.apply(Values())) == [[0, 1], [0, 1, 2, 3]]


def test_a_purging_trigger_does(program: Program) -> None:
    records = program.env.from_collection(at(*range(5))).key_by(lambda record: record.key)
    windows = records.window(GlobalWindows.create())
    purged = windows.trigger(PurgingTrigger.of(CountTrigger.of(2)))
    assert program.run(purged.apply(Values())) == [[0, 1], [2, 3]]


def test_a_global_window_never_fires_by_itself(program: Program) -> None:
    records = program.env.from_collection(at(*range(5))).key_by(lambda record: record.key)
    assert program.run(records.window(GlobalWindows.create()).apply(Values())) == []


def test_an_evictor_takes_records_out_before_the_function(program: Program) -> None:
    records = program.env.from_collection(at(*range(6))).key_by(lambda record: record.key)
    windows = records.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
    windows = windows.evictor(CountEvictor.of(3))
    reduced, listed_ = program.run(
        windows.reduce(lambda total, added: Timed("a", total.value + added.value, 0)),
        windows.apply(Values()),
    )
    assert listed_ == [[0, 1], [1, 2, 3], [3, 4, 5]]
    assert [result.value for result in reduced] == [1, 6, 12]


# Windows without keys


class AllValues(ProcessAllWindowFunction[Timed, Any, TimeWindow]):
    def process(
        self, context: ProcessAllWindowFunction.Context[TimeWindow], elements: Iterable[Timed]
    ) -> Iterable[Any]:
        yield context.window().end, sorted(element.value for element in elements)


class AllApplied(AllWindowFunction[Timed, Any, TimeWindow]):
    def apply(self, window: TimeWindow, inputs: Iterable[Timed]) -> Iterable[Any]:
        return [(window.end, sorted(element.value for element in inputs))]


@pytest.mark.parametrize("how", ["process", "apply"])
def test_window_all_is_one_key_in_one_task(program: Program, how: str) -> None:
    story = [Timed(key, number, number) for number, key in enumerate("abcabc")]
    spread = story_stream(program.env, list(story)).rebalance().map(lambda record: record)
    windows = spread.window_all(tumbling(4))
    results = windows.process(AllValues()) if how == "process" else windows.apply(AllApplied())
    assert results._origins[0].transformation.parallelism == 1
    assert program.run(results) == [(4, [0, 1, 2, 3]), (8, [4, 5])]


def test_count_window_all_counts_records_of_all_keys(program: Program) -> None:
    records = program.env.from_collection(list(range(7)))
    assert program.run(records.count_window_all(3).reduce(lambda a, b: a + b)) == [3, 12]


# Time


class Watermarks(ProcessWindowFunction[Timed, Any, str, TimeWindow]):
    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[Timed],
    ) -> Iterable[Any]:
        yield context.window().end, context.current_watermark()


def test_the_end_of_the_input_fires_all_windows_in_the_order_of_time(program: Program) -> None:
    windows = keyed(program.env, *at(25, 5, 15)).window(tumbling(10)).process(Watermarks())
    assert program.run(windows) == [(10, MAX), (20, MAX), (30, MAX)]


def test_a_watermark_fires_the_windows_that_it_has_reached(program: Program) -> None:
    story = [*at(25, 5, 15), Mark(19)]
    windows = keyed(program.env, *story).window(tumbling(10)).process(Watermarks())
    assert program.run(windows) == [(10, 19), (20, 19), (30, MAX)]


def test_windows_of_the_clock_that_are_open_at_the_end_are_dropped(program: Program) -> None:
    records = program.env.from_collection(at(*range(5))).key_by(lambda record: record.key)
    hour = TumblingProcessingTimeWindows.of(Time.days(1000))
    assert program.run(records.window(hour).apply(Values())) == []


def test_a_record_without_a_timestamp_is_refused_by_windows_in_event_time(
    program: Program,
) -> None:
    records = program.env.from_collection(at(1))
    records._origins[0].transformation.assigns_times = True  # as a source may promise and not keep
    windows = records.key_by(lambda record: record.key).window(tumbling(5))
    with pytest.raises(UserFunctionFailed, match="assign_timestamps_and_watermarks"):
        program.run(windows.apply(Values()))


def test_a_window_of_two_streams_waits_for_the_slower_one(program: Program) -> None:
    ahead = story_stream(program.env, [Timed("a", 1, 0), Mark(50), Timed("a", 2, 60)])
    behind = story_stream(program.env, [Timed("a", 10, 5)])
    joined = ahead.join(behind).where(lambda click: click.key).equal_to(lambda order: order.key)
    pairs = joined.window(tumbling(10)).apply(lambda ahead, behind: (ahead.value, behind.value))
    assert program.run(pairs.process(WithTime())) == [((1, 10), 9)]
