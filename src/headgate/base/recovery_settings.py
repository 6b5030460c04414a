"""Settings of recovery: how much is kept of a job, and what a new one goes on from.

The keys are those of Flink 2; the ones they had before are understood too. Law: where both are
given, the new one counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headgate.base.setting_fields import check_bounds, parse_settings, setting

_RECOVERY: Final = "execution.state-recovery"
_FORMER: Final = {
    "execution.savepoint.path": f"{_RECOVERY}.path",
    "execution.savepoint.ignore-unclaimed-state": f"{_RECOVERY}.ignore-unclaimed-state",
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
        f"{_RECOVERY}.path", "", "Checkpoint or savepoint that the job goes on from."
    )
    ignores_unclaimed: bool = setting(
        f"{_RECOVERY}.ignore-unclaimed-state",
        False,
        "Whether state of operators that the program does not have any more is left behind.",
    )

    def __post_init__(self) -> None:
        check_bounds(self)

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> "RecoverySettings":
        """Settings from keys and texts; keys of other rooms are left alone."""
        former = {new: texts[old] for old, new in _FORMER.items() if old in texts}
        return parse_settings(cls, {**former, **texts})
