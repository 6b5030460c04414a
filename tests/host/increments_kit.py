"""Incremental checkpoints of backends for tests: real files, completed and dropped by retention."""

from collections.abc import Iterable
from pathlib import Path

from headgate.base.checkpoints import Metadata, OperatorState, SubtaskState, pieces_of
from headgate.core.state.backend import KeyedBackend, Snapshot, StoredDatabase
from headgate.core.state.keys import groups_of
from headgate.host.checkpoints.checkpoint_store import complete, discard, open_store
from headgate.host.checkpoints.location import files_of
from headgate.host.checkpoints.pieces import PartWriter, PieceReader, part_name
from headgate.host.checkpoints.restoring import StoredDatabaseFiles
from tests.core.state.conformance import GROUPS
from tests.host.checkpoint_kit import JOB, metadata_of


class Shelf:
    """The checkpoints of one operator, by their numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = open_store(str(folder))
        self.written: dict[int, Metadata] = {}
        self.bytes_of: dict[int, int] = {}

    def write(self, checkpoint: int, *snapshots: Snapshot) -> Metadata:
        """Of one task each, in the order of their key groups; it is not complete yet."""
        location, count = self.storage.location(JOB, checkpoint), len(snapshots)
        tasks = []
        self.bytes_of[checkpoint] = 0
        for subtask, snapshot in enumerate(snapshots):
            with PartWriter(location, part_name(3, subtask, 0), 0) as writer:
                keyed = {group: writer.append(data) for group, data in snapshot.groups()}
                operator = OperatorState("op", "Op", keyed=keyed, files=snapshot.files(writer))
            snapshot.close()
            own = {*keyed.values(), *operator.files.values()}
            prefix = location.own_prefix
            written = sum(piece.length for piece in own if piece.path.startswith(prefix))
            self.bytes_of[checkpoint] += written + writer.shared_bytes
            tasks.append(SubtaskState(str(subtask), 3, subtask, count, GROUPS, (operator,)))
        self.written[checkpoint] = metadata_of(checkpoint, tuple(tasks))
        return self.written[checkpoint]

    def complete(self, checkpoint: int) -> None:
        complete(self.storage.location(JOB, checkpoint), self.written[checkpoint])

    def discard(self, checkpoint: int) -> None:
        discard(self.storage.location(JOB, checkpoint))
        del self.written[checkpoint]

    def drop(self, checkpoint: int) -> None:
        self.storage.drop(self.storage.location(JOB, checkpoint))
        del self.written[checkpoint]

    def take(self, checkpoint: int, *backends: KeyedBackend) -> Metadata:
        """From the snapshot to the word that it is complete."""
        metadata = self.write(checkpoint, *(backend.snapshot(checkpoint) for backend in backends))
        self.complete(checkpoint)
        for backend in backends:
            backend.checkpoint_completed(checkpoint)
        return metadata

    def databases(self, checkpoint: int, owned: range, is_shared: bool) -> list[StoredDatabase]:
        location = self.storage.location(JOB, checkpoint)
        found: list[StoredDatabase] = []
        for task in location.read_metadata().tasks:
            held = groups_of(task.subtask, task.parallelism, GROUPS)
            if set(held) & set(owned):
                found.append(
                    StoredDatabaseFiles(location, held, task.operators[0].files, is_shared)
                )
        return found

    def restore(
        self, checkpoint: int, backend: KeyedBackend, owned: range, is_shared: bool = True
    ) -> None:
        """As ``OperatorContext.keyed_backend`` does it."""
        backend.restore_files(self.databases(checkpoint, owned, is_shared))
        location = self.storage.location(JOB, checkpoint)
        with PieceReader(location) as reader:
            for task in location.read_metadata().tasks:
                keyed = task.operators[0].keyed
                backend.restore((group, reader.read(piece)) for group, piece in keyed.items())

    def shared_names(self) -> set[str]:
        """Files in ``shared/``, as pieces name them."""
        folder = self.folder / JOB / "shared"
        return {f"shared/{path.name}" for path in folder.iterdir()} if folder.exists() else set()

    def named(self, checkpoints: Iterable[int]) -> set[str]:
        """Those that these checkpoints name."""
        paths = {path for checkpoint in checkpoints for path in files_of(self.written[checkpoint])}
        return {path for path in paths if path.startswith("shared/")}


def new_shared(metadata: Metadata) -> int:
    """How many shared files came with this very checkpoint."""
    mine = f"shared/chk-{metadata.checkpoint}-"
    pieces = [piece for task in metadata.tasks for piece in pieces_of(task)]
    return sum(piece.path.startswith(mine) for piece in pieces)
