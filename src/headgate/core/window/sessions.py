"""Session windows: records that are not further apart than a gap belong together.

Law: each record begins as a window of its own, from its time to the end of its gap; windows that
overlap or touch become one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeAlias, TypeVar

from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.core.window.assigners import (
    AssignerContext,
    ByClock,
    ByTimestamp,
    MergingWindowAssigner,
)
from headgate.core.window.window import MergeCallback, TimeWindow
from headgate.functions.time import positive_ms

T = TypeVar("T")
_GAP = TypeVar("_GAP", bound="_WithGap[Record]")
_DYNAMIC = TypeVar("_DYNAMIC", bound="_WithDynamicGap[Record]")


class SessionWindowTimeGapExtractor(ABC):
    """Says how long the gap behind a record may be."""

    @abstractmethod
    def extract(self, element: Record) -> int:
        """In milliseconds, 1 or more."""


GapOf: TypeAlias = SessionWindowTimeGapExtractor | Callable[[Record], int]


class SessionWindows(MergingWindowAssigner[T, TimeWindow]):
    """Base of the four kinds."""

    @abstractmethod
    def moment(self, timestamp: int, context: AssignerContext) -> int:
        """When a record is."""

    @abstractmethod
    def gap_of(self, element: T) -> int:
        """How long the gap behind a record may be."""

    def assign_windows(
        self, element: T, timestamp: int, context: AssignerContext
    ) -> Collection[TimeWindow]:
        start = self.moment(timestamp, context)
        return [TimeWindow(start, start + self.gap_of(element))]

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)


class _WithGap(SessionWindows[T]):
    """One gap for all records."""

    def __init__(self, session_gap: int) -> None:
        self.gap_ms = _checked_gap(session_gap, type(self).__name__)

    @classmethod
    def with_gap(cls: type[_GAP], size: object) -> _GAP:
        """With a span of time: ``.with_gap(Time.minutes(30))``"""
        return cls(positive_ms(size, f"{cls.__name__}.with_gap()"))

    def gap_of(self, element: T) -> int:
        return self.gap_ms

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.gap_ms})"


class _WithDynamicGap(SessionWindows[T]):
    """Each record brings its gap along."""

    def __init__(self, session_window_time_gap_extractor: GapOf) -> None:
        self._gaps: _Gaps[T] = _Gaps(session_window_time_gap_extractor, type(self).__name__)

    @classmethod
    def with_dynamic_gap(cls: type[_DYNAMIC], extractor: GapOf) -> _DYNAMIC:
        """Each record says how long the gap behind it may be."""
        return cls(extractor)

    def gap_of(self, element: T) -> int:
        return self._gaps.gap_ms(element)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class DynamicEventTimeSessionWindows(ByTimestamp[T], _WithDynamicGap[T]):
    """Sessions whose gap each record brings along; by the records' timestamps."""


class DynamicProcessingTimeSessionWindows(ByClock[T], _WithDynamicGap[T]):
    """Sessions whose gap each record brings along; by the clock."""


class EventTimeSessionWindows(ByTimestamp[T], _WithGap[T]):
    """Sessions with one gap; by the records' timestamps.

    ``EventTimeSessionWindows.with_gap(Time.minutes(30))``
    """

    @staticmethod
    def with_dynamic_gap(extractor: GapOf) -> DynamicEventTimeSessionWindows[Record]:
        """Each record says how long the gap behind it may be."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(ByClock[T], _WithGap[T]):
    """Sessions with one gap; by the clock."""

    @staticmethod
    def with_dynamic_gap(extractor: GapOf) -> DynamicProcessingTimeSessionWindows[Record]:
        """Each record says how long the gap behind it may be."""
        return DynamicProcessingTimeSessionWindows(extractor)


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


def _checked_gap(gap_ms: object, who: str) -> int:
    if type(gap_ms) is not int or gap_ms < 1:
        raise PlanInvalid(
            f"{who} was given the gap {gap_ms!r}; give milliseconds from 1 on, "
            f"or write {who}.with_gap(Time.seconds(5))"
        )
    return gap_ms
