"""Windows record by record: lateness, cleaning up, and what assigners of a user's own may do."""

from collections.abc import Iterable
from typing import Any

import pytest

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from headgate.core.window.spec import Aggregated, Reduced
from headgate.functions.assigners import (
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from headgate.functions.state import ReducingStateDescriptor, ValueStateDescriptor
from headgate.functions.triggers import EventTimeTrigger, Trigger, TriggerResult
from headgate.functions.window import TimeWindow
from tests.core.window.kit import LISTED, SUMS, CollectingAggregate, Lab, add_in_place, plan

TEN = TumblingEventTimeWindows(10)
KINDS = pytest.mark.parametrize("sliced", [False, True], ids=["general", "sliced"])
"""What both keepers must do alike is shown with both."""


@KINDS
def test_a_record_that_is_too_late_is_counted_and_dropped(sliced: bool) -> None:
    lab = Lab(plan(TEN, SUMS), sliced)
    lab.watermark(9)
    lab.send((("a", 1), 9), (("a", 2), 10), (("a", 3), 0))
    assert lab.end().taken() == [("a", 2)]
    assert lab.operator.late.count == 2


@KINDS
def test_records_that_are_too_late_go_to_their_side_output(sliced: bool) -> None:
    lab = Lab(plan(TEN, SUMS, late_tag="late"), sliced)
    lab.watermark(9)
    lab.send((("a", 1), 9), (("a", 2), 10), (("a", 3), 0))
    assert lab.output.side_records("late") == [("a", 1), ("a", 3)]
    assert lab.output.side[0][1].timestamps == [9, 0]
    assert lab.operator.late.count == 0


@KINDS
def test_a_lateness_without_end_keeps_windows_for_ever(sliced: bool) -> None:
    lab = Lab(plan(TEN, SUMS, lateness_ms=MAX_WATERMARK_MS), sliced)
    lab.send((("a", 1), 1))
    lab.watermark(10**9)
    lab.send((("a", 1), 2))
    assert lab.taken() == [("a", 1), ("a", 2)]


@KINDS
@pytest.mark.parametrize("at", [None, MIN_WATERMARK_MS])
def test_a_record_without_a_time_is_an_error_that_says_what_to_do(
    sliced: bool, at: int | None
) -> None:
    lab = Lab(plan(TEN), sliced)
    with pytest.raises(ValueError, match=r"call assign_timestamps_and_watermarks\(\)"):
        lab.send((("a", 1), 3), (("a", 2), at))
    with pytest.raises(ValueError, match=r"TumblingEventTimeWindows\(10, 0\)"):
        lab.send_untimed(("a", 1))


@KINDS
def test_nothing_is_kept_of_windows_that_are_over(sliced: bool) -> None:
    for lateness_ms in (0, 7):
        lab = Lab(plan(SlidingEventTimeWindows(10, 3), LISTED, lateness_ms=lateness_ms), sliced)
        lab.send(*[(("abc"[n % 3], n), n) for n in range(20)])
        lab.watermark(15)
        lab.send(*[(("abc"[n % 3], n), n) for n in range(10, 20)])
        assert lab.kept() != []
        lab.watermark(100)
        assert lab.kept() == []


@KINDS
def test_what_was_sent_does_not_change_when_the_window_fires_again(sliced: bool) -> None:
    for contents, expected in (
        (Aggregated(CollectingAggregate()), [[("a", 1)], [("a", 1), ("a", 2)]]),
        (Reduced(add_in_place), [["a", 1], ["a", 3]]),
    ):
        lab = Lab(plan(TEN, contents, lateness_ms=5), sliced)
        make = tuple if expected[0][0] != "a" else list
        lab.send((make(("a", 1)), 1))
        lab.watermark(9)
        lab.send((make(("a", 2)), 2))
        assert lab.end().taken() == expected


@KINDS
@pytest.mark.parametrize("reuse", [False, True])
def test_windows_share_no_record_unless_objects_are_reused(sliced: bool, reuse: bool) -> None:
    lab = Lab(plan(SlidingEventTimeWindows(10, 5), Reduced(add_in_place)), sliced, reuse)
    lab.send((["a", 1], 7), (["a", 2], 12), (["a", 4], 8))
    sums = [record[1] for record in lab.end().taken()]
    assert (sums == [5, 7, 2]) is not reuse


@KINDS
def test_a_fold_that_returns_nothing_is_told(sliced: bool) -> None:
    lab = Lab(plan(TEN, Reduced(lambda record, other: None)), sliced)
    with pytest.raises(TypeError, match="reduce function returned None; return the combined"):
        lab.send((("a", 1), 1), (("a", 1), 1))

    class Forgets(CollectingAggregate):
        def add(self, value: Any, accumulator: list[Any]) -> Any: ...

    lab = Lab(plan(TEN, Aggregated(Forgets())), sliced)
    with pytest.raises(TypeError, match=r"add\(\) of an aggregate function returned None"):
        lab.send((("a", 1), 1))


@KINDS
def test_a_result_of_none_is_not_sent(sliced: bool) -> None:
    class Odd(CollectingAggregate):
        def get_result(self, accumulator: list[Any]) -> Any:
            return accumulator if len(accumulator) % 2 else None

    lab = Lab(plan(TEN, Aggregated(Odd())), sliced)
    lab.send((("a", 1), 1), (("a", 1), 1), (("b", 1), 1))
    assert lab.end().taken() == [[("b", 1)]]


@KINDS
def test_keys_need_not_be_hashable(sliced: bool) -> None:
    lab = Lab(plan(TEN, LISTED, key_of=lambda record: record[0]), sliced)
    lab.send((([1], "x"), 1), (([2], "y"), 1), (([1], "z"), 1), ((None, "n"), 1))
    found = [(key, len(elements)) for key, _, elements in lab.end().taken()]
    assert found == [([1], 2), ([2], 1), (None, 1)]


@KINDS
def test_in_batch_a_key_is_over_before_the_next_begins(sliced: bool) -> None:
    lab = Lab(plan(TEN, LISTED), sliced)
    lab.send((("a", 1), 1), (("a", 2), 25))
    lab.operator.key_ended()
    assert [elements for _, _, elements in lab.taken()] == [(("a", 1),), (("a", 2),)]
    assert lab.kept() == []
    lab.send((("b", 1), 3))
    lab.operator.key_ended()
    assert lab.taken() == [("b", TimeWindow(0, 10), (("b", 1),))]
    assert lab.operator.late.count == 0


class ByText(WindowAssigner[Any, TimeWindow]):
    """As many windows as the record says, counted by key."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Iterable[Any]:
        state = context.get_runtime_context().get_state(ValueStateDescriptor("seen"))
        state.update((state.value() or 0) + 1)
        return [TimeWindow(n, n + state.value()) for n in range(element[1])]

    def get_default_trigger(self, env: object) -> Any:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


def test_an_assigner_of_ones_own_may_have_state_and_give_any_windows() -> None:
    lab = Lab(plan(ByText()))
    lab.send((("a", 0), 5), (("a", 2), 5), (("b", 1), 5))
    assert [(key, window) for key, window, _ in lab.end().taken()] == [
        ("b", TimeWindow(0, 1)),
        ("a", TimeWindow(0, 2)),
        ("a", TimeWindow(1, 3)),
    ]
    assert lab.operator.late.count == 0  # in no window, but not late


class Twice(Trigger[Any, Any]):
    """Fires at the second record of a window, and drops all at the time 5."""

    count = ReducingStateDescriptor("count", lambda count, more: count + more)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        ctx.register_event_time_timer(5)
        count = ctx.get_partitioned_state(self.count)
        count.add(1)
        return TriggerResult.FIRE if count.get() == 2 else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.PURGE if time == 5 else TriggerResult.FIRE

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self.count).clear()


def test_a_trigger_of_ones_own_has_state_and_timers_by_key_and_window() -> None:
    lab = Lab(plan(TEN, SUMS, trigger=Twice()))
    lab.send((("a", 1), 1), (("b", 1), 1), (("a", 2), 2), (("b", 1), 11))
    assert lab.taken() == [("a", 3)]
    lab.watermark(6)
    lab.send((("b", 7), 7))
    assert lab.taken() == [("b", 7)]
    lab.watermark(9)  # the timer at 5 was set anew, so that nothing is left at 9
    assert lab.taken() == []
    lab.watermark(100)
    assert lab.kept() == []


@pytest.mark.parametrize("bundled", [False, True])
def test_sliding_windows_go_by_the_clock_and_are_never_late(bundled: bool) -> None:
    lab = Lab(plan(SlidingProcessingTimeWindows(10, 5), SUMS, lateness_ms=3), bundled, now_ms=7)
    lab.watermark(MAX_WATERMARK_MS)
    lab.send_untimed(("a", 1))
    lab.clock(11)
    assert lab.taken_timed() == [(("a", 1), 9)]
    lab.send((("a", 2), 3))
    lab.clock(30)
    assert lab.taken_timed() == [(("a", 3), 14), (("a", 2), 19)]
    assert lab.kept() == []
