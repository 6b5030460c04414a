"""Incremental snapshots: database files, of which only those that the storage lacks are written.

Law: a checkpoint names a stored file again only if the checkpoint that brought it is complete, and
all pending checkpoints taken since name it, too: whichever of them is retained last, its files are
still there. RocksDB never changes a data file, nor reuses its name. Of values that only the caches
hold, a bounded number goes to the database first; the rest is written in the background, and
belongs to this snapshot alone.

A catalog beside the files holds what is needed to read them. Law: keys and values that were written
with a catalog are read with the same, by the same version of Python: what an object gives to
pickle, and thus the bytes of a key, may differ in another.
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
from typing import Final, TypeAlias

import msgspec
from rocksdict import AccessType, Options, Rdict

from headgate.base.checkpoints import Piece
from headgate.base.elements import Record
from headgate.base.errors import HeadgateError, StateBroken
from headgate.base.moved import loads
from headgate.core.state.backend import SnapshotFiles
from headgate.core.state.snapshot import Entry, Load, write_group
from headgate.host.rocksdb.cache import CacheKey
from headgate.host.rocksdb.codec import AddressCodec
from headgate.host.rocksdb.database import WriteEntry, batch_of, read_until
from headgate.host.rocksdb.snapshot import (
    RocksSnapshot,
    SnapshotSource,
    Timers,
    content,
    timers_by_group,
    together,
)
from headgate.host.rocksdb.states import StoredValues

CATALOG_FILE: Final = "HEADGATE"
"""The catalog's local name; RocksDB has no such file."""
UNWRITTEN_FILE: Final = "UNWRITTEN"
"""The local name of entries that had not reached the database."""
DATA: Final = ".sst"
"""The suffix of files that never change."""
BATCH: Final = 1000
"""Entries per write or read."""

_NEEDED: Final = ("CURRENT", "MANIFEST-")
"""Prefixes of the other files that a database is opened with; they are small."""
_VERSION: Final = 2
"""In 1 numbers and texts had other bytes, which ``codec`` tells from those of now."""
_READ: Final = (1, _VERSION)
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
    """The states and namespace classes of one backend at one moment."""

    max_parallelism: int
    numbers: Mapping[str, int]
    """Numbers of states, by name."""
    stored_as: Mapping[str, str]
    """How states are stored, by name."""
    classes: tuple[type, ...]
    """Classes of namespaces, in the order of their numbers."""
    next_number: int
    """Above that of every list element."""

    def pack(self) -> bytes:
        """Raises StateBroken for a class that cannot be found by its name."""
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


def read_catalog(folder: Path, load: Load = loads) -> DatabaseCatalog:
    """Read the catalog of a fetched database; raises StateBroken."""
    try:
        data = (folder / CATALOG_FILE).read_bytes()
        stored = msgspec.msgpack.decode(data, type=_Stored)
    except Exception as error:  # also invalid UTF-8
        problem = f"the files of a database have no tables of its states: {error}"
        raise StateBroken(problem) from error
    if stored.version not in _READ:
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
        classes = load(stored.classes)
        if not isinstance(classes, tuple) or not all(isinstance(kind, type) for kind in classes):
            raise TypeError(f"{classes!r:.100} are no classes")
    except HeadgateError:
        raise
    except (Exception, SystemExit) as error:  # a pickle can raise anything
        raise StateBroken(
            f"the files of a database cannot be read ({type(error).__name__}: {error}); the "
            f"classes of namespaces must still be there under their old names"
        ) from error
    return DatabaseCatalog(
        stored.max_parallelism, stored.numbers, stored.stored_as, classes, stored.next_number
    )


UnwrittenValues: TypeAlias = tuple[StoredValues, list[tuple[CacheKey, Record]]]
"""A state, and the entries that only its cache holds."""


class Increment:
    """The data files of one snapshot."""

    def __init__(self, known: Mapping[str, Piece]) -> None:
        self.known = known
        """Those that are in the storage."""
        self.named: dict[str, Piece] = {}
        """All of them, once they are written."""


class Increments:
    """Which data files of one backend the storage has; on the thread of its task."""

    def __init__(self) -> None:
        self._stored: Mapping[str, Piece] = {}
        self._last = 0
        """The checkpoint that named the stored files."""
        self._pending: dict[int, Increment] = {}

    def restored(self, shared: Mapping[str, Piece]) -> None:
        """The database was restored as it is, with these files."""
        self._stored = {name: piece for name, piece in shared.items() if name.endswith(DATA)}

    def begin(self, checkpoint: int) -> Increment:
        """A snapshot is taken for this checkpoint."""
        pending = self._pending.values()
        known = {
            name: piece
            for name, piece in self._stored.items()
            if all(increment.known.get(name) == piece for increment in pending)
        }
        increment = self._pending[checkpoint] = Increment(known)
        return increment

    def completed(self, checkpoint: int) -> None:
        """The files it names stay until a later checkpoint is complete."""
        increment = self._pending.pop(checkpoint, None)
        if increment is not None and checkpoint > self._last:
            self._stored, self._last = increment.named, checkpoint
            self._pending = {
                number: later for number, later in self._pending.items() if number > checkpoint
            }

    def aborted(self, checkpoint: int) -> None:
        """The files it brought are gone."""
        self._pending.pop(checkpoint, None)


class FileSnapshot:
    """See ``Snapshot``: a folder with hard links to the database's files, and the timers."""

    def __init__(
        self,
        folder: Path,
        catalog: DatabaseCatalog,
        codec: AddressCodec,
        unwritten: list[UnwrittenValues],
        timers: Timers,
        increment: Increment,
    ) -> None:
        self._folder = folder
        self._catalog = catalog
        self._codec = codec
        self._unwritten = unwritten
        self._timers = timers
        self._increment = increment

    def groups(self) -> Iterator[tuple[int, bytes]]:
        """The timers, which are in no file."""
        max_parallelism = self._catalog.max_parallelism
        for group, entries in sorted(timers_by_group(self._timers, max_parallelism).items()):
            yield group, write_group(group, max_parallelism, entries)

    def files(self, store: SnapshotFiles) -> dict[str, Piece]:
        """See ``Snapshot``; readers have options of their own and need no write-ahead log."""
        increment = self._increment
        found: dict[str, Piece] = {}
        written: list[WriteEntry] = []
        for values, entries in self._unwritten:
            written += values.as_written(entries)
        if written:
            found[UNWRITTEN_FILE] = store.append(msgspec.msgpack.encode(written))
        # Only now: entries written above may have namespaces of new classes.
        catalog = replace(self._catalog, classes=self._codec.classes)
        found[CATALOG_FILE] = store.append(catalog.pack())
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
        """Remove the links. A thread that is still in ``files`` fails; its result is unwanted."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._timers, self._unwritten = (), []


def write_late_entries(folder: Path, load: Load = loads) -> DatabaseCatalog:
    """Complete a fetched database with the entries that had not reached it; returns its catalog.

    Raises StateBroken.
    """
    catalog = read_catalog(folder, load)
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
    return catalog


def entries_in(folder: Path, groups: range) -> Iterator[Sequence[WriteEntry]]:
    """The entries of these key groups in a fetched database, in batches; raises StateBroken."""
    with _opened(folder, groups) as entries:
        while batch := [*islice(entries, BATCH)]:
            yield batch


def groups_in(folder: Path, catalog: DatabaseCatalog, groups: range) -> Iterator[tuple[int, bytes]]:
    """The non-empty key groups of a fetched database, in the form that every backend reads."""
    codec = AddressCodec(catalog.max_parallelism)
    codec.agree(catalog.classes)
    names = {number: name for name, number in catalog.numbers.items()}
    source = SnapshotSource(groups, catalog.max_parallelism, names, catalog.stored_as, {}, (), ())
    with _opened(folder, groups) as entries:
        try:
            yield from RocksSnapshot(source, codec, entries).groups()
        except HeadgateError:
            raise
        except (Exception, SystemExit) as error:  # a pickle can raise anything
            raise _broken(folder, error) from error


def pieces_in(
    folder: Path, catalog: DatabaseCatalog, groups: range, load: Load
) -> Iterator[tuple[int, int, list[Entry]]]:
    """What a fetched database holds, a few entries at a time; raises StateBroken.

    Each piece has its key group, its bytes and its entries. Only ``load`` makes objects of pickles.
    """
    codec = AddressCodec(catalog.max_parallelism, load)
    codec.agree(catalog.classes)
    names = {number: name for name, number in catalog.numbers.items()}
    with _opened(folder, groups) as stored:
        group, size, piece = groups.start, 0, list[Entry]()
        try:
            for places in together(codec, stored):
                first = places[0]
                if piece and (first.group != group or len(piece) == BATCH):
                    yield group, size, piece
                    size, piece = 0, []
                name = names[first.state]
                kind, group = catalog.stored_as[name], first.group
                size += sum(len(at.prefix) + len(at.rest) + len(at.body) for at in places)
                held = content(kind, places, load)
                piece.append((kind, name, first.namespace, first.key, held))
        except HeadgateError:
            raise
        except (Exception, SystemExit) as error:  # a pickle can raise anything
            raise _broken(folder, error) from error
        if piece:
            yield group, size, piece


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
    options = read_until(end)
    try:
        yield from database.items(from_key=first, read_opt=options)
    except Exception as error:
        raise _broken(folder, error) from error


def _broken(folder: Path, error: BaseException) -> StateBroken:
    return StateBroken(f"the database that was fetched to {folder} cannot be read: {error}")
