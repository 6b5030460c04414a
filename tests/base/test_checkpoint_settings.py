"""Settings of checkpoints: keys of today and of before, and when barriers overtake."""

from contextlib import suppress
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import SettingsInvalid
from headgate.base.recovery_settings import CheckpointSettings, Consistency

UNALIGNED = "execution.checkpointing.unaligned.enabled"
TIMEOUT = "execution.checkpointing.aligned-checkpoint-timeout"
KEYS = [f.metadata["key"] for f in fields(CheckpointSettings)]


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


def test_keys_of_before_are_understood_and_those_of_today_count() -> None:
    before = {
        "state.checkpoints.dir": "old",
        "state.savepoints.dir": "old saved",
        "state.checkpoint-storage": "filesystem",
        "state.storage.fs.memory-threshold": "1kb",
    }
    settings = CheckpointSettings.parse(before)
    assert (settings.folder, settings.savepoint_folder) == ("old", "old saved")
    assert (settings.storage, settings.inline_bytes) == ("filesystem", 1024)
    today = {"execution.checkpointing.dir": "new", "execution.checkpointing.savepoint-dir": "s"}
    settings = CheckpointSettings.parse({**today, **before})
    assert (settings.folder, settings.savepoint_folder) == ("new", "s")


@pytest.mark.parametrize(
    ("text", "interval_ms"), [("10", 10), ("5 s", 5_000), ("2h", 7_200_000), ("1 d", 86_400_000)]
)
def test_times_have_units_up_to_a_day(text: str, interval_ms: int) -> None:
    settings = CheckpointSettings.parse({"execution.checkpointing.interval": text})
    assert settings.interval_ms == interval_ms
    assert settings.is_enabled


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("execution.checkpointing.timeout", "9", "9 is below 10"),
        ("execution.checkpointing.max-concurrent-checkpoints", "0", "0 is below 1"),
        ("execution.checkpointing.mode", "twice", "none of exactly_once, at_least_once"),
        ("execution.checkpointing.data-inline-threshold", "-1", "-1 is below 0"),
        ("execution.checkpointing.data-inline-threshold", "2 mb", "above 1048576"),
        (UNALIGNED, "sometimes", "neither true nor false"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_its_key(key: str, text: str, words: str) -> None:
    with pytest.raises(SettingsInvalid, match=words) as refused:
        CheckpointSettings.parse({key: text})
    assert refused.value.key == key


@given(st.text(), st.sampled_from(KEYS))
def test_no_text_breaks_the_parser(text: str, key: str) -> None:
    with suppress(SettingsInvalid):
        parsed = CheckpointSettings.parse({key: text})
        assert replace(parsed) == parsed
        overtakes = parsed.unaligned and parsed.mode is Consistency.EXACTLY_ONCE
        assert (parsed.overtake_after_ms is not None) == overtakes
