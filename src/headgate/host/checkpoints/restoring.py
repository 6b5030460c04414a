"""What tasks get back from a checkpoint, read from the storage where they run.

Small pieces are read when the tasks are set up; key groups and database files are read by the
operators that own them, on the thread of their task. Law: what is handed over has the checksum it
was written with; otherwise the error names the file, and the tasks do not start.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headgate.base.checkpoints import DatabaseRestore, Piece
from headgate.base.errors import CheckpointCorrupt, CheckpointMissing, StateBroken, StorageUnusable
from headgate.base.extras import install_command
from headgate.base.messages import CheckpointOrder
from headgate.core.state.snapshot import Entry, Load
from headgate.host.checkpoints.folder import open_folder, storage_errors
from headgate.host.checkpoints.location import CheckpointLocation, resolve
from headgate.host.checkpoints.pieces import PieceReader
from headgate.host.files.owned_folder import OwnedFolder


class CheckpointPieces:
    """See ``CheckpointReader``."""

    def __init__(
        self,
        location: CheckpointLocation,
        reader: PieceReader,
        is_shared: bool,
        needs_digests: bool,
    ) -> None:
        """``is_shared``: the job's own checkpoints may name the files of this one again;
        ``needs_digests``: they are signed.
        """
        self.read = reader.read
        self._location = location
        self._is_shared = is_shared
        self._needs_digests = needs_digests

    def key_groups(self, keyed: Mapping[int, Piece]) -> Iterator[tuple[int, bytes]]:
        """In the order of their files."""
        ordered = sorted(keyed.items(), key=lambda item: (item[1].path, item[1].offset))
        with PieceReader(self._location) as reader:
            for group, piece in ordered:
                yield group, reader.read(piece)

    def database(self, restore: DatabaseRestore) -> "StoredDatabaseFiles":
        groups = range(restore.first, restore.end)
        return StoredDatabaseFiles(
            self._location, groups, restore.files, self._is_shared, self._needs_digests
        )


@contextmanager
def open_checkpoint(order: CheckpointOrder, shared_uri: str) -> Iterator[CheckpointPieces]:
    """The checkpoint that a run goes on from; ``shared_uri``: of the folder whose files the job's
    own checkpoints may name. Raises CheckpointMissing, CheckpointCorrupt or StorageUnusable.
    """
    location = _locate(order.restored_from, order.folder)
    with PieceReader(location) as reader:
        is_shared = location.shared.uri == shared_uri
        yield CheckpointPieces(location, reader, is_shared, order.digests)


def _locate(where: str, storage: str) -> CheckpointLocation:
    """An unreachable storage must not be reported as damage of what it holds."""
    try:
        return resolve(where, storage)[0]
    except CheckpointMissing as error:
        above = open_folder(where).parent()
        if above.is_flat or above.look() is not None:
            raise
        advice = "check that the storage is there, or mounted, on every host"
        raise StorageUnusable(above.shown, "is not there", advice) from error


@dataclass(frozen=True, slots=True)
class StoredDatabaseFiles:
    """See ``StoredDatabase``; for the thread of its task."""

    location: CheckpointLocation
    groups: range
    files: Mapping[str, Piece]
    is_shared: bool
    """The checkpoint is one of the job's own, whose files its next ones may name."""
    needs_digests: bool = False
    """They may name only files with known digests, because they are signed."""

    @property
    def shared(self) -> Mapping[str, Piece]:
        """See ``StoredDatabase``."""
        if not self.is_shared:
            return {}
        known = set(self.location.shared_files(piece.path for piece in self.files.values()))
        return {
            name: piece
            for name, piece in self.files.items()
            if piece.path in known and (piece.digest or not self.needs_digests)
        }

    def fetch(self, folder: str) -> None:
        """See ``StoredDatabase``; raises CheckpointMissing, CheckpointCorrupt, StorageUnusable."""
        with storage_errors(folder):
            os.mkdir(folder)
        with PieceReader(self.location) as reader:
            for name, piece in self.files.items():
                if os.path.basename(name) != name or name in ("", ".", ".."):
                    problem = f"names {name!r} as a file of a database, which leads elsewhere"
                    raise CheckpointCorrupt(self.location.shown, problem)
                reader.fetch(piece, os.path.join(folder, name))

    def read(self, groups: range) -> Iterator[tuple[int, bytes]]:
        """See ``StoredDatabase``; also raises StateBroken."""
        with self._fetched() as database:
            from headgate.host.rocksdb import snapshots  # noqa: PLC0415

            yield from snapshots.groups_in(database, snapshots.write_late_entries(database), groups)

    def pieces(self, groups: range, load: Load) -> Iterator[tuple[int, int, list[Entry]]]:
        """Key group, bytes and entries, a few at a time; only ``load`` makes objects of pickles."""
        with self._fetched() as database:
            from headgate.host.rocksdb import snapshots  # noqa: PLC0415

            catalog = snapshots.write_late_entries(database, load)
            yield from snapshots.pieces_in(database, catalog, groups, load)

    @contextmanager
    def _fetched(self) -> Iterator[Path]:
        """A local copy, where there is RocksDB to read it."""
        if find_spec("rocksdict") is None:
            raise StateBroken(
                f"{self.location.shown} holds files of RocksDB, and rocksdict is not installed in "
                f"a worker; run {install_command('rocksdb')}, or go on from a savepoint"
            )
        with storage_errors(tempfile.gettempdir()):
            folder = OwnedFolder("fetched")
        with folder as path:
            database = path / "database"
            self.fetch(str(database))
            yield database
