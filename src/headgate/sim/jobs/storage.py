"""The storage of simulated checkpoints, and the snapshots of tasks on their way to it.

Files are in a dict, which outlives workers and drivers. Law: what a stored checkpoint names is
there, whole, as long as nobody has dropped it; nobody drops the newest complete one while its job
goes on. Writing takes a while and may fail. As for the real ones, each writing ends once:
acknowledged, declined or given up; only an acknowledged one leaves files, and the driver hears of
it before the task does. State by key is read when its time comes, while the task goes on.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from headgate.base.checkpoints import (
    ChannelState,
    CheckpointFigures,
    DatabaseRestore,
    Metadata,
    OperatorState,
    Piece,
    SubtaskState,
    pieces_of,
)
from headgate.base.elements import ByteLike
from headgate.base.messages import CheckpointAcked, CheckpointDeclined, CheckpointOrder
from headgate.control.effects import DiscardStates, DropCheckpoint, StoreCheckpoint
from headgate.core.checkpoint.snapshot import (
    ChannelData,
    SnapshotTask,
    TaskSnapshot,
    write_channels,
    write_operator,
)
from headgate.core.state.backend import StoredDatabase
from headgate.sim.jobs.scenario import Delays
from headgate.sim.worker import CheckFailed, SimWorker


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


@dataclass(frozen=True, slots=True)
class SimCheckpointWriting:
    """Implements ``CheckpointWriting`` for the tasks of one attempt in one worker."""

    run: str
    order: CheckpointOrder
    storage: SimStorage
    fails: float
    """Share of writings that fail."""
    random: Random
    worker: SimWorker
    send: Callable[[CheckpointAcked | CheckpointDeclined], None]
    delays: Delays = field(default_factory=Delays)

    def start(
        self, task: SnapshotTask, snapshot: TaskSnapshot, done: Callable[[], None]
    ) -> "SimWriting":
        return SimWriting(self, task, snapshot, done)


class SimWriting:
    """Writes one snapshot of one task; implements ``FileStore``, too."""

    def __init__(
        self,
        store: SimCheckpointWriting,
        task: SnapshotTask,
        snapshot: TaskSnapshot,
        done: Callable[[], None],
    ) -> None:
        self.state_bytes: int | None = None
        self._store = store
        self._task = task
        self._snapshot = snapshot
        self._done = done
        self._operators: tuple[OperatorState, ...] | None = None
        self._in_flight: tuple[Sequence[ChannelData], float] | None = None
        self._given_up = self._ended = False
        self._soon(self._write)

    # The task's side.

    def complete(self, in_flight: Sequence[ChannelData], align_ms: float) -> None:
        if self._in_flight is not None or self._given_up:
            raise CheckFailed(f"task {self._task.task} ends a writing twice")
        self._in_flight = in_flight, align_ms
        if self._operators is not None:
            self._soon(self._write_rest)

    def abort(self) -> None:
        if not self._given_up and not self._ended:
            self._given_up = True
            if self._operators is not None and self._in_flight is None:
                self._soon(self._give_up)

    # As time goes by.

    def _write(self) -> None:
        if self._given_up:
            self._end()
        elif self._store.random.random() < self._store.fails:
            self._decline("the disk is full")
        else:
            self._operators = tuple(
                write_operator(snapshot, self, _wanted) for snapshot in self._snapshot.operators
            )
            if self._in_flight is not None:
                self._soon(self._write_rest)

    def _write_rest(self) -> None:
        if self._given_up:
            self._give_up()
            return
        assert self._in_flight is not None and self._operators is not None
        in_flight, align_ms = self._in_flight
        channels = write_channels(in_flight, self)
        figures = CheckpointFigures(align_ms, unaligned=bool(channels))
        state = self._state(channels)
        self._store.send(CheckpointAcked(self._store.run, self._checkpoint, state, figures))
        self._end()

    def _decline(self, reason: str) -> None:
        run, task = self._store.run, self._task.task
        self._store.send(CheckpointDeclined(run, self._checkpoint, task, reason))
        self._give_up()

    def _give_up(self) -> None:
        if self._operators is not None:
            self._store.storage.remove(pieces_of(self._state(())))
        self._end()

    def _end(self) -> None:
        if self._ended:
            raise CheckFailed(f"a writing of task {self._task.task} has ended twice")
        self._ended = True
        self._done()

    # Files.

    def append(self, *parts: ByteLike) -> Piece:
        return self._store.storage.write(self._checkpoint, self._task.task, b"".join(parts))

    def share(self, path: str) -> Piece:
        raise AssertionError("simulated state is in memory")

    def _state(self, channels: tuple[ChannelState, ...]) -> SubtaskState:
        return self._task.state(self._operators or (), channels, self._snapshot.finished)

    @property
    def _checkpoint(self) -> int:
        return self._snapshot.barrier.checkpoint

    def _soon(self, act: Callable[[], None]) -> None:
        delay_ms = self._store.random.choice(self._store.delays.write)
        self._store.worker.later(delay_ms, f"writing of {self._task.task}", partial(act))


def _wanted() -> None:
    """Nobody gives up a writing while it takes place: that is one moment here."""
