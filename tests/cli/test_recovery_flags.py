"""Flags of ``headgate run`` that say where a job goes on from, and who it is."""

from pathlib import Path

import click
import pytest

from headgate.base.errors import (
    CheckpointMissing,
    CheckpointsDamaged,
    HeadgateError,
    JobFailed,
    ProgramDiffers,
    SettingsInvalid,
    StateChanged,
    StateUnclaimed,
    StorageUnusable,
)
from headgate.base.recovery_settings import RecoverySettings
from headgate.cli.run import flags_of, run
from headgate.cli.user_program import exit_code_of
from headgate.host.driver.job_client import JobNotFound
from tests.cli.kit import headgate, write

PATH, IGNORES, ID = (
    "execution.state-recovery.path",
    "execution.state-recovery.ignore-unclaimed-state",
    "pipeline.job-id",
)


def settings_of(script: str, *words: str) -> dict[str, str]:
    """What ``headgate run`` makes of these flags."""
    with run.make_context("run", [*words, script]) as context:
        return flags_of(context.params["defines"])


def test_flags_become_the_settings_of_recovery(tmp_path: Path) -> None:
    script = write(tmp_path, "")
    flags = settings_of(script, "--from", "s3://saved/savepoint-1", "-n", "--job-id", "orders")
    assert flags == {PATH: "s3://saved/savepoint-1", IGNORES: "true", ID: "orders"}
    assert RecoverySettings.parse(flags) == RecoverySettings(
        path="s3://saved/savepoint-1", ignores_unclaimed=True, job_id="orders"
    )
    assert settings_of(script) == {}
    for flag in ("-s", "--from-savepoint"):
        assert settings_of(script, flag, "saved/1") == {PATH: "saved/1"}


def test_every_environment_of_the_program_begins_with_them(tmp_path: Path) -> None:
    texts = [f"print(env.get_configuration().get_string({key!r}, '-'))" for key in (PATH, ID)]
    script = write(tmp_path, "\n".join(texts))
    done = headgate("run", "--from", "saved/1", "--job-id", "orders", "-n", script)
    assert (done.returncode, done.stdout) == (0, "saved/1\norders\n"), done.stderr


def test_a_job_may_be_told_to_begin_anew(tmp_path: Path) -> None:
    script = write(tmp_path, "")
    flags = settings_of(script, "--ignore-damaged-checkpoints")
    assert RecoverySettings.parse(flags).ignores_damaged
    assert not RecoverySettings.parse(settings_of(script)).ignores_damaged


def test_flags_that_cannot_be_are_refused_before_anything_runs(tmp_path: Path) -> None:
    script = write(tmp_path, "")
    with pytest.raises(SettingsInvalid, match="'my job' is no id"):
        settings_of(script, "--job-id", "my job")
    with pytest.raises(click.BadParameter, match="it is empty"):
        settings_of(script, "--from", "")
    with pytest.raises(click.BadParameter, match="it is empty"):
        settings_of(script, "--job-id", "")
    with pytest.raises(SettingsInvalid, match="'often' is not a whole number"):
        settings_of(script, "-D", "execution.checkpointing.interval=often")
    with pytest.raises(SettingsInvalid, match=r"restart-strategy\.type.*'hope'"):
        settings_of(script, "-D", "restart-strategy.type=hope")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageUnusable("/x", "Permission denied", "give rights"), 2),
        (CheckpointMissing("/x", "is not there", "check the path"), 2),
        (ProgramDiffers(3, "other"), 2),
        (StateUnclaimed(3, ("operator 'a' (uid 'a')",)), 2),
        (StateChanged(3, "count", "state 'n'", "INT", "STRING"), 2),
        (CheckpointsDamaged("/x", "orders", ("chk-3: is cut",)), 2),
        (JobNotFound("x", "is no running job", ()), 2),
        (JobFailed("orders", "checkpoint 3 has failed"), 1),
    ],
)
def test_the_exit_code_tells_what_the_user_can_mend(error: HeadgateError, code: int) -> None:
    assert exit_code_of(error) == code


def test_state_that_nobody_claims_is_named_with_the_flag_that_leaves_it() -> None:
    message = str(StateUnclaimed(3, ("operator 'sum' (uid 'totals')",)))
    assert "state of operator 'sum' (uid 'totals'), which this program does not have" in message
    assert "--allow-non-restored-state" in message
