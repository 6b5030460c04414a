"""Functions for windows: what folds their records, and what is called when a window fires.

An AggregateFunction folds records as they come, so that a window keeps one accumulator and not its
records; the others see the contents of the window when it fires. Window joins have theirs here too.
"""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, Protocol

from headgate.functions.context import KeyedStateStore
from headgate.functions.function import Function, Tagged
from headgate.functions.type_variables import ACC, IN, IN1, IN2, KEY, OUT, W2, WINDOW


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Folds records into an accumulator, and makes a result of it.

    ::

        class Average(AggregateFunction):
            def create_accumulator(self):
                return 0, 0

            def add(self, value, accumulator):
                return accumulator[0] + value, accumulator[1] + 1

            def get_result(self, accumulator):
                return accumulator[0] / accumulator[1]

            def merge(self, acc_a, acc_b):
                return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]
    """

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """A new one, for each key and window."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC, /) -> ACC:
        """The accumulator with one record more; it may be the same object, changed."""

    @abstractmethod
    def get_result(self, accumulator: ACC, /) -> OUT:
        """The result to emit."""

    def merge(self, acc_a: ACC, acc_b: ACC, /) -> ACC:
        """Both accumulators in one; needed where windows merge, as sessions do."""
        raise NotImplementedError(
            f"{type(self).__name__} has no merge(acc_a, acc_b), which windows that merge need"
        )


class WindowFunction(Function, Generic[IN, OUT, KEY, WINDOW]):
    """Called with the contents of a window of one key."""

    @abstractmethod
    def apply(self, key: KEY, window: WINDOW, inputs: Iterable[IN], /) -> Iterable[OUT]:
        """The results: return a list, or yield them."""


class AllWindowFunction(Function, Generic[IN, OUT, WINDOW]):
    """Called with the contents of a window of a stream without keys."""

    @abstractmethod
    def apply(self, window: WINDOW, inputs: Iterable[IN], /) -> Iterable[OUT]:
        """The results: return a list, or yield them."""


class WindowContext(Protocol[W2]):
    """What is known about a window beside its contents."""

    def window(self) -> W2:
        """The window itself."""

    def current_processing_time(self) -> int:
        """Milliseconds since 1970."""

    def current_watermark(self) -> int:
        """The smallest of all times before the first watermark, the largest after the last."""

    def window_state(self) -> KeyedStateStore:
        """State of this key and this window; clear it in ``clear``."""

    def global_state(self) -> KeyedStateStore:
        """State of this key, the same in all its windows."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, WINDOW]):
    """Called with the contents of a window of one key, and a context."""

    class Context(WindowContext[W2], Protocol[W2]):
        """What is known about the window."""

    @abstractmethod
    def process(
        self, key: KEY, context: "ProcessWindowFunction.Context[WINDOW]", elements: Iterable[IN], /
    ) -> Iterable[OUT | Tagged]:
        """Yield records, or ``(tag, record)`` for a side output."""

    def clear(self, context: "ProcessWindowFunction.Context[WINDOW]", /) -> None:
        """The window is over: clear the state that belongs to it."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, WINDOW]):
    """Called with the contents of a window of a stream without keys, and a context."""

    class Context(WindowContext[W2], Protocol[W2]):
        """What is known about the window."""

    @abstractmethod
    def process(
        self, context: "ProcessAllWindowFunction.Context[WINDOW]", elements: Iterable[IN], /
    ) -> Iterable[OUT | Tagged]:
        """Yield records, or ``(tag, record)`` for a side output."""

    def clear(self, context: "ProcessAllWindowFunction.Context[WINDOW]", /) -> None:
        """The window is over: clear the state that belongs to it."""


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """One record for each pair that meets in a window."""

    @abstractmethod
    def join(self, first: IN1, second: IN2, /) -> OUT:
        """The joined record; None is refused."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of records for each pair that meets in a window."""

    @abstractmethod
    def join(self, first: IN1, second: IN2, /) -> Iterable[OUT]:
        """The joined records: return a list, or yield them."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """Called once for each key and window that either stream has records in."""

    @abstractmethod
    def co_group(self, first: Iterable[IN1], second: Iterable[IN2], /) -> Iterable[OUT]:
        """The results: return a list, or yield them. One of the two may be empty."""
