"""Triggers in real windows: when results are sent, and when contents are dropped."""

from typing import Any

import pytest

from headgate.base.elements import MAX_WATERMARK_MS
from headgate.base.errors import PlanInvalid
from headgate.core.window.spec import Reduced
from headgate.functions.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from headgate.functions.time import Time
from headgate.functions.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from tests.core.window.kit import Lab, plan

TEN = TumblingEventTimeWindows(10)
JOINED = Reduced(lambda text, more: text + more)


def lab_of(trigger: Any, assigner: Any = TEN, now_ms: int = 0, **more: Any) -> Lab:
    """Texts of one key, joined."""
    return Lab(plan(assigner, JOINED, None, trigger, lambda text: 0, **more), now_ms=now_ms)


def test_results_say_whether_they_fire_and_purge() -> None:
    said = {result.name: (result.is_fire(), result.is_purge()) for result in TriggerResult}
    assert said == {
        "CONTINUE": (False, False),
        "FIRE": (True, False),
        "PURGE": (False, True),
        "FIRE_AND_PURGE": (True, True),
    }


def test_event_time_fires_once_at_the_end_of_the_window() -> None:
    lab = lab_of(EventTimeTrigger.create())
    lab.send(("a", 1), ("b", 9))
    lab.watermark(8)
    assert lab.taken() == []
    lab.watermark(9)
    assert lab.taken_timed() == [("ab", 9)]
    lab.watermark(50)
    assert lab.taken() == []


def test_processing_time_fires_when_the_clock_has_passed_the_window() -> None:
    lab = lab_of(ProcessingTimeTrigger.create(), TumblingProcessingTimeWindows(10))
    lab.send_untimed("a", "b")
    lab.clock(9)  # records of this millisecond may still come
    assert lab.taken() == []
    lab.clock(10)
    assert lab.taken_timed() == [("ab", 9)]
    assert lab.kept() == []


def test_what_the_clock_has_not_reached_at_the_end_is_dropped() -> None:
    lab = lab_of(ProcessingTimeTrigger.create(), TumblingProcessingTimeWindows(10))
    lab.send_untimed("a")
    assert lab.end().taken() == []
    lab.clock(100)
    assert lab.taken() == []


def test_count_fires_at_each_full_number_and_drops_nothing() -> None:
    lab = lab_of(CountTrigger.of(2), GlobalWindows.create())
    lab.send_untimed("a", "b", "c")
    assert lab.taken() == ["ab"]
    lab.send_untimed("d")
    assert lab.taken_timed() == [("abcd", MAX_WATERMARK_MS)]


def test_purging_drops_the_contents_with_each_result() -> None:
    lab = lab_of(PurgingTrigger.of(CountTrigger.of(2)), GlobalWindows.create())
    lab.send_untimed("a", "b", "c", "d", "e")
    assert lab.taken() == ["ab", "cd"]


def test_a_count_in_a_window_starts_anew_in_the_next_one() -> None:
    lab = lab_of(CountTrigger.of(2))
    lab.send(("a", 1), ("b", 11), ("c", 12), ("d", 3))
    assert lab.taken() == ["bc", "ad"]
    lab.watermark(100)
    assert lab.taken() == []
    assert lab.kept() == []


def test_continuous_event_time_fires_at_each_interval_and_at_the_end() -> None:
    lab = lab_of(ContinuousEventTimeTrigger.of(Time.milliseconds(4)))
    lab.send(("a", 1))
    lab.watermark(3)
    assert lab.taken() == []
    lab.watermark(4)
    assert lab.taken() == ["a"]
    lab.send(("b", 5))
    lab.watermark(8)
    assert lab.taken() == ["ab"]
    lab.watermark(20)
    assert lab.taken() == ["ab"]
    assert lab.kept() == []


def test_continuous_event_time_fires_for_every_late_record() -> None:
    lab = lab_of(ContinuousEventTimeTrigger.of(Time.milliseconds(4)), lateness_ms=100)
    lab.send(("a", 1))
    lab.watermark(15)
    assert lab.taken() == ["a", "a", "a"]
    lab.send(("b", 2))
    assert lab.taken() == ["ab"]


def test_continuous_event_time_ends_with_the_input_also_in_a_window_without_end() -> None:
    lab = lab_of(ContinuousEventTimeTrigger.of(Time.milliseconds(4)), GlobalWindows())
    lab.send(("a", 1))
    lab.watermark(9)
    assert lab.taken() == ["a", "a"]
    assert lab.end().taken() == ["a", "a"]  # at 12, and at the end of time


def test_continuous_processing_time_fires_while_the_clock_goes_on() -> None:
    trigger = ContinuousProcessingTimeTrigger.of(Time.milliseconds(4))
    lab = lab_of(trigger, TumblingProcessingTimeWindows(10), now_ms=1)
    lab.send_untimed("a")
    lab.clock(5)
    assert lab.taken() == ["a"]
    lab.send_untimed("b")
    lab.clock(8)
    assert lab.taken() == []
    lab.clock(30)
    assert lab.taken() == ["ab", "ab"]
    assert lab.kept() == []


def test_never_never_fires() -> None:
    lab = lab_of(NeverTrigger())
    lab.send(("a", 1))
    assert lab.end().taken() == []


@pytest.mark.parametrize(
    "trigger",
    [
        EventTimeTrigger(),
        CountTrigger(2),
        PurgingTrigger(CountTrigger(2)),
        ContinuousEventTimeTrigger(4),
        NeverTrigger(),
    ],
)
def test_nothing_is_left_of_a_session_whatever_its_trigger(trigger: Any) -> None:
    lab = lab_of(trigger, EventTimeSessionWindows(5))
    lab.send(("a", 0), ("b", 12), ("c", 6), ("d", 4), ("e", 40))
    lab.watermark(1000)
    assert lab.kept() == []


def test_the_counts_of_merged_windows_add_up() -> None:
    lab = lab_of(CountTrigger(3), EventTimeSessionWindows(5))
    lab.send(("a", 0), ("b", 8))
    assert lab.taken() == []
    lab.send(("c", 4))
    assert lab.taken() == ["abc"]


def test_merged_windows_fire_next_when_the_first_of_them_would_have() -> None:
    lab = lab_of(ContinuousEventTimeTrigger(10), EventTimeSessionWindows(8))
    lab.send(("a", 12), ("b", 1), ("c", 6))
    lab.watermark(7)
    assert lab.taken() == []
    lab.watermark(8)  # the end of the window that "b" came in
    assert [sorted(text) for text in lab.taken()] == [["a", "b", "c"]]
    lab.watermark(17)
    assert lab.taken() == []
    lab.watermark(18)
    assert len(lab.taken()) == 1
    lab.watermark(19)
    assert len(lab.taken()) == 1
    assert lab.kept() == []


@pytest.mark.parametrize(
    ("trigger", "early"),
    [(ProcessingTimeTrigger(), []), (ContinuousProcessingTimeTrigger(100), ["ab"])],
)
def test_merged_windows_fire_by_the_clock_too(trigger: Any, early: list[str]) -> None:
    lab = lab_of(trigger, ProcessingTimeSessionWindows(5))
    lab.send_untimed("a")
    lab.clock(3)
    lab.send_untimed("b")
    lab.clock(7)
    assert lab.taken() == early  # the first window would have ended at 5
    lab.clock(8)
    assert lab.taken_timed() == [("ab", 7)]
    assert lab.kept() == []


class Silent(Trigger[Any, Any]):
    """Forgets to answer."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
        return None

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> Any: ...

    def on_event_time(self, time: int, window: Any, ctx: Any) -> Any: ...

    def clear(self, window: Any, ctx: Any) -> None: ...


def test_a_trigger_that_answers_nothing_is_told() -> None:
    lab = lab_of(Silent())
    with pytest.raises(TypeError, match="Silent answered None; return a TriggerResult"):
        lab.send(("a", 1))


def test_a_trigger_cannot_merge_unless_it_says_so() -> None:
    assert not Silent().can_merge()
    assert not PurgingTrigger(Silent()).can_merge()
    assert PurgingTrigger(CountTrigger(2)).can_merge()
    with pytest.raises(NotImplementedError, match="Silent cannot merge"):
        Silent().on_merge(None, None)  # type: ignore[arg-type]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(PlanInvalid, match="number of records from 1 on"):
        CountTrigger.of(0)
    with pytest.raises(PlanInvalid, match="give a Trigger"):
        PurgingTrigger.of(CountTrigger)  # type: ignore[arg-type]
    for kind in (ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger):
        with pytest.raises(PlanInvalid, match="milliseconds from 1 on"):
            kind.of(Time.seconds(0))
        with pytest.raises(PlanInvalid, match="give a span of time"):
            kind.of(5)
