"""Sessions that are gathered give what the merging keeper gives; and they survive a restart."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MIN_WATERMARK_MS
from headgate.core.window.general import MergingKeeper
from headgate.core.window.sessions import SessionKeeper
from headgate.core.window.spec import Aggregated, WindowCall, WindowPlan
from headgate.functions.assigners import EventTimeSessionWindows, ProcessingTimeSessionWindows
from headgate.functions.evictors import CountEvictor
from headgate.functions.triggers import CountTrigger
from tests.core.window.kit import (
    LISTED,
    SUMS,
    Bounds,
    CollectingAggregate,
    Lab,
    lateness,
    plan,
    restarted,
)

FIVE = EventTimeSessionWindows(5)
DYNAMIC = EventTimeSessionWindows.with_dynamic_gap(lambda record: record[1])
BOUNDS = WindowCall("apply", Bounds())

Step = int | list[tuple[tuple[str, int], int]]
"""A watermark, or a bundle of records with times."""

records = st.tuples(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), st.integers(-10, 40))
steps = st.lists(
    st.one_of(st.integers(-10, 50), st.lists(records, min_size=1, max_size=6)), max_size=12
)


def run(window_plan: WindowPlan, steps: Iterable[Step], bundled: bool) -> tuple[Any, ...]:
    lab = Lab(window_plan, bundled)
    assert isinstance(lab.operator._keeper, SessionKeeper if bundled else MergingKeeper)
    watermark, found = -100, []
    for step in steps:
        if isinstance(step, int):
            watermark = max(watermark, step)
            lab.watermark(watermark)
        else:
            lab.send(*step)
        found.append(sorted(lab.taken_timed(), key=lambda timed: (timed[1], str(timed[0]))))
    lab.end()
    found.append(sorted(lab.taken_timed(), key=lambda timed: (timed[1], str(timed[0]))))
    return found, lab.output.side_records("late"), lateness(lab), lab.kept()


@given(
    st.sampled_from([FIVE, DYNAMIC]),
    st.sampled_from([SUMS, Aggregated(CollectingAggregate()), LISTED]),
    st.booleans(),
    st.sampled_from([None, "late"]),
    steps,
)
def test_sessions_are_those_of_the_merging_keeper(
    assigner: Any, contents: Any, with_function: bool, late_tag: str | None, steps: list[Step]
) -> None:
    function = BOUNDS if with_function or contents is LISTED else None
    window_plan = plan(assigner, contents, function, late_tag=late_tag)
    gathered, merged = run(window_plan, steps, True), run(window_plan, steps, False)
    assert gathered == merged
    assert gathered[3] == []


def test_results_come_in_order_of_time_though_sessions_grow() -> None:
    lab = Lab(plan(FIVE, SUMS))
    lab.send((("a", 1), 0), (("b", 1), 2), (("c", 1), 3), (("a", 1), 4))
    assert lab.end().taken_timed() == [(("b", 1), 6), (("c", 1), 7), (("a", 2), 8)]


@pytest.mark.parametrize("ahead", [0, 8])
def test_notes_do_not_pile_up_however_often_a_session_grows(ahead: int) -> None:
    lab = Lab(plan(FIVE, SUMS))
    keeper: Any = lab.operator._keeper
    for at in range(0, 300, 3):
        lab.send((("a", 1), at + ahead), (("a", 1), at))
        lab.watermark(at)
        assert len(keeper._notes) <= 3
    assert len(lab.end().taken()) == 1
    assert keeper._notes == []
    assert keeper._noted == {}


def test_only_plain_sessions_are_gathered() -> None:
    refused = [
        plan(FIVE, SUMS, trigger=CountTrigger(3)),
        plan(FIVE, SUMS, evictor=CountEvictor(3)),
        plan(FIVE, SUMS, lateness_ms=1),
        plan(ProcessingTimeSessionWindows(5), SUMS),
    ]
    for window_plan in refused:
        assert type(Lab(window_plan).operator._keeper) is MergingKeeper


@pytest.mark.parametrize("bundled", [False, True])
@pytest.mark.parametrize("contents", [SUMS, LISTED, Aggregated(CollectingAggregate())])
def test_sessions_go_on_after_a_restart(bundled: bool, contents: Any) -> None:
    window_plan = plan(FIVE, contents, BOUNDS)
    lab = Lab(window_plan, bundled)
    lab.send((("a", 1), 0), (("a", 2), 20), (("b", 1), 3))
    lab.watermark(4)
    assert len(lab.taken()) == 1
    again = restarted(lab, window_plan, bundled)
    again.send((("a", 4), 16))
    again.watermark(10)
    assert [result[:2] for result in again.taken()] == [(3, 8)]
    assert [result[:2] for result in again.end().taken()] == [(16, 25)]
    assert again.kept() == []


def test_in_batch_a_key_is_over_before_the_next_begins() -> None:
    lab = Lab(plan(FIVE, SUMS))
    lab.send((("a", 1), 0), (("a", 2), 20))
    lab.operator.key_ended()
    assert lab.taken() == [("a", 1), ("a", 2)]
    lab.send((("b", 1), 3))
    lab.operator.key_ended()
    assert lab.taken() == [("b", 1)]
    assert lab.operator.late.count == 0


@pytest.mark.parametrize("at", [None, MIN_WATERMARK_MS])
def test_a_record_without_a_time_is_an_error(at: int | None) -> None:
    with pytest.raises(ValueError, match=r"call assign_timestamps_and_watermarks\(\)"):
        Lab(plan(FIVE, SUMS)).send((("a", 1), at))


def test_what_was_sent_does_not_change_when_the_function_keeps_it() -> None:
    class Reuses(CollectingAggregate):
        result: list[Any] = []  # noqa: RUF012 - shared on purpose

        def get_result(self, accumulator: list[Any]) -> list[Any]:
            self.result[:] = accumulator
            return self.result

    lab = Lab(plan(FIVE, Aggregated(Reuses())))
    lab.send((("a", 1), 0), (("b", 2), 0))
    assert lab.end().taken() == [[("a", 1)], [("b", 2)]]
