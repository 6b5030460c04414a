"""Settings of recovery: when checkpoints are taken, what a job starts from, how it is restarted.

Keys and defaults are those of Flink 2. If nothing is said of barriers, checkpoints are aligned and
barriers begin to overtake after a while; ``unaligned.enabled: true`` without a timeout makes them
overtake at once. If nothing is said of restarts, a job with checkpoints is restarted with growing
pauses, one without is not.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from headgate.base.setting_fields import SettingsGroup, setting

SHORTEST_MS: Final = 10
"""The least interval and timeout of checkpoints."""
UNALIGNED: Final = "execution.checkpointing.unaligned.enabled"
ALIGNED_TIMEOUT: Final = "execution.checkpointing.aligned-checkpoint-timeout"
CHECKPOINT_FOLDER: Final = "execution.checkpointing.dir"
SAVEPOINT_FOLDER: Final = "execution.checkpointing.savepoint-dir"
HMAC_SECRET: Final = "execution.checkpointing.hmac.secret"
HMAC_SECRET_FILE: Final = "execution.checkpointing.hmac.secret-file"
HMAC_UNSIGNED: Final = "execution.checkpointing.hmac.allow-unsigned"
JOB_ID: Final = "pipeline.job-id"
RESTORE_PATH: Final = "execution.state-recovery.path"
IGNORE_UNCLAIMED: Final = "execution.state-recovery.ignore-unclaimed-state"
IGNORED_IN_FLIGHT: Final = "execution.state-recovery.without-channel-state.checkpoint-id"
IGNORE_DAMAGED: Final = "execution.state-recovery.ignore-damaged-checkpoints"
STRATEGY_TYPE: Final = "restart-strategy.type"
ENDLESS: Final = 2**31 - 1
"""Attempts without limit."""
_STRATEGY_SPELLINGS: Final = {
    "": "default",
    "off": "none",
    "disable": "none",
    "fixeddelay": "fixed-delay",
    "exponentialdelay": "exponential-delay",
    "failurerate": "failure-rate",
}
_LONGEST_ID: Final = 64
_MOST_INLINE_BYTES: Final = 1 << 20
"""More would not fit into a task's acknowledgement."""
_IN_IDS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


class Consistency(str, Enum):
    """Guarantee for records after a failure."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class Retention(str, Enum):
    """What becomes of checkpoints when their job is cancelled."""

    DELETE_ON_CANCELLATION = "delete_on_cancellation"
    RETAIN_ON_CANCELLATION = "retain_on_cancellation"
    NO_EXTERNALIZED_CHECKPOINTS = "no_externalized_checkpoints"


@dataclass(frozen=True, slots=True)
class CheckpointSettings(SettingsGroup):
    """When and how a job takes checkpoints, and where it writes them."""

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
        "Checkpoints in progress at the same time; 1 with a pause, or if barriers overtake.",
        1,
    )
    tolerable_failures: int = setting(
        "execution.checkpointing.tolerable-failed-checkpoints",
        0,
        "Checkpoints that may fail in a row before the job fails.",
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
        "Whether barriers may overtake records, which then become part of the checkpoint. If it is "
        "set to `true`, they overtake at once, unless a timeout is set; `false`: never.",
    )
    forced_unaligned: bool = setting(
        "execution.checkpointing.unaligned.forced",
        False,
        "Accepted without effect: barriers may overtake everywhere in any case.",
    )
    aligned_timeout_ms: int = setting(
        ALIGNED_TIMEOUT,
        5_000,
        "Milliseconds for which barriers stay aligned before they overtake records; 0: at once.",
        0,
    )
    ignored_in_flight: int = setting(
        IGNORED_IN_FLIGHT,
        -1,
        "If the job is restored from the checkpoint with this number, the in-flight records of the "
        "checkpoint are left out, and lost.",
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
        "None: on a local master, a temporary folder that is deleted with the job.",
    )
    savepoint_folder: str = setting(
        SAVEPOINT_FOLDER, "", "Folder in which savepoints get one of their own each."
    )
    inline_bytes: int = setting(
        "execution.checkpointing.data-inline-threshold",
        20 * 1024,
        "Bytes of state of a task that go into the metadata instead of a file; 1 MiB at most.",
        0,
    )
    hmac_secret: str = setting(
        HMAC_SECRET,
        "",
        "Key of 16 bytes or more that signs checkpoints and savepoints; the job is restored only "
        "from signed ones. A file keeps the key out of command lines and variables.",
    )
    hmac_secret_file: str = setting(
        HMAC_SECRET_FILE,
        "",
        "File with that key, on the machine of the driver, which nobody else may read.",
    )
    hmac_allows_unsigned: bool = setting(
        HMAC_UNSIGNED,
        False,
        "Whether a job with a key may be restored from a checkpoint without a signature. Set it "
        "once, to begin with signing.",
    )
    changelog: bool = setting(
        "state.changelog.enabled", False, "Accepted without effect: there is no changelog."
    )

    @classmethod
    def _spelled_out(cls, texts: dict[str, str]) -> None:
        if texts.get(UNALIGNED, "").strip().lower() == "true":
            texts.setdefault(ALIGNED_TIMEOUT, "0")

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

    def _check(self) -> None:
        if self.inline_bytes > _MOST_INLINE_BYTES:
            raise self._refused(
                "inline_bytes",
                f"{self.inline_bytes} is above {_MOST_INLINE_BYTES} (1 MiB, as in Flink); larger "
                f"state belongs into files",
            )


@dataclass(frozen=True, slots=True)
class RecoverySettings(SettingsGroup):
    """What is retained of a job, and what it starts from."""

    retained: int = setting(
        "execution.checkpointing.num-retained",
        1,
        "Complete checkpoints that are kept; older ones are deleted.",
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
        "Checkpoint or savepoint from which the job is restored (`headgate run --from`).",
    )
    ignores_unclaimed: bool = setting(
        IGNORE_UNCLAIMED,
        False,
        "Whether a job may leave out the state of operators that the program no longer has "
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
        "Id of the job, the same for all its drivers: with the same id and "
        "`execution.checkpointing.dir` it continues from its newest checkpoint. None: a new id "
        "each time.",
    )

    def _check(self) -> None:
        if len(self.job_id) > _LONGEST_ID or not _IN_IDS.issuperset(self.job_id):
            raise self._refused(
                "job_id",
                f"{self.job_id!r} is no id; give up to {_LONGEST_ID} letters, digits, - and _",
            )


class RestartKind(str, Enum):
    """When a job that has failed is started again."""

    DEFAULT = "default"
    """``exponential-delay`` with checkpoints, ``none`` without."""
    NONE = "none"
    FIXED_DELAY = "fixed-delay"
    EXPONENTIAL_DELAY = "exponential-delay"
    FAILURE_RATE = "failure-rate"


@dataclass(frozen=True, slots=True)
class RestartSettings(SettingsGroup):
    """Whether and when a failed job is restarted."""

    kind: RestartKind = setting(
        STRATEGY_TYPE,
        RestartKind.DEFAULT,
        "What happens after a failure: `none`, `fixed-delay`, `exponential-delay`, `failure-rate`, "
        "or `default`: exponential-delay with checkpoints, none without.",
    )
    fixed_attempts: int = setting(
        "restart-strategy.fixed-delay.attempts", 1, "Restarts before the job fails.", 0
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
        "Factor by which each pause is longer than the one before.",
        1,
        high=1e6,
    )
    exponential_reset_ms: int = setting(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        3_600_000,
        "Milliseconds without a failure after which the next pause is the first one again.",
        1,
    )
    exponential_jitter: float = setting(
        "restart-strategy.exponential-delay.jitter-factor",
        0.1,
        "Random share by which a pause is made longer or shorter.",
        0,
        high=1,
    )
    exponential_attempts: int = setting(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        ENDLESS,
        "Restarts before the job fails, if no quiet time comes between them.",
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
        "With `restart-strategy.type` at `default`, the job fails when its code has failed this "
        "many times in the same way, at the same record or without a checkpoint in between. A "
        "strategy that you choose ignores this setting.",
        1,
    )

    def _check(self) -> None:
        if self.exponential_max_ms < self.exponential_initial_ms:
            raise self._refused(
                "exponential_max_ms",
                f"{self.exponential_max_ms} is below the first pause of "
                f"{self.exponential_initial_ms}",
            )

    @classmethod
    def _spelled_out(cls, texts: dict[str, str]) -> None:
        chosen = texts.get(STRATEGY_TYPE, "").strip().lower()
        if chosen in _STRATEGY_SPELLINGS:
            texts[STRATEGY_TYPE] = _STRATEGY_SPELLINGS[chosen]

    def settled(self, has_checkpoints: bool) -> "RestartSettings":
        """With the kind that the default stands for; only that one counts identical failures."""
        if self.kind is not RestartKind.DEFAULT:
            return replace(self, identical_failures=ENDLESS)
        kind = RestartKind.EXPONENTIAL_DELAY if has_checkpoints else RestartKind.NONE
        return replace(self, kind=kind)
