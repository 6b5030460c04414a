"""Settings of restarts: Flink's keys, spellings, defaults and bounds."""

from contextlib import suppress
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.settings.restarts import RestartStrategies
from headgate.base.errors import SettingsInvalid
from headgate.base.recovery_settings import ENDLESS, RestartKind, RestartSettings

KEYS = [f.metadata["key"] for f in fields(RestartSettings)]


def test_defaults_are_those_of_flink() -> None:
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
    with pytest.raises(SettingsInvalid, match="max-identical-failures"):
        RestartSettings.parse({"restart-strategy.max-identical-failures": "0"})


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


def test_the_key_of_before_is_understood_and_that_of_today_counts() -> None:
    before = {"restart-strategy": "fixed-delay"}
    assert RestartSettings.parse(before).kind is RestartKind.FIXED_DELAY
    both = {**before, "restart-strategy.type": "none"}
    assert RestartSettings.parse(both).kind is RestartKind.NONE


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


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("type", "sometimes", "none of default, none, fixed-delay"),
        ("fixed-delay.attempts", "-1", "below 0"),
        ("exponential-delay.max-backoff", "10 ms", "below the first pause of 1000"),
        ("exponential-delay.jitter-factor", "1.5", "above 1"),
        ("exponential-delay.backoff-multiplier", "0.5", "below 1"),
        ("exponential-delay.backoff-multiplier", "inf", "above 1e"),
        ("exponential-delay.backoff-multiplier", "nan", "below 1"),
        ("failure-rate.failure-rate-interval", "0", "below 1"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_its_key(name: str, text: str, words: str) -> None:
    with pytest.raises(SettingsInvalid, match=words) as refused:
        RestartSettings.parse({f"restart-strategy.{name}": text})
    assert refused.value.key == f"restart-strategy.{name}"


@given(st.text(), st.sampled_from(KEYS))
def test_no_text_breaks_the_parser(text: str, key: str) -> None:
    with suppress(SettingsInvalid):
        parsed = RestartSettings.parse({key: text})
        assert replace(parsed) == parsed
