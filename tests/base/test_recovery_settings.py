"""Settings of recovery: when barriers overtake, what is kept, when a job is restarted.

What holds for all settings is in ``test_settings``.
"""

import pytest

from headgate.api.settings.restarts import RestartStrategies
from headgate.base.recovery_settings import (
    ENDLESS,
    CheckpointSettings,
    RecoverySettings,
    RestartKind,
    RestartSettings,
)

UNALIGNED = "execution.checkpointing.unaligned.enabled"
TIMEOUT = "execution.checkpointing.aligned-checkpoint-timeout"


def test_who_says_nothing_takes_none_and_would_have_each_record_count_once() -> None:
    settings = CheckpointSettings.parse({})
    assert settings == CheckpointSettings()
    assert not settings.is_enabled
    assert settings.is_exact
    assert settings.inline_bytes == 20 * 1024


@pytest.mark.parametrize(
    ("texts", "after_ms"),
    [
        ({}, 5_000),
        ({UNALIGNED: "true"}, 0),
        ({UNALIGNED: " True "}, 0),
        ({UNALIGNED: "true", TIMEOUT: "30 s"}, 30_000),
        ({UNALIGNED: "false"}, None),
        ({UNALIGNED: "false", TIMEOUT: "30 s"}, None),
        ({TIMEOUT: "0"}, 0),
        ({TIMEOUT: "1 min"}, 60_000),
        ({"execution.checkpointing.mode": "at_least_once"}, None),
        ({"execution.checkpointing.mode": "at_least_once", UNALIGNED: "true"}, None),
        ({"execution.checkpointing.unaligned": "true"}, 0),
        ({"execution.checkpointing.alignment-timeout": "2s"}, 2_000),
    ],
)
def test_barriers_overtake_when_the_settings_say_so(
    texts: dict[str, str], after_ms: int | None
) -> None:
    assert CheckpointSettings.parse(texts).overtake_after_ms == after_ms


@pytest.mark.parametrize(
    ("text", "interval_ms"), [("10", 10), ("5 s", 5_000), ("2h", 7_200_000), ("1 d", 86_400_000)]
)
def test_times_have_units_up_to_a_day(text: str, interval_ms: int) -> None:
    settings = CheckpointSettings.parse({"execution.checkpointing.interval": text})
    assert settings.interval_ms == interval_ms
    assert settings.is_enabled


def test_one_checkpoint_is_kept_and_no_state_is_left_out_in_silence() -> None:
    assert RecoverySettings.parse({}) == RecoverySettings(1, False, "", False, False, "")


def test_a_job_may_have_an_id_of_its_own() -> None:
    assert RecoverySettings.parse({"pipeline.job-id": " Orders_2-x "}).job_id == "Orders_2-x"


def test_defaults_of_restarts_are_those_of_flink() -> None:
    settings = RestartSettings.parse({})
    assert settings == RestartSettings()
    assert (settings.fixed_attempts, settings.fixed_delay_ms) == (1, 1_000)
    assert (settings.rate_failures, settings.rate_interval_ms) == (1, 60_000)
    assert settings.exponential_multiplier == 1.5
    assert settings.exponential_attempts == ENDLESS


def test_who_says_nothing_gets_restarts_if_there_are_checkpoints() -> None:
    assert RestartSettings().settled(True).kind is RestartKind.EXPONENTIAL_DELAY
    assert RestartSettings().settled(False).kind is RestartKind.NONE
    fixed = RestartSettings(RestartKind.FIXED_DELAY)
    assert fixed.settled(True).kind is fixed.settled(False).kind is RestartKind.FIXED_DELAY


def test_identical_failures_are_counted_unless_a_strategy_was_chosen() -> None:
    assert RestartSettings().settled(True).identical_failures == 10
    assert RestartSettings(identical_failures=3).settled(True).identical_failures == 3
    for kind in RestartKind:
        if kind is not RestartKind.DEFAULT:
            assert RestartSettings(kind).settled(True).identical_failures == ENDLESS


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", RestartKind.DEFAULT),
        ("off", RestartKind.NONE),
        ("Disable", RestartKind.NONE),
        ("none", RestartKind.NONE),
        ("fixeddelay", RestartKind.FIXED_DELAY),
        (" Fixed-Delay ", RestartKind.FIXED_DELAY),
        ("exponentialdelay", RestartKind.EXPONENTIAL_DELAY),
        ("failurerate", RestartKind.FAILURE_RATE),
    ],
)
def test_a_kind_has_several_spellings(text: str, kind: RestartKind) -> None:
    assert RestartSettings.parse({"restart-strategy.type": text}).kind is kind


def test_what_a_program_asks_for_is_understood() -> None:
    texts = RestartStrategies.fixed_delay_restart(3, 250).texts
    assert RestartSettings.parse(texts) == RestartSettings(
        RestartKind.FIXED_DELAY, fixed_attempts=3, fixed_delay_ms=250
    )
    texts = RestartStrategies.failure_rate_restart(2, 60_000, 9).texts
    assert RestartSettings.parse(texts) == RestartSettings(
        RestartKind.FAILURE_RATE, rate_failures=2, rate_interval_ms=60_000, rate_delay_ms=9
    )
    texts = RestartStrategies.exponential_delay_restart(5, 100, 2, 60_000, 0.25).texts
    assert RestartSettings.parse(texts) == RestartSettings(
        RestartKind.EXPONENTIAL_DELAY,
        exponential_initial_ms=5,
        exponential_max_ms=100,
        exponential_multiplier=2.0,
        exponential_reset_ms=60_000,
        exponential_jitter=0.25,
    )
    texts = RestartStrategies.no_restart().texts
    assert RestartSettings.parse(texts) == RestartSettings(RestartKind.NONE)
    assert RestartSettings.parse(RestartStrategies.fall_back_restart().texts) == RestartSettings()
