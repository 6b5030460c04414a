"""Which windows a record belongs to: by time, by count, by session. Merging is in core/window."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import PlanInvalid
from headgate.functions.assigners import (
    COUNTED,
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from headgate.functions.time import Time
from headgate.functions.triggers import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger
from headgate.functions.window import GlobalWindow, TimeWindow
from tests.core.window.kit import LISTED, Lab, plan

ms = Time.milliseconds


def at(now_ms: int) -> Any:
    return SimpleNamespace(get_current_processing_time=lambda: now_ms)


def assigned(assigner: Any, time_ms: int) -> list[TimeWindow]:
    """By event time, or by the clock: what is not asked for is wrong on purpose."""
    if assigner.is_event_time():
        return list(assigner.assign_windows("x", time_ms, at(-1000)))
    return list(assigner.assign_windows("x", -1000, at(time_ms)))


TUMBLING = [TumblingEventTimeWindows, TumblingProcessingTimeWindows]
SLIDING = [SlidingEventTimeWindows, SlidingProcessingTimeWindows]


@pytest.mark.parametrize("kind", TUMBLING)
def test_tumbling_windows_lie_side_by_side_below_zero_too(kind: Any) -> None:
    assert assigned(kind.of(ms(5)), 4) == [TimeWindow(0, 5)]
    assert assigned(kind.of(ms(5)), 5) == [TimeWindow(5, 10)]
    assert assigned(kind.of(ms(5)), -6) == [TimeWindow(-10, -5)]
    assert assigned(kind.of(ms(5), ms(2)), 1) == [TimeWindow(-3, 2)]
    assert assigned(kind.of(ms(5), ms(-1)), 4) == [TimeWindow(4, 9)]


@pytest.mark.parametrize("kind", SLIDING)
def test_sliding_windows_overlap_and_may_start_below_zero(kind: Any) -> None:
    assert assigned(kind.of(ms(5), ms(2)), 1) == [
        TimeWindow(0, 5),
        TimeWindow(-2, 3),
    ]
    assert assigned(kind.of(ms(4), ms(2), ms(1)), 3) == [TimeWindow(3, 7), TimeWindow(1, 5)]


@pytest.mark.parametrize("kind", SLIDING)
def test_a_record_between_sliding_windows_is_in_none(kind: Any) -> None:
    assert assigned(kind.of(ms(2), ms(5)), 3) == []


@given(st.integers(-(10**6), 10**6), st.integers(1, 50), st.integers(1, 50), st.data())
def test_sliding_windows_are_all_those_that_hold_the_timestamp(
    timestamp: int, size: int, slide: int, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(-slide + 1, slide - 1))
    found = assigned(SlidingEventTimeWindows(size, slide, offset), timestamp)
    aligned = range(timestamp - size + 1, timestamp + 1)
    assert sorted(found) == [
        TimeWindow(start, start + size) for start in aligned if (start - offset) % slide == 0
    ]


@pytest.mark.parametrize("kind", TUMBLING)
def test_a_tumbling_window_with_a_wrong_size_or_offset_is_refused(kind: Any) -> None:
    for wrong in (lambda: kind.of(ms(0)), lambda: kind(0), lambda: kind(5.0), lambda: kind.of(5)):
        with pytest.raises(PlanInvalid, match=kind.__name__):
            wrong()
    with pytest.raises(PlanInvalid, match="smaller than the size, which is 5 ms"):
        kind.of(ms(5), ms(5))


@pytest.mark.parametrize("kind", SLIDING)
def test_a_sliding_window_with_a_wrong_slide_or_offset_is_refused(kind: Any) -> None:
    for wrong in (lambda: kind.of(ms(5), ms(0)), lambda: kind(-1, 5), lambda: kind.of(ms(5), 1)):
        with pytest.raises(PlanInvalid, match=kind.__name__):
            wrong()
    with pytest.raises(PlanInvalid, match="smaller than the slide, which is 2 ms"):
        kind.of(ms(5), ms(2), ms(-2))


def test_global_windows_hold_everything_in_one() -> None:
    assert list(GlobalWindows.create().assign_windows("x", 3, at(0))) == [GlobalWindow()]
    assert not GlobalWindows.create().is_event_time()


def test_every_assigner_has_a_trigger_of_its_kind() -> None:
    triggers = {
        TumblingEventTimeWindows(5): EventTimeTrigger,
        SlidingEventTimeWindows(5, 1): EventTimeTrigger,
        TumblingProcessingTimeWindows(5): ProcessingTimeTrigger,
        SlidingProcessingTimeWindows(5, 1): ProcessingTimeTrigger,
        GlobalWindows(): NeverTrigger,
    }
    for assigner, trigger in triggers.items():
        assert type(assigner.get_default_trigger(None)) is trigger
        assert assigner.get_window_serializer() is None
        assert type(assigner).__name__ in repr(assigner)


def windows_of(assigner: Any, records: list[Any]) -> list[Any]:
    lab = Lab(plan(assigner, LISTED))
    lab.send_untimed(*records)
    return [(key, elements) for key, _, elements in lab.end().taken()]


def test_the_incomplete_rest_is_dropped() -> None:
    records = [("a", n) for n in range(7)]
    found = windows_of(CountTumblingWindowAssigner.of(3), records)
    assert found == [("a", tuple(records[:3])), ("a", tuple(records[3:6]))]


def test_sliding_windows_are_sent_when_they_are_full() -> None:
    records = [("a", n) for n in range(6)]
    found = windows_of(CountSlidingWindowAssigner.of(3, 2), records)
    assert found == [("a", tuple(records[:3])), ("a", tuple(records[2:5]))]


@given(st.lists(st.sampled_from("ab"), max_size=40), st.integers(1, 6), st.integers(1, 6))
def test_each_key_is_counted_for_itself(keys: list[str], size: int, slide: int) -> None:
    records = [(key, number) for number, key in enumerate(keys)]
    expected = []
    for key in "ab":
        of_key = [record for record in records if record[0] == key]
        starts = range(0, len(of_key) - size + 1, slide)
        expected += [(key, tuple(of_key[start : start + size])) for start in starts]
    assert sorted(windows_of(CountSlidingWindowAssigner(size, slide), records)) == sorted(expected)


def test_nothing_of_a_full_window_is_kept() -> None:
    lab = Lab(plan(CountTumblingWindowAssigner.of(2), LISTED))
    lab.send_untimed(("a", 1), ("a", 2))
    assert [name for name, _, _ in lab.kept()] == [COUNTED.name]
    assert len(lab.taken()) == 1
    lab.send_untimed(("a", 3), ("a", 4))
    assert [elements for _, _, elements in lab.taken()] == [(("a", 3), ("a", 4))]


@pytest.mark.parametrize("wrong", [0, -1, 2.0, None, "3"])
def test_a_wrong_number_is_refused(wrong: Any) -> None:
    with pytest.raises(PlanInvalid, match="number of records from 1 on"):
        CountTumblingWindowAssigner.of(wrong)
    with pytest.raises(PlanInvalid, match="as its slide"):
        CountSlidingWindowAssigner.of(3, wrong)


def test_counts_do_not_care_about_time() -> None:
    assert not CountTumblingWindowAssigner(3).is_event_time()
    assert repr(CountTumblingWindowAssigner(3)) == "CountTumblingWindowAssigner(3)"
    assert repr(CountSlidingWindowAssigner(3, 2)) == "CountSlidingWindowAssigner(3, 2)"


NOW: Any = SimpleNamespace(get_current_processing_time=lambda: 100)
EVENT = [EventTimeSessionWindows, DynamicEventTimeSessionWindows]
CLOCK = [ProcessingTimeSessionWindows, DynamicProcessingTimeSessionWindows]


class ByLength(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return len(element)


def test_a_record_begins_a_session_that_lasts_for_its_gap() -> None:
    event = EventTimeSessionWindows.with_gap(Time.milliseconds(5))
    clock = ProcessingTimeSessionWindows.with_gap(Time.milliseconds(5))
    assert list(event.assign_windows("x", 3, NOW)) == [TimeWindow(3, 8)]
    assert list(clock.assign_windows("x", 3, NOW)) == [TimeWindow(100, 105)]


@pytest.mark.parametrize("extractor", [ByLength(), len])
def test_a_record_may_bring_its_gap_along(extractor: Any) -> None:
    for kind in EVENT:
        assigner = kind.with_dynamic_gap(extractor)
        assert list(assigner.assign_windows("four", 3, NOW)) == [TimeWindow(3, 7)]
    for kind in CLOCK:
        assigner = kind.with_dynamic_gap(extractor)
        assert list(assigner.assign_windows("four", 3, NOW)) == [TimeWindow(100, 104)]


@pytest.mark.parametrize("kind", [*EVENT, *CLOCK])
@pytest.mark.parametrize("gap", [0, -1, 1.5, None])
def test_a_record_with_a_gap_of_nothing_is_an_error(kind: Any, gap: Any) -> None:
    assigner = kind.with_dynamic_gap(lambda record: gap)
    with pytest.raises(ValueError, match=r"gap of a session was .* for the record 'x'"):
        assigner.assign_windows("x", 3, NOW)


def test_a_wrong_gap_is_refused_where_it_is_written() -> None:
    for kind in (EventTimeSessionWindows, ProcessingTimeSessionWindows):
        with pytest.raises(PlanInvalid, match="1 ms or more"):
            kind.with_gap(Time.seconds(0))
        with pytest.raises(PlanInvalid, match=kind.__name__):
            kind(0)
        with pytest.raises(PlanInvalid, match="SessionWindowTimeGapExtractor"):
            kind.with_dynamic_gap(5)


def test_sessions_know_their_time_and_trigger() -> None:
    for assigner in (EventTimeSessionWindows(5), DynamicEventTimeSessionWindows(len)):
        assert assigner.is_event_time()
        assert type(assigner.get_default_trigger(None)) is EventTimeTrigger
        assert type(assigner).__name__ in repr(assigner)
    for clocked in (ProcessingTimeSessionWindows(5), DynamicProcessingTimeSessionWindows(len)):
        assert not clocked.is_event_time()
        assert type(clocked.get_default_trigger(None)) is ProcessingTimeTrigger
        assert type(clocked).__name__ in repr(clocked)
