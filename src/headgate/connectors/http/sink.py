"""Records sent to an HTTP endpoint in batches: at least once, or once if the endpoint knows keys.

At least once, batches are sent as soon as they are full or old enough. With ``EXACTLY_ONCE`` they
wait in the task and in its checkpoints, and are sent when the checkpoint completes. Law: a batch
keeps its records and its ``Idempotency-Key`` (writer and number) over retries and over a restart
of the job, so an endpoint that honours keys takes each record once.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.connectors.checks import AMOUNT, GUARANTEE, SERIALIZER, Check, check_settings, one_of
from headgate.connectors.formats.schemas import SerializationSchema, bytes_maker
from headgate.connectors.http.poster import HttpEndpoint, HttpLimits, Poster
from headgate.connectors.http.posting_writer import PostingWriter
from headgate.connectors.libraries import library
from headgate.connectors.staged import MessageMaker, StagingWriter, batches_of, whose
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import (
    Committer,
    CommittingSinkWriter,
    DeliveryGuarantee,
    TwoPhaseCommittingSink,
)

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
        poster = Poster(self.endpoint, limits, whose(context), context)
        return PostingWriter(
            poster,
            maker,
            self.join,
            (batching.records, batching.bytes, batching.linger_ms / 1000),
            limits.in_flight,
            context,
        )

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
