"""Sessions and other windows that merge."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from headgate.core.window.spec import Aggregated, Reduced, WindowCall
from headgate.functions.assigners import (
    EventTimeSessionWindows,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
)
from headgate.functions.triggers import CountTrigger, EventTimeTrigger
from headgate.functions.window import TimeWindow, TimeWindowSerializer
from tests.core.window.kit import LISTED, SUMS, Bounds, CollectingAggregate, Lab, plan

FIVE = EventTimeSessionWindows(5)
BOUNDS = WindowCall("apply", Bounds())
KINDS = pytest.mark.parametrize("bundled", [False, True], ids=["merging", "sessions"])
"""What both keepers must do alike is shown with both."""


def test_a_trigger_counts_on_over_the_windows_that_become_one() -> None:
    lab = Lab(plan(FIVE, SUMS, trigger=CountTrigger(3)), False)
    lab.send((("a", 1), 0), (("a", 2), 8))
    assert lab.taken() == []
    lab.send((("a", 4), 4))
    assert lab.taken() == [("a", 7)]


def test_windows_that_were_merged_leave_no_timers() -> None:
    lab = Lab(plan(FIVE, SUMS, lateness_ms=3), False)
    lab.send((("a", 1), 0), (("a", 2), 8))
    lab.send((("a", 4), 4))
    timers = {window for kind, window, _ in lab.kept() if kind == "timer"}
    assert timers == {TimeWindow(0, 13)}


@KINDS
def test_a_merge_that_returns_nothing_is_refused_and_loses_no_window_silently(
    bundled: bool,
) -> None:
    class Forgetful(CollectingAggregate):
        def merge(self, acc_a: list[Any], acc_b: list[Any]) -> Any:
            acc_a.extend(acc_b)

    lab = Lab(plan(FIVE, Aggregated(Forgetful()), BOUNDS), bundled)
    lab.send((("a", 1), 0), (("a", 2), 8))
    with pytest.raises(TypeError, match=r"merge\(\) of an aggregate function returned None"):
        lab.send((("a", 4), 4))


@KINDS
def test_a_reduce_that_returns_nothing_for_two_sessions_is_refused(bundled: bool) -> None:
    nothing = Reduced(lambda record, other: None)
    lab = Lab(plan(FIVE, nothing, BOUNDS), bundled)
    lab.send((("a", 1), 0), (("a", 2), 8))
    with pytest.raises(TypeError, match="a reduce function returned None"):
        lab.send((("a", 4), 4))


@KINDS
def test_a_late_record_may_still_widen_a_session_that_is_open(bundled: bool) -> None:
    lab = Lab(plan(FIVE, SUMS, BOUNDS, late_tag="late"), bundled)
    lab.send((("a", 1), 10))
    lab.watermark(12)
    lab.send((("a", 2), 6), (("a", 4), 1), (("b", 8), 6))
    assert lab.output.side_records("late") == [("b", 8)]
    assert lab.end().taken() == [(1, 15, ("a", 7))]
    assert lab.kept() == []


def test_a_late_record_that_is_allowed_fires_the_session_again() -> None:
    lab = Lab(plan(FIVE, SUMS, BOUNDS, lateness_ms=10))
    lab.send((("a", 1), 0))
    lab.watermark(6)
    assert lab.taken() == [(0, 5, ("a", 1))]
    lab.send((("a", 2), 1))
    assert lab.taken() == [(0, 6, ("a", 3))]
    lab.send((("a", 4), 4))
    assert lab.taken() == []
    lab.watermark(8)
    assert lab.taken() == [(0, 9, ("a", 7))]
    lab.watermark(18)
    assert lab.kept() == []
    lab.send((("a", 1), 3))
    assert lab.operator.late.count == 1
    assert lab.kept() == []


def test_sessions_go_by_the_clock_too() -> None:
    lab = Lab(plan(ProcessingTimeSessionWindows(5), SUMS, BOUNDS))
    lab.send_untimed(("a", 1))
    lab.clock(3)
    lab.send_untimed(("a", 2))
    lab.clock(20)
    lab.send_untimed(("a", 4))
    lab.clock(25)
    assert lab.taken() == [(0, 8, ("a", 3)), (20, 25, ("a", 4))]
    assert lab.kept() == []


class Asks:
    """Wants state that merging windows cannot have."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        return [context.window_state()]


@KINDS
def test_windows_that_merge_have_no_state_of_their_own(bundled: bool) -> None:
    lab = Lab(plan(FIVE, LISTED, WindowCall("process", Asks())), bundled)
    lab.send((("a", 1), 0))
    with pytest.raises(RuntimeError, match=r"window_state\(\) is not there .* global_state\(\)"):
        lab.watermark(10)


class ByTens(MergingWindowAssigner[Any, TimeWindow]):
    """Windows of one; those of the same ten become the ten, or end too early on purpose."""

    def __init__(self, shift: int = 0) -> None:
        self._shift = shift

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return [TimeWindow(timestamp, timestamp + 1)]

    def merge_windows(self, windows: Any, callback: Any) -> None:
        tens = defaultdict(list)
        for window in windows:
            tens[window.start // 10].append(window)
        for ten, group in tens.items():
            if len(group) > 1:
                start = ten * 10 + self._shift
                callback.merge(group, TimeWindow(start, start + 10))

    def get_default_trigger(self, env: object) -> Any:
        return EventTimeTrigger()

    def get_window_serializer(self) -> Any:
        return TimeWindowSerializer()  # as assigners for PyFlink do

    def is_event_time(self) -> bool:
        return True


def test_an_assigner_of_ones_own_may_merge_in_its_own_way() -> None:
    lab = Lab(plan(ByTens(), SUMS, BOUNDS))
    lab.send((("a", 1), 3), (("a", 2), 15), (("a", 4), 7), (("a", 8), 9))
    assert lab.end().taken() == [(0, 10, ("a", 13)), (15, 16, ("a", 2))]
    assert lab.kept() == []


def test_windows_that_are_merged_into_the_past_are_an_error() -> None:
    lab = Lab(plan(ByTens(shift=-20), SUMS, BOUNDS))
    lab.watermark(2)
    lab.send((("a", 1), 3))
    with pytest.raises(ValueError, match="ByTens merged windows into .* which is over already"):
        lab.send((("a", 1), 4))
