"""Generators: what they make of the times of records, and where in the line they say it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Bundle, Watermark
from headgate.core.chain.watermarks import (
    Bounded,
    CustomWatermarks,
    Silent,
    TimedOutput,
    checked_watermark,
)
from tests.core.chain.time_kit import ACTIVE, IDLE, Line, ScriptedGenerator

bundles = st.lists(st.lists(st.none() | st.integers(-50, 50), min_size=1, max_size=6), max_size=6)


@given(st.integers(0, 20), bundles)
def test_the_bounded_watermark_is_the_latest_time_less_the_bound_and_one(
    bound_ms: int, times: list[list[int | None]]
) -> None:
    line = Line()
    target, marking = TimedOutput(line), Bounded(bound_ms)
    latest = MIN_WATERMARK_MS
    for some in times:
        marking.passed(Bundle(list(range(len(some))), some), target)
        assert not any(isinstance(element, Watermark) for element in line.take()), "only when asked"
        marking.periodic(target)
        latest = max([latest, *(time - bound_ms - 1 for time in some if time is not None)])
        assert line.watermark_ms == marking.current_ms == latest
        line.take()


def test_before_the_first_time_there_is_no_watermark() -> None:
    line = Line()
    marking = Bounded(5)
    marking.passed(Bundle(["a"]), TimedOutput(line))
    marking.periodic(TimedOutput(line))
    assert line.seen == [("a", None)]


def test_the_silent_one_says_nothing() -> None:
    line = Line()
    marking = Silent()
    marking.passed(Bundle(["a"], [5]), TimedOutput(line))
    marking.periodic(TimedOutput(line))
    assert line.seen == [("a", 5)]
    assert marking.current_ms == MIN_WATERMARK_MS


def test_what_is_said_for_a_record_goes_out_right_behind_it() -> None:
    line = Line()
    marking = CustomWatermarks(
        ScriptedGenerator(
            lambda event, time, out: out.emit_watermark(Watermark(time)) if event else None
        )
    )
    marking.passed(Bundle([0, 1, 0, 1, 0], [1, 2, 3, 4, 5]), TimedOutput(line))
    assert line.take() == [(0, 1), (1, 2), Watermark(2), (0, 3), (1, 4), Watermark(4), (0, 5)]
    assert marking.current_ms == 4
    marking.passed(Bundle([1], [9]), TimedOutput(line))
    assert line.take() == [(1, 9), Watermark(9)]


def test_records_without_times_show_the_smallest_and_stay_without() -> None:
    line, seen = Line(), list[int]()
    marking = CustomWatermarks(
        ScriptedGenerator(lambda event, time, out: (seen.append(time), out.mark_active())[1])
    )
    marking.passed(Bundle(["a", "b"]), TimedOutput(line))
    assert seen == [MIN_WATERMARK_MS] * 2
    assert line.seen == [("a", None), ("b", None)]


def test_a_generator_may_mark_itself_idle_and_is_active_with_the_next_record() -> None:
    line = Line()
    target = TimedOutput(line)
    marking = CustomWatermarks(ScriptedGenerator(now_and_then=lambda output: output.mark_idle()))
    marking.passed(Bundle(["a"]), target)
    marking.periodic(target)
    marking.periodic(target)
    marking.passed(Bundle(["b"]), target)
    assert line.seen == [("a", None), IDLE, ACTIVE, ("b", None)]


@given(st.lists(st.integers(-20, 20) | st.sampled_from(["idle", "active", "record"]), max_size=30))
def test_an_output_with_time_never_goes_back_and_speaks_only_while_active(words: list[Any]) -> None:
    line = Line()
    target = TimedOutput(line)
    latest, active = MIN_WATERMARK_MS, True
    for word in words:
        if word == "idle":
            target.mark_idle()
        elif word == "active":
            target.mark_active()
        elif word == "record":
            target.collect(Bundle(["a"]))
        else:
            target.emit_watermark(word)
            assert line.watermark_ms == max(latest, word)
        for element in line.take():
            if isinstance(element, Watermark):
                assert active and element.timestamp_ms > latest
                latest = element.timestamp_ms
            elif element in (IDLE, ACTIVE):
                assert element.active != active
                active = element.active
            else:
                assert active
        assert target.active == active


@pytest.mark.parametrize("wrong", [5, None, Watermark("soon")])  # type: ignore[arg-type]
def test_a_generator_that_emits_no_watermark_is_refused(wrong: Any) -> None:
    marking = CustomWatermarks(
        ScriptedGenerator(now_and_then=lambda output: output.emit_watermark(wrong))
    )
    with pytest.raises(TypeError, match=r"a watermark generator emitted .*; give Watermark\(mill"):
        marking.periodic(TimedOutput(Line()))


def test_a_watermark_fits_into_64_bits() -> None:
    assert checked_watermark(Watermark(MAX_WATERMARK_MS), "x").timestamp == MAX_WATERMARK_MS
    with pytest.raises(ValueError, match="x emitted .* does not fit into 64 bits"):
        checked_watermark(Watermark(MAX_WATERMARK_MS + 1), "x")


def test_what_is_no_generator_is_refused() -> None:
    with pytest.raises(TypeError, match="returned 'nothing'; return a WatermarkGenerator"):
        CustomWatermarks("nothing")
