"""Count windows: so many records of a key make one window.

Law: record n of a key, from 0, is in window i if i * slide <= n < i * slide + size. A window fires
when it is full and not before; one that never fills is never sent.
"""

from collections.abc import Collection
from typing import Final, TypeVar

from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.core.window.assigners import AssignerContext, WindowAssigner
from headgate.core.window.triggers import CountTrigger, PurgingTrigger, Trigger
from headgate.core.window.window import CountWindow
from headgate.functions.state import ValueStateDescriptor

T = TypeVar("T")

COUNTED: Final = ValueStateDescriptor("headgate-counted-records")
"""How many records a key has had."""


class CountSlidingWindowAssigner(WindowAssigner[T, CountWindow]):
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
        self, element: T, timestamp: int, context: AssignerContext
    ) -> Collection[CountWindow]:
        counted = context.get_runtime_context().get_state(COUNTED)
        number = counted.value() or 0
        counted.update(number + 1)
        last = number // self.slide
        first = max(0, (number - self.size) // self.slide + 1)
        return [CountWindow(window) for window in range(last, first - 1, -1)]

    def get_default_trigger(self, env: object) -> Trigger[T, CountWindow]:
        # A window that is full gets no more records, so that nothing of it need be kept.
        return PurgingTrigger(CountTrigger(self.size))

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self.size}, {self.slide})"


class CountTumblingWindowAssigner(CountSlidingWindowAssigner[T]):
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
