"""Windows by the clock give what the general keeper gives."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS
from headgate.core.window.general import GeneralKeeper
from headgate.core.window.sliced import ClockKeeper
from headgate.core.window.spec import Aggregated, WindowCall, WindowPlan
from headgate.functions.assigners import (
    SlidingProcessingTimeWindows,
    TumblingProcessingTimeWindows,
)
from headgate.functions.evictors import CountEvictor
from headgate.functions.triggers import CountTrigger
from tests.core.window.kit import LISTED, SUMS, Bounds, CollectingAggregate, Lab, plan, restarted

TEN = TumblingProcessingTimeWindows(10)
BOUNDS = WindowCall("apply", Bounds())

Step = int | list[tuple[str, int]]
"""So many milliseconds pass, or a bundle of records comes."""

assigners = st.one_of(
    st.builds(TumblingProcessingTimeWindows, st.integers(3, 12), st.integers(-2, 2)),
    st.builds(SlidingProcessingTimeWindows, st.integers(1, 15), st.integers(1, 6)),
)
records = st.tuples(st.sampled_from("abc"), st.integers(1, 9))
steps = st.lists(
    st.one_of(st.integers(0, 12), st.lists(records, min_size=1, max_size=6)), max_size=14
)


def run(window_plan: WindowPlan, steps: Iterable[Step], bundled: bool) -> tuple[Any, ...]:
    lab = Lab(window_plan, bundled, now_ms=-5)
    assert type(lab.operator._keeper) is (ClockKeeper if bundled else GeneralKeeper)
    found = []
    for step in steps:
        if isinstance(step, int):
            lab.clock(lab.now_ms + step)
        else:
            lab.send_untimed(*step)
        found.append(sorted(lab.taken_timed(), key=lambda timed: (timed[1], str(timed[0]))))
    lab.watermark(MAX_WATERMARK_MS)
    assert lab.taken() == []
    lab.clock(1000)
    found.append(sorted(lab.taken_timed(), key=lambda timed: (timed[1], str(timed[0]))))
    return found, lab.kept()


@given(
    assigners,
    st.sampled_from([SUMS, Aggregated(CollectingAggregate()), LISTED]),
    st.booleans(),
    steps,
)
def test_windows_by_the_clock_are_those_of_the_general_keeper(
    assigner: Any, contents: Any, with_function: bool, steps: list[Step]
) -> None:
    function = BOUNDS if with_function or contents is LISTED else None
    window_plan = plan(assigner, contents, function)
    clocked, general = run(window_plan, steps, True), run(window_plan, steps, False)
    assert clocked == general
    assert clocked[1] == []


@pytest.mark.parametrize("bundled", [False, True])
def test_a_window_fires_once_though_records_come_in_its_last_millisecond(bundled: bool) -> None:
    lab = Lab(plan(TEN, SUMS), bundled)
    lab.send_untimed(("a", 1))
    lab.clock(9)
    lab.send_untimed(("a", 2))
    assert lab.taken() == []
    lab.clock(10)
    assert lab.taken() == [("a", 3)]


@pytest.mark.parametrize("bundled", [False, True])
def test_windows_go_on_after_a_restart(bundled: bool) -> None:
    window_plan = plan(TEN, SUMS)
    lab = Lab(window_plan, bundled)
    lab.send_untimed(("a", 1))
    again = restarted(lab, window_plan, bundled)
    again.clock(10)
    assert again.taken_timed() == [(("a", 1), 9)]
    assert again.kept() == []


def test_no_window_fires_after_the_end() -> None:
    lab = Lab(plan(TEN, SUMS))
    lab.send_untimed(("a", 1))
    assert lab.end().taken() == []
    lab.clock(100)
    assert lab.taken() == []


def test_only_plain_windows_are_kept_so() -> None:
    for window_plan in (
        plan(TEN, SUMS, trigger=CountTrigger(3)),
        plan(TEN, SUMS, evictor=CountEvictor(3)),
    ):
        assert type(Lab(window_plan).operator._keeper) is GeneralKeeper
