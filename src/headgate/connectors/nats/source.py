"""A stream of NATS JetStream as a source: one split; the position is a sequence of the stream.

A thread asks a consumer of its own, which keeps nothing and is made anew after the last message
whenever something goes wrong. Law: positions are kept in the checkpoints of the job; the server is
not told what was read, so that each message counts once in the job's state. Messages come in the
order of the stream, none twice; one that is lost on the way shows as a gap in the consumer's
numbers, and is asked for again. Messages that were removed before they were read are named.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple, cast

from headgate.connectors.background import (
    Fetcher,
    MessageSource,
    QueueReader,
    ReadBatch,
    ReadQueue,
    check_lost,
)
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
from headgate.connectors.nats.client import ANSWER_S, NatsServers, stream_of
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position

PULL_MESSAGES: Final = 500
PULL_S: Final = 1.0
"""For so long the server waits for messages before it says that there are none."""
LOOK_S: Final = 0.5
"""Between two looks at a connection on which nothing arrives."""
LINGER_S: Final = 60.0
"""A consumer that nobody asks for so long is removed by the server."""
_NOTHING_NOW: Final = ("404", "408")


class NatsMessage(NamedTuple):
    """A message as it is in the stream."""

    subject: str
    sequence: int
    timestamp_ms: int
    """When the server has taken it, in milliseconds since 1970."""
    headers: Mapping[str, str]
    data: bytes


class NatsPlace(NamedTuple):
    """The place after a message of a stream; what a reader keeps in checkpoints."""

    sequence: int
    created: str
    """When the stream was created: another of the same name is not this one."""

    def __str__(self) -> str:
        return f"sequence {self.sequence}"


class SequenceFetcher(Fetcher):
    """Each session is an event loop of its own."""

    def __init__(
        self, source: "NatsSource", stream: str, place: NatsPlace, stop: int | None
    ) -> None:
        super().__init__(source.nats, f"stream {stream!r}")
        self._pending: int | None = None
        """How many messages the server has not sent yet, as it last said."""
        self._source = source
        self._stream = stream
        self._stop = stop
        self._place = place
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    def session(self, queue: ReadQueue) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._session(queue))

    def stop(self) -> None:
        if self._running is not None:
            loop, task = self._running
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(task.cancel)

    def unread(self, position: Position, queued: int) -> int | None:
        return None if self._pending is None else self._pending + queued

    async def _session(self, queue: ReadQueue) -> None:
        """One connection, until the end of the split or trouble."""
        task = asyncio.current_task()
        assert task is not None
        self._running = asyncio.get_running_loop(), task
        source = self._source
        client = await source.nats.connect(f"source {self._stream}")
        try:
            js = client.jetstream()
            if await self._check_progress(js, None, queue):
                return
            pull = await Pull.begin(client, js, self._stream, self._config())
            while not queue.closing:  # the client may swallow that it was cancelled
                self.well()
                while queue.is_full and not queue.closing:
                    await asyncio.to_thread(queue.wait_for_room, 1.0)
                messages = await pull.messages(PULL_MESSAGES)
                if messages:
                    if await self._enqueue(js, messages, queue):
                        return
                elif await self._check_progress(js, pull, queue):
                    return
        finally:
            await client.close()

    def _config(self) -> Any:
        api = library("nats.js.api", "nats", "NatsSource")
        subjects = self._source.subjects
        return api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._place.sequence + 1,
            filter_subject=subjects[0] if len(subjects) == 1 else None,
        )

    async def _enqueue(self, js: Any, messages: list[Any], queue: ReadQueue) -> bool:
        """Whether the end was reached."""
        source, stop = self._source, self._stop
        metas = [message.metadata for message in messages]
        if not source.subjects and metas[0].sequence.stream > self._place.sequence + 1:
            self._check(await stream_of(js, source.nats, self._stream))
        last = metas[-1].sequence.stream
        found = [
            _message(message, meta)
            for message, meta in zip(messages, metas, strict=True)
            if (stop is None or meta.sequence.stream <= stop) and self._is_wanted(message.subject)
        ]
        self._pending = metas[-1].num_pending
        created = self._place.created
        self._place = NatsPlace(last, created)
        if found:
            places = [NatsPlace(message.sequence, created) for message in found]
            times = [message.timestamp_ms for message in found]
            size = sum(len(message.data) for message in found)
            queue.add(ReadBatch(found, times, places, size))
        return stop is not None and last >= stop

    def _is_wanted(self, subject: str) -> bool:
        subjects = self._source.subjects
        return len(subjects) < 2 or any(subject_matches(each, subject) for each in subjects)

    async def _check_progress(self, js: Any, pull: "Pull | None", queue: ReadQueue) -> bool:
        """What is gone, and how far it is; whether the end was reached."""
        source = self._source
        info = await stream_of(js, source.nats, self._stream)
        self._check(info)
        if pull is None:
            return self._stop is not None and self._place.sequence >= self._stop
        try:
            asked = await js.consumer_info(self._stream, pull.name)
        except library("nats.js.errors", "nats", "NatsSource").NotFoundError:
            raise ConnectionError("the server has removed the consumer") from None
        self._pending = asked.num_pending
        last = info.state.last_seq
        if asked.num_pending == 0 and asked.delivered.consumer_seq == pull.received:
            # Nothing of these subjects was there up to the end of the stream as it was before.
            self._place = NatsPlace(max(last, self._place.sequence), self._place.created)
            queue.add(ReadBatch((), (), (self._place,), 0))
            return self._stop is not None and last >= self._stop
        return False

    def _check(self, info: Any) -> None:
        """Whether messages after the place are gone."""
        place, source = self._place, self._source
        first, last, created = info.state.first_seq, info.state.last_seq, created_at(info)
        name = f"{self.what} of {source.nats.address}"
        is_another = bool(created and place.created) and created != place.created
        if is_another or last < place.sequence:
            problem = f"{name} is not the one that was read up to {place}"
            why = "it was deleted and created anew, or the server has lost what it had stored"
            self._place = NatsPlace(max(0, first - 1), created)
        elif first > place.sequence + 1:
            problem = f"messages {place.sequence + 1} to {first - 1} of {name} are gone unread"
            why = "they were purged, or the stream's limits removed them; let it keep more"
            self._place = NatsPlace(first - 1, created)
        else:
            return
        option = "on_purged='continue' goes on with the oldest message that is there"
        check_lost(self.server.user, problem, why, option, source.on_purged == "continue")


class Pull:
    """Asks a consumer for messages, and notices if some have not got through."""

    def __init__(self, client: Any, stream: str, name: str, inbox: str) -> None:
        self.name = name
        self.received = 0
        self._client = client
        self._inbox = inbox
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        self._left = 0
        """What was asked for and has not come."""
        self._arrived: deque[Any] = deque()
        self._has_arrived = asyncio.Event()

    @classmethod
    async def begin(cls, client: Any, js: Any, stream: str, config: Any) -> "Pull":
        """Makes the consumer, which the server removes when nobody asks it any more."""
        api = library("nats.js.api", "nats", "NatsSource")
        config.ack_policy = api.AckPolicy.NONE
        config.mem_storage = True
        config.num_replicas = 1
        config.inactive_threshold = LINGER_S
        info = await js.add_consumer(stream, config=config)
        pull = cls(client, stream, info.name, client.new_inbox())
        await client.subscribe(pull._inbox, cb=pull._receive)
        return pull

    async def messages(self, limit: int) -> list[Any]:
        """The messages that are there; waits for the first; empty: none within a second or so."""
        if self._left == 0:
            self._left = limit
            ask = {"batch": limit, "expires": int(PULL_S * 1e9)}
            await self._client.publish(self._subject, json.dumps(ask).encode(), self._inbox)
        await self._wait()
        found: list[Any] = []
        while self._arrived:
            message = self._arrived.popleft()
            status = message.headers.get("Status") if message.headers else None
            if status is None:
                self._take(message)
                found.append(message)
            elif status in _NOTHING_NOW:
                self._left = 0
            elif status != "100":  # the consumer or its server is gone
                raise ConnectionError(f"status {status} of the server")
        return found

    async def _receive(self, message: Any) -> None:
        self._arrived.append(message)
        self._has_arrived.set()

    async def _wait(self) -> None:
        """Until something has arrived; raises if the connection is gone."""
        deadline_s = time.monotonic() + PULL_S + ANSWER_S
        while not self._arrived:
            if self._client.is_closed or time.monotonic() > deadline_s:
                raise ConnectionError("the connection is lost")
            self._has_arrived.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._has_arrived.wait(), LOOK_S)

    def _take(self, message: Any) -> None:
        if message.metadata.sequence.consumer != self.received + 1:
            raise ConnectionError("a message did not get through")
        self.received += 1
        self._left -= 1


def created_at(info: Any) -> str:
    """When a stream was created, as a text; empty: the client is too old to know."""
    return str(getattr(info, "created", None) or "")


def subject_matches(pattern: str, subject: str) -> bool:
    """Whether a subject is one of a pattern with ``*`` and ``>``."""
    names, given = pattern.split("."), subject.split(".")
    for number, name in enumerate(names):
        if name == ">":
            return len(given) > number
        if number >= len(given) or name not in ("*", given[number]):
            return False
    return len(names) == len(given)


def _message(message: Any, meta: Any) -> NatsMessage:
    time_ms = int(meta.timestamp.timestamp() * 1000)
    headers = message.headers or {}
    return NatsMessage(message.subject, meta.sequence.stream, time_ms, headers, message.data)


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
    """The stream, from its start (exclusive) to its stop (inclusive)."""

    stream: str
    start: NatsPlace
    stop: int | None


@dataclass(eq=False, repr=False)
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

    servers: "str | Sequence[str]"
    """``nats://host:4222``, or a list of such URLs."""
    stream: str
    subjects: "str | Sequence[str]" = ()
    _: KW_ONLY
    schema: DeserializationSchema | None = None
    start: "str | int | datetime" = "all"
    bounded: bool = False
    on_purged: str = "fail"
    credentials: str | None = None

    def __post_init__(self) -> None:
        self.nats = NatsServers.given("NatsSource", self.servers, self.credentials)
        self.subjects = (self.subjects,) if isinstance(self.subjects, str) else tuple(self.subjects)
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
        decode = self.decoder(attrgetter("data"))
        return QueueReader(SequenceFetcher(self, stream, place, stop), decode, place, context)

    async def _find(self, start: "str | int | datetime") -> NatsSplit:
        client = await self.nats.connect("start")
        try:
            js = client.jetstream()
            info = await stream_of(js, self.nats, self.stream)
            last = info.state.last_seq
            begin = await self._sequence(client, js, info, start)
            place = NatsPlace(max(begin, info.state.first_seq - 1, 0), created_at(info))
            return NatsSplit(self.stream, place, last if self.bounded else None)
        except Exception as error:
            raise self.nats.problem(error, f"looking at stream {self.stream!r}") from error
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
            pull = await Pull.begin(client, js, self.stream, config)
            found = await pull.messages(1)
            return found[0].metadata.sequence.stream - 1 if found else int(last)
        if start == "last" and last >= first and info.state.messages:
            return int(last) - 1
        return int(first) - 1 if start == "all" else int(last)
