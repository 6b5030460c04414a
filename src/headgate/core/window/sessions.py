"""Session windows: records that are not further apart than a gap belong together.

Law: each record begins as a window of its own, from its time to the end of its gap; windows that
overlap or touch become one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar

from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.core.window.assigners import AssignerContext, MergingWindowAssigner
from headgate.core.window.spans import positive_ms
from headgate.core.window.triggers import EventTimeTrigger, ProcessingTimeTrigger, Trigger
from headgate.core.window.window import MergeCallback, TimeWindow

T = TypeVar("T")


class SessionWindowTimeGapExtractor(ABC):
    """Says how long the gap behind a record may be."""

    @abstractmethod
    def extract(self, element: Record) -> int:
        """In milliseconds, 1 or more."""


class SessionWindows(MergingWindowAssigner[T, TimeWindow]):
    """Base of the four kinds."""

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)


class EventTimeSessionWindows(SessionWindows[T]):
    """Sessions with one gap; by the records' timestamps."""

    def __init__(self, session_gap: int) -> None:
        self.gap_ms = _checked_gap(session_gap, type(self).__name__)

    @staticmethod
    def with_gap(size: object) -> "EventTimeSessionWindows[Record]":
        """``EventTimeSessionWindows.with_gap(Time.minutes(30))``"""
        return EventTimeSessionWindows(positive_ms(size, "EventTimeSessionWindows.with_gap()"))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Record], int],
    ) -> "DynamicEventTimeSessionWindows[Record]":
        """Each record says how long the gap behind it may be."""
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(
        self, element: T, timestamp: int, context: AssignerContext
    ) -> Collection[TimeWindow]:
        return [TimeWindow(timestamp, timestamp + self.gap_ms)]

    def get_default_trigger(self, env: object) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"EventTimeSessionWindows({self.gap_ms})"


class ProcessingTimeSessionWindows(SessionWindows[T]):
    """Sessions with one gap; by the clock."""

    def __init__(self, session_gap: int) -> None:
        self.gap_ms = _checked_gap(session_gap, type(self).__name__)

    @staticmethod
    def with_gap(size: object) -> "ProcessingTimeSessionWindows[Record]":
        caller = "ProcessingTimeSessionWindows.with_gap()"
        return ProcessingTimeSessionWindows(positive_ms(size, caller))

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Record], int],
    ) -> "DynamicProcessingTimeSessionWindows[Record]":
        """Each record says how long the gap behind it may be."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(
        self, element: T, timestamp: int, context: AssignerContext
    ) -> Collection[TimeWindow]:
        now_ms = context.get_current_processing_time()
        return [TimeWindow(now_ms, now_ms + self.gap_ms)]

    def get_default_trigger(self, env: object) -> Trigger[T, TimeWindow]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"ProcessingTimeSessionWindows({self.gap_ms})"


class _Gaps(Generic[T]):
    """Asks the user's function for the gap of a record."""

    def __init__(self, extractor: object, who: str) -> None:
        extract = getattr(extractor, "extract", extractor)
        if isinstance(extractor, type) or not callable(extract):
            raise PlanInvalid(
                f"{who} was given {extractor!r}; give a SessionWindowTimeGapExtractor, "
                f"or a callable that returns the milliseconds for a record"
            )
        self._extract = extract

    def gap_ms(self, element: T) -> int:
        gap_ms = self._extract(element)
        if type(gap_ms) is not int or gap_ms < 1:
            raise ValueError(
                f"the gap of a session was {gap_ms!r} for the record {element!r}; "
                f"the gap extractor must return milliseconds from 1 on"
            )
        return gap_ms


class DynamicEventTimeSessionWindows(SessionWindows[T]):
    """Sessions whose gap each record brings along; by the records' timestamps."""

    def __init__(
        self,
        session_window_time_gap_extractor: (
            SessionWindowTimeGapExtractor | Callable[[Record], int]
        ),
    ) -> None:
        self._gaps: _Gaps[T] = _Gaps(session_window_time_gap_extractor, type(self).__name__)

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Record], int],
    ) -> "DynamicEventTimeSessionWindows[Record]":
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(
        self, element: T, timestamp: int, context: AssignerContext
    ) -> Collection[TimeWindow]:
        return [TimeWindow(timestamp, timestamp + self._gaps.gap_ms(element))]

    def get_default_trigger(self, env: object) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "DynamicEventTimeSessionWindows()"


class DynamicProcessingTimeSessionWindows(SessionWindows[T]):
    """Sessions whose gap each record brings along; by the clock."""

    def __init__(
        self,
        session_window_time_gap_extractor: (
            SessionWindowTimeGapExtractor | Callable[[Record], int]
        ),
    ) -> None:
        self._gaps: _Gaps[T] = _Gaps(session_window_time_gap_extractor, type(self).__name__)

    @staticmethod
    def with_dynamic_gap(
        extractor: SessionWindowTimeGapExtractor | Callable[[Record], int],
    ) -> "DynamicProcessingTimeSessionWindows[Record]":
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(
        self, element: T, timestamp: int, context: AssignerContext
    ) -> Collection[TimeWindow]:
        now_ms = context.get_current_processing_time()
        return [TimeWindow(now_ms, now_ms + self._gaps.gap_ms(element))]

    def get_default_trigger(self, env: object) -> Trigger[T, TimeWindow]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "DynamicProcessingTimeSessionWindows()"


def _checked_gap(gap_ms: object, who: str) -> int:
    if type(gap_ms) is not int or gap_ms < 1:
        raise PlanInvalid(
            f"{who} was given the gap {gap_ms!r}; give milliseconds from 1 on, "
            f"or write {who}.with_gap(Time.seconds(5))"
        )
    return gap_ms
