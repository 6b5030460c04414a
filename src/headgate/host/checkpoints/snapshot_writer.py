"""Snapshots of tasks on their way to the storage, and the word to the driver when they are there.

A snapshot is written in two stages: its operators as soon as it was taken, what was on its way in
channels when that is known; no thread waits in between. Law: each ends once, acknowledged, declined
or given up; only an acknowledged one leaves files. The driver is told before the task is, so that
nothing follows the last word of a task.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, TypeAlias

from headgate.base.checkpoints import ChannelState, CheckpointFigures, OperatorState, Piece
from headgate.base.checkpoints import SubtaskState as WrittenState
from headgate.base.errors import (
    CheckpointAbandoned,
    CheckpointError,
    HeadgateError,
    StateUnwritable,
)
from headgate.base.events import CheckpointBarrier
from headgate.base.messages import (
    CheckpointAcked,
    CheckpointDeclined,
    CheckpointOrder,
    CheckpointWanted,
)
from headgate.core.checkpoint.snapshot import (
    ChannelData,
    NamedSnapshot,
    SnapshotWriting,
    StartWriting,
    TaskSnapshot,
)
from headgate.host.checkpoints.folder import Folder, open_folder
from headgate.host.checkpoints.location import (
    CheckpointLocation,
    checkpoint_location,
    folder_of_job,
    savepoint_location,
)
from headgate.host.checkpoints.part_writer import PartWriter, part_name
from headgate.host.checkpoints.writing_threads import WriterPool

log = logging.getLogger(__name__)

GIVE_UP_S: Final = 1.0
"""After the end of a run, for what was given up to be removed before anything else follows."""

Send: TypeAlias = Callable[[CheckpointAcked | CheckpointDeclined | CheckpointWanted], None]
Post: TypeAlias = Callable[[Callable[[], None]], None]


@dataclass(frozen=True, slots=True)
class SnapshotTask:
    """The task that a snapshot is of."""

    task: str
    vertex: int
    subtask: int
    parallelism: int
    max_parallelism: int


class SnapshotWriters:
    """What the tasks of one run write here. ``send`` never waits; ``post`` calls in the baton."""

    def __init__(
        self,
        run: str,
        attempt: int,
        order: CheckpointOrder,
        threads: WriterPool,
        send: Send,
        post: Post,
    ) -> None:
        self.run = run
        self.attempt = attempt
        self.order = order
        self.threads = threads
        self.send = send
        self.post = post
        self._jobs: Folder | None = None
        self._closed = False
        self._open: dict[SnapshotWriter, None] = {}
        self._changed = threading.Condition(threading.Lock())

    def starter(self, author: SnapshotTask) -> StartWriting:
        """What a task begins to write with."""
        return partial(self._start, author)

    def place(self, barrier: CheckpointBarrier) -> CheckpointLocation:
        """Where a checkpoint is written; raises StorageUnusable."""
        if barrier.directory:
            return savepoint_location(open_folder(barrier.directory))
        with self._changed:
            if self._jobs is None:  # once: a client of an object store is slow to make
                self._jobs = folder_of_job(open_folder(self.order.folder), self.order.job)
        return checkpoint_location(self._jobs, barrier.checkpoint)

    @property
    def shared_uri(self) -> str:
        """Of the folder whose files checkpoints of this run may name; empty: there is none."""
        if not self.order.folder:
            return ""
        return self.place(CheckpointBarrier(0, 0)).shared.uri

    def declined(self, task: str, checkpoint: int, reason: str, subsumed: bool) -> None:
        """A task takes no part in a checkpoint."""
        self.send(CheckpointDeclined(self.run, checkpoint, task, reason, subsumed))

    def wanted(self, task: str) -> None:
        """A task waits for a complete checkpoint before it can finish."""
        self.send(CheckpointWanted(self.run, task))

    def ended(self, writing: "SnapshotWriter") -> None:
        with self._changed:
            self._open.pop(writing, None)
            self._changed.notify_all()

    def close(self, timeout_s: float = GIVE_UP_S) -> bool:
        """Give up what is not written; says whether all of it is gone. Not inside the baton.

        What is not gone in time is removed later, by the threads that write.
        """
        with self._changed:
            self._closed = True
            left = list(self._open)
        for writing in left:
            writing.abort()
        with self._changed:
            gone = self._changed.wait_for(lambda: not self._open, timeout_s)
        if not gone:
            log.warning("checkpoints of run %s are being removed; the storage is slow", self.run)
        return gone

    def _start(
        self, author: SnapshotTask, snapshot: TaskSnapshot, done: Callable[[], None]
    ) -> SnapshotWriting:
        writing = SnapshotWriter(self, author, snapshot, done)
        with self._changed:
            wanted = not self._closed
            if wanted:
                self._open[writing] = None
        writing.begin(wanted)
        return writing


class _Stage(Enum):
    QUEUED = "nothing was written yet"
    WRITING = "a thread is at it"
    WAITING = "the operators are written, what was on its way is not known"
    ENDED = "there is nothing more to do"


@dataclass(frozen=True, slots=True)
class _InFlight:
    channels: Sequence[ChannelData]
    align_ms: float


class SnapshotWriter:
    """One snapshot of one task; see ``SnapshotWriting``."""

    def __init__(
        self,
        run: SnapshotWriters,
        author: SnapshotTask,
        snapshot: TaskSnapshot,
        done: Callable[[], None],
    ) -> None:
        self._run = run
        self._author = author
        self._barrier = snapshot.barrier
        self._sync_ms = snapshot.sync_ms
        self._finished = snapshot.finished
        self._done = done
        self._snapshots: tuple[NamedSnapshot, ...] = snapshot.operators
        self._since_s = time.monotonic()
        self._spent_ms = 0.0
        self._writer: PartWriter | None = None
        self._operators: tuple[OperatorState, ...] = ()
        self._in_flight: _InFlight | None = None
        self._given_up = False
        self._stage = _Stage.QUEUED
        self._lock = threading.Lock()  # of the stage and of what decides on the next

    # The task's side.

    def begin(self, wanted: bool) -> None:
        """Unless the run is over, in which case nobody waits for it."""
        if not (wanted and self._run.threads.submit(self._write)):
            self._end()

    def complete(self, in_flight: Sequence[ChannelData], align_ms: float) -> None:
        """See ``SnapshotWriting``."""
        with self._lock:
            if self._stage is _Stage.ENDED or self._in_flight is not None:
                return
            self._in_flight = _InFlight(in_flight, align_ms)
            resumes = self._stage is _Stage.WAITING
            if resumes:
                self._stage = _Stage.WRITING
                self._since_s = time.monotonic()
        if resumes and not self._run.threads.submit(self._write_rest):
            self._give_up()

    def abort(self) -> None:
        """See ``SnapshotWriting``; from any thread. Files are removed in the background."""
        with self._lock:
            if self._given_up or self._stage is _Stage.ENDED:
                return
            self._given_up = True
            waited = self._stage is _Stage.WAITING
            if waited:
                self._stage = _Stage.WRITING
            writer = self._writer
        if writer is not None:
            writer.abandon()
        if waited:
            if not self._run.threads.submit(self._give_up):
                self._give_up()
        elif self._run.threads.withdraw(self._write):
            self._end()

    # The threads that write.

    def _write(self) -> None:
        with self._lock:
            self._stage = _Stage.WRITING
        with self._guarded():
            self._check_wanted()
            place = self._run.place(self._barrier)
            author, run = self._author, self._run
            name = part_name(author.vertex, author.subtask, run.attempt)
            order = run.order
            writer = PartWriter(place, name, order.inline_bytes, digests=order.digests)
            self._writer = writer
            self._operators = tuple(self._operator(writer, one) for one in self._snapshots)
            self._snapshots = ()
            with self._lock:
                self._check_wanted()
                if self._in_flight is None:
                    self._spent_ms = self._since_start_ms()
                    self._stage = _Stage.WAITING
                    return
        if self._stage is _Stage.WRITING:
            self._write_rest()

    def _write_rest(self) -> None:
        with self._guarded():
            writer, found = self._writer, self._in_flight
            assert writer is not None and found is not None
            channels = tuple(
                ChannelState(one.is_input, one.index, one.channel, (writer.append(*one.parts),))
                for one in found.channels
                if one.parts
            )
            writer.close()
            ack = self._ack(channels, found.align_ms)
            with self._lock:  # from here on it is the driver's to give it up
                self._check_wanted()
                self._stage = _Stage.ENDED
                self._run.send(ack)
            self._end()

    def _operator(self, writer: PartWriter, one: NamedSnapshot) -> OperatorState:
        taken = one.taken
        keyed: dict[int, Piece] = {}
        files: dict[str, Piece] = {}
        if taken.keyed is not None:
            with _told(one.name):
                for group, data in taken.keyed.groups():
                    self._check_wanted()
                    keyed[group] = writer.append(data)
                files = taken.keyed.files(writer)
        return OperatorState(
            uid=one.uid,
            name=one.name,
            keyed=keyed,
            plain=None if taken.plain is None else writer.append(taken.plain),
            source=None if taken.source is None else writer.append(taken.source),
            sink=None if taken.sink is None else writer.append(taken.sink),
            files=files,
            plain_is_own=taken.plain_is_own,
            shapes=taken.shapes,
        )

    def _ack(self, channels: tuple[ChannelState, ...], align_ms: float) -> CheckpointAcked:
        author, run = self._author, self._run
        state = WrittenState(
            author.task,
            author.vertex,
            author.subtask,
            author.parallelism,
            author.max_parallelism,
            self._operators,
            channels,
            self._finished,
        )
        writer = self._writer
        shared_bytes = 0 if writer is None else writer.shared_bytes
        in_flight_bytes = sum(piece.length for one in channels for piece in one.pieces)
        figures = CheckpointFigures(
            align_ms=align_ms,
            sync_ms=self._sync_ms,
            async_ms=self._spent_ms + self._since_start_ms(),
            state_bytes=sum(map(_size, self._operators)) + shared_bytes,
            in_flight_bytes=in_flight_bytes,
            unaligned=self._barrier.unaligned or in_flight_bytes > 0,
        )
        return CheckpointAcked(run.run, self._barrier.checkpoint, state, figures)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Whatever goes wrong: nothing stays, and the driver is told unless it knows."""
        try:
            yield
        except BaseException as error:  # also a user's exit() while its state is pickled
            with self._lock:
                known, self._given_up = self._given_up, True
            if not known:
                self._decline(error)
            self._give_up()

    def _decline(self, error: BaseException) -> None:
        task, checkpoint = self._author.task, self._barrier.checkpoint
        what = (
            str(error) if isinstance(error, HeadgateError) else f"{type(error).__name__}: {error}"
        )
        log.warning(
            "task %s does not write its part of checkpoint %d: %s",
            task,
            checkpoint,
            what,
            exc_info=None if isinstance(error, CheckpointError) else error,
        )
        self._run.send(CheckpointDeclined(self._run.run, checkpoint, task, what))

    def _give_up(self) -> None:
        writer = self._writer
        if writer is not None:
            with suppress(CheckpointError):  # the storage's own cleaning finds it
                writer.abort()
        self._end()

    def _end(self) -> None:
        """The driver was told what there is to tell; now the task is."""
        with self._lock:
            self._stage = _Stage.ENDED
            self._writer = None
        self._snapshots, self._in_flight = (), None
        self._run.ended(self)
        self._run.post(self._done)

    def _check_wanted(self) -> None:
        if self._given_up:
            raise CheckpointAbandoned(f"checkpoint {self._barrier.checkpoint}")

    def _since_start_ms(self) -> float:
        return (time.monotonic() - self._since_s) * 1000


@contextmanager
def _told(operator: str) -> Iterator[None]:
    """What goes wrong with the state of an operator names it."""
    try:
        yield
    except HeadgateError:
        raise
    except BaseException as error:
        raise StateUnwritable(operator, f"{type(error).__name__}: {error}") from error


def _size(operator: OperatorState) -> int:
    """Without files of a database, of which most may have been there."""
    small = (operator.plain, operator.source, operator.sink)
    pieces = [*operator.keyed.values(), *(one for one in small if one is not None)]
    return sum(piece.length for piece in pieces)
