"""Settings of recovery: keys of today and of before."""

from contextlib import suppress
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import SettingsInvalid
from headgate.base.recovery_settings import CheckpointSettings, RecoverySettings, RestartSettings
from headgate.base.settings import ExchangeSettings, JobSettings, StateSettings

KEYS = [f.metadata["key"] for f in fields(RecoverySettings)]


def test_one_checkpoint_is_kept_and_nothing_is_left_behind_in_silence() -> None:
    assert RecoverySettings.parse({}) == RecoverySettings(1, False, "", False, False, "")


def test_keys_of_before_are_understood_and_those_of_today_count() -> None:
    before = {
        "execution.savepoint.path": "old",
        "execution.savepoint.ignore-unclaimed-state": "true",
        "state.checkpoints.num-retained": "3",
        "state.backend.incremental": "true",
    }
    assert RecoverySettings.parse(before) == RecoverySettings(3, True, "old", True)
    today = {"execution.state-recovery.path": "new", "execution.checkpointing.num-retained": "5"}
    assert RecoverySettings.parse({**today, **before}) == RecoverySettings(5, True, "new", True)


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("execution.checkpointing.num-retained", "0", "below 1"),
        ("execution.checkpointing.incremental", "some", "neither true nor false"),
        ("pipeline.job-id", "a b", "'a b' is no id; give up to 64 letters, digits, - and _"),
        ("pipeline.job-id", "../other", "is no id"),
        ("pipeline.job-id", "é", "is no id"),
        ("pipeline.job-id", 65 * "x", "is no id"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_its_key(key: str, text: str, words: str) -> None:
    with pytest.raises(SettingsInvalid, match=words) as refused:
        RecoverySettings.parse({key: text})
    assert refused.value.key == key


def test_a_job_may_have_an_id_of_its_own() -> None:
    assert RecoverySettings.parse({"pipeline.job-id": " Orders_2-x "}).job_id == "Orders_2-x"


@given(st.text(), st.sampled_from(KEYS))
def test_no_text_breaks_the_parser(text: str, key: str) -> None:
    with suppress(SettingsInvalid):
        parsed = RecoverySettings.parse({key: text})
        assert replace(parsed) == parsed


def test_a_key_belongs_to_one_group_of_settings() -> None:
    groups = (JobSettings, ExchangeSettings, StateSettings, CheckpointSettings, RestartSettings)
    keys = [*KEYS, *(f.metadata["key"] for kind in groups for f in fields(kind))]
    assert len(set(keys)) == len(keys)
