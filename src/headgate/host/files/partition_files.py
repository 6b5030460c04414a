"""Files of blocking partitions, in three storages, and spill files for very large elements.

All are in one folder of the task manager, which goes with it. An entry is a length (4 bytes, the
top bit marks an event) and the data. File: written and read by system calls. Mmap: written and read
through a mapping that grows by doubling. File-mmap: written as a file, read through a mapping.
"""

import mmap
import os
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from headgate.base.elements import ByteLike
from headgate.base.ids import PartitionId
from headgate.base.settings import MIB, Storage
from headgate.core.egress.blocking import EntryStore, StoreReader
from headgate.host.files.owned_folder import OwnedFolder
from headgate.host.files.private_files import FOLDER_MODE, private_opener

_HEAD: Final = struct.Struct("<I")
_EVENT_BIT: Final = 1 << 31
_FIRST_MAPPING: Final = MIB


class PartitionFiles:
    """A folder of files that goes with ``close``; made for the first of them.

    So a killed process leaves no folder unless it needed one, see ``owned_folder``.
    """

    def __init__(self, storage: Storage = Storage.FILE_MMAP, parent: str | None = None) -> None:
        self._parent = parent
        self._numbers = count()
        self._storage = storage
        self._folder: OwnedFolder | None = None
        self._path: Path | None = None
        self._making = threading.Lock()

    @property
    def path(self) -> Path:
        with self._making:  # several tasks may need it at the same time
            if self._path is None:
                self._folder = self._folder or OwnedFolder("spill", self._parent)
                path = self._folder.path / "files"
                path.mkdir(FOLDER_MODE)
                self._path = path
            return self._path

    def make_store(self, partition: PartitionId, index: int) -> EntryStore:
        """A fresh store for one blocking subpartition."""
        path = self.path / f"store-{next(self._numbers)}-{index}"
        return FileStore(path, *_STORES[self._storage])

    def open(self) -> "MappedSpillFile":
        """A fresh spill file."""
        return MappedSpillFile(self.path / f"spill-{next(self._numbers)}")

    def close(self) -> None:
        if self._folder is not None:
            self._folder.close()


class MappedSpillFile:
    """An element too large for memory: written as it arrives, then read through a mapping."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "w+b", opener=private_opener)  # noqa: SIM115 - closed by close()
        self._mapping: mmap.mmap | None = None

    def write(self, data: memoryview) -> None:
        self._file.write(data)

    def written(self) -> bytes:
        end = self._file.tell()
        self._file.seek(0)
        data = self._file.read(end)
        self._file.seek(end)
        return data

    def view(self) -> memoryview:
        self._file.flush()
        self._mapping = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return memoryview(self._mapping)

    def close(self) -> None:
        if self._mapping is not None:
            _close_mapping(self._mapping)
        self._file.close()
        self._path.unlink(missing_ok=True)


class _Writer(Protocol):
    def write(self, head: bytes, data: ByteLike) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


class FileStore:
    """The entries of one blocking subpartition."""

    def __init__(
        self, path: Path, writer: Callable[[Path], _Writer], reader: Callable[[Path], StoreReader]
    ) -> None:
        self._path = path
        self._reader = reader
        self._writer: _Writer | None = writer(path)

    def append(self, data: ByteLike, is_event: bool) -> None:
        assert self._writer is not None, "the store is finished"
        size = len(data)
        self._writer.write(_HEAD.pack(size | _EVENT_BIT if is_event else size), data)

    def finish(self) -> None:
        writer, self._writer = self._writer, None
        assert writer is not None, "the store was finished before"
        try:
            writer.finish()
        finally:
            writer.close()

    def open_reader(self) -> StoreReader:
        return self._reader(self._path)

    def delete(self) -> None:
        writer, self._writer = self._writer, None
        try:
            if writer is not None:
                writer.close()
        except OSError:
            pass  # the disk is full; the unwritten rest is unwanted
        finally:
            self._path.unlink(missing_ok=True)


class _FileWriter:
    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = open(path, "xb", buffering=MIB, opener=private_opener)  # noqa: SIM115 - closed by close()

    def write(self, head: bytes, data: ByteLike) -> None:
        self._file.write(head)
        self._file.write(data)

    def finish(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class _MappedWriter:
    def __init__(self, path: Path) -> None:
        self._file = open(path, "x+b", opener=private_opener)  # noqa: SIM115 - closed by close()
        try:
            self._mapping = self._map(_FIRST_MAPPING)
        except BaseException:
            self._file.close()
            raise
        self._at = 0

    def write(self, head: bytes, data: ByteLike) -> None:
        end = self._at + len(head) + len(data)
        if end > len(self._mapping):
            self._grow(end)
        middle = self._at + len(head)
        self._mapping[self._at : middle] = head
        self._mapping[middle:end] = data
        self._at = end

    def finish(self) -> None:
        self._mapping.close()
        self._file.truncate(self._at)

    def close(self) -> None:
        self._mapping.close()
        self._file.close()

    def _grow(self, end: int) -> None:
        size = len(self._mapping)
        while size < end:
            size *= 2
        self._mapping.close()
        self._mapping = self._map(size)

    def _map(self, size: int) -> mmap.mmap:
        # On a full disk, writing into a hole of the file would kill the process; allocating it
        # raises an error that can be caught.
        os.posix_fallocate(self._file.fileno(), 0, size)
        return mmap.mmap(self._file.fileno(), size)


class _FileReader:
    def __init__(self, path: Path) -> None:
        self._file = open(path, "rb", buffering=MIB)  # noqa: SIM115 - closed by close()

    def next(self) -> tuple[ByteLike, bool] | None:
        head = self._file.read(_HEAD.size)
        if not head:
            return None
        (size,) = _HEAD.unpack(head)
        return self._file.read(size & ~_EVENT_BIT), bool(size & _EVENT_BIT)

    def close(self) -> None:
        self._file.close()


class _MappedReader:
    def __init__(self, path: Path) -> None:
        self._mapping: mmap.mmap | None = None
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
                self._mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._view = memoryview(self._mapping or b"")
        self._at = 0

    def next(self) -> tuple[ByteLike, bool] | None:
        if self._at == len(self._view):
            return None
        (size,) = _HEAD.unpack_from(self._view, self._at)
        start = self._at + _HEAD.size
        self._at = start + (size & ~_EVENT_BIT)
        return self._view[start : self._at], bool(size & _EVENT_BIT)

    def close(self) -> None:
        self._view = memoryview(b"")
        if self._mapping is not None:
            _close_mapping(self._mapping)


_STORES: Final[dict[Storage, tuple[Callable[[Path], _Writer], Callable[[Path], StoreReader]]]] = {
    Storage.FILE: (_FileWriter, _FileReader),
    Storage.FILE_MMAP: (_FileWriter, _MappedReader),
    Storage.MMAP: (_MappedWriter, _MappedReader),
}


def _close_mapping(mapping: mmap.mmap) -> None:
    # A slice in use keeps the mapping open until it is gone.
    with suppress(BufferError):
        mapping.close()
