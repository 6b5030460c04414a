"""Sends batches while more records come: the writer of an HTTP sink that is at least once.

Threads send; the task fills batches. Law: at most twice as many batches as requests may be under
way wait or are sent, then the task waits, too; a checkpoint waits for all of them; a batch that was
rejected is named to the error policy by the task itself, record by record.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headgate.base.elements import Record
from headgate.base.errors import HttpRejected
from headgate.connectors.http.poster import Poster
from headgate.connectors.retries import LOOK_S
from headgate.connectors.staged import MessageMaker
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import CommittingSinkWriter


@dataclass(eq=False)
class OpenBatch:
    """Records with their bytes."""

    key: str
    began_s: float = field(default_factory=time.monotonic)
    records: list[Record] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)
    bytes: int = 0


class PostingWriter(CommittingSinkWriter):
    """Fills batches, and hands them to its threads."""

    def __init__(
        self,
        poster: Poster,
        maker: MessageMaker,
        join: Callable[[list[bytes]], bytes],
        full: tuple[int, int, float],
        in_flight: int,
        context: ConnectorContext,
    ) -> None:
        """``full``: a batch has so many records or bytes, or is so many seconds old."""
        self._poster = poster
        self._maker = maker
        self._join = join
        self._records, self._bytes, self._linger_s = full
        self._most = 2 * in_flight
        self._malformed = context.malformed
        self._sleep = context.sleep
        self._is_cancelled = context.is_cancelled
        self._changed = threading.Condition()
        self._writer = secrets.token_hex(8)
        self._number = 0
        self._open: OpenBatch | None = None
        self._due: deque[OpenBatch] = deque()
        self._sending = 0
        self._rejected: list[tuple[OpenBatch, HttpRejected]] = []
        self._failure: BaseException | None = None
        self._closing = False
        self._threads = [
            threading.Thread(target=self._run, name=f"http {number}", daemon=True)
            for number in range(in_flight)
        ]
        for thread in self._threads:
            thread.start()

    # The task.

    def write(self, records: list[Record]) -> None:
        records, parts = self._maker.pairs(records)
        with self._changed:
            for record, part in zip(records, parts, strict=True):
                self._add(record, part)
        self._report()

    def flush(self) -> None:
        with self._changed:
            self._hand_over()
            self._wait_until(lambda: not self._due and not self._sending)
        self._report()

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Record]:
        return ()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._poster.stop()
        for thread in self._threads:
            while thread.is_alive():
                if self._is_cancelled():  # its request may have begun since the last time
                    self._poster.abort()
                thread.join(LOOK_S)
        self._poster.close()

    def _add(self, record: Record, part: bytes) -> None:
        if self._open is not None and self._open.bytes + len(part) > self._bytes:
            self._hand_over()
        if self._open is None:
            self._wait_until(lambda: len(self._due) + self._sending < self._most)
            self._number += 1
            self._open = OpenBatch(f"{self._writer}-{self._number}")
            self._changed.notify()  # somebody has to see that it grows old
        batch = self._open
        batch.records.append(record)
        batch.parts.append(part)
        batch.bytes += len(part)
        if len(batch.records) >= self._records:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._open is not None:
            self._due.append(self._open)
            self._open = None
            self._changed.notify()

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        while self._failure is None and not is_so():
            self._sleep(0)
            self._changed.wait(LOOK_S)
        if self._failure is not None:
            raise self._failure

    def _report(self) -> None:
        """Rejected batches, to the error policy; that may raise."""
        with self._changed:
            rejected, self._rejected = self._rejected, []
        for batch, error in rejected:
            for record in batch.records:
                self._malformed(record, error)

    # The threads.

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            try:
                self._poster.post(self._join(batch.parts), batch.key)
            except HttpRejected as error:
                with self._changed:
                    self._rejected.append((batch, error))
            except BaseException as error:
                with self._changed:
                    self._failure = self._failure or error
            with self._changed:
                self._sending -= 1
                self._changed.notify_all()

    def _next(self) -> OpenBatch | None:
        """The next batch to send; None: the writer is closed."""
        with self._changed:
            while not self._closing:
                left_s = None
                if self._open is not None:
                    left_s = self._open.began_s + self._linger_s - time.monotonic()
                    if left_s <= 0:
                        self._due.append(self._open)
                        self._open = None
                if self._due:
                    self._sending += 1
                    return self._due.popleft()
                self._changed.wait(left_s)
            return None
