"""Writes the snapshots of a run's tasks in the background, and acknowledges them to the driver.

A snapshot is written in two stages: its operators as soon as it was taken, its in-flight records
when they are known; no thread waits in between. Law: each snapshot ends once, acknowledged,
declined or aborted; only an acknowledged one leaves files. The driver hears of the end before the
task does, so that nothing follows the last message of a task.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from headgate.base.checkpoints import ChannelState, CheckpointFigures, OperatorState
from headgate.base.errors import CheckpointAbandoned, CheckpointError, HeadgateError
from headgate.base.events import CheckpointBarrier
from headgate.base.messages import CheckpointAcked, CheckpointDeclined, CheckpointOrder
from headgate.core.chain.log_facts import logged_with
from headgate.core.checkpoint.snapshot import (
    ChannelData,
    NamedSnapshot,
    SnapshotTask,
    SnapshotWriting,
    TaskSnapshot,
    write_channels,
    write_operator,
)
from headgate.host.checkpoints.folder import Folder, open_folder
from headgate.host.checkpoints.location import (
    CheckpointLocation,
    checkpoint_location,
    folder_of_job,
    savepoint_location,
)
from headgate.host.checkpoints.pieces import PartWriter, part_name

log = logging.getLogger(__name__)

WRITERS: Final = 4
"""How many snapshots of a task manager are written at a time."""
CLOSE_S: Final = 10.0
"""How long a closing task manager waits for snapshots that are being written."""
WRITER_NAMES: Final = tuple(f"headgate-checkpoint-writer-{number}" for number in range(WRITERS))

ABORT_S: Final = 1.0
"""How long the end of a run waits until aborted snapshots are removed."""

Work: TypeAlias = Callable[[], None]
Send: TypeAlias = Callable[[CheckpointAcked | CheckpointDeclined], None]
Post: TypeAlias = Callable[[Callable[[], None]], None]


class WriterPool:
    """A few threads of a task manager that write state; started when there is work for them.

    Law: work is begun in the order it came, each piece once; ``close`` lets queued work finish and
    ends the threads. A storage that does not answer blocks them, never the process: they are
    daemons.
    """

    def __init__(self) -> None:
        self._queue: deque[Work] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False
        self._changed = threading.Condition(threading.Lock())

    def submit(self, work: Work) -> bool:
        """From any thread, never waits; False: the pool is closed."""
        with self._changed:
            if self._closed:
                return False
            if self._idle <= len(self._queue) and len(self._threads) < WRITERS:
                self._start_thread()
            self._queue.append(work)
            self._changed.notify()
            return True

    def withdraw(self, work: Work) -> bool:
        """Remove queued work; False: it was begun."""
        with self._changed:
            if work in self._queue:
                self._queue.remove(work)
                return True
            return False

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Finish queued work and end; returns whether that was done in time. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        held_up = [thread.name for thread in self._threads if thread.is_alive()]
        if held_up:
            log.error("%s wait for a storage that does not answer", ", ".join(held_up))
        return not held_up

    def _start_thread(self) -> None:
        name = WRITER_NAMES[len(self._threads)]
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _serve(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except BaseException:  # also exit() in a user's class that is being pickled
                log.exception("state could not be written")
            del work  # it refers to a snapshot

    def _next(self) -> Work | None:
        with self._changed:
            self._idle += 1
            while not self._queue and not self._closed:
                self._changed.wait()
            self._idle -= 1
            return self._queue.popleft() if self._queue else None


@dataclass(eq=False, slots=True)
class SnapshotWriters:
    """The snapshot writers of one run. ``send`` never waits; ``post`` calls inside the baton."""

    run: str
    attempt: int
    order: CheckpointOrder
    pool: WriterPool
    send: Send
    post: Post
    _job_folder: Folder | None = None
    _closed: bool = False
    _open: "dict[SnapshotWriter, None]" = field(default_factory=dict)
    _changed: threading.Condition = field(
        default_factory=lambda: threading.Condition(threading.Lock())
    )

    def start(
        self, task: SnapshotTask, snapshot: TaskSnapshot, done: Callable[[], None]
    ) -> SnapshotWriting:
        """See ``CheckpointWriting``."""
        writer = SnapshotWriter(self, task, snapshot, done)
        with self._changed:
            wanted = not self._closed
            if wanted:
                self._open[writer] = None
        writer.begin(wanted)
        return writer

    def location(self, barrier: CheckpointBarrier) -> CheckpointLocation:
        """Where a checkpoint is written; raises StorageUnusable."""
        if barrier.directory:
            return savepoint_location(open_folder(barrier.directory))
        with self._changed:
            if self._job_folder is None:  # once: a client of an object store is slow to make
                self._job_folder = folder_of_job(open_folder(self.order.folder), self.order.job)
        return checkpoint_location(self._job_folder, barrier.checkpoint)

    @property
    def shared_uri(self) -> str:
        """The folder whose files checkpoints of this run may name; empty: there is none."""
        if not self.order.folder:
            return ""
        return self.location(CheckpointBarrier(0, 0)).shared.uri

    def ended(self, writer: "SnapshotWriter") -> None:
        with self._changed:
            self._open.pop(writer, None)
            self._changed.notify_all()

    def close(self, timeout_s: float = ABORT_S) -> bool:
        """Abort unfinished snapshots; returns whether all are removed. Not inside the baton.

        The writing threads remove later what is not removed in time.
        """
        with self._changed:
            self._closed = True
            unfinished = list(self._open)
        for writer in unfinished:
            writer.abort()
        with self._changed:
            removed = self._changed.wait_for(lambda: not self._open, timeout_s)
        if not removed:
            log.warning("checkpoints of run %s are being removed; the storage is slow", self.run)
        return removed


class _Stage(Enum):
    QUEUED = "nothing is written yet"
    WRITING = "a thread writes it"
    WAITING = "the operators are written, in-flight records are not known yet"
    ENDED = "acknowledged, declined or aborted"


@dataclass(frozen=True, slots=True)
class _InFlight:
    channels: Sequence[ChannelData]
    align_ms: float


class SnapshotWriter:
    """Writes one snapshot of one task; see ``SnapshotWriting``."""

    def __init__(
        self,
        run: SnapshotWriters,
        task: SnapshotTask,
        snapshot: TaskSnapshot,
        done: Callable[[], None],
    ) -> None:
        self.state_bytes: int | None = None
        self._run = run
        self._task = task
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
        self._aborted = False
        self._stage = _Stage.QUEUED
        self._lock = threading.Lock()  # guards the stage and what decides on the next

    # On the task's side.

    def begin(self, wanted: bool) -> None:
        """Start writing, unless the run is over."""
        if not (wanted and self._run.pool.submit(self._write)):
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
        if resumes and not self._run.pool.submit(self._write_in_flight):
            self._remove_files()

    def abort(self) -> None:
        """See ``SnapshotWriting``; from any thread. Files are removed in the background."""
        with self._lock:
            if self._aborted or self._stage is _Stage.ENDED:
                return
            self._aborted = True
            waited = self._stage is _Stage.WAITING
            if waited:
                self._stage = _Stage.WRITING
            writer = self._writer
        if writer is not None:
            writer.abandon()
        if waited:
            if not self._run.pool.submit(self._remove_files):
                self._remove_files()
        elif self._run.pool.withdraw(self._write):
            self._end()

    # On the writing threads.

    def _write(self) -> None:
        with self._lock:
            self._stage = _Stage.WRITING
        with self._guarded():
            self._check_wanted()
            location = self._run.location(self._barrier)
            task, order = self._task, self._run.order
            name = part_name(task.vertex, task.subtask, self._run.attempt)
            writer = PartWriter(location, name, order.inline_bytes, digests=order.digests)
            self._writer = writer
            self._operators = tuple(
                write_operator(snapshot, writer, self._check_wanted) for snapshot in self._snapshots
            )
            self._snapshots = ()
            with self._lock:
                self._check_wanted()
                if self._in_flight is None:
                    self._spent_ms = self._since_start_ms()
                    self._stage = _Stage.WAITING
                    return
        if self._stage is _Stage.WRITING:
            self._write_in_flight()

    def _write_in_flight(self) -> None:
        with self._guarded():
            writer, in_flight = self._writer, self._in_flight
            assert writer is not None and in_flight is not None
            channels = write_channels(in_flight.channels, writer)
            writer.close()
            ack = self._ack(channels, in_flight.align_ms)
            with self._lock:  # from here on only the driver aborts it
                self._check_wanted()
                self._stage = _Stage.ENDED
                self.state_bytes = ack.figures.state_bytes
                self._run.send(ack)
            self._end()

    def _ack(self, channels: tuple[ChannelState, ...], align_ms: float) -> CheckpointAcked:
        writer = self._writer
        state = self._task.state(self._operators, channels, self._finished)
        shared_bytes = 0 if writer is None else writer.shared_bytes
        in_flight_bytes = sum(piece.length for channel in channels for piece in channel.pieces)
        figures = CheckpointFigures(
            align_ms=align_ms,
            sync_ms=self._sync_ms,
            async_ms=self._spent_ms + self._since_start_ms(),
            state_bytes=sum(map(_size, self._operators)) + shared_bytes,
            in_flight_bytes=in_flight_bytes,
            unaligned=self._barrier.unaligned or in_flight_bytes > 0,
        )
        return CheckpointAcked(self._run.run, self._barrier.checkpoint, state, figures)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """On any error remove all files, and decline unless the snapshot was aborted."""
        task, run = self._task, self._run
        with logged_with({"task": task.name, "subtask": task.subtask, "attempt": run.attempt}):
            try:
                yield
            except BaseException as error:  # also exit() in a user's class that is being pickled
                with self._lock:
                    was_aborted, self._aborted = self._aborted, True
                if not was_aborted:
                    self._decline(error)
                self._remove_files()

    def _decline(self, error: BaseException) -> None:
        task, checkpoint = self._task.task, self._barrier.checkpoint
        is_ours = isinstance(error, HeadgateError)
        problem = str(error) if is_ours else f"{type(error).__name__}: {error}"
        log.warning(
            "task %s does not write its part of checkpoint %d: %s",
            task,
            checkpoint,
            problem,
            exc_info=None if isinstance(error, CheckpointError) else error,
        )
        self._run.send(CheckpointDeclined(self._run.run, checkpoint, task, problem))

    def _remove_files(self) -> None:
        writer = self._writer
        if writer is not None:
            with suppress(CheckpointError):  # clean_abandoned finds them
                writer.abort()
        self._end()

    def _end(self) -> None:
        """The driver has heard of the end; now the task does."""
        with self._lock:
            self._stage = _Stage.ENDED
            self._writer = None
        self._snapshots, self._in_flight = (), None
        self._run.ended(self)
        self._run.post(self._done)

    def _check_wanted(self) -> None:
        if self._aborted:
            raise CheckpointAbandoned(f"checkpoint {self._barrier.checkpoint}")

    def _since_start_ms(self) -> float:
        return (time.monotonic() - self._since_s) * 1000


def _size(operator: OperatorState) -> int:
    """Without files of a database, most of which may have been stored before."""
    pieces = (*operator.keyed.values(), operator.plain, operator.source, operator.sink)
    return sum(piece.length for piece in pieces if piece is not None)
