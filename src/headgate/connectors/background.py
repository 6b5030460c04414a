"""Readers whose records are fetched by a thread of their own: the queue between, and the reader.

Sources whose client library blocks or brings an event loop fetch on a thread, and add batches to a
queue, from which the task takes them. Law: the queue is bounded by records and bytes; whoever
fetches asks ``is_full`` before, and is told by ``room`` when there is room again. Positions of
records that wait in the queue are not in checkpoints.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import inf
from operator import is_
from typing import Any, Final

from headgate.base.elements import Bundle, Record
from headgate.base.errors import ConnectorError
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position, SplitReader

QUEUED_RECORDS: Final = 10_000
QUEUED_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Raw messages with their times and the positions behind them, side by side."""

    raw: Sequence[Any]
    times: Sequence[int | None]
    positions: Sequence[Position]
    bytes: int

    def divided(self, count: int) -> tuple["ReadBatch", "ReadBatch"]:
        """The first ``count`` messages, and the rest."""
        size = self.bytes * count // max(1, len(self.raw))
        raw, times, positions = self.raw, self.times, self.positions
        return (
            ReadBatch(raw[:count], times[:count], positions[:count], size),
            ReadBatch(raw[count:], times[count:], positions[count:], self.bytes - size),
        )


class ReadQueue:
    """Between the thread that fetches and the task that reads."""

    def __init__(self, wake: Callable[[], None], room: Callable[[], None]) -> None:
        """``wake``: something was added; ``room``: it was full, and is so no more."""
        self._wake = wake
        self._room = room
        self._lock = threading.Lock()
        self._batches: deque[ReadBatch] = deque()
        self._records = 0
        self._bytes = 0
        self._failure: BaseException | None = None
        self._ended = False

    # The thread that fetches.

    @property
    def is_full(self) -> bool:
        return self._records >= QUEUED_RECORDS or self._bytes >= QUEUED_BYTES

    def add(self, batch: ReadBatch) -> None:
        with self._lock:
            self._batches.append(batch)
            self._records += len(batch.raw)
            self._bytes += batch.bytes
        self._wake()

    def end(self, failure: BaseException | None = None) -> None:
        """Nothing will be added any more; the reader raises ``failure`` behind the last batch."""
        self._failure = failure
        self._ended = True
        self._wake()

    # The task.

    def take(self, limit: int) -> ReadBatch | None:
        """Up to ``limit`` messages; None: there are none now."""
        with self._lock:
            if not self._batches:
                return None
            was_full = self.is_full
            batch = self._batches.popleft()
            if len(batch.raw) > limit:
                batch, rest = batch.divided(limit)
                self._batches.appendleft(rest)
            self._records -= len(batch.raw)
            self._bytes -= batch.bytes
            has_room = was_full and not self.is_full
        if has_room:
            self._room()
        return batch

    @property
    def next_time_ms(self) -> int | None:
        """When the next message was written; None: there is none, or it has no time."""
        with self._lock:
            first = self._batches[0].times if self._batches else ()
            return first[0] if first else None

    @property
    def is_over(self) -> bool:
        """Whether all was taken; raises what has ended the thread."""
        ended = self._ended  # before the batches: what was added until then counts
        if self._batches or not ended:
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def __len__(self) -> int:
        return self._records


class QueueReader(SplitReader):
    """Takes batches from a queue and makes records of them."""

    gives_away = True

    def __init__(
        self,
        queue: ReadQueue,
        decode: Callable[[Any], Record],
        position: Position,
        context: ConnectorContext,
        where: str,
    ) -> None:
        """``decode`` gives None for a message without a record; ``where`` is for messages."""
        self._queue = queue
        self._decode = decode
        self._position = position
        self._context = context
        self._where = where

    def poll(self, limit: int) -> Bundle | tuple[()] | None:
        batch = self._queue.take(limit)
        if batch is None:
            return None if self._queue.is_over else ()
        self._position = batch.positions[-1]
        try:
            records = list(map(self._decode, batch.raw))
            times = list(batch.times)
        except Exception:  # the user's schema may raise anything
            records, times = self._singly(batch)
        if True in map(is_, records, repeat(None)):
            kept = [index for index, record in enumerate(records) if record is not None]
            records, times = [records[at] for at in kept], [times[at] for at in kept]
        return Bundle(records, times) if records else ()

    def wait_ms(self) -> float:
        return 0.0 if len(self._queue) else inf

    def position(self) -> Position:
        return self._position

    def _singly(self, batch: ReadBatch) -> tuple[list[Record], list[int | None]]:
        records: list[Record] = []
        times: list[int | None] = []
        for raw, time_ms, position in zip(batch.raw, batch.times, batch.positions, strict=True):
            try:
                records.append(self._decode(raw))
                times.append(time_ms)
            except Exception as error:
                problem = ConnectorError(
                    f"{self._where}: the message at {position} cannot be read: "
                    f"{type(error).__name__}: {error}"
                )
                problem.__cause__ = error
                self._context.malformed(raw, problem)
        return records, times
