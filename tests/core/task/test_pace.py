"""The pace: a step takes about its target, or one record."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.task.pace import FIRST_RECORDS, MOST_RECORDS, STEP_MS, Pace


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, MOST_RECORDS))))
def test_a_step_may_always_take_a_record_and_never_too_many(
    steps: list[tuple[float, int]],
) -> None:
    pace = Pace()
    for elapsed_ms, records in steps:
        pace.step_took(elapsed_ms, records)
        assert 1 <= pace.limit <= MOST_RECORDS


@given(st.floats(0.0001, 1000))
def test_it_settles_where_a_step_takes_about_the_target(record_ms: float) -> None:
    pace = Pace()
    for _ in range(40):
        pace.step_took(pace.limit * record_ms, pace.limit)
    step_ms = pace.limit * record_ms
    assert step_ms <= 2 * STEP_MS or pace.limit == 1
    assert step_ms >= STEP_MS / 3 or pace.limit == MOST_RECORDS


def test_a_slow_function_gets_one_record_at_a_time_from_the_first_one_on() -> None:
    pace = Pace()
    assert pace.limit == 1
    pace.step_took(100.0, 1)
    assert pace.limit == 1
    pace.step_took(0.01, 1)
    pace.step_took(100.0, 2)
    assert pace.limit == 1


def test_it_recovers_from_a_hiccup() -> None:
    pace = Pace()
    pace.step_took(1000.0, FIRST_RECORDS)
    for _ in range(12):
        pace.step_took(0.01, pace.limit)
    assert pace.limit == MOST_RECORDS


def test_short_bundles_say_nothing_about_longer_ones() -> None:
    pace = Pace()
    pace.step_took(0.01, FIRST_RECORDS - 1)
    assert pace.limit == FIRST_RECORDS
