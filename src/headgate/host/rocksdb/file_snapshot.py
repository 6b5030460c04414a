"""Incremental snapshots: files of the database, of which the storage gets those it does not have.

Law: a file is named again only if the checkpoint that brought it is complete, and every one that
was taken since and may be complete soon names it too: whichever is the last to be kept, its files
are. RocksDB never changes a file of data, nor uses its name again. Of what stands in the caches
only, so much goes to the database first as can be written in a moment; the rest is written beside
the task's work, and belongs to this snapshot alone.
"""

import os
import pickle
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from rocksdict import AccessType, Options, Rdict, ReadOptions

from headgate.base.checkpoints import Piece
from headgate.base.elements import Record
from headgate.base.errors import HeadgateError, StateBroken
from headgate.base.moved import loads
from headgate.core.state.backend import SnapshotFiles
from headgate.core.state.snapshot import write_group
from headgate.host.rocksdb.cache import CacheKey
from headgate.host.rocksdb.codec import AddressCodec
from headgate.host.rocksdb.database import WriteEntry, batch_of
from headgate.host.rocksdb.snapshot import RocksSnapshot, SnapshotSource, Timers, timers_by_group
from headgate.host.rocksdb.states import StoredValues

TABLES_FILE: Final = "HEADGATE"
"""Their local name; RocksDB has no such file."""
UNWRITTEN_FILE: Final = "UNWRITTEN"
"""The local name of what was on its way to the database."""

_VERSION: Final = 1
_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


class _Stored(msgspec.Struct, frozen=True):
    version: int
    python: str
    max_parallelism: int
    numbers: dict[str, int]
    stored_as: dict[str, str]
    classes: bytes
    next_number: int


@dataclass(frozen=True, slots=True)
class DatabaseCatalog:
    """Of one backend, at one moment."""

    max_parallelism: int
    numbers: Mapping[str, int]
    """Of states, by their names."""
    stored_as: Mapping[str, str]
    """How they are stored, by their names."""
    classes: tuple[type, ...]
    """Of namespaces, in the order of their numbers."""
    next_number: int
    """Above that of every element of a list."""

    def pack(self) -> bytes:
        """As bytes; raises StateBroken for a class that cannot be found by its name."""
        try:
            classes = pickle.dumps(self.classes, 5)
        except Exception as error:
            raise StateBroken(
                f"classes of namespaces cannot be written to a snapshot "
                f"({type(error).__name__}: {error}); they must be found in their modules"
            ) from error
        stored = _Stored(
            _VERSION,
            _PYTHON,
            self.max_parallelism,
            dict(self.numbers),
            dict(self.stored_as),
            classes,
            self.next_number,
        )
        return msgspec.msgpack.encode(stored)


def read_catalog(folder: Path) -> DatabaseCatalog:
    """Of a database that was fetched; raises StateBroken."""
    try:
        data = (folder / TABLES_FILE).read_bytes()
        stored = msgspec.msgpack.decode(data, type=_Stored)
    except Exception as error:  # also text that is none
        problem = f"the files of a database have no tables of its states: {error}"
        raise StateBroken(problem) from error
    if stored.version != _VERSION:
        raise StateBroken(
            f"the files of a database have the version {stored.version}, this side reads "
            f"{_VERSION}; install the Headgate that wrote them"
        )
    if stored.python != _PYTHON:
        raise StateBroken(
            f"the files of a database were written by Python {stored.python}, this is {_PYTHON}; "
            f"take a savepoint with that one, and go on from it"
        )
    try:
        classes = loads(stored.classes)
        if not isinstance(classes, tuple) or not all(isinstance(one, type) for one in classes):
            raise TypeError(f"{classes!r:.100} are no classes")
    except (Exception, SystemExit) as error:  # a pickle can raise anything
        raise StateBroken(
            f"the files of a database cannot be read ({type(error).__name__}: {error}); the "
            f"classes of namespaces must still be there under their old names"
        ) from error
    return DatabaseCatalog(
        stored.max_parallelism, stored.numbers, stored.stored_as, classes, stored.next_number
    )


Unwritten: TypeAlias = tuple[StoredValues, list[tuple[CacheKey, Record]]]
"""Values of one state, and those that the database did not have."""

DATA: Final = ".sst"
"""How the names of files end that never change."""
_NEEDED: Final = ("CURRENT", "MANIFEST-")
"""Beginnings of the names of the others that a database is opened with; they are small."""


class Increment:
    """Files of data in one snapshot."""

    def __init__(self, known: Mapping[str, Piece]) -> None:
        self.known = known
        """Those that are in the storage."""
        self.named: dict[str, Piece] = {}
        """All of them, as soon as they are written."""


class Increments:
    """What the storage has of the database of one backend; on the thread of its task."""

    def __init__(self) -> None:
        self._stored: Mapping[str, Piece] = {}
        self._last = 0
        """The checkpoint that has named what is stored."""
        self._pending: dict[int, Increment] = {}

    def restored(self, shared: Mapping[str, Piece]) -> None:
        """The database is as it was stored, with these files of it."""
        self._stored = {name: piece for name, piece in shared.items() if name.endswith(DATA)}

    def begin(self, checkpoint: int) -> Increment:
        """A snapshot is taken for this checkpoint."""
        others = self._pending.values()
        known = {
            name: piece
            for name, piece in self._stored.items()
            if all(one.known.get(name) == piece for one in others)
        }
        increment = self._pending[checkpoint] = Increment(known)
        return increment

    def completed(self, checkpoint: int) -> None:
        """What it has named stays until a later one is complete."""
        increment = self._pending.pop(checkpoint, None)
        if increment is not None and checkpoint > self._last:
            self._stored, self._last = increment.named, checkpoint
            for older in [one for one in self._pending if one < checkpoint]:
                del self._pending[older]

    def aborted(self, checkpoint: int) -> None:
        """What it has brought is gone."""
        self._pending.pop(checkpoint, None)


class FileSnapshot:
    """See ``Snapshot``: a folder with links to the files of the database, and the timers."""

    def __init__(
        self,
        folder: Path,
        tables: DatabaseCatalog,
        codec: AddressCodec,
        unwritten: list[Unwritten],
        timers: Timers,
        increment: Increment,
    ) -> None:
        self._folder = folder
        self._tables = tables
        self._codec = codec
        self._unwritten = unwritten
        self._timers = timers
        self._increment = increment

    def groups(self) -> Iterator[tuple[int, bytes]]:
        """The timers, which are in no file."""
        most = self._tables.max_parallelism
        for group, entries in sorted(timers_by_group(self._timers, most).items()):
            yield group, write_group(group, most, entries)

    def files(self, store: SnapshotFiles) -> dict[str, Piece]:
        """See ``Snapshot``; options are the reader's own, and its log of writes is never used."""
        increment = self._increment
        found: dict[str, Piece] = {}
        written: list[WriteEntry] = []
        for values, entries in self._unwritten:
            written += values.as_written(entries)
        if written:
            found[UNWRITTEN_FILE] = store.append(msgspec.msgpack.encode(written))
        # Only now: what was not written may have namespaces of classes that are new.
        tables = replace(self._tables, classes=self._codec.classes)
        found[TABLES_FILE] = store.append(tables.pack())
        named: dict[str, Piece] = {}
        for name in sorted(os.listdir(self._folder)):
            path = self._folder / name
            if name.endswith(DATA):
                known = increment.known.get(name)
                named[name] = store.share(str(path)) if known is None else known
            elif name.startswith(_NEEDED):
                found[name] = store.append(path.read_bytes())
        increment.named = named
        return found | named

    def close(self) -> None:
        """Remove the links. A thread that is still in ``files`` fails, and nobody wants it."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._timers, self._unwritten = (), []


BATCH: Final = 1000
"""Entries that are handed over at once."""


def write_late_entries(folder: Path) -> DatabaseCatalog:
    """Write what was on its way to the database; answers with its tables. Raises StateBroken."""
    tables = read_catalog(folder)
    late = folder / UNWRITTEN_FILE
    if late.exists():
        options = Options(raw_mode=True)
        options.set_disable_auto_compactions(True)
        try:
            entries = msgspec.msgpack.decode(late.read_bytes(), type=list[WriteEntry])
            database = Rdict(str(folder), options)
            try:
                for start in range(0, len(entries), BATCH):
                    database.write(batch_of(entries[start : start + BATCH]))
                database.flush()
            finally:
                database.close()
        except Exception as error:
            raise _broken(folder, error) from error
        late.unlink()
    return tables


def entries_in(folder: Path, groups: range) -> Iterator[Sequence[WriteEntry]]:
    """What a database holds of these key groups, in batches; raises StateBroken."""
    with _opened(folder, groups) as entries:
        while batch := [*islice(entries, BATCH)]:
            yield batch


def groups_in(folder: Path, tables: DatabaseCatalog, groups: range) -> Iterator[tuple[int, bytes]]:
    """The same in the form that every backend reads; those that hold anything."""
    codec = AddressCodec(tables.max_parallelism)
    codec.agree(tables.classes)
    names = {number: name for name, number in tables.numbers.items()}
    moment = SnapshotSource(groups, tables.max_parallelism, names, tables.stored_as, {}, (), ())
    with _opened(folder, groups) as entries:
        try:
            yield from RocksSnapshot(moment, codec, entries).groups()
        except HeadgateError:
            raise
        except (Exception, SystemExit) as error:  # a pickle can raise anything
            raise _broken(folder, error) from error


@contextmanager
def _opened(folder: Path, groups: range) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    try:
        database = Rdict(
            str(folder), Options(raw_mode=True), access_type=AccessType.read_only(False)
        )
    except Exception as error:
        raise _broken(folder, error) from error
    try:
        yield _entries(folder, database, groups)
    finally:
        database.close()


def _entries(folder: Path, database: Rdict, groups: range) -> Iterator[tuple[bytes, bytes]]:
    first, end = (number.to_bytes(2, "big") for number in (groups.start, groups.stop))
    options: Any = ReadOptions()  # it must live as long as the reader
    options.set_iterate_upper_bound(end)
    try:
        yield from database.items(from_key=first, read_opt=options)
    except Exception as error:
        raise _broken(folder, error) from error


def _broken(folder: Path, error: BaseException) -> StateBroken:
    return StateBroken(f"the database that was fetched to {folder} cannot be read: {error}")
