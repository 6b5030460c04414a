"""Runs a user's ``SourceFunction``, which blocks as it likes, beside a task that never does.

The function has a thread of its own and hands records over through a bounded queue. Law: the task
gets records and watermarks in order, then the exception of ``run`` or the end; ``collect`` waits
while the queue is full; after ``close`` the next ``collect`` unwinds ``run``. There is no position:
after a restart the function runs from its beginning.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from headgate.api.functions import SourceFunction
from headgate.api.source import Source, SplitReader
from headgate.base.elements import Bundle, Record, StreamStatus, Watermark
from headgate.base.errors import UserFunctionFailed
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.guest import Guest
from headgate.core.chain.watermarks import checked_watermark

WAIT_MS: Final = 1.0

Taken: TypeAlias = list[Record] | Bundle | Watermark | StreamStatus | None

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FunctionSource(Source):
    """One task runs the function; the source ends when ``run`` returns."""

    function: SourceFunction[Record]
    bounded: bool = False
    queue_records: int = 4096
    cancel_timeout_ms: int = 5000
    """How long ``close`` waits for ``run`` to return."""

    def splits(self, parallelism: int) -> Sequence[int]:
        return [0]

    def open(self, split: object, position: object, context: OperatorContext) -> "FunctionReader":
        return FunctionReader(self, context)


class FunctionReader(SplitReader):
    """The task's side. The thread starts with the first poll."""

    def __init__(self, source: FunctionSource, context: OperatorContext) -> None:
        self._source = source
        self._context = context
        self._handover = Handover(source.queue_records)
        self._thread: threading.Thread | None = None

    def poll(self, limit: int) -> "Taken":
        if self._thread is None:
            # A daemon: a function that does not end must not keep the process alive.
            self._thread = threading.Thread(
                target=self._run, name=f"headgate-source of {self._context.task.name}", daemon=True
            )
            self._thread.start()
        return self._handover.take(limit)

    def wait_ms(self) -> float:
        return WAIT_MS

    def position(self) -> None:
        return None

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
        """The function's thread: it opens, runs and closes there, as sqlite3 and others need it."""
        error: Exception | None = None
        guest = Guest(self._source.function, "run")
        try:
            try:
                guest.open(self._context)
                guest.call(SourceContext(self._handover))
            finally:
                guest.close()
        except _Unwind:
            pass
        except Exception as raised:
            error = raised
        except BaseException as raised:  # SystemExit would end the task's thread without a word
            error = UserFunctionFailed(self._context.operator, raised, "in run()")
            error.__cause__ = raised
        if not self._handover.end(error) and error is not None:
            logger.warning("%s: failed after cancel()", self._context.task.name, exc_info=error)


class SourceContext:
    """What ``run`` gets."""

    def __init__(self, handover: "Handover") -> None:
        self._put = handover.put
        self._say = handover.say

    def collect(self, element: Record) -> None:
        """Send one record; waits while those behind are slower."""
        self._put(element, None)

    def collect_with_timestamp(self, element: Record, timestamp: int) -> None:
        """Send one record with its event time in milliseconds."""
        if type(timestamp) is not int:
            raise TypeError(
                f"collect_with_timestamp() was given the timestamp {timestamp!r}; "
                f"give whole milliseconds since 1970 as an int"
            )
        self._put(element, timestamp)

    def emit_watermark(self, mark: Watermark) -> None:
        """No record with this timestamp or an earlier one follows."""
        self._say(checked_watermark(mark, "a source function"))

    def mark_as_temporarily_idle(self) -> None:
        """Nobody shall wait for this source until its next record or watermark."""
        self._say(StreamStatus(active=False))


class Handover:
    """A bounded queue between two threads. Law: it never holds more than its bound."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._room = threading.Condition(threading.Lock())
        self._records: list[Record] = []
        self._timestamps: list[int | None] = []
        self._said: deque[tuple[int, Watermark | StreamStatus]] = deque()
        """With the number of records, counted from the first, that come before it."""
        self._taken = 0
        self._error: Exception | None = None
        self._ended = False
        self._closed = False

    def put(self, record: Record, timestamp: int | None) -> None:
        """Called by the function; waits for room."""
        with self._room:
            self._await_room()
            self._records.append(record)
            self._timestamps.append(timestamp)

    def say(self, what: Watermark | StreamStatus) -> None:
        """Called by the function, between records; waits for room too."""
        with self._room:
            self._await_room()
            self._said.append((self._taken + len(self._records), what))

    def end(self, error: Exception | None) -> bool:
        """The function has ended; False: nobody will ask how."""
        with self._room:
            self._ended = True
            self._error = error
            return not self._closed

    def take(self, limit: int) -> Taken:
        """What is there, up to ``limit``; after the last record the error or None."""
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
                return None if self._ended else []
            del self._records[:limit], self._timestamps[:limit]
            self._taken += len(records)
        if timestamps.count(None) == len(timestamps):
            return records
        return Bundle(records, timestamps)

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

    def _await_room(self) -> None:
        while self._is_full and not self._closed:
            self._room.wait()
        if self._closed:
            raise _Unwind


class _Unwind(BaseException):
    """Ends ``run`` from within ``collect``; ``except Exception`` in it lets this one by."""
