"""A job may go on with another backend, in which windows are kept in another way."""

from typing import Any

import pytest

from headgate.core.window.general import GeneralKeeper, MergingKeeper
from headgate.core.window.restored import holds_general_state
from headgate.core.window.spec import Aggregated, WindowCall
from headgate.functions.assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from tests.core.window.kit import LISTED, SUMS, Bounds, CollectingAggregate, Lab, plan, restarted

BOUNDS = WindowCall("apply", Bounds())
EVERY = [SUMS, LISTED, Aggregated(CollectingAggregate())]
BOTH_WAYS = pytest.mark.parametrize("bundled", [True, False])
"""From bundles to single records, and back."""


def total(result: Any) -> int:
    held = result[2:] if not isinstance(result[2], list) else result[2]
    return sum(number for _, number in held)


@BOTH_WAYS
@pytest.mark.parametrize("contents", EVERY)
def test_windows_go_on_whoever_keeps_them(bundled: bool, contents: Any) -> None:
    window_plan = plan(SlidingEventTimeWindows(10, 5), contents, BOUNDS, lateness_ms=5)
    lab = Lab(window_plan, bundled)
    lab.send((("a", 1), 7), (("b", 1), 7))
    lab.watermark(9)
    assert len(lab.taken()) == 2
    again = restarted(lab, window_plan, not bundled)
    again.watermark(10)  # what has fired does not fire again by itself
    assert again.taken() == []
    again.send((("a", 2), 8))
    (late,) = again.taken()
    assert (late[:2], total(late)) == ((0, 10), 3)
    results = again.end().taken()
    assert sorted((result[:2], total(result)) for result in results) == [((5, 15), 1), ((5, 15), 3)]
    assert again.kept() == []


@BOTH_WAYS
@pytest.mark.parametrize("contents", EVERY)
def test_sessions_go_on_whoever_keeps_them(bundled: bool, contents: Any) -> None:
    window_plan = plan(EventTimeSessionWindows(5), contents, BOUNDS)
    lab = Lab(window_plan, bundled)
    lab.send((("a", 1), 0), (("a", 2), 8), (("b", 1), 3))
    again = restarted(lab, window_plan, not bundled)
    assert type(again.operator._keeper) is MergingKeeper
    again.send((("a", 4), 4))
    results = again.end().taken()
    assert [(result[:2], total(result)) for result in results] == [((3, 8), 1), ((0, 13), 7)]
    assert again.kept() == []


@BOTH_WAYS
def test_windows_by_the_clock_go_on_whoever_keeps_them(bundled: bool) -> None:
    window_plan = plan(TumblingProcessingTimeWindows(10), SUMS)
    lab = Lab(window_plan, bundled)
    lab.send_untimed(("a", 1))
    again = restarted(lab, window_plan, not bundled)
    again.send_untimed(("a", 2))
    again.clock(10)
    assert again.taken() == [("a", 3)]
    assert again.kept() == []


def test_whoever_finds_state_of_the_general_keeper_goes_on_with_it() -> None:
    window_plan = plan(TumblingEventTimeWindows(10), SUMS)
    lab = Lab(window_plan, bundled=False)
    lab.send((("a", 1), 1))
    room: Any = lab.operator._keyed
    assert holds_general_state(room.backend)
    assert type(restarted(lab, window_plan, True).operator._keeper) is GeneralKeeper
    lab.watermark(9)
    assert not holds_general_state(room.backend)
