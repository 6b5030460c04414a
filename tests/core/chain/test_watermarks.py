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
    Stamper,
    TimedOutput,
    checked_watermark,
    highest_of,
)
from headgate.functions.watermarks import TimestampAssigner
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


def test_what_is_emitted_for_a_record_goes_out_right_after_it() -> None:
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


times = st.lists(st.none() | st.integers(-5, 5), max_size=6)


class Doubled(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return 2 * value


class Whole:
    """A number that is no int, as numpy has them."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


def test_an_assigner_gives_records_their_times() -> None:
    bundle = Bundle([1, 2, 3])
    assert Stamper(Doubled()).stamped(bundle) == Bundle([1, 2, 3], [2, 4, 6])
    assert bundle.timestamps is None, "the bundle belongs to others too"


def test_a_plain_callable_will_do_and_sees_the_time_that_was_there() -> None:
    stamper = Stamper(lambda value, before: before + value)
    assert stamper.stamped(Bundle([1, 2], [10, 20])).timestamps == [11, 22]


def test_a_record_without_a_time_shows_the_smallest_of_all() -> None:
    seen: list[int] = []
    stamper = Stamper(lambda value, before: seen.append(before) or 1)
    stamper.stamped(Bundle(["a"]))
    stamper.stamped(Bundle(["b", "c"], [None, 7]))
    assert seen == [MIN_WATERMARK_MS, MIN_WATERMARK_MS, 7]


def test_without_an_assigner_records_keep_their_times() -> None:
    bundle = Bundle(["a", "b"], [3, None])
    assert Stamper(None).stamped(bundle) is bundle


def test_the_smallest_of_all_times_stands_for_none() -> None:
    stamper = Stamper(lambda value, before: before)
    assert stamper.stamped(Bundle(["a", "b"], [None, 4])).timestamps == [None, 4]


def test_numbers_that_are_whole_become_plain_ones() -> None:
    found = Stamper(lambda value, before: value).stamped(Bundle([Whole(5), True, 7])).timestamps
    assert found == [5, 1, 7]
    assert {type(time) for time in found or ()} == {int}


@pytest.mark.parametrize("wrong", ["12", None, object(), float("nan"), float("inf")])
def test_what_is_no_number_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a timestamp assigner returned .*; return millisec"):
        Stamper(lambda value, before: wrong if value else 1).stamped(Bundle([0, 1]))


@pytest.mark.parametrize("wrong", [MAX_WATERMARK_MS + 1, MIN_WATERMARK_MS - 1])
def test_what_does_not_fit_into_64_bits_is_refused(wrong: int) -> None:
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        Stamper(lambda value, before: wrong).stamped(Bundle(["a"]))


@given(times)
def test_the_highest_of_times_leaves_out_those_that_are_missing(some: list[int | None]) -> None:
    known = [time for time in some if time is not None]
    assert highest_of(some) == (max(known) if known else None)


def test_a_bundle_without_times_has_no_highest() -> None:
    assert highest_of(None) is None


def test_parts_of_a_millisecond_are_cut_off() -> None:
    bundle = Stamper(lambda value, before: value).stamped(Bundle([1.9, -1.9, 3]))
    assert bundle.timestamps == [1, -1, 3]
