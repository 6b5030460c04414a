"""Subjects of NATS JetStream as a sink, at least once or exactly once.

At least once, messages are published at once and the task waits until the stream has stored them.
Exactly once they wait in the task and in its checkpoints, and are published when the checkpoint
completes. Law: a message has one id (writer, batch, place), whoever publishes it and however often,
so that the stream drops repetitions within its deduplication window; a run that goes on from a
checkpoint reads the ids that are in the stream since, so that it needs no window.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, PlanInvalid, ServerUnready, TaskCancelled
from headgate.connectors.checks import COUNT, GUARANTEE, SERIALIZER, check_settings
from headgate.connectors.formats.schemas import SerializationSchema, bytes_maker
from headgate.connectors.libraries import library
from headgate.connectors.nats.client import ANSWER_S, LoopThread, NatsServers, stream_of
from headgate.connectors.nats.source import Pull, subject_matches
from headgate.connectors.servers import RECONNECT_S, Sleep, backoff_s
from headgate.connectors.staged import (
    PENDING_BYTES,
    DirectWriter,
    MessageLot,
    MessageMaker,
    Staged,
    StagingWriter,
    batches_of,
    checked,
    whose,
)
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import (
    Committer,
    CommittingSinkWriter,
    DeliveryGuarantee,
    TwoPhaseCommittingSink,
)

SCANNED: Final = 500
"""Messages that are asked for at once when ids are looked for."""
_MSG_ID: Final = "Nats-Msg-Id"

Result = TypeVar("Result")


class StreamPublisher:
    """One task's connection, opened when it is needed and again after trouble."""

    def __init__(
        self,
        servers: NatsServers,
        stream: str | None,
        subject: str | None,
        whose: str,
        in_flight: int,
        sleep: Sleep = time.sleep,
    ) -> None:
        """``subject``: of all messages; None: they differ, and ``stream`` is named."""
        self._servers = servers
        self._stream = stream
        self._subject = subject
        self._whose = whose
        self._in_flight = in_flight
        self._sleep = sleep
        self._thread: LoopThread | None = None
        self._client: Any = None
        self._window_s = 0.0
        """How long the stream remembers ids."""
        self._patterns: tuple[str, ...] = ()
        """Subjects that the stream takes."""

    def last_sequence(self) -> int:
        """The sequence of the last message that the stream has stored."""
        return self._call("looking at the stream", self._last_sequence())

    def largest(self) -> int:
        """How many bytes a message may have, its headers included."""

        async def ask() -> int:
            await self._js()
            return int(self._client.max_payload)

        return self._call("looking at the server", ask())

    def publish(self, messages: Sequence[tuple[str, str, bytes]]) -> None:
        """Messages are an id, a subject and data each."""
        if messages:
            self._call("publishing", self._publish_all(list(messages)))

    def ids_since(self, sequence: int, writers: frozenset[str]) -> frozenset[str]:
        """Ids of messages of these writers that are stored after a sequence."""
        return self._call("looking for what is stored", self._ids_since(sequence, writers))

    def close(self) -> None:
        """Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.call(self._disconnect)
            finally:
                thread.close()

    def _call(self, doing: str, work: Coroutine[Any, Any, Result]) -> Result:
        if self._thread is None:
            self._thread = LoopThread(f"nats {self._whose}")
        try:
            return self._thread.call(lambda: work, self._sleep)
        except TaskCancelled:
            raise
        except Exception as error:
            raise self._servers.problem(error, f"{self._whose}: {doing}") from error

    # On the thread of the loop.

    async def _js(self) -> Any:
        if self._client is None or self._client.is_closed:
            await self._disconnect()
            self._client = await self._servers.connect(self._whose)
            js = self._client.jetstream(timeout=ANSWER_S)
            if self._stream is None:
                self._stream = await self._find_stream(js)
            info = await stream_of(js, self._servers, self._stream)
            self._window_s = info.config.duplicate_window or 120.0
            self._patterns = tuple(info.config.subjects or ())
        return self._client.jetstream(timeout=ANSWER_S)

    async def _find_stream(self, js: Any) -> str:
        errors = library("nats.js.errors", "nats", "NatsSink")
        try:
            name: str = await js.find_stream_name_by_subject(self._subject)
            return name
        except errors.NotFoundError:
            raise PlanInvalid(
                f"NatsSink: no stream of {self._servers.address} takes the subject "
                f"{self._subject!r}; create one first, for instance with: nats stream add"
            ) from None

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _last_sequence(self) -> int:
        js = await self._js()
        assert self._stream is not None
        info = await stream_of(js, self._servers, self._stream)
        return int(info.state.last_seq)

    async def _publish_all(self, messages: list[tuple[str, str, bytes]]) -> None:
        begun_s, attempt = time.monotonic(), 0
        while messages:
            chunk = messages[: self._in_flight]
            error: Exception
            try:
                js = await self._js()
                sends = [self._send(js, *each) for each in chunk]
                answers = await asyncio.gather(*sends, return_exceptions=True)
                failed = [
                    each
                    for each, answer in zip(chunk, answers, strict=True)
                    if isinstance(answer, BaseException)
                ]
                messages[: len(chunk)] = failed
                if not failed:
                    begun_s, attempt = time.monotonic(), 0
                    continue
                raise next(each for each in answers if isinstance(each, BaseException))
            except Exception as caught:
                error = caught
            give_up_s = begun_s + min(RECONNECT_S, self._window_s / 2 or RECONNECT_S)
            if not self._servers.may_pass(error) or time.monotonic() > give_up_s:
                raise error
            await asyncio.sleep(backoff_s(attempt))
            attempt += 1

    async def _send(self, js: Any, identity: str, subject: str, data: bytes) -> None:
        errors = library("nats.js.errors", "nats", "NatsSink")
        try:
            await js.publish(subject, data, stream=self._stream, headers={_MSG_ID: identity})
        except errors.NoStreamResponseError:
            text = f"stream {self._stream!r} of {self._servers.address}"
            if any(subject_matches(pattern, subject) for pattern in self._patterns):
                raise ServerUnready(f"NatsSink: {text} cannot be written now") from None
            raise ConnectorError(
                f"NatsSink: {text} does not take the subject {subject!r}; let the function return "
                f"one of {', '.join(self._patterns)}, or add it to the stream"
            ) from None

    async def _ids_since(self, sequence: int, writers: frozenset[str]) -> frozenset[str]:
        js = await self._js()
        assert self._stream is not None
        last = (await stream_of(js, self._servers, self._stream)).state.last_seq
        api = library("nats.js.api", "nats", "NatsSink")
        config = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=sequence + 1,
            filter_subject=self._subject,
            headers_only=True,
        )
        found: set[str] = set()
        if sequence >= last:
            return frozenset()
        pull = await Pull.begin(self._client, js, self._stream, config)
        while True:
            messages = await pull.messages(SCANNED)
            for message in messages:
                identity = (message.headers or {}).get(_MSG_ID, "")
                if identity.partition("-")[0] in writers:
                    found.add(identity)
            if messages and messages[-1].metadata.sequence.stream >= last:
                break
            # No message for a while does not mean that there is none: a server may be slow.
            asked = await js.consumer_info(self._stream, pull.name)
            if asked.num_pending == 0 and asked.delivered.consumer_seq == pull.received:
                break
        return frozenset(found)


IN_FLIGHT: Final = 512
HEADER_BYTES: Final = 256
"""What a message's id and the name of the stream take at most."""


CHECKS: Final = {
    "schema": SERIALIZER,
    "guarantee": GUARANTEE,
    "max_in_flight": COUNT,
    "max_pending_bytes": COUNT,
}


@dataclass(eq=False, repr=False)
class NatsSink(TwoPhaseCommittingSink):
    """Records as messages of a stream.

    ::

        NatsSink("nats://localhost:4222", "orders.new", SimpleStringSchema())
        NatsSink(url, lambda order: f"orders.{order.country}", to_json, stream="ORDERS")

    ``subject`` is that of all messages, or a function of the record; then name the ``stream`` that
    takes them.
    """

    servers: "str | Sequence[str]"
    """``nats://host:4222``, or a list of such URLs."""
    subject: "str | Callable[[Record], str]"
    schema: "SerializationSchema | Callable[[Record], bytes]"
    _: KW_ONLY
    stream: str | None = None
    guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE
    max_in_flight: int = IN_FLIGHT
    max_pending_bytes: int = PENDING_BYTES
    credentials: str | None = None

    def __post_init__(self) -> None:
        self.nats = NatsServers.given("NatsSink", self.servers, self.credentials)
        if not callable(self.subject):
            check_subject(self.subject)
        elif self.stream is None:
            raise PlanInvalid(
                "NatsSink: the subject is a function, so the stream cannot be found by it; name "
                "it with stream="
            )
        check_settings(self, CHECKS)

    @property
    def default_name(self) -> str:
        return f"NATS {self.subject if isinstance(self.subject, str) else self.stream}"

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        publisher = checked(self.publisher(context), StreamPublisher.largest)
        limit = publisher.largest() - HEADER_BYTES
        make = MessageMaker(message_maker(self.subject, self.schema, limit), context).messages
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return StagingWriter(
                make,
                context,
                self.max_pending_bytes,
                lot=partial(_lot, publisher),
                close=publisher.close,
            )
        writer, numbers = secrets.token_hex(8), count(1)

        def publish(messages: list[tuple[str, bytes]]) -> None:
            publisher.publish(numbered(writer, next(numbers), messages))

        return DirectWriter(make, publish, publisher.close)

    def create_committer(self, context: ConnectorContext) -> "NatsCommitter":
        return NatsCommitter(checked(self.publisher(context), StreamPublisher.last_sequence))

    def publisher(self, context: ConnectorContext) -> StreamPublisher:
        subject = self.subject if isinstance(self.subject, str) else None
        return StreamPublisher(
            self.nats, self.stream, subject, whose(context), self.max_in_flight, context.sleep
        )


class NatsCommitter(Committer):
    """Publishes what is not in the stream yet."""

    def __init__(self, publisher: StreamPublisher) -> None:
        self._publisher = publisher

    def commit(self, committables: Sequence[Record]) -> None:
        self._publish(committables, frozenset())

    def commit_again(self, committables: Sequence[Record]) -> None:
        lots: Sequence[MessageLot] = committables
        if lots:
            writers = frozenset(lot.writer for lot in lots)
            since = min(lot.since for lot in lots)
            self._publish(lots, self._publisher.ids_since(since, writers))

    def close(self) -> None:
        self._publisher.close()

    def _publish(self, lots: Sequence[MessageLot], stored: frozenset[str]) -> None:
        for writer, number, messages in batches_of(lots):
            named = numbered(writer, number, messages)
            self._publisher.publish([each for each in named if each[0] not in stored])


def _lot(publisher: StreamPublisher, staged: Staged) -> MessageLot:
    """With the length that the stream had when it was staged."""
    return MessageLot(staged.writer, staged.first, staged.batches, publisher.last_sequence())


def numbered(
    writer: str, number: int, messages: Iterable[tuple[str, bytes]]
) -> list[tuple[str, str, bytes]]:
    """Messages with their ids."""
    return [
        (f"{writer}-{number}-{place}", subject, data)
        for place, (subject, data) in enumerate(messages)
    ]


def message_maker(
    subject: "str | Callable[[Record], str]",
    schema: "SerializationSchema | Callable[[Record], bytes]",
    limit: int,
) -> Callable[[Record], tuple[str, bytes]]:
    """What makes subject and data of a record, of ``limit`` bytes at most."""
    serialize = bytes_maker(schema)

    def make(record: Record) -> tuple[str, bytes]:
        name = subject if isinstance(subject, str) else subject(record)
        if name is not subject:
            check_subject(name)
        data = serialize(record)
        if len(data) > limit:
            raise ValueError(f"it has {len(data)} bytes, and the server takes {limit}")
        return name, data

    return make


def check_subject(subject: object) -> None:
    """Raises PlanInvalid for what nothing can be published to."""
    if (
        not isinstance(subject, str)
        or not all(subject.split("."))
        or set(subject) & set("*> \t\r\n")
    ):
        raise PlanInvalid(
            f"NatsSink was given the subject {subject!r}; give names with dots between them, "
            f"without spaces, * and >"
        )
