"""Snapshots of simulated tasks on their way to the storage: it takes a while, and may fail.

Law as for the real ones: each ends once, acknowledged, declined or given up; only an acknowledged
one leaves files; the driver is told before the task is. State by key is read when its time comes,
while the task goes on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from headgate.base.checkpoints import (
    ChannelState,
    CheckpointFigures,
    OperatorState,
    Piece,
    SubtaskState,
    pieces_of,
)
from headgate.base.elements import ByteLike
from headgate.base.messages import CheckpointAcked, CheckpointDeclined, CheckpointOrder
from headgate.core.checkpoint.snapshot import (
    ChannelData,
    SnapshotTask,
    TaskSnapshot,
    write_channels,
    write_operator,
)
from headgate.sim.jobs.delays import Delays
from headgate.sim.jobs.storage import SimStorage
from headgate.sim.worker import CheckFailed, SimWorker


@dataclass(frozen=True, slots=True)
class SimCheckpointWriting:
    """See ``CheckpointWriting``; where the tasks of one attempt in one worker write."""

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
    """One snapshot of one task; see ``FileStore``, too."""

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
