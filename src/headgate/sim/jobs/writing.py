"""Snapshots of simulated tasks on their way to the storage: it takes a while, and may fail.

Law as for the real ones: each ends once, acknowledged, declined or given up; only an acknowledged
one leaves files; the driver is told before the task is. State by key is read when its time comes,
while the task goes on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, TypeAlias

from headgate.base.checkpoints import (
    ChannelState,
    CheckpointFigures,
    OperatorState,
    Piece,
    SubtaskState,
    pieces_of,
)
from headgate.base.messages import CheckpointAcked, CheckpointDeclined, CheckpointWanted
from headgate.core.checkpoint.snapshot import ChannelData, NamedSnapshot, TaskSnapshot
from headgate.plan.execution_graph import TaskSpec
from headgate.plan.job_graph import JobVertex
from headgate.sim.jobs.storage import SimStorage
from headgate.sim.ledger import CheckFailed
from headgate.sim.worker import SimWorker

DELAYS_MS: Final = (0.0, 0.1, 1.0, 12.0)
Report: TypeAlias = CheckpointAcked | CheckpointDeclined | CheckpointWanted


@dataclass(frozen=True, slots=True)
class Desk:
    """Where the tasks of one attempt write, and whom they tell."""

    run: str
    storage: SimStorage
    fails: float
    """Share of writings that fail."""
    random: Random
    tell: Callable[[SimWorker, Report], None]

    def start(
        self,
        worker: SimWorker,
        spec: TaskSpec,
        vertex: JobVertex,
        snapshot: TaskSnapshot,
        done: Callable[[], None],
    ) -> "SimWriting":
        """Begin to write a snapshot of a task."""
        return SimWriting(self, worker, spec, vertex, snapshot, done)


class SimWriting:
    """One snapshot of one task."""

    def __init__(
        self,
        desk: Desk,
        worker: SimWorker,
        spec: TaskSpec,
        vertex: JobVertex,
        snapshot: TaskSnapshot,
        done: Callable[[], None],
    ) -> None:
        self._desk = desk
        self._worker = worker
        self._spec = spec
        self._vertex = vertex
        self._snapshot = snapshot
        self._done = done
        self._operators: tuple[OperatorState, ...] | None = None
        self._in_flight: tuple[Sequence[ChannelData], float] | None = None
        self._given_up = self._ended = False
        self._soon(self._write)

    # The task's side.

    def complete(self, in_flight: Sequence[ChannelData], align_ms: float) -> None:
        if self._in_flight is not None or self._given_up:
            raise CheckFailed(f"task {self._spec.id} ends a writing twice")
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
        elif self._desk.random.random() < self._desk.fails:
            self._decline("the disk is full")
        else:
            self._operators = tuple(map(self._operator, self._snapshot.operators))
            if self._in_flight is not None:
                self._soon(self._write_rest)

    def _write_rest(self) -> None:
        if self._given_up:
            self._give_up()
            return
        assert self._in_flight is not None and self._operators is not None
        in_flight, align_ms = self._in_flight
        channels = tuple(
            ChannelState(one.is_input, one.index, one.channel, (self._piece(b"".join(one.parts)),))
            for one in in_flight
        )
        figures = CheckpointFigures(align_ms, unaligned=bool(channels))
        state = self._state(channels)
        self._tell(CheckpointAcked(self._desk.run, self._checkpoint, state, figures))
        self._end()

    def _decline(self, reason: str) -> None:
        self._tell(CheckpointDeclined(self._desk.run, self._checkpoint, self._spec.id, reason))
        self._give_up()

    def _give_up(self) -> None:
        if self._operators is not None:
            self._desk.storage.remove(pieces_of(self._state(())))
        self._end()

    def _end(self) -> None:
        if self._ended:
            raise CheckFailed(f"a writing of task {self._spec.id} has ended twice")
        self._ended = True
        self._done()

    def _operator(self, one: NamedSnapshot) -> OperatorState:
        taken = one.taken
        keyed = {} if taken.keyed is None else dict(taken.keyed.groups())
        plain, source, sink = (
            None if data is None else self._piece(data)
            for data in (taken.plain, taken.source, taken.sink)
        )
        return OperatorState(
            one.uid,
            one.name,
            {group: self._piece(data) for group, data in keyed.items()},
            plain,
            source,
            sink,
            plain_is_own=taken.plain_is_own,
            shapes=taken.shapes,
        )

    def _state(self, channels: tuple[ChannelState, ...]) -> SubtaskState:
        spec, vertex = self._spec, self._vertex
        return SubtaskState(
            spec.id,
            spec.vertex,
            spec.subtask,
            vertex.parallelism,
            vertex.max_parallelism,
            self._operators or (),
            channels,
            self._snapshot.finished,
        )

    @property
    def _checkpoint(self) -> int:
        return self._snapshot.barrier.checkpoint

    def _piece(self, data: bytes) -> Piece:
        return self._desk.storage.write(self._checkpoint, self._spec.id, data)

    def _tell(self, report: Report) -> None:
        self._desk.tell(self._worker, report)

    def _soon(self, act: Callable[[], None]) -> None:
        delay_ms = self._desk.random.choice(DELAYS_MS)
        self._worker.later(delay_ms, f"writing of {self._spec.id}", partial(act))
