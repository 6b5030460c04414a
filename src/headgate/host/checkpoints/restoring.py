"""What tasks get back from a checkpoint, read from the storage where they run.

Small pieces are read when the tasks are set up; key groups and database files are read by the
operators that own them, on the thread of their task. Law: what is handed over has the checksum it
was written with; otherwise the error names the file, and the tasks do not start.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TypeAlias

from headgate.base.checkpoints import (
    ChannelState,
    OperatorRestore,
    Piece,
    ReassignedStream,
    TaskRestore,
)
from headgate.base.elements import Bundle
from headgate.base.errors import CheckpointCorrupt, CheckpointMissing, StateBroken, StorageUnusable
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.checkpoint.restored import ChannelParts, TaskRestored
from headgate.host.checkpoints.folder import open_folder, storage_errors
from headgate.host.checkpoints.location import CheckpointLocation, resolve
from headgate.host.checkpoints.piece_reader import PieceReader
from headgate.host.files.owned_folder import OwnedFolder

BundlesOf: TypeAlias = Callable[[ReassignedStream, Sequence[bytes]], Iterable[Bundle]]
"""Decodes the records of a reassigned stream."""


def read_restores(
    restored_from: str,
    restores: Mapping[str, TaskRestore],
    bundles_of: Mapping[str, BundlesOf],
    shared_uri: str = "",
    storage: str = "",
    needs_digests: bool = False,
) -> dict[str, TaskRestored]:
    """What each of these tasks gets back, by its id; ``bundles_of`` has the same keys.

    ``shared_uri``: of the folder whose files the job's own checkpoints may name again;
    ``storage``: the folder of all checkpoints, as the user has named it; ``needs_digests``: the
    job's checkpoints are signed.
    Raises CheckpointMissing, CheckpointCorrupt or StorageUnusable.
    """
    if not restores:
        return {}
    location = _locate(restored_from, storage)
    with PieceReader(location) as reader:
        restoring = _Restoring(location, reader, location.shared.uri == shared_uri, needs_digests)
        return {
            task: restoring.read_task(restore, bundles_of[task])
            for task, restore in restores.items()
        }


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
class _Restoring:
    location: CheckpointLocation
    reader: PieceReader
    is_shared: bool
    needs_digests: bool

    def read_task(self, restore: TaskRestore, bundles_of: BundlesOf) -> TaskRestored:
        channels = restore.channels
        return TaskRestored(
            operators={
                operator.uid: self._read_operator(operator, restore.checkpoint)
                for operator in restore.operators
            },
            inputs=[self._read_channel(channel) for channel in channels if channel.is_input],
            outputs=[self._read_channel(channel) for channel in channels if not channel.is_input],
            reassigned=[
                (
                    stream.gate,
                    bundles_of(stream, [self.reader.read(part) for part in stream.pieces]),
                )
                for stream in restore.reassigned
            ],
            finished=restore.finished,
        )

    def _read_operator(self, restore: OperatorRestore, checkpoint: int) -> OperatorRestored:
        read = self.reader.read
        return OperatorRestored(
            checkpoint,
            partial(_read_groups, self.location, restore.keyed),
            tuple(None if piece is None else read(piece) for piece in restore.plain),
            tuple(None if piece is None else read(piece) for piece in restore.source),
            tuple(map(read, restore.sinks)),
            tuple(
                StoredDatabaseFiles(
                    self.location,
                    range(database.first, database.end),
                    database.files,
                    self.is_shared,
                    self.needs_digests,
                )
                for database in restore.databases
            ),
            restore.shapes,
        )

    def _read_channel(self, channel: ChannelState) -> ChannelParts:
        return channel.index, channel.channel, [self.reader.read(piece) for piece in channel.pieces]


def _read_groups(
    location: CheckpointLocation, keyed: Mapping[int, Piece]
) -> Iterator[tuple[int, bytes]]:
    """Key groups in the order of their files."""
    ordered = sorted(keyed.items(), key=lambda item: (item[1].path, item[1].offset))
    with PieceReader(location) as reader:
        for group, piece in ordered:
            yield group, reader.read(piece)


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
        if find_spec("rocksdict") is None:
            raise StateBroken(
                f"{self.location.shown} holds files of RocksDB, and rocksdict is not installed in "
                f"a worker; run pip install 'headgate[rocksdb]', or go on from a savepoint"
            )
        # Imported here: a job with its state in memory needs no RocksDB, unless it restores one.
        from headgate.host.rocksdb.file_snapshot import groups_in, write_late_entries  # noqa: PLC0415

        with storage_errors(tempfile.gettempdir()):
            folder = OwnedFolder("fetched")
        with folder as path:
            database = path / "database"
            self.fetch(str(database))
            yield from groups_in(database, write_late_entries(database), groups)
