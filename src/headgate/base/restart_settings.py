"""Settings of restarts: what happens to a job that has failed, under Flink's keys and defaults.

Law: who says nothing gets restarts with growing pauses if there are checkpoints to go on from, and
none otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from headgate.base.errors import SettingsInvalid
from headgate.base.setting_fields import check_bounds, parse_settings, setting, with_new_keys

TYPE: Final = "restart-strategy.type"
ENDLESS: Final = 2**31 - 1
"""Attempts without an end."""


class RestartKind(str, Enum):
    """When a job that has failed is started again."""

    DEFAULT = "default"
    """``exponential-delay`` with checkpoints, ``none`` without."""
    NONE = "none"
    FIXED_DELAY = "fixed-delay"
    EXPONENTIAL_DELAY = "exponential-delay"
    FAILURE_RATE = "failure-rate"


_FORMER: Final = {"restart-strategy": TYPE}
_SPELLINGS: Final = {
    "": RestartKind.DEFAULT,
    "off": RestartKind.NONE,
    "disable": RestartKind.NONE,
    "fixeddelay": RestartKind.FIXED_DELAY,
    "exponentialdelay": RestartKind.EXPONENTIAL_DELAY,
    "failurerate": RestartKind.FAILURE_RATE,
}


@dataclass(frozen=True, slots=True)
class RestartSettings:
    """Restarts of one job. Every field knows its key, meaning and lower bound."""

    kind: RestartKind = setting(
        TYPE,
        RestartKind.DEFAULT,
        "What happens after a failure: `none`, `fixed-delay`, `exponential-delay`, `failure-rate`, "
        "or `default`: exponential-delay with checkpoints, none without.",
    )
    fixed_attempts: int = setting(
        "restart-strategy.fixed-delay.attempts", 1, "Restarts before the job has failed.", 0
    )
    fixed_delay_ms: int = setting(
        "restart-strategy.fixed-delay.delay", 1_000, "Pause before each restart.", 0
    )
    exponential_initial_ms: int = setting(
        "restart-strategy.exponential-delay.initial-backoff", 1_000, "The first pause.", 1
    )
    exponential_max_ms: int = setting(
        "restart-strategy.exponential-delay.max-backoff", 60_000, "The longest pause.", 1
    )
    exponential_multiplier: float = setting(
        "restart-strategy.exponential-delay.backoff-multiplier",
        1.5,
        "How much longer than the last one a pause is.",
        1,
    )
    exponential_reset_ms: int = setting(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        3_600_000,
        "After so long without a failure all begins anew with the first pause.",
        1,
    )
    exponential_jitter: float = setting(
        "restart-strategy.exponential-delay.jitter-factor",
        0.1,
        "Share of a pause by which chance makes it longer or shorter.",
        0,
    )
    exponential_attempts: int = setting(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        ENDLESS,
        "Restarts, without a quiet time between them, before the job has failed.",
        0,
    )
    rate_failures: int = setting(
        "restart-strategy.failure-rate.max-failures-per-interval",
        1,
        "Failures within the interval that are followed by a restart.",
        0,
    )
    rate_interval_ms: int = setting(
        "restart-strategy.failure-rate.failure-rate-interval", 60_000, "The interval.", 1
    )
    rate_delay_ms: int = setting(
        "restart-strategy.failure-rate.delay", 1_000, "Pause before each restart.", 0
    )

    identical_failures: int = setting(
        "restart-strategy.max-identical-failures",
        10,
        "With `restart-strategy.type` at `default`: the job has failed when its code has failed so "
        "many times in the same way, at the same record or without a checkpoint in between. A "
        "strategy that you choose holds as it is.",
        1,
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.exponential_max_ms < self.exponential_initial_ms:
            raise SettingsInvalid(
                "restart-strategy.exponential-delay.max-backoff",
                f"{self.exponential_max_ms} is below the first pause of "
                f"{self.exponential_initial_ms}",
            )
        for key, value, most in (
            ("jitter-factor", self.exponential_jitter, 1.0),
            ("backoff-multiplier", self.exponential_multiplier, 1e6),
        ):
            if value > most:
                raise SettingsInvalid(
                    f"restart-strategy.exponential-delay.{key}", f"{value} is above {most:g}"
                )

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> "RestartSettings":
        """Settings from keys and texts; keys of other rooms are left alone."""
        given = with_new_keys(texts, _FORMER)
        chosen = given.get(TYPE, "").strip().lower()
        if chosen in _SPELLINGS:
            given[TYPE] = _SPELLINGS[chosen].value
        return parse_settings(cls, given)

    def settled(self, has_checkpoints: bool) -> "RestartSettings":
        """With the kind that the default stands for; only that one counts identical failures."""
        if self.kind is not RestartKind.DEFAULT:
            return replace(self, identical_failures=ENDLESS)
        kind = RestartKind.EXPONENTIAL_DELAY if has_checkpoints else RestartKind.NONE
        return replace(self, kind=kind)
