"""A stream of NATS JetStream as a source: one split; the position is a sequence of the stream.

Law: positions are kept in the checkpoints of the job; the server is not told what was read, so that
each message counts once in the job's state. Messages that were removed before they were read are
named. One task reads the stream, through ``fetcher``.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple, cast

from headgate.connectors.background import MessageSource, QueueReader
from headgate.connectors.checks import (
    COUNT,
    DESERIALIZER,
    Check,
    check_settings,
    matching,
    one_of,
    optional,
)
from headgate.connectors.formats.schemas import DeserializationSchema
from headgate.connectors.libraries import library
from headgate.connectors.nats.client import NatsServers, stream_of
from headgate.connectors.nats.fetcher import (
    FetchPlan,
    NatsPlace,
    SequenceFetcher,
    created_at,
    pulled,
)
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position

CHECKS: Final = {
    "stream": matching("[^ .*>]+", "its name, without spaces, dots, * and >"),
    "schema": optional(DESERIALIZER),
    "on_purged": one_of("fail", "continue"),
    "start": Check(
        "'all', 'new', 'last', a sequence from 1 on, or a datetime with a time zone",
        lambda start: (
            start in ("all", "new", "last")
            or COUNT.is_right(start)
            or (isinstance(start, datetime) and start.tzinfo is not None)
        ),
    ),
}


class NatsSplit(NamedTuple):
    """The stream, from behind its start to its stop (inclusive)."""

    stream: str
    start: NatsPlace
    stop: int | None


class NatsSource(MessageSource):
    """Messages of a stream, all or those of some subjects.

    ::

        NatsSource("nats://localhost:4222", "ORDERS", "orders.eu.>", schema=SimpleStringSchema())

    Without a schema records are ``NatsMessage`` with subject, sequence, time, headers and data. The
    time at which the server has taken a message is its event time. ``start`` is "all", "new" (those
    after the start of the job), "last" (from the last one on), the sequence of the first message,
    or a datetime with a time zone; a job that goes on from a checkpoint goes on where that was
    taken. ``bounded=True`` ends with the messages that are there when the job starts.
    """

    def __init__(
        self,
        servers: "str | Sequence[str]",
        stream: str,
        subjects: "str | Sequence[str]" = (),
        *,
        schema: DeserializationSchema | None = None,
        start: "str | int | datetime" = "all",
        bounded: bool = False,
        on_purged: str = "fail",
        credentials: str | None = None,
    ) -> None:
        self.servers = NatsServers.given("NatsSource", servers, credentials)
        self.stream = stream
        self.subjects = (subjects,) if isinstance(subjects, str) else tuple(subjects)
        self.schema = schema
        self.start = start
        self.is_bounded = bounded
        self.on_purged = on_purged
        check_settings(self, CHECKS)

    @property
    def default_name(self) -> str:
        return f"NATS {self.stream}"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.stream,)

    def find(self, names: Sequence[str], is_first: bool) -> list[NatsSplit]:
        return [asyncio.run(self._find(self.start if is_first else "all"))]

    def open(self, split: object, position: Position, context: ConnectorContext) -> QueueReader:
        # Read as tuples: what a checkpoint brings back need not be of the same class.
        stream, start, stop = cast("NatsSplit", split)
        place = NatsPlace(*cast("NatsPlace", start if position is None else position))
        goes_on = self.on_purged == "continue"
        plan = FetchPlan(self.servers, stream, self.subjects, stop, goes_on)
        decode = self.decoder(attrgetter("data"))
        return QueueReader(SequenceFetcher(plan, place), decode, place, context)

    async def _find(self, start: "str | int | datetime") -> NatsSplit:
        client = await self.servers.connect("start")
        try:
            js = client.jetstream()
            info = await stream_of(js, self.servers, self.stream)
            last = info.state.last_seq
            begin = await self._sequence(client, js, info, start)
            place = NatsPlace(max(begin, info.state.first_seq - 1, 0), created_at(info))
            return NatsSplit(self.stream, place, last if self.bounded else None)
        except Exception as error:
            raise self.servers.problem(error, f"looking at stream {self.stream!r}") from error
        finally:
            await client.close()

    async def _sequence(
        self, client: Any, js: Any, info: Any, start: "str | int | datetime"
    ) -> int:
        """Reading begins after this one."""
        first, last = info.state.first_seq, info.state.last_seq
        if isinstance(start, int):
            return start - 1
        if isinstance(start, datetime):
            api = library("nats.js.api", "nats", "NatsSource")
            config = api.ConsumerConfig(
                deliver_policy=api.DeliverPolicy.BY_START_TIME, opt_start_time=start
            )
            found = await pulled(client, js, self.stream, config, 1)
            return found[0].metadata.sequence.stream - 1 if found else int(last)
        if start == "last" and last >= first and info.state.messages:
            return int(last) - 1
        return int(first) - 1 if start == "all" else int(last)
