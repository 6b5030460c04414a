"""The RocksDB database of one backend, and the memory that all of a task manager share.

Law: the folder of a database goes with it, on every path; an error of the disk is raised as
StateUnstorable, with the folder and the setting that names another. Nothing is synced to disk or
logged ahead: a database is worthless after the end of its process.
"""

import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from headgate.base.errors import StateUnstorable
from headgate.base.settings import MIB, StateCompression, StateSettings
from headgate.host.files.owned_folder import OwnedFolder, sweep
from headgate.host.rocksdb.codec import AFTER_ALL

BLOCK_BYTES: Final = 8 * 1024
BLOOM_BITS: Final = 10
OPEN_FILES: Final = 512
LARGEST_WRITE_BUFFER: Final = 64 * MIB
_COMPRESSIONS: Final = {
    StateCompression.NONE: DBCompressionType.none,
    StateCompression.LZ4: DBCompressionType.lz4,
    StateCompression.ZSTD: DBCompressionType.zstd,
}


_SIZES: Final = ("rocksdb.estimate-live-data-size", "rocksdb.cur-size-all-mem-tables")


WriteEntry: TypeAlias = tuple[bytes, bytes | None]
"""A database key and what is put there; None: it is deleted."""


class StateFolder:
    """The folder of a task manager's databases; made for the first of them."""

    def __init__(self, parent: str) -> None:
        self._parent = parent or tempfile.gettempdir()
        self._folder: OwnedFolder | None = None
        self._numbers = count()
        self._lock = threading.Lock()  # tasks open their operators side by side

    def next_path(self) -> Path:
        """The path for another database."""
        with self._lock:
            if self._folder is None:
                self._folder = self._make()
            return self._folder.path / f"state-{next(self._numbers)}"

    def close(self) -> None:
        """Remove everything. Idempotent."""
        with self._lock:
            folder, self._folder = self._folder, None
        if folder is not None:
            folder.close()

    def _make(self) -> OwnedFolder:
        sweep(self._parent)  # even if this process did before: databases are what fills disks
        try:
            return OwnedFolder("state", self._parent)
        except OSError as error:
            raise StateUnstorable(self._parent, str(error)) from error


class SharedMemory:
    """Block cache and write buffers: one bound for all databases of a task manager."""

    def __init__(self, settings: StateSettings) -> None:
        objects_bytes = int(settings.rocksdb_memory_bytes * settings.rocksdb_objects_fraction)
        native_bytes = settings.rocksdb_memory_bytes - objects_bytes
        writes_bytes = int(native_bytes * settings.rocksdb_writes_fraction)
        self.objects_bytes = objects_bytes
        self.settings = settings
        self.cache = Cache(native_bytes)
        # Write buffers are charged to the cache, so that its size bounds both.
        self.writes = WriteBufferManager.new_write_buffer_manager_with_cache(
            writes_bytes, False, self.cache
        )
        self.write_buffer_bytes = max(MIB, min(LARGEST_WRITE_BUFFER, writes_bytes // 4))

    def options(self, is_new: bool = True) -> Options:
        """Options of one database; a new one must not exist yet."""
        settings = self.settings
        table = BlockBasedOptions()
        table.set_block_cache(self.cache)
        table.set_block_size(BLOCK_BYTES)
        table.set_format_version(5)
        table.set_bloom_filter(BLOOM_BITS, False)
        # Indexes and filters are cached, otherwise nothing bounds them; and partitioned, because a
        # filter of millions of keys fits into no shard of the cache and would be read per record.
        table.set_cache_index_and_filter_blocks(True)
        table.set_index_type(BlockBasedIndexType.two_level_index_search())
        table.set_partition_filters(True)
        table.set_metadata_block_size(BLOCK_BYTES)
        table.set_pin_top_level_index_and_filter(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options = Options(raw_mode=True)
        options.create_if_missing(is_new)
        options.set_error_if_exists(is_new)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_manager(self.writes)
        options.set_write_buffer_size(self.write_buffer_bytes)
        options.set_max_write_buffer_number(4)
        options.set_memtable_prefix_bloom_ratio(0.05)  # a filter: most keys are not in the buffer
        options.set_memtable_whole_key_filtering(True)
        options.set_compression_type(_COMPRESSIONS[settings.rocksdb_compression]())
        options.set_level_compaction_dynamic_level_bytes(True)
        options.set_max_background_jobs(settings.rocksdb_threads)
        options.set_max_open_files(OPEN_FILES)
        options.set_allow_concurrent_memtable_write(False)  # one thread writes
        options.set_keep_log_file_num(1)
        options.set_max_log_file_size(MIB)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        return options


class Database:
    """An ordered map from bytes to bytes. ``operator`` is whose state it holds."""

    def __init__(self, operator: str, path: Path, memory: SharedMemory) -> None:
        self._operator = operator
        self._path = path
        self._memory = memory
        self._siblings = count()
        self._db: Rdict | None = None
        self._unlogged = WriteOptions()
        self._unlogged.disable_wal = True  # type: ignore[method-assign,assignment] # an attribute
        self._start(is_new=True)

    def trouble(self, error: Exception) -> StateUnstorable:
        """An error of RocksDB, as one that names folder and operator."""
        return StateUnstorable(str(self._path.parent), str(error), self._operator)

    def write(self, entries: Sequence[WriteEntry]) -> None:
        """Put, or delete where there is None, as one batch."""
        try:
            if len(entries) > 1:
                self._open.write(batch_of(entries), self._unlogged)
            else:
                for key, data in entries:
                    self.delete(key) if data is None else self.put(key, data)
        except Exception as error:
            raise self.trouble(error) from error

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries whose keys have this prefix, in their order."""
        until = read_until(prefix + AFTER_ALL)
        yield from self._checked(self._open.items(from_key=prefix, read_opt=until))

    def values(self, prefix: bytes) -> list[bytes]:
        """The values of such entries."""
        until = read_until(prefix + AFTER_ALL)
        try:
            return list(self._open.values(from_key=prefix, read_opt=until))
        except Exception as error:
            raise self.trouble(error) from error

    def has(self, prefix: bytes) -> bool:
        """Whether there is such an entry."""
        until = read_until(prefix + AFTER_ALL)
        try:
            return next(self._open.keys(from_key=prefix, read_opt=until), None) is not None
        except Exception as error:
            raise self.trouble(error) from error

    def remove(self, prefix: bytes) -> None:
        """Delete such entries, one by one: RocksDB reads slowly past many deleted ranges."""
        until = read_until(prefix + AFTER_ALL)
        try:
            found = list(self._open.keys(from_key=prefix, read_opt=until))
        except Exception as error:
            raise self.trouble(error) from error
        if found:
            self.write([(key, None) for key in found])  # type: ignore[misc] # raw keys are bytes

    def everything(self) -> Iterator[tuple[bytes, bytes]]:
        """All entries as they are now; to be read once, also by another thread or after ``close``.

        An iterator of RocksDB sees the state at its creation. (rocksdict has snapshots too, but
        iterating over one shows the present state.)
        """
        return self._checked(self._open.items())

    def size_bytes(self) -> int | None:
        """As RocksDB estimates it: live data in files, and the write buffers; None: closed."""
        if self._db is None:
            return None
        sizes = [self._db.property_int_value(name) for name in _SIZES]
        return sum(size for size in sizes if size is not None)

    def link(self) -> Path:
        """A folder with hard links to all files as they are now; the caller removes it.

        Write buffers are flushed first, because there is no write-ahead log.
        """
        path = self.sibling("files")
        try:
            self._open.flush()  # this releases the GIL; the next call does not
            Checkpoint(self._open).create_checkpoint(str(path))
        except Exception as error:
            shutil.rmtree(path, ignore_errors=True)
            raise self.trouble(error) from error
        return path

    def sibling(self, what: str) -> Path:
        """An unused path beside the database."""
        return self._path.with_name(f"{self._path.name}-{what}-{next(self._siblings)}")

    def adopt(self, folder: Path) -> None:
        """Replace the database by the one in this folder, which is moved."""
        self.close()
        try:
            folder.rename(self._path)
        except OSError as error:
            raise self.trouble(error) from error
        self._start(is_new=False)

    def _start(self, is_new: bool) -> None:
        try:
            self._db = db = Rdict(str(self._path), self._memory.options(is_new))
        except Exception as error:
            shutil.rmtree(self._path, ignore_errors=True)
            raise self.trouble(error) from error
        db.set_write_options(self._unlogged)
        self.get, self.put, self.delete = db.get, db.put, db.delete

    def _checked(self, items: Iterator[tuple[Any, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        try:
            yield from items
        except Exception as error:
            raise self.trouble(error) from error

    def close(self) -> None:
        """Close the database and delete its folder. Idempotent."""
        db, self._db = self._db, None
        if db is None:
            return
        del self.get, self.put, self.delete
        # On a full disk the last writes fail again; they are unwanted.
        with suppress(Exception):
            db.close()
        shutil.rmtree(self._path, ignore_errors=True)

    @property
    def _open(self) -> Rdict:
        assert self._db is not None, f"the state of {self._operator!r} is closed"
        return self._db


def batch_of(entries: Sequence[WriteEntry]) -> WriteBatch:

    batch = WriteBatch(raw_mode=True)
    put, delete = batch.put, batch.delete
    for key, data in entries:
        delete(key) if data is None else put(key, data)
    return batch


def read_until(end: bytes) -> Any:
    """Read options of an iterator that stops before this key.

    They must live as long as the iterator, which does not keep the bytes of the key itself.
    """
    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    return options
