"""Which windows a record belongs to."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import PlanInvalid
from headgate.functions.assigners import (
    GlobalWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from headgate.functions.time import Time
from headgate.functions.triggers import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger
from headgate.functions.window import GlobalWindow, TimeWindow

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
