"""Restart strategies: what happens to a job that has failed.

Law: a strategy is fully described by its settings under Flink's keys; setting one replaces the one
before.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from headgate.api.settings.configuration import Configuration
from headgate.base.errors import PlanInvalid, SettingsInvalid
from headgate.base.recovery_settings import RestartSettings

_PREFIX: Final = "restart-strategy"


class RestartStrategyConfiguration:
    """Base of the strategies; equal if they say the same."""

    def __init__(self, description: str, **texts: object) -> None:
        self._description = description
        self.texts = {
            f"{_PREFIX}.{name.replace('__', '.').replace('_', '-')}": str(value)
            for name, value in texts.items()
        }

    def get_description(self) -> str:
        return self._description

    def put_into(self, configuration: Configuration, outer: Mapping[str, str]) -> None:
        """Replace the strategy that is there; one that says nothing leaves it to ``outer``."""
        for key in configuration.key_set():
            if _is_ours(key):
                configuration.remove_config(key)
        texts = self.texts or {key: text for key, text in outer.items() if _is_ours(key)}
        for key, text in texts.items():
            configuration.set_string(key, text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RestartStrategyConfiguration) and self.texts == other.texts

    def __hash__(self) -> int:
        return self._description.__hash__()

    def __repr__(self) -> str:
        return f"RestartStrategies: {self._description}"


class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
    """A failed job is not restarted."""

    def __init__(self) -> None:
        super().__init__("never", type="none")


class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
    """The strategy that the settings name."""

    def __init__(self) -> None:
        super().__init__("as the settings say")


class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
    """So many times, with the same pause (milliseconds or a timedelta) before each."""

    def __init__(
        self, restart_attempts: int, delay_between_attempts_interval: int | timedelta
    ) -> None:
        self._attempts = _count(restart_attempts)
        self._delay_ms = _millis(delay_between_attempts_interval)
        super().__init__(
            f"{self._attempts} times, {self._delay_ms} ms after each failure",
            type="fixed-delay",
            fixed_delay__attempts=self._attempts,
            fixed_delay__delay=f"{self._delay_ms} ms",
        )

    def get_restart_attempts(self) -> int:
        return self._attempts

    def get_delay_between_attempts_interval(self) -> timedelta:
        return timedelta(milliseconds=self._delay_ms)


class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Again and again, unless it fails too often within an interval."""

    def __init__(
        self,
        max_failure_rate: int,
        failure_interval: int | timedelta,
        delay_between_attempts_interval: int | timedelta,
    ) -> None:
        self._rate = _count(max_failure_rate)
        self._interval_ms = _millis(failure_interval)
        self._delay_ms = _millis(delay_between_attempts_interval)
        super().__init__(
            f"{self._delay_ms} ms after each failure, up to {self._rate} times in "
            f"{self._interval_ms} ms",
            type="failure-rate",
            failure_rate__max_failures_per_interval=self._rate,
            failure_rate__failure_rate_interval=f"{self._interval_ms} ms",
            failure_rate__delay=f"{self._delay_ms} ms",
        )

    def get_max_failure_rate(self) -> int:
        return self._rate

    def get_failure_interval(self) -> timedelta:
        return timedelta(milliseconds=self._interval_ms)

    def get_delay_between_attempts_interval(self) -> timedelta:
        return timedelta(milliseconds=self._delay_ms)


class RestartStrategies:
    """Makes strategies: ``RestartStrategies.fixed_delay_restart(3, 10_000)``."""

    NoRestartStrategyConfiguration = NoRestartStrategyConfiguration
    FallbackRestartStrategyConfiguration = FallbackRestartStrategyConfiguration
    FixedDelayRestartStrategyConfiguration = FixedDelayRestartStrategyConfiguration
    FailureRateRestartStrategyConfiguration = FailureRateRestartStrategyConfiguration

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        """A job that fails has failed."""
        return NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        """The strategy that the settings name."""
        return FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int | timedelta
    ) -> RestartStrategyConfiguration:
        """So many times, with the same pause (milliseconds or a timedelta) before each."""
        return FixedDelayRestartStrategyConfiguration(restart_attempts, delay_between_attempts)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int | timedelta, delay_interval: int | timedelta
    ) -> RestartStrategyConfiguration:
        """Again and again, unless it fails too often within an interval."""
        return FailureRateRestartStrategyConfiguration(
            failure_rate, failure_interval, delay_interval
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: int | timedelta,
        max_backoff: int | timedelta,
        backoff_multiplier: float,
        reset_backoff_threshold: int | timedelta,
        jitter_factor: float,
    ) -> RestartStrategyConfiguration:
        """Again and again, with pauses that grow until the job has run quietly for a while."""
        initial_ms, max_ms = _millis(initial_backoff), _millis(max_backoff)
        strategy = RestartStrategyConfiguration(
            f"{initial_ms} ms after a failure, each time {backoff_multiplier} times as long, up "
            f"to {max_ms} ms",
            type="exponential-delay",
            exponential_delay__initial_backoff=f"{initial_ms} ms",
            exponential_delay__max_backoff=f"{max_ms} ms",
            exponential_delay__backoff_multiplier=backoff_multiplier,
            exponential_delay__reset_backoff_threshold=f"{_millis(reset_backoff_threshold)} ms",
            exponential_delay__jitter_factor=jitter_factor,
        )
        try:
            RestartSettings.parse(strategy.texts)
        except SettingsInvalid as error:
            raise PlanInvalid(f"a restart strategy cannot be: {error}") from error
        return strategy


def strategy_of(configuration: Configuration) -> RestartStrategyConfiguration | None:
    """The strategy of a configuration; None: it names none."""
    everything = configuration.to_dict()
    texts = {key: text for key, text in sorted(everything.items()) if _is_ours(key)}
    if not texts:
        return None
    found = RestartStrategyConfiguration(RestartSettings.parse(texts).kind.value)
    found.texts = texts
    return found


def _is_ours(key: str) -> bool:
    return key == _PREFIX or key.startswith(f"{_PREFIX}.")


def _count(number: int) -> int:
    if type(number) is int and number >= 0:
        return number
    raise PlanInvalid(f"a restart strategy was given {number!r}; give how often, 0 or more")


def _millis(delay: int | timedelta) -> int:
    if isinstance(delay, timedelta):
        return delay // timedelta(milliseconds=1)
    if type(delay) is int and delay >= 0:
        return delay
    raise PlanInvalid(f"a restart strategy was given {delay!r}; give milliseconds or a timedelta")
