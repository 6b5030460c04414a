"""What shall happen to a job that has failed, as a program asks for it.

This version restarts nothing; the strategies are kept under Flink's keys, and whoever asks for one
is warned when a job starts.
"""

from datetime import timedelta

from headgate.api.configuration import Configuration
from headgate.base.errors import PlanInvalid


class RestartStrategyConfiguration:
    """Base of the strategies; equal if they say the same."""

    def __init__(self, description: str, **texts: object) -> None:
        self._description = description
        self.texts = {
            f"restart-strategy.{name.replace('__', '.').replace('_', '-')}": str(value)
            for name, value in texts.items()
        }

    def get_description(self) -> str:
        return self._description

    def put_into(self, configuration: Configuration) -> None:
        """Replace the strategy that is there."""
        for key in configuration.key_set():
            if key.startswith("restart-strategy."):
                configuration.remove_config(key)
        for key, text in self.texts.items():
            configuration.set_string(key, text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RestartStrategyConfiguration) and self.texts == other.texts

    def __hash__(self) -> int:
        return self._description.__hash__()

    def __repr__(self) -> str:
        return f"RestartStrategies: {self._description}"


class RestartStrategies:
    """Makes strategies: ``RestartStrategies.fixed_delay_restart(3, 10_000)``."""

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        """A job that fails has failed."""
        return RestartStrategyConfiguration("never", type="none")

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        """What the settings say."""
        return RestartStrategyConfiguration("as the settings say")

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int | timedelta
    ) -> RestartStrategyConfiguration:
        """So many times, with the same pause (milliseconds or a timedelta) before each."""
        attempts = _count(restart_attempts)
        delay_ms = _millis(delay_between_attempts)
        return RestartStrategyConfiguration(
            f"{attempts} times, {delay_ms} ms after each failure",
            type="fixed-delay",
            fixed_delay__attempts=attempts,
            fixed_delay__delay=f"{delay_ms} ms",
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int | timedelta, delay_interval: int | timedelta
    ) -> RestartStrategyConfiguration:
        """Again and again, unless it fails too often within an interval."""
        rate = _count(failure_rate)
        interval_ms, delay_ms = _millis(failure_interval), _millis(delay_interval)
        return RestartStrategyConfiguration(
            f"{delay_ms} ms after each failure, up to {rate} times in {interval_ms} ms",
            type="failure-rate",
            failure_rate__max_failures_per_interval=rate,
            failure_rate__failure_rate_interval=f"{interval_ms} ms",
            failure_rate__delay=f"{delay_ms} ms",
        )


def strategy_of(configuration: Configuration) -> RestartStrategyConfiguration | None:
    """What the configuration asks for; None: it says nothing."""
    texts = {
        key: configuration.get_string(key, "")
        for key in sorted(configuration.key_set())
        if key.startswith("restart-strategy.")
    }
    if not texts:
        return None
    found = RestartStrategyConfiguration(texts.get("restart-strategy.type", "default"))
    found.texts = texts
    return found


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
