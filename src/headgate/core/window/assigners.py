"""Window assigners: which windows a record belongs to.

Law: a window starts at its offset, or a whole number of sizes (slides) from it, below zero too. An
assigner is one object for all keys; a user's own may be derived from ``WindowAssigner``.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Generic, Protocol, TypeAlias, TypeVar

from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.core.window.triggers import (
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    Trigger,
)
from headgate.core.window.window import GlobalWindow, MergeCallback, TimeWindow, Window
from headgate.functions.context import RuntimeContext
from headgate.functions.time import positive_ms, whole_ms

T = TypeVar("T")
W = TypeVar("W", bound=Window)
_TUMBLING = TypeVar("_TUMBLING", bound="_Tumbling[Record]")
_SLIDING = TypeVar("_SLIDING", bound="_Sliding[Record]")


class AssignerContext(Protocol):
    """What ``assign_windows`` learns beside the record."""

    def get_current_processing_time(self) -> int:
        """Milliseconds since 1970."""

    def get_runtime_context(self) -> RuntimeContext:
        """With state of the record's key."""


class WindowAssigner(ABC, Generic[T, W]):
    """Base of all assigners, also of a user's own."""

    WindowAssignerContext: TypeAlias = AssignerContext

    @abstractmethod
    def assign_windows(self, element: T, timestamp: int, context: AssignerContext) -> Collection[W]:
        """The windows of a record; it may be in several, or in none."""

    @abstractmethod
    def get_default_trigger(self, env: object) -> Trigger[T, W]:
        """What fires these windows unless the user says otherwise."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether they end by the watermark; otherwise they end by the clock."""

    def get_window_serializer(self) -> object:
        """Not asked for: windows are pickled. Here for assigners that were written for PyFlink."""
        return None


class MergingWindowAssigner(WindowAssigner[T, W]):
    """Base of assigners whose windows may become one, such as sessions."""

    MergeCallback: TypeAlias = MergeCallback

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergeCallback[W]) -> None:
        """Tell the callback of each group of windows that shall become one."""


class ByTimestamp(Generic[T]):
    """For windows in event time: a record's moment is its timestamp."""

    def get_default_trigger(self, env: object) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True

    def moment(self, timestamp: int, context: AssignerContext) -> int:
        return timestamp


class ByClock(Generic[T]):
    """For windows in processing time: a record's moment is when it comes."""

    def get_default_trigger(self, env: object) -> Trigger[T, TimeWindow]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False

    def moment(self, timestamp: int, context: AssignerContext) -> int:
        return context.get_current_processing_time()


class _Tumbling(WindowAssigner[T, TimeWindow]):
    """Windows of one size, side by side."""

    def __init__(self, size: int, offset: int = 0) -> None:
        _check_offset(type(self).__name__, "size", size, offset)
        self.size_ms = size
        self.offset_ms = offset

    @classmethod
    def of(cls: type[_TUMBLING], size: object, offset: object = None) -> _TUMBLING:
        """With spans of time: ``.of(Time.minutes(1))``"""
        caller = f"{cls.__name__}.of()"
        return cls(positive_ms(size, caller), _offset(offset, caller))

    @abstractmethod
    def moment(self, timestamp: int, context: AssignerContext) -> int:
        """When a record is."""

    def assign_windows(
        self, element: T, timestamp: int, context: AssignerContext
    ) -> Collection[TimeWindow]:
        now_ms = self.moment(timestamp, context)
        start = now_ms - (now_ms - self.offset_ms) % self.size_ms
        return [TimeWindow(start, start + self.size_ms)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size_ms}, {self.offset_ms})"


class TumblingEventTimeWindows(ByTimestamp[T], _Tumbling[T]):
    """Windows of one size, side by side; by the records' timestamps.

    ``TumblingEventTimeWindows.of(Time.minutes(1))``
    """


class TumblingProcessingTimeWindows(ByClock[T], _Tumbling[T]):
    """Windows of one size, side by side; by the clock."""


class _Sliding(WindowAssigner[T, TimeWindow]):
    """Windows of one size, one beginning every ``slide``."""

    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        _check_offset(type(self).__name__, "slide", slide, offset)
        _check_positive(type(self).__name__, "size", size)
        self.size_ms = size
        self.slide_ms = slide
        self.offset_ms = offset

    @classmethod
    def of(cls: type[_SLIDING], size: object, slide: object, offset: object = None) -> _SLIDING:
        """With spans of time: ``.of(Time.minutes(10), Time.minutes(1))``"""
        caller = f"{cls.__name__}.of()"
        return cls(positive_ms(size, caller), positive_ms(slide, caller), _offset(offset, caller))

    @abstractmethod
    def moment(self, timestamp: int, context: AssignerContext) -> int:
        """When a record is."""

    def assign_windows(
        self, element: T, timestamp: int, context: AssignerContext
    ) -> Collection[TimeWindow]:
        now_ms = self.moment(timestamp, context)
        return slides(now_ms, self.size_ms, self.slide_ms, self.offset_ms)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size_ms}, {self.slide_ms}, {self.offset_ms})"


class SlidingEventTimeWindows(ByTimestamp[T], _Sliding[T]):
    """Windows of one size, one beginning every ``slide``; by the records' timestamps.

    ``SlidingEventTimeWindows.of(Time.minutes(10), Time.minutes(1))``
    """


class SlidingProcessingTimeWindows(ByClock[T], _Sliding[T]):
    """Windows of one size, one beginning every ``slide``; by the clock."""


class GlobalWindows(WindowAssigner[T, GlobalWindow]):
    """One window for all records of a key. It never fires unless a trigger is given."""

    @staticmethod
    def create() -> "GlobalWindows[Record]":
        return GlobalWindows()

    def assign_windows(
        self, element: T, timestamp: int, context: AssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow()]

    def get_default_trigger(self, env: object) -> Trigger[T, GlobalWindow]:
        return NeverTrigger()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"


def slides(timestamp: int, size_ms: int, slide_ms: int, offset_ms: int) -> list[TimeWindow]:
    """The sliding windows that hold a timestamp, the latest first."""
    last = timestamp - (timestamp - offset_ms) % slide_ms
    return [
        TimeWindow(start, start + size_ms) for start in range(last, timestamp - size_ms, -slide_ms)
    ]


def _offset(offset: object, caller: str) -> int:
    return 0 if offset is None else whole_ms(offset, caller)


def _check_positive(who: str, what: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise PlanInvalid(
            f"{who} was given {value!r} as its {what}; give milliseconds from 1 on, "
            f"or write {who}.of() with Time.seconds(5) and the like"
        )


def _check_offset(who: str, what: str, period: object, offset: object) -> None:
    _check_positive(who, what, period)
    if type(offset) is not int or type(period) is not int or abs(offset) >= period:
        raise PlanInvalid(
            f"{who} was given the offset {offset!r} ms; "
            f"it must be smaller than the {what}, which is {period} ms"
        )
