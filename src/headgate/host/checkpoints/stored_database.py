"""The files of a database in a checkpoint, fetched where a task goes on with them.

Law: what is fetched has the checksums it was written with; otherwise the error names the file. A
folder that was made here for reading is gone afterwards.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from headgate.base.checkpoints import Piece
from headgate.base.errors import CheckpointCorrupt, StateBroken
from headgate.host.checkpoints.folder import storage_errors
from headgate.host.checkpoints.location import CheckpointLocation
from headgate.host.checkpoints.piece_reader import PieceReader
from headgate.host.files.owned_folder import OwnedFolder


@dataclass(frozen=True, slots=True)
class StoredDatabaseFiles:
    """See ``StoredDatabase``; for the thread of its task."""

    place: CheckpointLocation
    groups: range
    files: Mapping[str, Piece]
    is_shared: bool
    """The checkpoint is one of the job's own, whose files its next ones may name."""
    needs_digests: bool = False
    """They may name only files whose digests are known, because they are signed."""

    @property
    def shared(self) -> Mapping[str, Piece]:
        """See ``StoredDatabase``."""
        if not self.is_shared:
            return {}
        paths = {piece.path for piece in self.files.values()}
        known = set(self.place.shared_files(paths))
        files = {name: piece for name, piece in self.files.items() if piece.path in known}
        if self.needs_digests:
            files = {name: piece for name, piece in files.items() if piece.digest}
        return files

    def fetch(self, folder: str) -> None:
        """See ``StoredDatabase``; raises CheckpointMissing, CheckpointCorrupt, StorageUnusable."""
        with storage_errors(folder):
            os.mkdir(folder)
        with PieceReader(self.place) as reader:
            for name, piece in self.files.items():
                if os.path.basename(name) != name or name in ("", ".", ".."):
                    problem = f"names {name!r} as a file of a database, which leads elsewhere"
                    raise CheckpointCorrupt(self.place.shown, problem)
                reader.fetch(piece, os.path.join(folder, name))

    def read(self, groups: range) -> Iterator[tuple[int, bytes]]:
        """See ``StoredDatabase``; raises StateBroken, too."""
        if find_spec("rocksdict") is None:
            raise StateBroken(
                f"{self.place.shown} holds files of RocksDB, and rocksdict is not installed in a "
                f"worker; run pip install 'headgate[rocksdb]', or go on from a savepoint"
            )
        # Imported here: who keeps state in memory needs no RocksDB, unless it reads of one.
        from headgate.host.rocksdb.fetched import groups_in, settle  # noqa: PLC0415

        with storage_errors(tempfile.gettempdir()):
            folder = OwnedFolder("fetched")
        with folder as path:
            database = path / "database"
            self.fetch(str(database))
            yield from groups_in(database, settle(database), groups)
