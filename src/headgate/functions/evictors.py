"""Evictors: what is taken out of a window before or after its function sees it.

Law: an evictor gets all elements of the window in the order in which they came and deletes from
that list; what is left stays in the window.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeAlias

from headgate.base.elements import MIN_WATERMARK_MS, Record
from headgate.base.errors import PlanInvalid
from headgate.functions.time import whole_ms
from headgate.functions.type_variables import IN, W


class TimestampedValue(NamedTuple):
    """A record of a window with its event time; None: it has none."""

    value: Record
    timestamp: int | None = None

    def get_value(self) -> Record:
        return self.value

    def get_timestamp(self) -> int:
        return MIN_WATERMARK_MS if self.timestamp is None else self.timestamp

    def has_timestamp(self) -> bool:
        return self.timestamp is not None


class EvictorTools(Protocol):
    """The times at which the window fires."""

    def get_current_processing_time(self) -> int: ...

    def get_current_watermark(self) -> int: ...

    def get_metric_group(self) -> Record: ...


class Evictor(ABC, Generic[IN, W]):
    """Base of all evictors, also of a user's own."""

    EvictorContext: TypeAlias = EvictorTools

    @abstractmethod
    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: W, ctx: EvictorTools, /
    ) -> None:
        """Delete from ``elements`` before the window function is called."""

    @abstractmethod
    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: W, ctx: EvictorTools, /
    ) -> None:
        """Delete from ``elements`` after the window function was called."""


class _Sided(Evictor[IN, W]):
    """Does the same thing on one of the two sides of the function."""

    def __init__(self, do_evict_after: bool) -> None:
        self._after = do_evict_after

    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: W, ctx: EvictorTools
    ) -> None:
        if not self._after:
            self._evict(elements)

    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: W, ctx: EvictorTools
    ) -> None:
        if self._after:
            self._evict(elements)

    @abstractmethod
    def _evict(self, elements: list[TimestampedValue]) -> None: ...


class CountEvictor(_Sided[IN, W]):
    """Keeps the last ``max_count`` elements."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if type(max_count) is not int or max_count < 0:
            raise PlanInvalid(f"CountEvictor was given {max_count!r}; give a number from 0 on")
        self._max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> "CountEvictor[Record, Record]":
        return CountEvictor(max_count, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        del elements[: max(0, len(elements) - self._max_count)]


class TimeEvictor(_Sided[IN, W]):
    """Keeps the elements that are less than ``window_size`` older than the youngest."""

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._size_ms = window_size

    @staticmethod
    def of(window_size: object, do_evict_after: bool = False) -> "TimeEvictor[Record, Record]":
        return TimeEvictor(whole_ms(window_size, "TimeEvictor.of() was given"), do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if elements and elements[0].has_timestamp():
            oldest_ms = max(element.get_timestamp() for element in elements) - self._size_ms
            elements[:] = [element for element in elements if element.get_timestamp() > oldest_ms]


class DeltaEvictor(_Sided[IN, W]):
    """Keeps the elements whose distance to the last one is below a threshold."""

    def __init__(
        self,
        threshold: float,
        delta_function: Callable[[Record, Record], float],
        do_evict_after: bool = False,
    ) -> None:
        super().__init__(do_evict_after)
        self._threshold = threshold
        self._delta = getattr(delta_function, "get_delta", delta_function)
        if not callable(self._delta):
            raise PlanInvalid(
                f"DeltaEvictor was given {delta_function!r}; "
                f"give a callable that tells how far two records are apart"
            )

    @staticmethod
    def of(
        threshold: float,
        delta_function: Callable[[Record, Record], float],
        do_evict_after: bool = False,
    ) -> "DeltaEvictor[Record, Record]":
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if elements:
            last = elements[-1].value
            elements[:] = [
                element
                for element in elements
                if self._delta(element.value, last) < self._threshold
            ]
