"""Runs a user's ``SourceFunction``, which blocks as it likes, beside a task that never does.

The function has its own thread and hands records over through a bounded queue. Law: the task gets
records and watermarks in order, then the exception of ``run`` or the end, and is woken when it has
found the queue empty; ``collect`` blocks while the queue is full; after ``close`` the next
``collect`` unwinds ``run``. A checkpoint sees the function between two blocks under the checkpoint
lock, never within one; while it waits for a block to end, that block may exceed the queue's bound.
The position of a function with ``initialize_state`` is its state and the contents of the queue; any
other function starts over after a restart.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from headgate.base.elements import Bundle, Record, StreamStatus, Watermark
from headgate.base.errors import UserFunctionFailed
from headgate.base.values import own
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.user_function import UserFunction
from headgate.core.chain.watermarks import checked_watermark
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.function import SourceFunction
from headgate.functions.source import Source, SplitReader

Taken: TypeAlias = list[Record] | Bundle | Watermark | StreamStatus | None

Row: TypeAlias = tuple[Record, int | None] | Watermark | StreamStatus
"""A record with its timestamp, or what was said between the records."""


class CheckpointLock:
    """What ``ctx.get_checkpoint_lock()`` returns; emit a record and update its state under it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._free = threading.Event()
        self._free.set()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> "CheckpointLock":
        if self._owner != threading.get_ident():
            self._free.wait()  # a waiting checkpoint goes first, or it might starve
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1
        return self

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
        self._lock.release()

    @contextmanager
    def ahead(self, hurrying: AbstractContextManager[None]) -> Iterator[None]:
        """For a checkpoint: enter when the current block has ended, before the next begins.

        ``hurrying``: while it is active, the block does not wait for room in the queue.
        """
        self._free.clear()
        try:
            with hurrying, self._lock:
                yield
        finally:
            self._free.set()


class Handover:
    """A bounded queue between two threads; ``rows`` are in it from the start."""

    def __init__(
        self, bound: int, rows: Sequence[Row] = (), wake: Callable[[], None] = lambda: None
    ) -> None:
        """``wake``: called when something comes after a ``take`` in vain."""
        self._bound = bound
        self._wake = wake
        self._is_awaited = False
        self._room = threading.Condition(threading.Lock())
        self._records: list[Record] = []
        self._timestamps: list[int | None] = []
        self._said: deque[tuple[int, Watermark | StreamStatus]] = deque()
        """With the number of records, counted from the first, that come before it."""
        self._taken = 0
        self._error: Exception | None = None
        self._ended = False
        self._closed = False
        self._hurries = False
        for row in rows:
            if isinstance(row, tuple):
                self._records.append(row[0])
                self._timestamps.append(row[1])
            else:
                self._said.append((len(self._records), row))

    def put(self, record: Record, timestamp: int | None) -> None:
        """Called by the function; waits for room."""
        with self._room:
            self._await_room()
            self._records.append(record)
            self._timestamps.append(timestamp)
        if self._is_awaited:
            self._wake_task()

    def say(self, what: Watermark | StreamStatus) -> None:
        """Called by the function, between records; waits for room too."""
        with self._room:
            self._await_room()
            self._said.append((self._taken + len(self._records), what))
        if self._is_awaited:
            self._wake_task()

    def end(self, error: Exception | None) -> bool:
        """The function has ended; False: the reader was closed before and asks no more."""
        with self._room:
            self._ended = True
            self._error = error
            is_asked = not self._closed
        self._wake_task()
        return is_asked

    def take(self, limit: int) -> Taken:
        """Up to ``limit`` records that are there; after the last, the error is raised or None."""
        with self._room:
            if self._is_full:
                self._room.notify_all()
            if self._said:
                before = self._said[0][0] - self._taken
                if not before:
                    return self._said.popleft()[1]
                limit = min(limit, before)
            records, timestamps = self._records[:limit], self._timestamps[:limit]
            if not records:
                if self._error is not None:
                    raise self._error
                self._is_awaited = not self._ended
                return None if self._ended else []
            del self._records[:limit], self._timestamps[:limit]
            self._taken += len(records)
        if timestamps.count(None) == len(timestamps):
            return records
        return Bundle(records, timestamps)

    def rows(self) -> list[Row]:
        """What was put and not taken, in order."""
        with self._room:
            found: list[Row] = list(zip(self._records, self._timestamps, strict=True))
            for added, (before, what) in enumerate(self._said):
                found.insert(before - self._taken + added, what)
            return found

    @contextmanager
    def hurrying(self) -> Iterator[None]:
        """Lift the queue's bound for a while."""
        with self._room:
            self._hurries = True
            self._room.notify_all()
        try:
            yield
        finally:
            with self._room:
                self._hurries = False

    def close(self) -> bool:
        """Nothing more is taken; True: the function has ended before."""
        with self._room:
            self._closed = True
            self._records.clear()
            self._timestamps.clear()
            self._said.clear()
            self._room.notify_all()
            return self._ended

    @property
    def _is_full(self) -> bool:
        return len(self._records) + len(self._said) >= self._bound

    def _wake_task(self) -> None:
        self._is_awaited = False
        self._wake()

    def _await_room(self) -> None:
        while self._is_full and not self._closed and not self._hurries:
            self._room.wait()
        if self._closed:
            raise SourceCancelled


class SourceCancelled(BaseException):
    """Ends ``run`` from within ``collect``; an ``except Exception`` there does not catch it."""


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FunctionSource(Source):
    """One task runs the function; the source ends when ``run`` returns."""

    function: SourceFunction[Record]
    bounded: bool = False
    queue_records: int = 4096
    cancel_timeout_ms: int = 5000
    """How long ``close`` waits for ``run`` to return."""

    finds_more = False
    rewind_advice = (
        "let the SourceFunction be a CheckpointedFunction, too, which keeps its position in state, "
        "or take no checkpoints"
    )

    @property
    def rewinds(self) -> bool:
        return hasattr(self.function, "initialize_state")

    def splits(self, parallelism: int) -> Sequence[int]:
        return [0]

    def open(self, split: object, position: object, context: ConnectorContext) -> "FunctionReader":
        assert position is None or isinstance(position, FunctionPosition), position
        assert isinstance(context, OperatorContext), context
        return FunctionReader(self, context, position or FunctionPosition())


@dataclass(frozen=True)
class FunctionPosition:
    """The position of a function that keeps its own in state."""

    state: bytes | None = None
    """A snapshot of its states; None: it has not begun."""
    rows: tuple[Row, ...] = ()
    """What it has collected and the task has not taken."""
    has_ended: bool = False
    """``run`` has returned."""


class FunctionReader(SplitReader):
    """The task's side. The thread starts with the first poll."""

    gives_away = True  # each was made own when it was collected

    def __init__(
        self,
        source: FunctionSource,
        context: OperatorContext,
        before: FunctionPosition = FunctionPosition(),  # noqa: B008 - frozen
    ) -> None:
        self._source = source
        self._context = context
        self._before = before
        self._handover = Handover(source.queue_records, before.rows, context.wake)
        self._user_function = UserFunction(source.function, "run")
        self._lock = CheckpointLock()
        self._is_open = False
        self._has_failed = False
        self._has_ended = before.has_ended
        if self._has_ended:
            self._handover.end(None)
        self._thread: threading.Thread | None = None

    def poll(self, limit: int) -> Taken:
        if self._thread is None and not self._before.has_ended:
            # A daemon: a function that does not end must not keep the process alive.
            self._thread = threading.Thread(
                target=copy_context().run,
                name=f"headgate-source of {self._context.task.name}",
                args=(self._run,),
                daemon=True,
            )
            self._thread.start()
        return self._handover.take(limit)

    def wait_ms(self) -> float:
        return inf

    def position_at(self, moment: SnapshotMoment) -> FunctionPosition | None:
        if not self._source.rewinds:
            return None
        with self._lock.ahead(self._handover.hurrying()):
            if self._has_failed:
                raise RuntimeError("run() of the source function has failed; no position is sound")
            rows = tuple(self._handover.rows())
            if self._has_ended:
                return FunctionPosition(rows=rows, has_ended=True)
            state = self._user_function.snapshot(moment) if self._is_open else self._before.state
            return FunctionPosition(state, rows)

    def checkpoint_completed(self, checkpoint: int) -> None:
        if hasattr(self._source.function, "notify_checkpoint_complete"):
            with self._lock.ahead(self._handover.hurrying()):
                if self._is_open and not self._has_ended:
                    self._user_function.checkpoint_completed(checkpoint)

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if not self._handover.close():
            self._cancel()
        thread.join(self._source.cancel_timeout_ms / 1000)
        if thread.is_alive():
            logger.error(
                "%s: %r runs on %d ms after cancel(); let cancel() make run() return",
                self._context.task.name,
                self._source.function,
                self._source.cancel_timeout_ms,
            )

    def _cancel(self) -> None:
        try:
            self._source.function.cancel()
        except Exception:
            logger.exception("%s: cancel() failed", self._context.task.name)

    def _run(self) -> None:
        """The function's thread: it opens, runs and closes there, as sqlite3 and others require."""
        error: Exception | None = None
        try:
            try:
                self._run_function()
            finally:
                self._user_function.close()
        except SourceCancelled:
            pass
        except Exception as raised:
            error = raised
        except BaseException as raised:  # SystemExit would end the task's thread without a word
            error = UserFunctionFailed(self._context.operator, raised, "in run()")
            error.__cause__ = raised
        if not self._handover.end(error) and error is not None:
            logger.warning("%s: failed after cancel()", self._context.task.name, exc_info=error)

    def _run_function(self) -> None:
        user_function = self._user_function
        with self._lock:  # a checkpoint waits until the function is open
            if self._before.state is not None:
                user_function.states.restore([self._before.state], 0, 1)
            user_function.open(self._context)
            self._is_open = True
        try:
            user_function.call(SourceContext(self._handover, self._lock, self._source.rewinds))
        except BaseException:
            with self._lock:
                self._has_failed = True
            raise
        with self._lock:
            self._has_ended = True


class SourceContext:
    """What ``run`` gets."""

    def __init__(self, handover: Handover, lock: CheckpointLock, locks: bool = False) -> None:
        """``locks``: take the lock also for a single record, as checkpoints read the queue."""
        self._lock = lock
        self._put = self._locked_put if locks else handover.put
        self._say = self._locked_say if locks else handover.say
        self._handover = handover

    def get_checkpoint_lock(self) -> CheckpointLock:
        """To be held while a record is collected and the function's state follows."""
        return self._lock

    def collect(self, element: Record) -> None:
        """Emit a record; blocks while downstream is slower."""
        self._put(own(element), None)

    def collect_with_timestamp(self, element: Record, timestamp: int) -> None:
        """Emit a record with its event time in milliseconds."""
        if type(timestamp) is not int:
            raise TypeError(
                f"collect_with_timestamp() was given the timestamp {timestamp!r}; "
                f"give whole milliseconds since 1970 as an int"
            )
        self._put(own(element), timestamp)

    def emit_watermark(self, mark: Watermark) -> None:
        """No record with this timestamp or an earlier one follows."""
        self._say(checked_watermark(mark, "a source function"))

    def mark_as_temporarily_idle(self) -> None:
        """Exclude this source from watermarks until its next record or watermark."""
        self._say(StreamStatus(active=False))

    def _locked_put(self, element: Record, timestamp: int | None) -> None:
        with self._lock:
            self._handover.put(element, timestamp)

    def _locked_say(self, what: Watermark | StreamStatus) -> None:
        with self._lock:
            self._handover.say(what)
