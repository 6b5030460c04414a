"""What tasks get back of a checkpoint, read from the storage where they run.

What is small is read when the tasks are set up; key groups are read by the operators that own them,
on the thread of their task. Law: what is handed over has the checksum it was written with;
otherwise the error names the file, and the tasks do not begin.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from headgate.base.checkpoints import (
    ChannelState,
    OperatorRestore,
    Piece,
    ReassignedStream,
    TaskRestore,
)
from headgate.base.elements import Bundle
from headgate.base.errors import CheckpointMissing, StorageUnusable
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.checkpoint.restored import ChannelParts, TaskRestored
from headgate.host.checkpoints.folder import open_folder
from headgate.host.checkpoints.location import CheckpointLocation, resolve
from headgate.host.checkpoints.piece_reader import PieceReader
from headgate.host.checkpoints.stored_database import StoredDatabaseFiles

BundlesOf: TypeAlias = Callable[[ReassignedStream, Sequence[bytes]], Iterable[Bundle]]
"""The records of a stray stream, of its bytes."""


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
    place = _place_of(restored_from, storage)
    with PieceReader(place) as reader:
        return {
            task: _read_task(place, reader, restore, bundles_of[task], shared_uri, needs_digests)
            for task, restore in restores.items()
        }


def _place_of(where: str, storage: str) -> CheckpointLocation:
    """Where the checkpoint stands. A storage that is away is no damage of what is in it."""
    try:
        return resolve(where, storage)[0]
    except CheckpointMissing as error:
        above = open_folder(where).parent()
        if above.is_flat or above.look() is not None:
            raise
        advice = "check that the storage is there, or mounted, on every host"
        raise StorageUnusable(above.shown, "is not there", advice) from error


def _read_task(
    place: CheckpointLocation,
    reader: PieceReader,
    restore: TaskRestore,
    bundles_of: BundlesOf,
    shared_uri: str,
    needs_digests: bool,
) -> TaskRestored:
    checkpoint = restore.checkpoint
    is_shared = place.shared.uri == shared_uri
    return TaskRestored(
        operators={
            one.uid: _read_operator(place, reader, one, checkpoint, is_shared, needs_digests)
            for one in restore.operators
        },
        inputs=[_read_channel(reader, one) for one in restore.channels if one.is_input],
        outputs=[_read_channel(reader, one) for one in restore.channels if not one.is_input],
        strays=[
            (one.gate, bundles_of(one, [reader.read(piece) for piece in one.pieces]))
            for one in restore.strays
        ],
        finished=restore.finished,
    )


def _read_operator(
    place: CheckpointLocation,
    reader: PieceReader,
    restore: OperatorRestore,
    checkpoint: int,
    is_shared: bool,
    needs_digests: bool,
) -> OperatorRestored:
    return OperatorRestored(
        checkpoint,
        partial(_groups, place, restore.keyed),
        tuple(None if piece is None else reader.read(piece) for piece in restore.plain),
        tuple(None if piece is None else reader.read(piece) for piece in restore.source),
        tuple(map(reader.read, restore.sinks)),
        tuple(
            StoredDatabaseFiles(
                place, range(one.first, one.end), one.files, is_shared, needs_digests
            )
            for one in restore.databases
        ),
        restore.shapes,
    )


def _read_channel(reader: PieceReader, channel: ChannelState) -> ChannelParts:
    return channel.index, channel.channel, [reader.read(piece) for piece in channel.pieces]


def _groups(place: CheckpointLocation, keyed: Mapping[int, Piece]) -> Iterator[tuple[int, bytes]]:
    """Key groups in the order in which they stand in their files."""
    ordered = sorted(keyed.items(), key=lambda item: (item[1].path, item[1].offset))
    with PieceReader(place) as reader:
        for group, piece in ordered:
            yield group, reader.read(piece)
