"""The way from a source function's thread to its task: a bounded queue, and a lock for checkpoints.

Law: records and watermarks come out in order; the queue holds at most its bound, and what one block
under the lock adds while a checkpoint waits for it. A checkpoint sees a function between two such
blocks, never within one, and does not wait while others come.
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TypeAlias

from headgate.base.elements import Bundle, Record, StreamStatus, Watermark

Taken: TypeAlias = list[Record] | Bundle | Watermark | StreamStatus | None

Row: TypeAlias = tuple[Record, int | None] | Watermark | StreamStatus
"""A record with its timestamp, or what was said between the records."""


class CheckpointLock:
    """What ``ctx.get_checkpoint_lock()`` gives: ``with`` it, a record and its state are one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._free = threading.Event()
        self._free.set()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> "CheckpointLock":
        if self._owner != threading.get_ident():
            self._free.wait()  # a checkpoint that waits goes first, or it might wait for ever
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
        self._lock.release()

    @contextmanager
    def ahead(self, hurrying: AbstractContextManager[None]) -> Iterator[None]:
        """For a checkpoint: when the block that runs now is over, before the next.

        ``hurrying``: within it the block waits for nothing.
        """
        self._free.clear()
        try:
            with hurrying, self._lock:
                yield
        finally:
            self._free.set()


class Handover:
    """A bounded queue between two threads; ``rows`` are in it from the start."""

    def __init__(self, bound: int, rows: Sequence[Row] = ()) -> None:
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

    def rows(self) -> list[Row]:
        """What was put and not taken, in order."""
        with self._room:
            found: list[Row] = list(zip(self._records, self._timestamps, strict=True))
            for added, (before, what) in enumerate(self._said):
                found.insert(before - self._taken + added, what)
            return found

    @contextmanager
    def hurrying(self) -> Iterator[None]:
        """Nobody waits for room meanwhile."""
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

    def _await_room(self) -> None:
        while self._is_full and not self._closed and not self._hurries:
            self._room.wait()
        if self._closed:
            raise Unwind


class Unwind(BaseException):
    """Ends ``run`` from within ``collect``; ``except Exception`` in it lets this one by."""
