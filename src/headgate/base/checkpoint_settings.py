"""What a program says about checkpoints and restarts, under Flink's keys.

This version takes no checkpoints and restarts nothing: the settings are kept, checked and told
again, so that a program that makes them runs, and is warned.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headgate.base.setting_fields import check_bounds, parse_settings, setting

SHORTEST_MS: Final = 10
"""Of intervals and timeouts of checkpoints."""


class Consistency(str, Enum):
    """How often a record may count after a failure."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class Retention(str, Enum):
    """What becomes of checkpoints when their job is cancelled."""

    DELETE_ON_CANCELLATION = "delete_on_cancellation"
    RETAIN_ON_CANCELLATION = "retain_on_cancellation"
    NO_EXTERNALIZED_CHECKPOINTS = "no_externalized_checkpoints"


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """Checkpoints of one job."""

    interval_ms: int = setting(
        "execution.checkpointing.interval", -1, "Milliseconds between two; -1: there are none.", -1
    )
    mode: Consistency = setting(
        "execution.checkpointing.mode", Consistency.EXACTLY_ONCE, "Exactly or at least once."
    )
    timeout_ms: int = setting(
        "execution.checkpointing.timeout", 600_000, "Longest time of one.", SHORTEST_MS
    )
    min_pause_ms: int = setting(
        "execution.checkpointing.min-pause", 0, "Shortest time between two.", 0
    )
    max_concurrent: int = setting(
        "execution.checkpointing.max-concurrent-checkpoints", 1, "At the same time.", 1
    )
    tolerable_failures: int = setting(
        "execution.checkpointing.tolerable-failed-checkpoints", 0, "Before the job fails.", 0
    )
    retention: Retention = setting(
        "execution.checkpointing.externalized-checkpoint-retention",
        Retention.NO_EXTERNALIZED_CHECKPOINTS,
        "What becomes of them.",
    )
    unaligned: bool = setting("execution.checkpointing.unaligned.enabled", False, "Overtaking.")
    forced_unaligned: bool = setting(
        "execution.checkpointing.unaligned.forced", False, "Overtaking, also where it is unsafe."
    )
    aligned_timeout_ms: int = setting(
        "execution.checkpointing.aligned-checkpoint-timeout", 0, "Then they overtake.", 0
    )
    ignored_in_flight: int = setting(
        "execution.checkpointing.recover-without-channel-state.checkpoint-id",
        -1,
        "The checkpoint whose data in flight are left out.",
        -1,
    )
    storage: str = setting("execution.checkpointing.storage", "", "`jobmanager` or `filesystem`.")
    folder: str = setting("execution.checkpointing.dir", "", "Where they are written.")
    savepoint_folder: str = setting(
        "execution.checkpointing.savepoint-dir", "", "Where savepoints are written."
    )
    changelog: bool = setting("state.changelog.enabled", False, "State as a log of changes.")
    restarts: str = setting("restart-strategy.type", "", "What happens after a failure.")

    def __post_init__(self) -> None:
        check_bounds(self)

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> "CheckpointSettings":
        """Settings from keys and texts; keys of other rooms are left alone."""
        return parse_settings(cls, texts)

    @property
    def is_enabled(self) -> bool:
        return self.interval_ms > 0

    @property
    def wants_restarts(self) -> bool:
        return self.restarts.strip().lower() not in ("", "none", "off", "disable")
