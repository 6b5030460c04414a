"""Snapshots of RocksDB state: full ones, written group by group, and files for increments.

Law of ``RocksSnapshot``: it holds what the states held when it was taken: the database as it was,
overlaid with what only the caches held. The bytes are those of ``core/state/snapshot.py``.

``FileSnapshot`` writes only those database files that the storage lacks. Law: a checkpoint names a
stored file again only if the checkpoint that brought it is complete, and all pending checkpoints
taken since name it, too. RocksDB never changes a data file, nor reuses its name. A catalog beside
the files holds what is needed to read them, by the same version of Python: what an object gives to
pickle, and thus the bytes of a key, may differ in another.
"""

import os
import pickle
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from rocksdict import AccessType, Options, Rdict

from headgate.base.checkpoints import Piece
from headgate.base.elements import Key, Record
from headgate.base.errors import HeadgateError, StateBroken
from headgate.base.moved import loads
from headgate.core.state.backend import Sieve, SnapshotFiles
from headgate.core.state.cursor import Namespace
from headgate.core.state.keys import Frozen, key_group
from headgate.core.state.snapshot import LIST, VALUE, Entry, Load, write_group
from headgate.host.rocksdb.cache import CacheKey, DirtyEntries, value_of
from headgate.host.rocksdb.codec import AddressCodec, StoredAddress, entry_of, unpack
from headgate.host.rocksdb.database import WriteEntry, batch_of, read_until
from headgate.host.rocksdb.states import StoredValues, key_and_namespace

Timers: TypeAlias = tuple[tuple[str, list[tuple[int, Key, Namespace]]], ...]
"""All timers, by kind."""

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


@dataclass(eq=False, slots=True)
class RocksSnapshot:
    """See ``Snapshot``; what a backend hands over does not change any more."""

    key_groups: range
    max_parallelism: int
    names: Mapping[int, str]
    """Names of states, by number."""
    stored_as: Mapping[str, str]
    sieves: Mapping[str, Sieve]
    unwritten: tuple[tuple[str, StoredValues, DirtyEntries], ...]
    """The name of a state, its values, and the entries that only its cache held."""
    timers: Timers
    codec: AddressCodec
    stored: Iterator[tuple[bytes, bytes]]
    """The entries of the database at this moment, by key."""

    def groups(self) -> Iterator[tuple[int, bytes]]:
        """The non-empty ones, in order."""
        over = self._sort_unwritten()
        timers = timers_by_group(self.timers, self.max_parallelism)
        runs = groupby(together(self.codec, self.stored), lambda found: found[0].group)
        run = next(runs, None)
        for group in self.key_groups:
            stored: Iterable[list[StoredAddress]] = ()
            if run is not None and run[0] == group:
                stored = [*run[1]]
                run = next(runs, None)
            fresh = over.get(group, {})
            entries = [*self._sifted(self._entries(stored, fresh)), *timers.get(group, ())]
            if entries:
                yield group, write_group(group, self.max_parallelism, entries)

    def files(self, store: SnapshotFiles) -> dict[str, Piece]:
        """None: the groups hold everything."""
        return {}

    def close(self) -> None:
        """Let RocksDB drop what only this snapshot needs. Idempotent."""
        self.stored = iter(())

    def _sort_unwritten(self) -> dict[int, dict[bytes, Entry | None]]:
        """Cached entries by group and database key; None: deleted."""
        found: dict[int, dict[bytes, Entry | None]] = {}
        for name, values, unwritten in self.unwritten:
            kind = self.stored_as[name]
            for cache_key, value in unwritten.items():
                prefix = values.address(cache_key).prefix
                key, namespace = key_and_namespace(cache_key)
                plain = key.key if type(key) is Frozen else key
                entry = None if value is None else (kind, name, namespace, plain, value_of(value))
                group = int.from_bytes(prefix[:2], "big")
                found.setdefault(group, {})[prefix] = entry
        return found

    def _sifted(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        sieves = self.sieves
        for kind, name, namespace, key, content in entries:
            left = sieves[name](content) if name in sieves else content
            if left is not None or name not in sieves:
                yield kind, name, namespace, key, left

    def _entries(
        self, stored: Iterable[list[StoredAddress]], fresh: dict[bytes, Entry | None]
    ) -> Iterator[Entry]:
        for places in stored:
            first = places[0]
            if first.prefix in fresh:
                continue
            name = self.names[first.state]
            kind = self.stored_as[name]
            yield kind, name, first.namespace, first.key, content(kind, places)
        yield from (entry for entry in fresh.values() if entry is not None)


def together(
    codec: AddressCodec, stored: Iterable[tuple[bytes, bytes]]
) -> Iterator[list[StoredAddress]]:
    """Entries of a database, those of each address together."""
    found: list[StoredAddress] = []
    for key, data in stored:
        address = codec.decode(key, data)
        if found and found[0].prefix != address.prefix:
            yield found
            found = []
        found.append(address)
    if found:
        yield found


def timers_by_group(all_timers: Timers, max_parallelism: int) -> dict[int, list[Entry]]:
    """Timers as entries of a snapshot."""
    found: dict[int, list[Entry]] = {}
    for kind, timers in all_timers:
        for time_ms, key, namespace in timers:
            plain = key.key if type(key) is Frozen else key
            group = key_group(plain, max_parallelism)
            found.setdefault(group, []).append((kind, "", namespace, plain, time_ms))
    return found


def content(kind: str, entries: Iterable[StoredAddress], load: Load | None = None) -> Record:
    """What a state of this kind holds at one address."""
    if kind.startswith(VALUE):
        return unpack(next(iter(entries)).body, load)
    if kind.startswith(LIST):
        return [unpack(entry.body, load) for entry in entries]
    pairs = (entry_of(entry.rest, entry.body, load or loads) for entry in entries)
    return {key: unpack(body, load) for key, body in pairs}


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
        """Data files that are in the storage already."""
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


@dataclass(eq=False, slots=True)
class FileSnapshot:
    """See ``Snapshot``: a folder with hard links to the database's files, and the timers."""

    folder: Path
    catalog: DatabaseCatalog
    codec: AddressCodec
    unwritten: list[UnwrittenValues]
    timers: Timers
    increment: Increment

    def groups(self) -> Iterator[tuple[int, bytes]]:
        """The timers, which are in no file."""
        max_parallelism = self.catalog.max_parallelism
        for group, entries in sorted(timers_by_group(self.timers, max_parallelism).items()):
            yield group, write_group(group, max_parallelism, entries)

    def files(self, store: SnapshotFiles) -> dict[str, Piece]:
        """See ``Snapshot``; readers have options of their own and need no write-ahead log."""
        increment = self.increment
        found: dict[str, Piece] = {}
        written: list[WriteEntry] = []
        for values, entries in self.unwritten:
            written += values.as_written(entries)
        if written:
            found[UNWRITTEN_FILE] = store.append(msgspec.msgpack.encode(written))
        # Only now: entries written above may have namespaces of new classes.
        catalog = replace(self.catalog, classes=self.codec.classes)
        found[CATALOG_FILE] = store.append(catalog.pack())
        named: dict[str, Piece] = {}
        for name in sorted(os.listdir(self.folder)):
            path = self.folder / name
            if name.endswith(DATA):
                known = increment.known.get(name)
                named[name] = store.share(str(path)) if known is None else known
            elif name.startswith(_NEEDED):
                found[name] = store.append(path.read_bytes())
        increment.named = named
        return found | named

    def close(self) -> None:
        """Remove the links. A thread that is still in ``files`` fails; its result is unwanted."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.timers, self.unwritten = (), []


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
    for group, found in groupby(pieces_in(folder, catalog, groups), lambda piece: piece[0]):
        entries = [entry for _, _, held in found for entry in held]
        yield group, write_group(group, catalog.max_parallelism, entries)


def pieces_in(
    folder: Path, catalog: DatabaseCatalog, groups: range, load: Load | None = None
) -> Iterator[tuple[int, int, list[Entry]]]:
    """What a fetched database holds, a few entries at a time; raises StateBroken.

    Each piece has its key group, its bytes and its entries. Only ``load`` makes objects of pickles.
    """
    codec = AddressCodec(catalog.max_parallelism, load or loads)
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
