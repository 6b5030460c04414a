"""State backends and checkpoint storages: objects that hold settings under Flink's keys.

Give a state backend to ``env.set_state_backend``, or set its keys in a configuration. Law: an
object is fully described by its configuration.
"""

from enum import Enum
from typing import Final

from headgate.api.settings.configuration import Configuration
from headgate.base.errors import PlanInvalid
from headgate.base.recovery_settings import CHECKPOINT_FOLDER, CheckpointSettings, RecoverySettings
from headgate.base.setting_fields import under_current_keys
from headgate.base.settings import StateBackendKind, StateSettings

BACKEND: Final = "state.backend.type"
STORAGE: Final = "execution.checkpointing.storage"
INLINE: Final = "execution.checkpointing.data-inline-threshold"
INCREMENTAL: Final = "execution.checkpointing.incremental"
ROCKS_FOLDER: Final = "state.backend.rocksdb.localdir"


class SettingsHolder:
    """Base of state backends and storages; equal if their settings are."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.configuration = Configuration()
        for key, text in texts.items():
            self.configuration.set_string(key, text)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.configuration == self.configuration

    def __hash__(self) -> int:
        return type(self).__name__.__hash__()

    def __repr__(self) -> str:
        texts = ", ".join(f"{key}: {text}" for key, text in self.configuration.to_dict().items())
        return f"{type(self).__name__}({texts})"


class StateBackend(SettingsHolder):
    """Where keyed state lives while a job runs."""


class HashMapStateBackend(StateBackend):
    """Keyed state as objects in memory: fast, and as much of it as memory holds."""

    def __init__(self) -> None:
        super().__init__({BACKEND: StateBackendKind.HASHMAP.value})


class PredefinedOptions(Enum):
    """Sets of options that Flink has for RocksDB; they have no effect here."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class EmbeddedRocksDBStateBackend(StateBackend):
    """Keyed state as bytes in files of every worker, by RocksDB: as much of it as disks hold."""

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        texts = {BACKEND: StateBackendKind.ROCKSDB.value}
        if enable_incremental_checkpointing is not None:
            texts[INCREMENTAL] = "true" if enable_incremental_checkpointing else "false"
        super().__init__(texts)
        self._predefined = PredefinedOptions.DEFAULT
        self._transfer_threads = 4

    def set_db_storage_paths(self, *paths: str) -> None:
        """The folder on every worker under which RocksDB keeps its files."""
        if len(paths) != 1 or not paths[0]:
            raise PlanInvalid(
                f"set_db_storage_paths() was given {paths!r}; give one folder, which every worker "
                f"has or can make"
            )
        self.configuration.set_string(ROCKS_FOLDER, paths[0])

    def get_db_storage_paths(self) -> list[str] | None:
        """None: the temporary folder."""
        folder = self.configuration.get_string(ROCKS_FOLDER, "")
        return [folder] if folder else None

    def is_incremental_checkpoints_enabled(self) -> bool:
        return self.configuration.get_boolean(INCREMENTAL, False)

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Stored without effect: ``state.backend.rocksdb.*`` configures RocksDB."""
        if not isinstance(options, PredefinedOptions):
            raise PlanInvalid(
                f"set_predefined_options() was given {options!r}; give for instance "
                f"PredefinedOptions.FLASH_SSD_OPTIMIZED"
            )
        self._predefined = options

    def get_predefined_options(self) -> PredefinedOptions:
        return self._predefined

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Stored without effect: one thread of a worker writes the files of its checkpoints."""
        number = number_of_transfering_threads
        if type(number) is not int or number < 1:
            raise PlanInvalid(
                f"set_number_of_transfer_threads() was given {number!r}; give a whole number "
                f"above 0"
            )
        self._transfer_threads = number

    def get_number_of_transfer_threads(self) -> int:
        return self._transfer_threads


class CheckpointStorage(SettingsHolder):
    """Where checkpoints go."""

    def get_checkpoint_path(self) -> str | None:
        return self.configuration.get_string(CHECKPOINT_FOLDER, "") or None

    def get_savepoint_path(self) -> str | None:
        """None: a storage says nothing about savepoints, the configuration does."""
        return None


class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints in the driver's care: without a path, in a temporary folder of its machine.

    That folder goes with the job, and only a local master has it; a cluster needs a path, and
    everything is written there. The largest size is stored without effect.
    """

    DEFAULT_MAX_STATE_SIZE = 5 * 1024 * 1024

    def __init__(
        self, checkpoint_path: str | None = None, max_state_size: int | None = None
    ) -> None:
        super().__init__({STORAGE: "jobmanager", **_folder(checkpoint_path)})
        most = self.DEFAULT_MAX_STATE_SIZE
        self._max_state_size = most if max_state_size is None else max_state_size

    def get_max_state_size(self) -> int:
        """Bytes."""
        return self._max_state_size


class FileSystemCheckpointStorage(CheckpointStorage):
    """Checkpoints as files in a folder that all machines see: a path, or a URI such as s3://…"""

    MAX_FILE_STATE_THRESHOLD = 1024 * 1024

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = -1,
    ) -> None:
        """State of a task below the threshold goes into the metadata; the last is only kept."""
        if not checkpoint_path:
            raise PlanInvalid(
                f"FileSystemCheckpointStorage() was given {checkpoint_path!r}; give a folder"
            )
        threshold, most = file_state_size_threshold, self.MAX_FILE_STATE_THRESHOLD
        if threshold is not None and (type(threshold) is not int or not 0 <= threshold <= most):
            raise PlanInvalid(
                f"file_state_size_threshold is {threshold!r}; give bytes from 0 to {most}"
            )
        inline = {} if threshold is None else {INLINE: str(threshold)}
        super().__init__({STORAGE: "filesystem", **_folder(checkpoint_path), **inline})
        self._write_buffer_size = write_buffer_size

    def get_min_file_size_threshold(self) -> int:
        """Bytes."""
        return CheckpointSettings.parse(self.configuration.to_dict()).inline_bytes

    def get_write_buffer_size(self) -> int:
        """Bytes; -1: as Headgate likes."""
        return self._write_buffer_size


def backend_of(configuration: Configuration) -> StateBackend | None:
    """The state backend of a configuration; None: it names none."""
    texts = under_current_keys(configuration.to_dict())
    if not texts.get(BACKEND, "").strip():
        return None
    if StateSettings.parse(texts).backend is StateBackendKind.ROCKSDB:
        backend = EmbeddedRocksDBStateBackend(_incremental(texts))
        if folder := configuration.get_string(ROCKS_FOLDER, ""):
            backend.set_db_storage_paths(folder)
        return backend
    return HashMapStateBackend()


def _incremental(texts: dict[str, str]) -> bool | None:
    """None: nothing was said."""
    return RecoverySettings.parse(texts).incremental if INCREMENTAL in texts else None


def _folder(path: str | None) -> dict[str, str]:
    return {CHECKPOINT_FOLDER: path} if path else {}
