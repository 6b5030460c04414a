"""The storage of simulated checkpoints: files in a dict, which outlive workers and drivers.

Law: what a stored checkpoint names is there, whole, as long as nobody has dropped it; nobody drops
the newest complete one while its job goes on.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping

from headgate.base.checkpoints import DatabaseRestore, Metadata, Piece, SubtaskState, pieces_of
from headgate.control.effects import DiscardStates, DropCheckpoint, StoreCheckpoint
from headgate.core.state.backend import StoredDatabase
from headgate.sim.worker import CheckFailed


class SimStorage:
    """One folder for checkpoints and savepoints."""

    def __init__(self) -> None:
        self.complete: dict[int, StoreCheckpoint] = {}
        """Checkpoints by number, savepoints not among them."""
        self.savepoints: dict[str, StoreCheckpoint] = {}
        """By their directories."""
        self._files: dict[str, bytes] = {}
        self._newest = 0
        self._written = 0

    def copy(self) -> "SimStorage":
        """Another one with the same files; they never change."""
        copied = SimStorage()
        copied.complete, copied.savepoints = dict(self.complete), dict(self.savepoints)
        copied._files = dict(self._files)
        copied._newest, copied._written = self._newest, self._written
        return copied

    # Tasks.

    def write(self, checkpoint: int, task: str, data: bytes) -> Piece:
        """A new file."""
        self._newest = max(self._newest, checkpoint)
        self._written += 1
        path = f"{checkpoint}/{task}/{self._written}"
        self._files[path] = data
        return Piece(path, 0, len(data), zlib.crc32(data))

    # For a restore: ``CheckpointReader``.

    def read(self, piece: Piece) -> bytes:
        data = self._files.get(piece.path)
        if data is None or (len(data), zlib.crc32(data)) != (piece.length, piece.crc):
            raise CheckFailed(f"file {piece.path} is not as it was written")
        return data

    def key_groups(self, keyed: Mapping[int, Piece]) -> Iterator[tuple[int, bytes]]:
        for group, piece in keyed.items():
            yield group, self.read(piece)

    def database(self, restore: DatabaseRestore) -> StoredDatabase:
        raise AssertionError("simulated state is in memory")

    def remove(self, pieces: Iterable[Piece]) -> None:
        """What a task has written and takes back."""
        for piece in pieces:
            self._files.pop(piece.path, None)

    # The driver.

    def store(self, store: StoreCheckpoint) -> None:
        """A checkpoint is complete from now on."""
        for piece in _pieces(store.metadata.tasks):
            self.read(piece)
        if store.directory:
            self.savepoints[store.directory] = store
        else:
            self.complete[store.metadata.checkpoint] = store

    def drop(self, drop: DropCheckpoint) -> None:
        if drop.directory:
            self.savepoints.pop(drop.directory, None)
        else:
            self.complete.pop(drop.metadata.checkpoint, None)
        self.remove(_pieces(drop.metadata.tasks))

    def discard(self, discard: DiscardStates) -> None:
        self.remove(_pieces(discard.states))

    # A new driver.

    @property
    def found(self) -> list[Metadata]:
        """All complete checkpoints."""
        return [store.metadata for store in self.complete.values()]

    @property
    def next_id(self) -> int:
        """Above all that were ever begun to be written."""
        return self._newest + 1

    def is_complete(self, checkpoint: int) -> bool:
        """Whether a checkpoint of this number or a later one is."""
        stores = (*self.complete.values(), *self.savepoints.values())
        return any(store.metadata.checkpoint >= checkpoint for store in stores)

    def clean(self) -> int:
        """Remove what no complete checkpoint names; says how many files that were."""
        stores = (*self.complete.values(), *self.savepoints.values())
        named = {piece.path for store in stores for piece in _pieces(store.metadata.tasks)}
        unnamed = [path for path in self._files if path not in named]
        for path in unnamed:
            del self._files[path]
        return len(unnamed)


def _pieces(states: Iterable[SubtaskState]) -> list[Piece]:
    return [piece for state in states for piece in pieces_of(state)]
