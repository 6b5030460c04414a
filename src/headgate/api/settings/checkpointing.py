"""Checkpoint settings under PyFlink's names, stored in the configuration under Flink's keys.

Law: getters return what was set; an impossible value is refused, and a setting without effect here
is warned about when a job starts.
"""

import sys
import warnings
from enum import Enum
from typing import Final, TypeVar

from headgate.api.settings.configuration import Configuration
from headgate.api.settings.state_backend import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from headgate.base.errors import PlanInvalid
from headgate.base.recovery_settings import (
    IGNORED_IN_FLIGHT,
    SHORTEST_MS,
    CheckpointSettings,
    RecoverySettings,
    RestartSettings,
    Retention,
)
from headgate.functions.time import Duration

_PREFIX: Final = "execution.checkpointing."
_Choice = TypeVar("_Choice", bound=Enum)


class CheckpointingMode(Enum):
    """Whether a record counts exactly once, or perhaps twice, after a failure."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1


class ExternalizedCheckpointRetention(Enum):
    """What happens to checkpoints when their job is cancelled."""

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2


class CheckpointConfig:
    """Made by ``env.get_checkpoint_config()``; it writes to the environment's configuration."""

    DEFAULT_MODE = CheckpointingMode.EXACTLY_ONCE
    DEFAULT_TIMEOUT = 600_000
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS = 0
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS = 1

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        return self._settings.is_enabled

    def get_checkpoint_interval(self) -> int:
        """Milliseconds; -1: there are none."""
        return self._settings.interval_ms

    def set_checkpoint_interval(self, checkpoint_interval: int) -> "CheckpointConfig":
        """Milliseconds from one to the next."""
        return self._number("interval", checkpoint_interval, SHORTEST_MS)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return CheckpointingMode[self._settings.mode.name]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> "CheckpointConfig":
        mode = _one_of(CheckpointingMode, checkpointing_mode, "the checkpointing mode")
        return self._put("mode", mode.name)

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        return self.get_checkpointing_mode()

    def set_checkpointing_consistency_mode(
        self, checkpointing_mode: CheckpointingMode
    ) -> "CheckpointConfig":
        return self.set_checkpointing_mode(checkpointing_mode)

    def get_checkpoint_timeout(self) -> int:
        """Milliseconds."""
        return self._settings.timeout_ms

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> "CheckpointConfig":
        return self._number("timeout", checkpoint_timeout, SHORTEST_MS)

    def get_min_pause_between_checkpoints(self) -> int:
        """Milliseconds."""
        return self._settings.min_pause_ms

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: int
    ) -> "CheckpointConfig":
        return self._number("min-pause", min_pause_between_checkpoints, 0)

    def get_max_concurrent_checkpoints(self) -> int:
        return self._settings.max_concurrent

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> "CheckpointConfig":
        return self._number("max-concurrent-checkpoints", max_concurrent_checkpoints, 1)

    def get_tolerable_checkpoint_failure_number(self) -> int:
        return self._settings.tolerable_failures

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> "CheckpointConfig":
        return self._number("tolerable-failed-checkpoints", tolerable_checkpoint_failure_number, 0)

    def is_fail_on_checkpointing_errors(self) -> bool:
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(
        self, fail_on_checkpointing_errors: bool
    ) -> "CheckpointConfig":
        most = 0 if fail_on_checkpointing_errors else 2**31 - 1
        return self._number("tolerable-failed-checkpoints", most, 0)

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        return ExternalizedCheckpointRetention[self._settings.retention.name]

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> "CheckpointConfig":
        mode = _one_of(ExternalizedCheckpointRetention, retention_mode, "the retention")
        return self._put("externalized-checkpoint-retention", mode.name)

    def is_externalized_checkpoints_enabled(self) -> bool:
        return self._settings.retention is not Retention.NO_EXTERNALIZED_CHECKPOINTS

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> "CheckpointConfig":
        """Barriers overtake records at once, or after the aligned timeout, if one was set."""
        return self._flag("unaligned.enabled", enabled)

    def disable_unaligned_checkpoints(self) -> "CheckpointConfig":
        """Barriers stay in line, however long that takes."""
        return self._flag("unaligned.enabled", False)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """True unless it was disabled: who says nothing gets it, after the aligned timeout."""
        return self._settings.unaligned

    def set_force_unaligned_checkpoints(
        self, force_unaligned_checkpoints: bool = True
    ) -> "CheckpointConfig":
        """Stored without effect: barriers may overtake everywhere in any case."""
        return self._flag("unaligned.forced", force_unaligned_checkpoints)

    def is_force_unaligned_checkpoints(self) -> bool:
        return self._settings.forced_unaligned

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> "CheckpointConfig":
        """How long barriers stay aligned before they overtake records."""
        if not isinstance(alignment_timeout, Duration):
            raise PlanInvalid(f"the aligned timeout is {alignment_timeout!r}; give a Duration")
        return self._number("aligned-checkpoint-timeout", alignment_timeout.to_millis(), 0)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        return Duration.of_millis(self._settings.aligned_timeout_ms)

    set_alignment_timeout = set_aligned_checkpoint_timeout
    get_alignment_timeout = get_aligned_checkpoint_timeout

    def set_checkpoint_id_of_ignored_in_flight_data(self, checkpoint_id: int) -> "CheckpointConfig":
        return self._whole(IGNORED_IN_FLIGHT, checkpoint_id, -1)

    def get_checkpoint_id_of_ignored_in_flight_data(self) -> int:
        return self._settings.ignored_in_flight

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> "CheckpointConfig":
        if not isinstance(storage, CheckpointStorage):
            raise PlanInvalid(
                f"set_checkpoint_storage() was given {storage!r}; give a CheckpointStorage, "
                f"such as FileSystemCheckpointStorage('file:///checkpoints')"
            )
        self._configuration.add_all(storage.configuration)
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> "CheckpointConfig":
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """The storage that was set; None: none was."""
        settings = self._settings
        if settings.storage == "jobmanager":
            return JobManagerCheckpointStorage(settings.folder or None)
        return FileSystemCheckpointStorage(settings.folder) if settings.folder else None

    @property
    def _settings(self) -> CheckpointSettings:
        return CheckpointSettings.parse(self._configuration.to_dict())

    def _number(self, name: str, number: int, low: int) -> "CheckpointConfig":
        return self._whole(f"{_PREFIX}{name}", number, low)

    def _whole(self, key: str, number: int, low: int) -> "CheckpointConfig":
        if type(number) is not int or number < low:
            raise PlanInvalid(
                f"{key} was given {number!r}; give a whole number that is {low} or more"
            )
        self._configuration.set_integer(key, number)
        return self

    def _flag(self, name: str, flag: bool) -> "CheckpointConfig":
        return self._put(name, "true" if flag else "false")

    def _put(self, name: str, text: str) -> "CheckpointConfig":
        self._configuration.set_string(f"{_PREFIX}{name}", text)
        return self


def check_recovery(configuration: Configuration) -> None:
    """Refuse impossible settings of checkpoints and restarts; warn about those without effect."""
    texts = configuration.to_dict()
    RecoverySettings.parse(texts)
    RestartSettings.parse(texts)
    if CheckpointSettings.parse(texts).changelog:
        warnings.warn(
            "state.changelog.enabled has no effect: Headgate keeps no log of changes, and writes "
            "state whole, or with execution.checkpointing.incremental the files that are new",
            UserWarning,
            stacklevel=_users_level(),
        )


def _one_of(kind: type[_Choice], given: object, what: str) -> _Choice:
    if isinstance(given, kind):
        return given
    choices = " or ".join(f"{kind.__name__}.{choice.name}" for choice in kind)
    raise PlanInvalid(f"{what} is {given!r}; give {choices}")


def _users_level() -> int:
    """How far up the stack the program is that called Headgate; the caller of this is 1."""
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith("headgate.") and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level
