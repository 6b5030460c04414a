"""Event time and timers, a sentence at a time, in whole programs."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.common import Time
from headgate.datastream import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeContext,
    TimeDomain,
)
from headgate.datastream.state import ValueStateDescriptor
from headgate.datastream.window import TumblingEventTimeWindows
from tests.semantics.lab import MAX, MIN, Lab, first, mark


class Times(ProcessFunction[Any, Any]):
    """Timestamp and watermark at each record."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value[0], ctx.timestamp(), ctx.timer_service().current_watermark()


class Alarms(KeyedProcessFunction[Any, Any, Any]):
    """Timers at the times that a record names, after its own time."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        for time_ms in value[2:]:
            ctx.timer_service().register_event_time_timer(time_ms)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        assert ctx.timestamp() == timestamp
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        yield ctx.get_current_key(), timestamp, ctx.timer_service().current_watermark()


def test_watermarks_are_periodic_so_that_in_a_short_job_none_comes_before_the_end(lab: Lab) -> None:
    """One after each record would make the later ones late."""
    found = lab.run(lab.timed(("a", time_ms) for time_ms in (50, 10, 90, 20)).process(Times()))
    assert sorted(found) == [("a", time_ms, MIN) for time_ms in (10, 20, 50, 90)]


def test_the_end_of_input_fires_all_timers_in_the_order_of_time_with_the_last_watermark(
    lab: Lab,
) -> None:
    found = lab.run(lab.timed([("a", 1, 30, 10), ("a", 2, 20)]).key_by(first).process(Alarms()))
    assert found == [("a", 10, MAX), ("a", 20, MAX), ("a", 30, MAX)]


def test_the_same_timer_registered_twice_fires_once(lab: Lab) -> None:
    found = lab.run(lab.timed([("a", 1, 10, 10), ("a", 2, 10)]).key_by(first).process(Alarms()))
    assert found == [("a", 10, MAX)]


def test_a_timer_that_is_not_later_than_the_watermark_fires_at_the_next_advance(lab: Lab) -> None:
    story = lab.story(mark(50), ("a", 60, 10, 50), ("a", 60, 70), mark(60), ("a", 61), mark(80))
    found = lab.run(story.key_by(first).process(Alarms()))
    assert found == [("a", 10, 60), ("a", 50, 60), ("a", 70, 80)]


def test_a_watermark_fires_the_timers_that_it_has_reached_and_no_others(lab: Lab) -> None:
    story = lab.story(("a", 0, 10, 11), mark(9), ("a", 9), mark(10), ("a", 12))
    assert lab.run(story.key_by(first).process(Alarms())) == [("a", 10, 10), ("a", 11, MAX)]


class Late(KeyedProcessFunction[Any, Any, Any]):
    """A timer of the clock that is due long after the end of the job."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 3_600_000)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield "fired"


def test_timers_of_the_clock_that_are_pending_at_the_end_are_dropped(lab: Lab) -> None:
    assert lab.run(lab.read(("a", 1)).key_by(first).process(Late())) == []


def test_without_an_assigner_the_timestamp_is_the_smallest_of_all(lab: Lab) -> None:
    assert lab.run(lab.read(("a", 1)).process(Times())) == [("a", MIN, MIN)]


class Gate:
    """Lets the second side end when the last record of the first has been seen."""

    opened = threading.Event()

    @classmethod
    def wait(cls, record: Any) -> Any:
        assert cls.opened.wait(10)
        return record


class BothTimes(KeyedCoProcessFunction[Any, Any, Any, Any]):
    """A timer at each record's time; the watermark at each record and timer."""

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(ctx.timestamp())
        yield "record", value[1], ctx.timer_service().current_watermark()
        if value[1] == 101:
            Gate.opened.set()

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterator[Any]:
        yield "other", value[1], ctx.timer_service().current_watermark()

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield "timer", timestamp, ctx.timer_service().current_watermark()


def test_of_two_inputs_the_slower_one_is_the_watermark(lab: Lab) -> None:
    Gate.opened.clear()
    ahead = lab.story(("a", 5), mark(100), ("a", 101))
    behind = lab.read(("b", 0)).map(Gate.wait)  # has no watermark but the last
    pair = ahead.connect(behind).key_by(first, first)
    found = lab.run(pair.process(BothTimes()).set_parallelism(1))
    timers = [result for result in found if result[0] != "other"]
    assert timers == [
        ("record", 5, MIN),
        ("record", 101, MIN),
        ("timer", 5, MAX),
        ("timer", 101, MAX),
    ]


class Restless(KeyedProcessFunction[Any, Any, Any]):
    """Timers that delete others and set themselves anew; state that they clear."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value[1] + 10)
        ctx.timer_service().register_event_time_timer(value[1] + 20)
        yield "record", value[1], self.count.value()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield "timer", timestamp, self.count.value()
        ctx.timer_service().delete_event_time_timer(timestamp + 10)
        if timestamp < 50:
            ctx.timer_service().register_event_time_timer(timestamp + 15)
        self.count.clear()


def test_timers_may_delete_others_set_themselves_anew_and_clear_state(lab: Lab) -> None:
    story = lab.story(("a", 0), mark(12), ("a", 5), mark(30), ("a", 31))
    assert lab.run(story.key_by(first).process(Restless())) == [
        ("record", 0, 1),
        ("timer", 10, 1),  # deletes 20, sets 25
        ("record", 5, 1),  # sets 15 and 25, which is there
        ("timer", 15, 1),  # deletes 25, sets 30
        ("timer", 30, None),  # sets 45
        ("record", 31, 1),  # sets 41 and 51
        ("timer", 41, 1),  # deletes 51, sets 56
        ("timer", 45, None),  # sets 60
        ("timer", 56, None),
        ("timer", 60, None),
    ]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_records_and_watermarks_stay_in_line_through_several_tasks(
    lab: Lab, parallelism: int
) -> None:
    """A record that was on time when it was read is on time in every operator downstream."""
    story: list[Any] = []
    for time_ms in range(0, 300, 3):
        story += [("a", time_ms + 1), ("b", time_ms + 2), mark(time_ms + 2)]
    lab.env.set_parallelism(parallelism)
    records = lab.story(*story).map(lambda record: record).key_by(first).process(Behind())
    found = lab.run(records.rebalance().map(lambda late: late))
    assert found == []


class Behind(KeyedProcessFunction[Any, Any, Any]):
    """Records that are not later than the watermark."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if ctx.timestamp() <= ctx.timer_service().current_watermark():
            yield value


def test_late_records_that_are_dropped_are_told_in_the_log(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.env.set_parallelism(1)
    story = lab.story(("a", 5), mark(30), ("a", 7), ("a", 6), ("a", 31))
    windows = story.key_by(first).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    with caplog.at_level(logging.WARNING):
        found = lab.run(windows.reduce(lambda a, b: a).name("tens"))
    assert found == [("a", 5), ("a", 31)]
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "operator 'tens' (1/1): 2 records came too late and were dropped, 2 so far, up to "
        "22 ms too late"
    ]
