"""Settings of checkpoints: when they are taken, how, and where they are written.

The keys are those of Flink 2; the ones they had before are understood too. Law: where both are
given, the new one counts. Who says nothing of barriers gets aligned ones that begin to overtake
after a while; who asks for overtaking and names no time gets it at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headgate.base.setting_fields import check_bounds, parse_settings, setting, with_new_keys

SHORTEST_MS: Final = 10
"""Of intervals and timeouts of checkpoints."""
UNALIGNED: Final = "execution.checkpointing.unaligned.enabled"
ALIGNED_TIMEOUT: Final = "execution.checkpointing.aligned-checkpoint-timeout"
CHECKPOINT_FOLDER: Final = "execution.checkpointing.dir"
SAVEPOINT_FOLDER: Final = "execution.checkpointing.savepoint-dir"
HMAC_SECRET: Final = "execution.checkpointing.hmac.secret"
HMAC_SECRET_FILE: Final = "execution.checkpointing.hmac.secret-file"
HMAC_UNSIGNED: Final = "execution.checkpointing.hmac.allow-unsigned"

_FORMER: Final = {
    "execution.checkpointing.unaligned": UNALIGNED,
    "execution.checkpointing.alignment-timeout": ALIGNED_TIMEOUT,
    "state.checkpoint-storage": "execution.checkpointing.storage",
    "state.checkpoints.dir": CHECKPOINT_FOLDER,
    "state.savepoints.dir": SAVEPOINT_FOLDER,
    "state.storage.fs.memory-threshold": "execution.checkpointing.data-inline-threshold",
}


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
    """Checkpoints of one job. Every field knows its key, meaning and lower bound."""

    interval_ms: int = setting(
        "execution.checkpointing.interval",
        -1,
        "Milliseconds between two checkpoints; -1: none are taken, but savepoints can be.",
        -1,
    )
    mode: Consistency = setting(
        "execution.checkpointing.mode",
        Consistency.EXACTLY_ONCE,
        "`exactly_once`, or `at_least_once`: barriers block no channel, so that some records may "
        "count twice after a failure.",
    )
    timeout_ms: int = setting(
        "execution.checkpointing.timeout",
        600_000,
        "Milliseconds after which a checkpoint that is not complete is given up.",
        SHORTEST_MS,
    )
    min_pause_ms: int = setting(
        "execution.checkpointing.min-pause",
        0,
        "Milliseconds from the end of a checkpoint to the next one, at least.",
        0,
    )
    max_concurrent: int = setting(
        "execution.checkpointing.max-concurrent-checkpoints",
        1,
        "So many may be on their way at a time; with a pause, or barriers that overtake, 1.",
        1,
    )
    tolerable_failures: int = setting(
        "execution.checkpointing.tolerable-failed-checkpoints",
        0,
        "So many may fail in a row before the job does.",
        0,
    )
    retention: Retention = setting(
        "execution.checkpointing.externalized-checkpoint-retention",
        Retention.NO_EXTERNALIZED_CHECKPOINTS,
        "Checkpoints of a job that is cancelled stay with `retain_on_cancellation`. Those of a "
        "job that has failed stay always, those of one that has finished never.",
    )
    unaligned: bool = setting(
        UNALIGNED,
        True,
        "Whether barriers may overtake records, which then become part of the checkpoint. `true`, "
        "if it is said, means at once, unless a timeout is set; `false`: never.",
    )
    forced_unaligned: bool = setting(
        "execution.checkpointing.unaligned.forced",
        False,
        "Kept for programs that set it; barriers may overtake everywhere in any case.",
    )
    aligned_timeout_ms: int = setting(
        ALIGNED_TIMEOUT,
        5_000,
        "Milliseconds for which barriers stay in line before they overtake; 0: they do at once.",
        0,
    )
    ignored_in_flight: int = setting(
        "execution.checkpointing.recover-without-channel-state.checkpoint-id",
        -1,
        "If the job goes on from the checkpoint of this number, the records that were on their "
        "way in it are left out, and lost.",
        -1,
    )
    storage: str = setting(
        "execution.checkpointing.storage",
        "",
        "`filesystem` or `jobmanager`: both write to `execution.checkpointing.dir`.",
    )
    folder: str = setting(
        CHECKPOINT_FOLDER,
        "",
        "Folder that driver and workers share: a path or a URI (`s3://`, `gs://`, `hdfs://` …). "
        "None: on a local master, a temporary folder that goes with the job.",
    )
    savepoint_folder: str = setting(
        SAVEPOINT_FOLDER, "", "Folder in which savepoints get one of their own each."
    )
    inline_bytes: int = setting(
        "execution.checkpointing.data-inline-threshold",
        20 * 1024,
        "Bytes of state of a task that go into the metadata instead of a file.",
        0,
    )
    hmac_secret: str = setting(
        HMAC_SECRET,
        "",
        "Key that checkpoints and savepoints are signed with; the job goes on only from those "
        "that are. Of 16 bytes or more. A file keeps it out of command lines and variables.",
    )
    hmac_secret_file: str = setting(
        HMAC_SECRET_FILE,
        "",
        "File with that key, on the machine of the driver, which nobody else may read.",
    )
    hmac_allows_unsigned: bool = setting(
        HMAC_UNSIGNED,
        False,
        "Whether a job with a key may go on from a checkpoint without a signature, once, to "
        "begin with signing.",
    )
    changelog: bool = setting(
        "state.changelog.enabled", False, "Kept for programs that set it: there is no such log."
    )

    def __post_init__(self) -> None:
        check_bounds(self)

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> "CheckpointSettings":
        """Settings from keys and texts; keys of other rooms are left alone."""
        given = with_new_keys(texts, _FORMER)
        if given.get(UNALIGNED, "").strip().lower() == "true":
            given.setdefault(ALIGNED_TIMEOUT, "0")
        return parse_settings(cls, given)

    @property
    def is_enabled(self) -> bool:
        """Whether the clock triggers any."""
        return self.interval_ms > 0

    @property
    def is_exact(self) -> bool:
        return self.mode is Consistency.EXACTLY_ONCE

    @property
    def overtake_after_ms(self) -> int | None:
        """When barriers begin to overtake records; 0: at once; None: never."""
        return self.aligned_timeout_ms if self.unaligned and self.is_exact else None
