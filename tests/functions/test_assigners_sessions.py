"""Session windows as an assigner sees them; merging is shown with its keeper."""

from types import SimpleNamespace
from typing import Any

import pytest

from headgate.base.errors import PlanInvalid
from headgate.functions.assigners import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from headgate.functions.time import Time
from headgate.functions.triggers import EventTimeTrigger, ProcessingTimeTrigger
from headgate.functions.window import TimeWindow

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
