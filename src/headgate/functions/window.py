"""Windows as values: a stretch of time, a count, or everything.

Law: windows are hashable, ordered by their start and picklable, so that they can name state and
timers. They are tuples, because every record looks one up.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import BinaryIO, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from headgate.base.elements import MAX_WATERMARK_MS

T = TypeVar("T")
W_contra = TypeVar("W_contra", contravariant=True)


class MergeCallback(Protocol[W_contra]):
    """Is told which windows become one."""

    def merge(self, to_be_merged: Iterable[W_contra], merge_result: W_contra) -> None:
        """All of ``to_be_merged``, one or more, are now ``merge_result``."""


class Window(ABC):
    """Base of all windows. Write ``__eq__`` and ``__hash__`` for a kind of your own."""

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """The last millisecond that still belongs to it."""

    def __headgate_own__(self) -> "Window":
        return self  # nobody can change it


class _Stretch(NamedTuple):
    start: int
    end: int


class TimeWindow(_Stretch, Window):
    """From ``start``, which belongs to it, to ``end``, which does not; in milliseconds."""

    __slots__ = ()

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: "TimeWindow") -> bool:
        """Whether they overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: "TimeWindow") -> "TimeWindow":
        """The smallest window that holds both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Where the window of a timestamp begins, if one begins at ``offset``."""
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(
        windows: "Iterable[TimeWindow]", callback: "MergeCallback[TimeWindow]"
    ) -> None:
        """Tell the callback of every group of two or more that overlap or touch."""
        group: list[TimeWindow] = []
        end = 0
        for window in sorted(windows):
            if group and window.start <= end:
                group.append(window)
                end = max(end, window.end)
            else:
                _tell(group, end, callback)
                group, end = [window], window.end
        _tell(group, end, callback)


def _tell(group: list[TimeWindow], end: int, callback: MergeCallback[TimeWindow]) -> None:
    if len(group) > 1:
        callback.merge(group, TimeWindow(group[0].start, end))


class _Numbered(NamedTuple):
    id: int


class CountWindow(_Numbered, Window):
    """The window with this number, counted from 0."""

    __slots__ = ()

    def max_timestamp(self) -> int:
        return MAX_WATERMARK_MS


class GlobalWindow(Window):
    """Holds everything and never ends. There is one."""

    __slots__ = ()
    _single: "ClassVar[GlobalWindow | None]" = None

    def __new__(cls) -> "GlobalWindow":
        if cls._single is None:
            cls._single = super().__new__(cls)
        return cls._single

    @staticmethod
    def get() -> "GlobalWindow":
        return GlobalWindow()

    def max_timestamp(self) -> int:
        return MAX_WATERMARK_MS

    def __reduce__(self) -> "tuple[type[GlobalWindow], tuple[()]]":
        return GlobalWindow, ()

    def __setstate__(self, state: object) -> None:
        raise TypeError("a pickle cannot change the one GlobalWindow")

    def __repr__(self) -> str:
        return "GlobalWindow()"


class TypeSerializer(Generic[T]):
    """Windows are pickled. Assigners that were written for PyFlink name one of these nevertheless:

    their ``get_window_serializer`` returns it, and nobody calls it.
    """

    def serialize(self, element: T, stream: BinaryIO) -> None:
        """Write a value."""
        pickle.dump(element, stream, 5)

    def deserialize(self, stream: BinaryIO) -> T:
        """Read it again."""
        return pickle.load(stream)  # type: ignore[no-any-return]


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """For windows of time."""


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """For windows of a number of records."""


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """For the one window that holds everything."""
