"""Subjects of NATS JetStream as a sink, at least once or exactly once.

At least once, messages are published at once and the task waits until the stream has stored them.
Exactly once they wait in the task and in its checkpoints, and are published when the checkpoint
completes. Law: a message has one id (writer, batch, place), whoever publishes it and however often,
so that the stream drops repetitions within its deduplication window; a run that goes on from a
checkpoint reads the ids that are in the stream since, so that it needs no window.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Final

from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.connectors.checks import COUNT, GUARANTEE, SERIALIZER, check_settings
from headgate.connectors.formats.schemas import SerializationSchema, bytes_maker
from headgate.connectors.nats.client import NatsServers
from headgate.connectors.nats.publisher import StreamPublisher
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

IN_FLIGHT: Final = 512
HEADER_BYTES: Final = 256
"""Of each message, for its id and the name of the stream."""


CHECKS: Final = {
    "schema": SERIALIZER,
    "guarantee": GUARANTEE,
    "max_in_flight": COUNT,
    "max_pending_bytes": COUNT,
}


class NatsSink(TwoPhaseCommittingSink):
    """Records as messages of a stream.

    ::

        NatsSink("nats://localhost:4222", "orders.new", SimpleStringSchema())
        NatsSink(url, lambda order: f"orders.{order.country}", to_json, stream="ORDERS")

    ``subject`` is that of all messages, or a function of the record; then name the ``stream`` that
    takes them.
    """

    def __init__(
        self,
        servers: "str | Sequence[str]",
        subject: "str | Callable[[Record], str]",
        schema: "SerializationSchema | Callable[[Record], bytes]",
        *,
        stream: str | None = None,
        guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE,
        max_in_flight: int = IN_FLIGHT,
        max_pending_bytes: int = PENDING_BYTES,
        credentials: str | None = None,
    ) -> None:
        self.servers = NatsServers.given("NatsSink", servers, credentials)
        if not callable(subject):
            check_subject(subject)
        elif stream is None:
            raise PlanInvalid(
                "NatsSink: the subject is a function, so the stream cannot be found by it; name "
                "it with stream="
            )
        self.subject = subject
        self.schema = schema
        self.stream = stream
        self.guarantee = guarantee
        self.max_in_flight = max_in_flight
        self.max_pending_bytes = max_pending_bytes
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
            self.servers, self.stream, subject, whose(context), self.max_in_flight, context.sleep
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
