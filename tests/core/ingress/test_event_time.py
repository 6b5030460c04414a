"""Event time of several inputs: the minimum over the active ones, never back. Row 163-166."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, StreamStatus, Watermark
from headgate.core.ingress.valve import InputTimes


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[tuple[int, Any]]]:
    """Inputs, and what their valves send on: rising watermarks while active, changing statuses."""
    inputs = draw(st.integers(1, 3))
    marks = [0] * inputs
    active = [True] * inputs
    outcomes: list[tuple[int, Any]] = []
    for _ in range(draw(st.integers(0, 25))):
        number = draw(st.integers(0, inputs - 1))
        if active[number] and draw(st.booleans()):
            marks[number] += draw(st.integers(1, 9))
            outcomes.append((number, Watermark(marks[number])))
        else:
            active[number] = not active[number]
            outcomes.append((number, StreamStatus(active[number])))
    return inputs, outcomes


@given(histories())
def test_event_time_is_the_minimum_over_active_inputs_and_never_goes_back(
    history: tuple[int, list[tuple[int, Any]]],
) -> None:
    inputs, outcomes = history
    times = InputTimes(inputs)
    marks, active = [MIN_WATERMARK_MS] * inputs, [True] * inputs
    last, now_active = MIN_WATERMARK_MS, True
    for number, element in outcomes:
        if isinstance(element, Watermark):
            marks[number] = element.timestamp_ms
        else:
            active[number] = element.active
        for sent in times.advanced(number, [element]):
            if isinstance(sent, Watermark):
                assert sent.timestamp_ms > last
                assert now_active, "no watermark while idle: the next valve would drop it"
                last = sent.timestamp_ms
            else:
                assert sent.active != now_active, "a status is told when it changes"
                now_active = sent.active
        counting = [mark for mark, on in zip(marks, active, strict=True) if on]
        if counting:
            assert last == max(last, min(counting))
        assert times.watermark_ms == last
        assert times.active == now_active == any(active)


def test_one_input_is_passed_on_as_it_is() -> None:
    times = InputTimes(1)
    outcome: list[Any] = [Watermark(5), StreamStatus(active=False)]
    assert times.advanced(0, outcome) == outcome
    assert times.watermark_ms == 5
    assert not times.active


def test_of_two_inputs_the_slower_one_counts() -> None:
    times = InputTimes(2)
    assert times.advanced(0, [Watermark(10)]) == []
    assert times.advanced(1, [Watermark(4)]) == [Watermark(4)]
    assert times.advanced(1, [Watermark(20)]) == [Watermark(10)]


def test_an_idle_input_is_not_waited_for() -> None:
    times = InputTimes(2)
    times.advanced(0, [Watermark(10)])
    assert times.advanced(1, [StreamStatus(active=False)]) == [Watermark(10)]


def test_an_input_that_has_ended_does_not_wait_for_one_that_is_idle() -> None:
    idle, end = StreamStatus(active=False), Watermark(MAX_WATERMARK_MS)
    times = InputTimes(2)
    assert times.advanced(1, [Watermark(3)]) == []
    assert times.advanced(0, [end]) == [Watermark(3)]
    assert times.advanced(1, [idle]) == [end]
    times = InputTimes(2)
    times.advanced(1, [Watermark(3), idle])
    assert times.advanced(0, [end]) == [end]


def test_an_input_that_has_ended_waits_for_one_that_has_found_nothing_to_read() -> None:
    active, end = StreamStatus(active=True), Watermark(MAX_WATERMARK_MS)
    idle = StreamStatus(active=False, together=True, awaits_splits=True)
    times = InputTimes(2)
    assert times.advanced(1, [Watermark(3)]) == []
    assert times.advanced(0, [end]) == [Watermark(3)]
    assert times.advanced(1, [idle]) == [idle], "idle, not at the end"
    assert times.advanced(1, [active, Watermark(7)]) == [active, Watermark(7)]
    assert times.advanced(1, [idle]) == [idle]
    assert times.advanced(1, [active, end]) == [active, end]


def test_active_is_told_before_the_watermark_that_comes_with_it() -> None:
    times = InputTimes(2)
    times.advanced(0, [Watermark(10)])
    times.advanced(1, [Watermark(20)])
    times.advanced(1, [StreamStatus(active=False)])
    assert times.advanced(0, [StreamStatus(active=False)]) == [StreamStatus(active=False)]
    assert times.advanced(1, [StreamStatus(active=True)]) == [
        StreamStatus(active=True),
        Watermark(20),
    ]
