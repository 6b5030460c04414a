"""Sources whose messages are fetched by a thread: the source, its splits, the thread, the reader.

Where a client library blocks or brings an event loop, a fetcher holds sessions with the server on a
thread of its own and adds batches to a queue, from which the task takes them. Law: the queue is
bounded by records and bytes, for a fetcher looks whether it ``is_full`` before it adds; a server is
tried again for ``RECONNECT_S`` since it was last well. Positions of records that wait in the queue
are not in checkpoints.
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from math import inf
from operator import is_
from typing import Any, Final, cast

from headgate.api.types.types import TypeInformation, Types
from headgate.base.elements import Bundle, Record
from headgate.base.errors import ConnectorError, RecordsLost
from headgate.connectors.formats.schemas import DeserializationSchema
from headgate.connectors.servers import RECONNECT_S, MessageServer, backoff_s
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.source import Position, Source, SplitEnumerator, SplitLag, SplitReader

log = logging.getLogger(__name__)

QUEUED_RECORDS: Final = 10_000
QUEUED_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Raw messages with their times and the positions after them, side by side."""

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

    def __init__(self, wake: Callable[[], None]) -> None:
        """``wake``: something was added."""
        self.closing = False
        """The reader is closed: nobody takes any more."""
        self._wake = wake
        self._changed = threading.Condition()
        self._batches: deque[ReadBatch] = deque()
        self._records = 0
        self._bytes = 0
        self._failure: BaseException | None = None
        self._ended = False

    # The thread that fetches.

    @property
    def is_full(self) -> bool:
        return self._records >= QUEUED_RECORDS or self._bytes >= QUEUED_BYTES

    def wait_for_room(self, seconds: float) -> bool:
        """Whether there is room, after so long at most; True if the reader is closed."""
        with self._changed:
            return self._changed.wait_for(lambda: self.closing or not self.is_full, seconds)

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the reader is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self.closing, seconds)

    def add(self, batch: ReadBatch) -> None:
        with self._changed:
            self._batches.append(batch)
            self._records += len(batch.raw)
            self._bytes += batch.bytes
        self._wake()

    def put(self, messages: Sequence[tuple[Any, Position, int]]) -> None:
        """Messages without a time, their positions and their bytes."""
        if messages:
            raw, positions, sizes = zip(*messages, strict=True)
            self.add(ReadBatch(raw, [None] * len(raw), positions, sum(sizes)))

    def end(self, failure: BaseException | None = None) -> None:
        """Nothing will be added any more; the reader raises ``failure`` after the last batch."""
        self._failure = failure
        self._ended = True
        self._wake()

    # The task.

    def take(self, limit: int) -> ReadBatch | None:
        """Up to ``limit`` messages; None: there are none now."""
        with self._changed:
            if not self._batches:
                return None
            batch = self._batches.popleft()
            if len(batch.raw) > limit:
                batch, rest = batch.divided(limit)
                self._batches.appendleft(rest)
            self._records -= len(batch.raw)
            self._bytes -= batch.bytes
            self._changed.notify()
        return batch

    def close(self) -> None:
        with self._changed:
            self.closing = True
            self._changed.notify_all()

    @property
    def next_time_ms(self) -> int | None:
        """When the next message was written; None: there is none, or it has no time."""
        with self._changed:
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


class Fetcher(ABC):
    """The thread of a reader: sessions with a server, one after the other."""

    def __init__(self, server: MessageServer, what: str) -> None:
        """``what`` is read, for messages."""
        self.server = server
        self.what = what
        self._failing_since_s: float | None = None
        self._failures = 0

    @abstractmethod
    def session(self, queue: ReadQueue) -> None:
        """One connection, until the end of the split or ``queue.closing``; raises on trouble.

        The next session goes on after what this one has added.
        """

    def well(self) -> None:
        """The server has answered; call it in each session."""
        self._failing_since_s, self._failures = None, 0

    def stop(self) -> None:  # noqa: B027 - most look at the queue often enough
        """The reader is closed: end what a session waits for."""

    def unread(self, position: Position, queued: int) -> int | None:
        """How many messages there are after a position; None: not known."""
        return None

    def run(self, queue: ReadQueue) -> None:
        failure: BaseException | None = None
        try:
            while not queue.closing:
                try:
                    self.session(queue)
                    break
                except Exception as error:
                    queue.pause(self._wait_s(error))
        except Exception as error:
            failure = self.server.problem(error, f"reading {self.what}")
            if failure is not error:
                failure.__cause__ = error
        finally:
            queue.end(None if queue.closing else failure)

    def _wait_s(self, error: Exception) -> float:
        """Before the next session; raises the error if there is to be none."""
        now_s = time.monotonic()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        wait_s = backoff_s(self._failures)
        if not self.server.may_pass(error) or now_s + wait_s - self._failing_since_s > RECONNECT_S:
            raise error
        self._failures += 1
        return wait_s


class QueueReader(SplitReader):
    """Takes the batches of a fetcher from a queue, and makes records of them."""

    gives_away = True

    def __init__(
        self,
        fetcher: Fetcher,
        decode: Callable[[Any], Record],
        position: Position,
        context: ConnectorContext,
    ) -> None:
        """``decode`` gives None for a message without a record."""
        self._fetcher = fetcher
        self._decode = decode
        self._position = position
        self._context = context
        self._queue = ReadQueue(context.wake)
        self._thread = threading.Thread(
            target=fetcher.run,
            args=(self._queue,),
            name=f"{fetcher.server.user} {fetcher.what}",
            daemon=True,
        )

    def poll(self, limit: int) -> Bundle | tuple[()] | None:
        if self._thread.ident is None:
            self._thread.start()
            return ()
        batch = self._queue.take(limit)
        if batch is None:
            return None if self._queue.is_over else ()
        self.taken(batch)
        try:
            records = list(map(self._decode, batch.raw))
            times = list(batch.times)
        except Exception:  # the user's schema may raise anything
            records, times = self._singly(batch)
        if True in map(is_, records, repeat(None)):
            kept = [index for index, record in enumerate(records) if record is not None]
            records, times = [records[at] for at in kept], [times[at] for at in kept]
        return Bundle(records, times) if records else ()

    def taken(self, batch: ReadBatch) -> None:
        """Its records are about to be returned by ``poll``."""
        self._position = batch.positions[-1]

    def wait_ms(self) -> float:
        return 0.0 if len(self._queue) else inf

    def position(self) -> Position:
        return self._position

    def lag(self) -> SplitLag | None:
        records = self._fetcher.unread(self._position, len(self._queue))
        if records is None:
            return None
        written_ms = self._queue.next_time_ms
        if written_ms is None:
            return SplitLag(records, age_ms=None if records else 0.0)
        return SplitLag(records, age_ms=max(0.0, float(self._context.now_ms() - written_ms)))

    def close(self) -> None:
        self._queue.close()
        self._fetcher.stop()
        if self._thread.is_alive():
            self._thread.join()

    def _singly(self, batch: ReadBatch) -> tuple[list[Record], list[int | None]]:
        records: list[Record] = []
        times: list[int | None] = []
        for raw, time_ms, position in zip(batch.raw, batch.times, batch.positions, strict=True):
            try:
                records.append(self._decode(raw))
                times.append(time_ms)
            except Exception as error:
                server = self._fetcher.server
                problem = ConnectorError(
                    f"{server.user}: {self._fetcher.what} of {server.address}: the message at "
                    f"{position} cannot be read: {type(error).__name__}: {error}"
                )
                problem.__cause__ = error
                self._context.malformed(raw, problem)
        return records, times


class AcknowledgingFetcher(Fetcher):
    """For servers that keep messages until they are acknowledged, and send them again."""

    def __init__(self, server: MessageServer, what: str) -> None:
        super().__init__(server, what)
        self.acknowledged: deque[Any] = deque()
        """Receipts of messages that a completed checkpoint covers; added by the task."""

    @abstractmethod
    def answer(self, receipt: Any) -> None:
        """Tell the server that it may forget a message."""

    def answer_due(self) -> None:
        """Answer all that are acknowledged; call it in each session."""
        while self.acknowledged:
            self.answer(self.acknowledged.popleft())


class AcknowledgingReader(QueueReader):
    """The positions of its batches are receipts; in checkpoints is how many messages it has read.

    A message is acknowledged when a checkpoint that covers it has completed; without checkpoints,
    when the next batch is asked for.
    """

    def __init__(
        self,
        fetcher: AcknowledgingFetcher,
        decode: Callable[[Any], Record],
        position: Position,
        context: ConnectorContext,
    ) -> None:
        super().__init__(fetcher, decode, position or 0, context)
        self._acknowledge = fetcher.acknowledged.extend
        self._due: list[Any] = []
        self._noted: dict[int, list[Any]] = {}
        """Receipts that each checkpoint under way covers, and those before it do not."""

    def poll(self, limit: int) -> Bundle | tuple[()] | None:
        if not self._context.checkpoints:
            due, self._due = self._due, []
            self._acknowledge(due)
        return super().poll(limit)

    def taken(self, batch: ReadBatch) -> None:
        self._due += batch.positions
        self._position = cast("int", self._position) + len(batch.positions)

    def position_at(self, moment: SnapshotMoment) -> Position:
        self._noted[moment.checkpoint], self._due = self._due, []
        return self.position()

    def checkpoint_completed(self, checkpoint: int) -> None:
        for noted in sorted(number for number in self._noted if number <= checkpoint):
            self._acknowledge(self._noted.pop(noted))


class MessageSource(Source):
    """A source of messages, whose splits are found once and are read by fetchers."""

    finds_more = True
    splits_end = False

    schema: DeserializationSchema | None
    bounded: bool

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """What is read: each name becomes a split."""

    def get_produced_type(self) -> TypeInformation:
        """What its schema says of the records."""
        if self.schema is None:
            return Types.PICKLED_BYTE_ARRAY()
        return self.schema.get_produced_type()

    def decoder(self, data: Callable[[Any], bytes]) -> Callable[[Any], Record]:
        """What makes records of messages: the schema, of their data, or nothing."""
        if self.schema is None:
            return _whole
        deserialize = self.schema.deserialize
        return lambda message: deserialize(data(message))

    def create_enumerator(self, parallelism: int, position: Position) -> "NamedSplits":
        return NamedSplits(self, position)

    @abstractmethod
    def find(self, names: Sequence[str], is_first: bool) -> Sequence[object]:
        """Their splits, one for each; what is wrong with the server is told here.

        ``is_first``: the job starts afresh, and reading begins where the user has said.
        """


def _whole(message: Record) -> Record:
    return message


class NamedSplits(SplitEnumerator):
    """Finds each name of a source once."""

    def __init__(self, source: MessageSource, position: Position) -> None:
        self._source = source
        self._is_first = position is None
        found = cast("str | Sequence[str]", position or ())
        self._known = {found} if isinstance(found, str) else set(found)

    def discover(self) -> Sequence[object]:
        new = [name for name in self._source.names if name not in self._known]
        splits = self._source.find(new, self._is_first) if new else ()
        self._known.update(new)
        return splits

    def position(self) -> Position:
        """The names that were found."""
        return sorted(self._known)


def check_lost(user: str, problem: str, why: str, option: str, goes_on: bool) -> None:
    """Messages are gone that were not read: raises, or warns if the user wants to go on.

    ``option``: the setting that says so, and what it goes on with.
    """
    if not goes_on:
        raise RecordsLost(f"{user}: {problem}: {why}; {option}")
    log.warning("%s: %s: %s", user, problem, why)
