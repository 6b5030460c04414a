"""Restart strategies: when a job that has failed is started again, and when no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.recovery_settings import ENDLESS, RestartKind, RestartSettings
from headgate.control.recovery import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
    restart_strategy,
)


def pauses(strategy: RestartStrategy, *times: float) -> list[float | None]:
    return [strategy.failed(time) for time in times]


def test_settings_choose_the_strategy() -> None:
    chosen = {
        RestartKind.NONE: NoRestart,
        RestartKind.FIXED_DELAY: FixedDelay,
        RestartKind.EXPONENTIAL_DELAY: ExponentialDelay,
        RestartKind.FAILURE_RATE: FailureRate,
    }
    for kind, strategy in chosen.items():
        assert type(restart_strategy(RestartSettings(kind=kind))) is strategy
    with pytest.raises(AssertionError, match="not settled"):
        restart_strategy(RestartSettings())


def test_without_restarts_a_job_that_fails_has_failed() -> None:
    strategy = NoRestart()
    assert strategy.failed(0) is None
    assert strategy.problem == "restart-strategy.type is none"


def test_a_fixed_delay_restarts_so_many_times() -> None:
    settings = RestartSettings(RestartKind.FIXED_DELAY, fixed_attempts=2, fixed_delay_ms=7)
    strategy = restart_strategy(settings)
    assert pauses(strategy, 0, 10**9, 2 * 10**9) == [7, 7, None]
    assert strategy.problem == ("this is failure 3, and restart-strategy.fixed-delay.attempts is 2")


def exponential(**settings: object) -> RestartStrategy:
    how = {
        "exponential_initial_ms": 100,
        "exponential_max_ms": 500,
        "exponential_multiplier": 2.0,
        "exponential_reset_ms": 10_000,
        "exponential_jitter": 0.1,
        **settings,
    }
    return restart_strategy(RestartSettings(RestartKind.EXPONENTIAL_DELAY, **how))  # type: ignore[arg-type]


def test_pauses_grow_up_to_the_limit() -> None:
    assert pauses(exponential(), 0, 200, 500, 1_000, 2_000) == [100, 200, 400, 500, 500]


def test_a_long_quiet_time_begins_anew() -> None:
    strategy = exponential(exponential_attempts=2)
    assert pauses(strategy, 0, 200) == [100, 200]
    assert strategy.failed(10_400) == 100, "10 s after the restart at 400"
    assert strategy.failed(10_499 + 10_000) == 200, "almost"
    assert strategy.failed(20_700) is None
    assert "this is failure 3 without a quiet time" in strategy.problem


def test_chance_makes_a_pause_longer_or_shorter_but_never_above_the_limit() -> None:
    assert exponential().failed(0, 1.0) == pytest.approx(110)
    assert exponential().failed(0, -1.0) == pytest.approx(90)
    assert exponential().failed(0, -0.5) == pytest.approx(95)
    assert exponential(exponential_initial_ms=500).failed(0, 1.0) == 500
    with pytest.raises(AssertionError):
        exponential().failed(0, 1.5)


def test_a_rate_restarts_unless_failures_come_too_often() -> None:
    settings = RestartSettings(
        RestartKind.FAILURE_RATE, rate_failures=2, rate_interval_ms=1_000, rate_delay_ms=5
    )
    strategy = restart_strategy(settings)
    assert pauses(strategy, 0, 600, 1_200, 1_800) == [5, 5, 5, 5]
    assert strategy.failed(2_000) is None
    assert strategy.problem == (
        "it has failed 3 times within 1000 ms, and "
        "restart-strategy.failure-rate.max-failures-per-interval is 2"
    )


@given(
    st.sampled_from([kind for kind in RestartKind if kind is not RestartKind.DEFAULT]),
    st.lists(st.tuples(st.integers(0, 100_000), st.floats(-1, 1)), max_size=30),
)
def test_the_same_failures_have_the_same_pauses_within_their_bounds(
    kind: RestartKind, failures: list[tuple[int, float]]
) -> None:
    settings = RestartSettings(kind, fixed_attempts=5, rate_failures=3)
    strategy, other = restart_strategy(settings), restart_strategy(settings)
    now = 0.0
    for passed, chance in failures:
        now += passed
        pause = strategy.failed(now, chance)
        assert other.failed(now, chance) == pause
        assert (pause is None) == bool(strategy.problem)
        if pause is None:
            break
        assert 0 <= pause <= settings.exponential_max_ms
        if kind is RestartKind.EXPONENTIAL_DELAY:
            assert pause >= settings.exponential_initial_ms * (1 - settings.exponential_jitter)
    assert settings.exponential_attempts == ENDLESS
