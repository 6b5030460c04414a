"""The pace: a step takes about its target, or one record."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.task.processors import (
    FIRST_RECORDS,
    MOST_RECORDS,
    STEP_MS,
    WAIT_MS,
    WAIT_ROUNDS,
    StepPace,
)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, MOST_RECORDS))))
def test_a_step_may_always_take_a_record_and_never_too_many(
    steps: list[tuple[float, int]],
) -> None:
    pace = StepPace()
    for elapsed_ms, records in steps:
        pace.step_took(elapsed_ms, records)
        assert 1 <= pace.limit <= MOST_RECORDS


@given(st.floats(0.0001, 1000))
def test_it_settles_where_a_step_takes_about_the_target(record_ms: float) -> None:
    pace = StepPace()
    for _ in range(40):
        pace.step_took(pace.limit * record_ms, pace.limit)
    step_ms = pace.limit * record_ms
    assert step_ms <= 2 * STEP_MS or pace.limit == 1
    assert step_ms >= STEP_MS / 3 or pace.limit == MOST_RECORDS


def test_a_slow_function_gets_one_record_at_a_time_from_the_first_one_on() -> None:
    pace = StepPace()
    assert pace.limit == 1
    pace.step_took(100.0, 1)
    assert pace.limit == 1
    pace.step_took(0.01, 1)
    pace.step_took(100.0, 2)
    assert pace.limit == 1


def test_it_recovers_from_a_hiccup() -> None:
    pace = StepPace()
    pace.step_took(1000.0, FIRST_RECORDS)
    for _ in range(12):
        pace.step_took(0.01, pace.limit)
    assert pace.limit == MOST_RECORDS


def test_short_bundles_say_nothing_about_longer_ones() -> None:
    pace = StepPace()
    pace.step_took(0.01, FIRST_RECORDS - 1)
    assert pace.limit == FIRST_RECORDS


def test_a_step_that_waited_for_buffers_is_followed_by_a_shorter_one() -> None:
    pace = StepPace()
    while pace.limit < MOST_RECORDS:
        pace.step_took(0.01, pace.limit)
    pace.held_up(WAIT_MS / 2)
    assert pace.limit == MOST_RECORDS, "a short wait is nothing"
    pace.step_took(0.01, MOST_RECORDS)
    pace.held_up(100 * WAIT_MS)
    assert pace.limit == MOST_RECORDS // 100


def test_a_wait_until_every_other_task_had_its_turns_is_no_reason_for_shorter_steps() -> None:
    pace = StepPace(round_ms=lambda: 100 * WAIT_MS)
    while pace.limit < MOST_RECORDS:
        pace.step_took(0.01, pace.limit)
    pace.step_took(0.01, MOST_RECORDS)
    pace.held_up(WAIT_ROUNDS * 100 * WAIT_MS)
    assert pace.limit == MOST_RECORDS
    pace.held_up(2 * WAIT_ROUNDS * 100 * WAIT_MS)
    assert pace.limit == MOST_RECORDS // 2


def test_beyond_what_made_it_wait_it_grows_slowly() -> None:
    """Twice as much at once would make it wait again, as long as before."""
    pace = StepPace()
    pace.step_took(0.01, 1)
    pace.step_took(100.0, 2)
    pace.held_up(2 * WAIT_MS)
    assert pace.limit == 1
    limits = []
    for _ in range(20):
        pace.step_took(0.01, pace.limit)
        limits.append(pace.limit)
    assert limits[:5] == [2, 3, 4, 5, 6]
    assert all(after <= before * 17 / 16 + 1 for before, after in pairwise(limits))
    for _ in range(200):
        pace.step_took(0.01, pace.limit)
    assert pace.limit == MOST_RECORDS, "it comes back all the same"


@given(st.floats(0.1, 1000), st.integers(1, 2000))
def test_under_back_pressure_steps_rarely_wait_long(record_ms: float, room: int) -> None:
    """What goes beyond the room of the outputs waits until its consumer has made room."""
    pace, waits, steps = StepPace(), 0, 400
    for _ in range(steps):
        pace.step_took(0.01, pace.limit)
        waited_ms = max(0, pace.limit - room) * record_ms
        waits += waited_ms > 2 * (WAIT_MS + record_ms)
        pace.held_up(waited_ms)
    assert waits <= steps / 10


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, MOST_RECORDS))))
def test_waits_never_lead_out_of_bounds(steps: list[tuple[float, float, int]]) -> None:
    pace = StepPace()
    for elapsed_ms, waited_ms, records in steps:
        pace.step_took(elapsed_ms, records)
        pace.held_up(waited_ms)
        assert 1 <= pace.limit <= MOST_RECORDS


def test_time_without_a_core_makes_no_step_shorter() -> None:
    waited_ms = 0.0
    pace = StepPace(runnable_ms=lambda: waited_ms)
    while pace.limit < MOST_RECORDS:
        pace.step_took(0.01, pace.limit)
    waited_ms += 30 * STEP_MS
    pace.step_took(31 * STEP_MS, MOST_RECORDS)
    assert pace.limit == MOST_RECORDS
    waited_ms += 30 * STEP_MS
    pace.step_took(32 * STEP_MS, MOST_RECORDS)
    assert pace.limit == MOST_RECORDS // 2, "the function itself is slow, too"
    pace.step_took(4 * STEP_MS, MOST_RECORDS // 2)
    assert pace.limit == MOST_RECORDS // 8, "what was waited before counts once"
