"""Settings of recovery: how much is kept of a job, and what a new one goes on from.

The keys are those of Flink 2; the ones they had before are understood too. Law: where both are
given, the new one counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headgate.base.errors import SettingsInvalid
from headgate.base.setting_fields import check_bounds, parse_settings, setting, with_new_keys

JOB_ID: Final = "pipeline.job-id"
RESTORE_PATH: Final = "execution.state-recovery.path"
IGNORE_UNCLAIMED: Final = "execution.state-recovery.ignore-unclaimed-state"
IGNORE_DAMAGED: Final = "execution.state-recovery.ignore-damaged-checkpoints"

_LONGEST_ID: Final = 64
_IN_IDS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_FORMER: Final = {
    "execution.savepoint.path": RESTORE_PATH,
    "execution.savepoint.ignore-unclaimed-state": IGNORE_UNCLAIMED,
    "state.checkpoints.num-retained": "execution.checkpointing.num-retained",
    "state.backend.incremental": "execution.checkpointing.incremental",
}
"""Keys as they were, and as they are."""


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """What is kept of one job, and where it begins. Every field knows its key and meaning."""

    retained: int = setting(
        "execution.checkpointing.num-retained",
        1,
        "So many complete checkpoints are kept; older ones are dropped.",
        1,
    )
    incremental: bool = setting(
        "execution.checkpointing.incremental",
        False,
        "Whether RocksDB writes only the files that the last checkpoint does not have.",
    )
    path: str = setting(
        RESTORE_PATH,
        "",
        "Checkpoint or savepoint that the job goes on from (`headgate run --from`).",
    )
    ignores_unclaimed: bool = setting(
        IGNORE_UNCLAIMED,
        False,
        "Whether state of operators that the program does not have any more is left behind "
        "(`headgate run --allow-non-restored-state`).",
    )
    ignores_damaged: bool = setting(
        IGNORE_DAMAGED,
        False,
        "Whether a job whose checkpoints are all damaged begins anew, without their state, and "
        "writes again what its sinks have committed (`headgate run "
        "--ignore-damaged-checkpoints`). `false`: it fails.",
    )
    job_id: str = setting(
        JOB_ID,
        "",
        "Who the job is, over all drivers: with the same id and `execution.checkpointing.dir` it "
        "goes on from its newest checkpoint. None: a new one each time.",
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        if len(self.job_id) > _LONGEST_ID or not _IN_IDS.issuperset(self.job_id):
            raise SettingsInvalid(
                JOB_ID,
                f"{self.job_id!r} is no id; give up to {_LONGEST_ID} letters, digits, - and _",
            )

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> "RecoverySettings":
        """Settings from keys and texts; keys of other rooms are left alone."""
        return parse_settings(cls, with_new_keys(texts, _FORMER))
