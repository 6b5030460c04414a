"""Records sent to an HTTP endpoint in batches: at least once, or once if the endpoint knows keys.

At least once, threads send batches as soon as they are full or old enough, while the task fills
others. With ``EXACTLY_ONCE`` they wait in the task and in its checkpoints, and are sent when the
checkpoint completes. Law: a batch keeps its records and its ``Idempotency-Key`` (writer and number)
over retries and over a restart of the job, so an endpoint that honours keys takes each record once.
At most twice as many batches as requests may be under way wait or are sent; a checkpoint waits for
all of them; the task itself gives the records of a rejected batch to the error policy.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.base.elements import Record
from headgate.base.errors import HttpRejected, PlanInvalid
from headgate.connectors.checks import AMOUNT, GUARANTEE, SERIALIZER, Check, check_settings, one_of
from headgate.connectors.formats.schemas import SerializationSchema, bytes_maker
from headgate.connectors.http.poster import HttpEndpoint, HttpLimits, Poster
from headgate.connectors.libraries import library
from headgate.connectors.servers import LOOK_S
from headgate.connectors.staged import MessageMaker, StagingWriter, batches_of, whose
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import (
    Committer,
    CommittingSinkWriter,
    DeliveryGuarantee,
    TwoPhaseCommittingSink,
)


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

    def __init__(self, sink: "HttpSink", maker: MessageMaker, context: ConnectorContext) -> None:
        self._poster = Poster(sink.endpoint, sink.limits, whose(context), context)
        self._maker = maker
        self._join = sink.join
        self._batching = sink.batching
        self._most = 2 * sink.limits.in_flight
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
            for number in range(sink.limits.in_flight)
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
        if self._open is not None and self._open.bytes + len(part) > self._batching.bytes:
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
        if len(batch.records) >= self._batching.records:
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
                    left_s = self._open.began_s + self._batching.linger_ms / 1000 - time.monotonic()
                    if left_s <= 0:
                        self._due.append(self._open)
                        self._open = None
                if self._due:
                    self._sending += 1
                    return self._due.popleft()
                self._changed.wait(left_s)
            return None


BODIES: Final = {
    "lines": ("application/x-ndjson", lambda parts: b"\n".join(parts) + b"\n"),
    "array": ("application/json", lambda parts: b"[" + b",".join(parts) + b"]"),
    "joined": ("application/octet-stream", b"".join),
}
CHECKS: Final = {
    "method": one_of("POST", "PUT", "PATCH"),
    "body": Check(
        f"one of {', '.join(BODIES)}, or a function",
        lambda body: callable(body) or body in BODIES,
    ),
    "schema": SERIALIZER,
    "guarantee": GUARANTEE,
}


@dataclass(frozen=True)
class HttpBatching:
    """When a batch is full."""

    records: int = 500
    bytes: int = 1 << 20
    linger_ms: float = 100.0
    """A batch that is not full is sent so long after its first record, at least once."""

    def __post_init__(self) -> None:
        check_settings(self, dict.fromkeys(vars(self), AMOUNT))


class HttpSink(TwoPhaseCommittingSink):
    """Records as requests to an endpoint.

    ::

        HttpSink(
            "https://collector.example/events",
            lambda event: json.dumps(event).encode(),
            headers={"Authorization": f"Bearer {token}"},
            batching=HttpBatching(records=200),
        )

    ``body`` says how a batch becomes a body: ``"lines"`` (one record a line), ``"array"`` (a JSON
    array), ``"joined"`` (one after the other), or a function of the list of bytes.
    """

    def __init__(
        self,
        url: str,
        schema: "SerializationSchema | Callable[[Record], bytes]",
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        body: "str | Callable[[list[bytes]], bytes]" = "lines",
        batching: HttpBatching | None = None,
        limits: HttpLimits | None = None,
        guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE,
    ) -> None:
        self.method = method
        self.schema = schema
        self.body = body
        self.guarantee = guarantee
        check_settings(self, CHECKS)
        lines: Mapping[str, object] = headers or {}
        for name, value in lines.items():
            if not isinstance(value, str) or set(f"{name}{value}") & set("\r\n"):
                raise PlanInvalid(f"HttpSink: the header {name!r} is no text of one line")
        kind = "application/octet-stream" if callable(body) else BODIES[body][0]
        named = {name.lower() for name in headers or ()}
        given = {} if "content-type" in named else {"Content-Type": kind}
        self.endpoint = HttpEndpoint(url, method, {**given, **(headers or {})})
        self.batching = batching or HttpBatching()
        self.limits = limits or HttpLimits()

    @property
    def default_name(self) -> str:
        return f"HTTP {self.endpoint.address}"

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        maker = MessageMaker(bytes_maker(self.schema), context)
        batching, limits = self.batching, self.limits
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return StagingWriter(
                maker.messages,
                context,
                limits.pending_bytes,
                batch_messages=batching.records,
                batch_bytes=batching.bytes,
                advice="raise pending_bytes of HttpLimits, or use DeliveryGuarantee.AT_LEAST_ONCE",
            )
        return PostingWriter(self, maker, context)

    def create_committer(self, context: ConnectorContext) -> "HttpCommitter":
        library("urllib3", "http", "HttpSink")
        poster = Poster(self.endpoint, self.limits, whose(context), context)
        return HttpCommitter(poster, self)

    def join(self, parts: list[bytes]) -> bytes:
        """The body of a batch."""
        function: Any = self.body if callable(self.body) else BODIES[self.body][1]
        made: bytes = function(parts)
        return made


class HttpCommitter(Committer):
    """Sends batches; the endpoint knows by their keys which of them it has."""

    def __init__(self, poster: Poster, sink: HttpSink) -> None:
        self._poster = poster
        self._sink = sink

    def commit(self, committables: Sequence[Record]) -> None:
        due = [
            (self._sink.join(parts), f"{writer}-{number}")
            for writer, number, parts in batches_of(committables)
        ]
        in_flight = min(self._sink.limits.in_flight, len(due))
        if in_flight < 2:
            for body, key in due:
                self._poster.post(body, key)
            return
        with ThreadPoolExecutor(in_flight, "http commit") as pool:
            answers = [pool.submit(self._poster.post, body, key) for body, key in due]
            try:
                for answer in answers:
                    answer.result()
            except BaseException:
                self._poster.stop()  # the job is restarted
                pool.shutdown(cancel_futures=True)
                raise

    def close(self) -> None:
        self._poster.close()
