"""Restart strategies: after how long a job that has failed is started again, and when no more.

One object lives as long as its job, over all attempts. Law: ``failed`` answers with the pause
before the next attempt, or None if there is to be none; then ``problem`` says why. The same times
and chances give the same answers.
"""

from collections import deque
from typing import Protocol

from headgate.base.recovery_settings import RestartKind, RestartSettings


class RestartStrategy(Protocol):
    """Told of every failure of a job."""

    problem: str
    """After None: why there is no restart."""

    def failed(self, now_ms: float, chance: float = 0.0) -> float | None:
        """The job has failed now; ``chance`` is a number from -1 to 1."""


def restart_strategy(settings: RestartSettings) -> RestartStrategy:
    """What the settings, once settled, ask for."""
    match settings.kind:
        case RestartKind.FIXED_DELAY:
            return FixedDelay(settings.fixed_attempts, settings.fixed_delay_ms)
        case RestartKind.EXPONENTIAL_DELAY:
            return ExponentialDelay(settings)
        case RestartKind.FAILURE_RATE:
            return FailureRate(
                settings.rate_failures, settings.rate_interval_ms, settings.rate_delay_ms
            )
        case RestartKind.NONE:
            return NoRestart()
        case RestartKind.DEFAULT:
            raise AssertionError("the settings of restarts are not settled")


class NoRestart:
    """A job that fails has failed."""

    def __init__(self) -> None:
        self.problem = "restart-strategy.type is none"

    def failed(self, now_ms: float, chance: float = 0.0) -> float | None:
        return None


class FixedDelay:
    """So many restarts, with the same pause before each."""

    def __init__(self, attempts: int, delay_ms: float) -> None:
        self.problem = ""
        self._attempts = attempts
        self._delay_ms = delay_ms
        self._failures = 0

    def failed(self, now_ms: float, chance: float = 0.0) -> float | None:
        self._failures += 1
        if self._failures <= self._attempts:
            return self._delay_ms
        self.problem = (
            f"this is failure {self._failures}, and restart-strategy.fixed-delay.attempts is "
            f"{self._attempts}"
        )
        return None


class ExponentialDelay:
    """Each pause is longer than the last, up to a limit; a long quiet time begins anew."""

    def __init__(self, settings: RestartSettings) -> None:
        self.problem = ""
        self._settings = settings
        self._pause_ms = float(settings.exponential_initial_ms)
        self._failures = 0
        self._restarted_ms = 0.0

    def failed(self, now_ms: float, chance: float = 0.0) -> float | None:
        assert -1 <= chance <= 1, f"a chance of {chance}"
        how = self._settings
        quiet_ms = now_ms - self._restarted_ms
        if not self._failures or quiet_ms >= how.exponential_reset_ms:
            self._pause_ms, self._failures = float(how.exponential_initial_ms), 0
        else:
            longer_ms = self._pause_ms * how.exponential_multiplier
            self._pause_ms = min(longer_ms, how.exponential_max_ms)
        self._failures += 1
        if self._failures > how.exponential_attempts:
            self.problem = (
                f"this is failure {self._failures} without a quiet time, and restart-strategy."
                f"exponential-delay.attempts-before-reset-backoff is {how.exponential_attempts}"
            )
            return None
        delay_ms = self._pause_ms * (1 + chance * how.exponential_jitter)
        delay_ms = min(delay_ms, how.exponential_max_ms)
        self._restarted_ms = now_ms + delay_ms
        return delay_ms


class FailureRate:
    """Restarts with the same pause, unless failures come too often."""

    def __init__(self, failures: int, interval_ms: float, delay_ms: float) -> None:
        self.problem = ""
        self._limit = failures
        self._interval_ms = interval_ms
        self._delay_ms = delay_ms
        self._failed_ms: deque[float] = deque()

    def failed(self, now_ms: float, chance: float = 0.0) -> float | None:
        failed_ms = self._failed_ms
        while failed_ms and now_ms - failed_ms[0] > self._interval_ms:
            failed_ms.popleft()
        failed_ms.append(now_ms)
        if len(failed_ms) <= self._limit:
            return self._delay_ms
        self.problem = (
            f"it has failed {len(failed_ms)} times within {self._interval_ms:g} ms, and "
            f"restart-strategy.failure-rate.max-failures-per-interval is {self._limit}"
        )
        return None
