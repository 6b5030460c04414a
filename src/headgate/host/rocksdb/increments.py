"""Incremental snapshots: files of the database, of which the storage gets those it does not have.

Law: a file is named again only if the checkpoint that brought it is complete, and every one that
was taken since and may be complete soon names it too: whichever is the last to be kept, its files
are. RocksDB never changes a file of data, nor uses its name again. Of what stands in the caches
only, so much goes to the database first as can be written in a moment; the rest is written beside
the task's work, and belongs to this snapshot alone.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from headgate.base.checkpoints import Piece
from headgate.base.elements import Record
from headgate.core.state.backend import SnapshotFiles
from headgate.core.state.snapshot import write_group
from headgate.host.rocksdb.cache import Place
from headgate.host.rocksdb.codec import AddressCodec
from headgate.host.rocksdb.database import Written
from headgate.host.rocksdb.snapshot import Timers, timers_by_group
from headgate.host.rocksdb.states import StoredValues
from headgate.host.rocksdb.tables import TABLES_FILE, UNWRITTEN_FILE, Tables

Unwritten: TypeAlias = tuple[StoredValues, list[tuple[Place, Record]]]
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
        tables: Tables,
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
        written: list[Written] = []
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
