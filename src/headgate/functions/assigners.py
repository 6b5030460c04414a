"""Window assigners: which windows a record belongs to.

One object serves all keys; a user's own is derived from ``WindowAssigner``. Laws: a time window
starts at its offset, or a whole number of sizes (slides) from it, below zero too. Each record
begins a session of its own, from its time to the end of its gap, and sessions that overlap or touch
merge. Record n of a key, from 0, is in count window i if i * slide <= n < i * slide + size; a count
window fires when it is full, one that never fills is never sent.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.functions.context import RuntimeContext
from headgate.functions.state import ValueStateDescriptor
from headgate.functions.time import whole_ms
from headgate.functions.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)
from headgate.functions.type_variables import IN, W
from headgate.functions.window import CountWindow, GlobalWindow, MergeCallback, TimeWindow

_TUMBLING = TypeVar("_TUMBLING", bound="_Tumbling[Record]")


_SLIDING = TypeVar("_SLIDING", bound="_Sliding[Record]")


_GAP = TypeVar("_GAP", bound="_WithGap[Record]")


_DYNAMIC = TypeVar("_DYNAMIC", bound="_WithDynamicGap[Record]")


class AssignerContext(Protocol):
    """The context of ``assign_windows``."""

    def get_current_processing_time(self) -> int:
        """Milliseconds since 1970."""

    def get_runtime_context(self) -> RuntimeContext:
        """With state of the record's key."""


class WindowAssigner(ABC, Generic[IN, W]):
    """Base of all assigners, also of a user's own."""

    WindowAssignerContext: TypeAlias = AssignerContext

    @abstractmethod
    def assign_windows(
        self, element: IN, timestamp: int, context: AssignerContext, /
    ) -> Collection[W]:
        """The windows of a record; it may be in several, or in none."""

    @abstractmethod
    def get_default_trigger(self, env: object, /) -> Trigger[IN, W]:
        """The trigger of these windows unless the user sets another."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether they end by the watermark; otherwise they end by the clock."""

    def get_window_serializer(self) -> object:
        """Not asked for: windows are pickled. Here for assigners that were written for PyFlink."""


class MergingWindowAssigner(WindowAssigner[IN, W]):
    """Base of assigners whose windows may become one, such as sessions."""

    MergeCallback: TypeAlias = MergeCallback

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergeCallback[W], /) -> None:
        """Tell the callback of each group of windows that shall become one."""


class _ByTime(WindowAssigner[IN, TimeWindow]):
    """Windows by timestamps or by the clock."""

    _event_time: ClassVar[bool] = True
    """False: the moment of a record is when it comes."""

    def get_default_trigger(self, env: object) -> Trigger[IN, TimeWindow]:
        return EventTimeTrigger() if self._event_time else ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return self._event_time

    def moment(self, timestamp: int, context: AssignerContext) -> int:
        """When a record is."""
        return timestamp if self._event_time else context.get_current_processing_time()


class _Tumbling(_ByTime[IN]):
    """Windows of one size, side by side."""

    def __init__(self, size: int, offset: int = 0) -> None:
        _check_offset(type(self).__name__, "size", size, offset)
        self.size_ms = size
        self.offset_ms = offset

    @classmethod
    def of(cls: type[_TUMBLING], size: object, offset: object = None) -> _TUMBLING:
        """With spans of time: ``.of(Time.minutes(1))``"""
        given = f"{cls.__name__}.of() was given"
        return cls(whole_ms(size, given, 1), _offset(offset, given))

    def assign_windows(
        self, element: IN, timestamp: int, context: AssignerContext
    ) -> Collection[TimeWindow]:
        now_ms = self.moment(timestamp, context)
        start = now_ms - (now_ms - self.offset_ms) % self.size_ms
        return [TimeWindow(start, start + self.size_ms)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size_ms}, {self.offset_ms})"


class TumblingEventTimeWindows(_Tumbling[IN]):
    """Windows of one size, side by side; by the records' timestamps.

    ``TumblingEventTimeWindows.of(Time.minutes(1))``
    """


class TumblingProcessingTimeWindows(_Tumbling[IN]):
    """Windows of one size, side by side; by the clock."""

    _event_time = False


class _Sliding(_ByTime[IN]):
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
        given = f"{cls.__name__}.of() was given"
        return cls(whole_ms(size, given, 1), whole_ms(slide, given, 1), _offset(offset, given))

    def assign_windows(
        self, element: IN, timestamp: int, context: AssignerContext
    ) -> Collection[TimeWindow]:
        now_ms = self.moment(timestamp, context)
        return slides(now_ms, self.size_ms, self.slide_ms, self.offset_ms)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size_ms}, {self.slide_ms}, {self.offset_ms})"


class SlidingEventTimeWindows(_Sliding[IN]):
    """Windows of one size, one beginning every ``slide``; by the records' timestamps.

    ``SlidingEventTimeWindows.of(Time.minutes(10), Time.minutes(1))``
    """


class SlidingProcessingTimeWindows(_Sliding[IN]):
    """Windows of one size, one beginning every ``slide``; by the clock."""

    _event_time = False


def slides(timestamp: int, size_ms: int, slide_ms: int, offset_ms: int) -> list[TimeWindow]:
    """The sliding windows that hold a timestamp, the latest first."""
    last = timestamp - (timestamp - offset_ms) % slide_ms
    return [
        TimeWindow(start, start + size_ms) for start in range(last, timestamp - size_ms, -slide_ms)
    ]


class GlobalWindows(WindowAssigner[IN, GlobalWindow]):
    """One window for all records of a key. It never fires unless a trigger is given."""

    @staticmethod
    def create() -> "GlobalWindows[Record]":
        return GlobalWindows()

    def assign_windows(
        self, element: IN, timestamp: int, context: AssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow()]

    def get_default_trigger(self, env: object) -> Trigger[IN, GlobalWindow]:
        return NeverTrigger()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"


class SessionWindowTimeGapExtractor(ABC):
    """Says how long the gap after a record may be."""

    @abstractmethod
    def extract(self, element: Record, /) -> int:
        """In milliseconds, 1 or more."""


GapOf: TypeAlias = SessionWindowTimeGapExtractor | Callable[[Record], int]


class SessionWindows(_ByTime[IN], MergingWindowAssigner[IN, TimeWindow]):
    """Base of the four kinds."""

    @abstractmethod
    def gap_of(self, element: IN) -> int:
        """How long the gap after a record may be."""

    def assign_windows(
        self, element: IN, timestamp: int, context: AssignerContext
    ) -> Collection[TimeWindow]:
        start = self.moment(timestamp, context)
        return [TimeWindow(start, start + self.gap_of(element))]

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)


class _WithGap(SessionWindows[IN]):
    """One gap for all records."""

    def __init__(self, session_gap: int) -> None:
        self.gap_ms = _checked_gap(session_gap, type(self).__name__)

    @classmethod
    def with_gap(cls: type[_GAP], size: object) -> _GAP:
        """With a span of time: ``.with_gap(Time.minutes(30))``"""
        return cls(whole_ms(size, f"{cls.__name__}.with_gap() was given", 1))

    def gap_of(self, element: IN) -> int:
        return self.gap_ms

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.gap_ms})"


class _WithDynamicGap(SessionWindows[IN]):
    """Each record brings its gap along."""

    def __init__(self, session_window_time_gap_extractor: GapOf) -> None:
        self._gaps: _Gaps[IN] = _Gaps(session_window_time_gap_extractor, type(self).__name__)

    @classmethod
    def with_dynamic_gap(cls: type[_DYNAMIC], extractor: GapOf) -> _DYNAMIC:
        """Each record says how long the gap after it may be."""
        return cls(extractor)

    def gap_of(self, element: IN) -> int:
        return self._gaps.gap_ms(element)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class DynamicEventTimeSessionWindows(_WithDynamicGap[IN]):
    """Sessions whose gap each record brings along; by the records' timestamps."""


class DynamicProcessingTimeSessionWindows(_WithDynamicGap[IN]):
    """Sessions whose gap each record brings along; by the clock."""

    _event_time = False


class EventTimeSessionWindows(_WithGap[IN]):
    """Sessions with one gap; by the records' timestamps.

    ``EventTimeSessionWindows.with_gap(Time.minutes(30))``
    """

    @staticmethod
    def with_dynamic_gap(extractor: GapOf) -> DynamicEventTimeSessionWindows[Record]:
        """Each record says how long the gap after it may be."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_WithGap[IN]):
    """Sessions with one gap; by the clock."""

    _event_time = False

    @staticmethod
    def with_dynamic_gap(extractor: GapOf) -> DynamicProcessingTimeSessionWindows[Record]:
        """Each record says how long the gap after it may be."""
        return DynamicProcessingTimeSessionWindows(extractor)


COUNTED: Final = ValueStateDescriptor("headgate-counted-records")
"""How many records a key has had."""


class CountSlidingWindowAssigner(WindowAssigner[IN, CountWindow]):
    """Windows of ``size`` records, one beginning every ``slide`` records."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        _check_count(window_size, "size")
        _check_count(window_slide, "slide")
        self.size = window_size
        self.slide = window_slide

    @staticmethod
    def of(window_size: int, window_slide: int) -> "CountSlidingWindowAssigner[Record]":
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: IN, timestamp: int, context: AssignerContext
    ) -> Collection[CountWindow]:
        counted = context.get_runtime_context().get_state(COUNTED)
        number = counted.value() or 0
        counted.update(number + 1)
        last = number // self.slide
        first = max(0, (number - self.size) // self.slide + 1)
        return [CountWindow(window) for window in range(last, first - 1, -1)]

    def get_default_trigger(self, env: object) -> Trigger[IN, CountWindow]:
        # A window that is full gets no more records, so that nothing of it need be kept.
        return PurgingTrigger(CountTrigger(self.size))

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self.size}, {self.slide})"


class CountTumblingWindowAssigner(CountSlidingWindowAssigner[IN]):
    """Windows of ``size`` records, side by side."""

    def __init__(self, window_size: int) -> None:
        super().__init__(window_size, window_size)

    @staticmethod
    def of(window_size: int, window_slide: int = 0) -> "CountTumblingWindowAssigner[Record]":
        _ = window_slide  # they do not overlap
        return CountTumblingWindowAssigner(window_size)

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self.size})"


def count_assigner(size: int, slide: int | None) -> CountSlidingWindowAssigner[Record]:
    """What ``count_window(size, slide)`` means; no slide, or 0: windows side by side."""
    if slide is None or (type(slide) is int and slide == 0):
        return CountTumblingWindowAssigner(size)
    return CountSlidingWindowAssigner(size, slide)


def _check_count(count: object, what: str) -> None:
    if type(count) is not int or count < 1:
        raise PlanInvalid(
            f"a count window was given {count!r} as its {what}; give a number of records from 1 on"
        )


class _Gaps(Generic[IN]):
    """Asks the user's function for the gap of a record."""

    def __init__(self, extractor: object, who: str) -> None:
        extract = getattr(extractor, "extract", extractor)
        if isinstance(extractor, type) or not callable(extract):
            raise PlanInvalid(
                f"{who} was given {extractor!r}; give a SessionWindowTimeGapExtractor, "
                f"or a callable that returns the milliseconds for a record"
            )
        self._extract = extract

    def gap_ms(self, element: IN) -> int:
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


def _offset(offset: object, given: str) -> int:
    return 0 if offset is None else whole_ms(offset, given)


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
