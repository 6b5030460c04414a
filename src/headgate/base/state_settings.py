"""Settings of state: where keyed state lives, and how much memory and which folder it may use."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headgate.base.errors import SettingsInvalid
from headgate.base.setting_fields import check_bounds, parse_settings, setting

MIB: Final = 1024 * 1024


class StateBackendKind(str, Enum):
    """Where keyed state lives: as objects in memory, or as bytes in files."""

    HASHMAP = "hashmap"
    ROCKSDB = "rocksdb"


class StateCompression(str, Enum):
    """How blocks of RocksDB's files are packed."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(frozen=True, slots=True)
class StateSettings:
    """The state of one task manager. Every field knows its key, meaning and lower bound."""

    backend: StateBackendKind = setting(
        "state.backend.type",
        StateBackendKind.HASHMAP,
        "Where keyed state lives: `hashmap`, in memory, or `rocksdb`, in files.",
    )
    rocksdb_memory_bytes: int = setting(
        "state.backend.rocksdb.memory",
        256 * MIB,
        "Bytes of memory that all RocksDB state of a task manager shares.",
        8 * MIB,
    )
    rocksdb_objects_fraction: float = setting(
        "state.backend.rocksdb.memory.objects-fraction",
        0.25,
        "Share of that memory for values that were used last, as objects; 0: none.",
        0,
    )
    rocksdb_writes_fraction: float = setting(
        "state.backend.rocksdb.memory.write-buffer-ratio",
        0.5,
        "Share of the rest for what is not in files yet; the remainder caches blocks of files.",
        0.01,
    )
    rocksdb_folder: str = setting(
        "state.backend.rocksdb.localdir",
        "",
        "Folder on every worker under which RocksDB keeps its files; none: the temporary folder.",
    )
    rocksdb_compression: StateCompression = setting(
        "state.backend.rocksdb.compression",
        StateCompression.LZ4,
        "How RocksDB packs its files: `none`, `lz4` or `zstd`.",
    )
    rocksdb_threads: int = setting(
        "state.backend.rocksdb.thread.num",
        2,
        "Threads of a task manager that write and merge RocksDB's files in the background.",
        1,
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        for key, value in (
            ("state.backend.rocksdb.memory.objects-fraction", self.rocksdb_objects_fraction),
            ("state.backend.rocksdb.memory.write-buffer-ratio", self.rocksdb_writes_fraction),
        ):
            if value >= 1:
                raise SettingsInvalid(key, f"{value} is not below 1")

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> "StateSettings":
        """Settings from keys and texts; keys of other rooms are left alone.

        ``state.backend`` is what Flink called ``state.backend.type`` before.
        """
        if "state.backend" in texts:
            texts = {"state.backend.type": texts["state.backend"], **texts}
        return parse_settings(cls, texts)
