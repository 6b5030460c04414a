"""The thread of a NATS source: it pulls messages from the server in the order of the stream.

It asks a consumer of its own, which keeps nothing and is made anew behind the last message whenever
something went wrong. Law: messages come in the order of the stream, none twice; one that did not
get through shows as a gap in the consumer's numbers, and is asked for again.
"""

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headgate.base.errors import RecordsLost
from headgate.connectors.background import ReadBatch, ReadQueue
from headgate.connectors.libraries import library
from headgate.connectors.nats.client import ANSWER_S, NatsServers, stream_of
from headgate.connectors.retries import RECONNECT_S, backoff_s

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
    """Behind a message of a stream; what a reader keeps in checkpoints."""

    sequence: int
    created: str
    """When the stream was created: another of the same name is not this one."""

    def __str__(self) -> str:
        return f"sequence {self.sequence}"


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What to read."""

    servers: NatsServers
    stream: str
    subjects: tuple[str, ...]
    stop: int | None
    goes_on: bool
    """Whether messages that are gone are passed over."""


class SequenceFetcher:
    """Started by the first poll, ended by the reader's ``close``."""

    def __init__(self, plan: FetchPlan, place: NatsPlace) -> None:
        self.pending: int | None = None
        """How many messages the server has not sent yet, as it last said."""
        self._plan = plan
        self._place = place
        self._thread = threading.Thread(target=self._run, name=f"nats {plan.stream}", daemon=True)
        self._queue: ReadQueue | None = None
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._room: asyncio.Event | None = None
        self._well_s = 0.0
        """When the server has last answered."""

    # The task.

    def start(self, queue: ReadQueue) -> None:
        if self._queue is None:
            self._queue = queue
            self._thread.start()

    def has_room(self) -> None:
        """The queue was full, and is so no more."""
        loop, room = self._loop, self._room
        if loop is not None and room is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(room.set)

    def close(self) -> None:
        self._closing = True
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        if self._thread.is_alive():
            self._thread.join()

    # The thread.

    def _run(self) -> None:
        assert self._queue is not None
        failure: BaseException | None = None
        try:
            asyncio.run(self._read())
        except asyncio.CancelledError:
            pass
        except Exception as error:
            failure = self._plan.servers.problem(error, f"reading stream {self._plan.stream!r}")
            if failure is not error:
                failure.__cause__ = error
        finally:
            self._queue.end(failure)

    async def _read(self) -> None:
        self._room = asyncio.Event()
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._well_s = time.monotonic()
        attempt = 0
        while not self._closing:
            try:
                await self._session()
                return
            except Exception as error:
                is_late = time.monotonic() - self._well_s > RECONNECT_S
                if is_late or not self._plan.servers.may_pass(error):
                    raise
            await asyncio.sleep(backoff_s(attempt))
            attempt = min(attempt + 1, 5)

    async def _session(self) -> None:
        """One connection, until the end of the split or trouble."""
        plan = self._plan
        client = await plan.servers.connect(f"source {plan.stream}")
        try:
            js = client.jetstream()
            if await self._look(js, None):
                return
            pull = await Pull.begin(client, js, plan.stream, self._config())
            while not self._closing:  # the client may swallow that it was cancelled
                self._well_s = time.monotonic()
                await self._wait_for_room()
                messages = await pull.messages(PULL_MESSAGES)
                if messages:
                    if await self._enqueue(js, messages):
                        return
                elif await self._look(js, pull):
                    return
        finally:
            await client.close()

    def _config(self) -> Any:
        api = library("nats.js.api", "nats", "NatsSource")
        subjects = self._plan.subjects
        return api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._place.sequence + 1,
            filter_subject=subjects[0] if len(subjects) == 1 else None,
        )

    async def _wait_for_room(self) -> None:
        assert self._queue is not None and self._room is not None
        while self._queue.is_full and not self._closing:
            self._room.clear()
            if self._queue.is_full:  # or there was room between the two
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._room.wait(), 1.0)

    async def _enqueue(self, js: Any, messages: list[Any]) -> bool:
        """Whether the end was reached."""
        assert self._queue is not None
        plan, stop = self._plan, self._plan.stop
        metas = [message.metadata for message in messages]
        if not plan.subjects and metas[0].sequence.stream > self._place.sequence + 1:
            self._check(await stream_of(js, plan.servers, plan.stream))
        last = metas[-1].sequence.stream
        found = [
            _message(message, meta)
            for message, meta in zip(messages, metas, strict=True)
            if (stop is None or meta.sequence.stream <= stop) and self._is_wanted(message.subject)
        ]
        self.pending = metas[-1].num_pending
        self._move(found, last)
        return stop is not None and last >= stop

    def _move(self, found: list[NatsMessage], last: int) -> None:
        assert self._queue is not None
        created = self._place.created
        self._place = NatsPlace(last, created)
        if found:
            places = [NatsPlace(message.sequence, created) for message in found]
            times = [message.timestamp_ms for message in found]
            size = sum(len(message.data) for message in found)
            self._queue.add(ReadBatch(found, times, places, size))

    def _is_wanted(self, subject: str) -> bool:
        subjects = self._plan.subjects
        return len(subjects) < 2 or any(subject_matches(each, subject) for each in subjects)

    async def _look(self, js: Any, pull: "Pull | None") -> bool:
        """What is gone, and how far it is; whether the end was reached."""
        plan = self._plan
        info = await stream_of(js, plan.servers, plan.stream)
        self._check(info)
        if pull is None:
            return plan.stop is not None and self._place.sequence >= plan.stop
        try:
            asked = await js.consumer_info(plan.stream, pull.name)
        except library("nats.js.errors", "nats", "NatsSource").NotFoundError:
            raise ConnectionError("the server has removed the consumer") from None
        self.pending = asked.num_pending
        last = info.state.last_seq
        if asked.num_pending == 0 and asked.delivered.consumer_seq == pull.received:
            # Nothing of these subjects was there up to the end of the stream as it was before.
            self._place = NatsPlace(max(last, self._place.sequence), self._place.created)
            assert self._queue is not None
            self._queue.add(ReadBatch((), (), (self._place,), 0))
            return plan.stop is not None and last >= plan.stop
        return False

    def _check(self, info: Any) -> None:
        """Whether messages behind the place are gone."""
        place, plan = self._place, self._plan
        first, last, created = info.state.first_seq, info.state.last_seq, created_at(info)
        name = f"stream {plan.stream!r} of {plan.servers.address}"
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
        if not plan.goes_on:
            raise RecordsLost(
                f"NatsSource: {problem}: {why}; on_purged='continue' goes on with the oldest "
                f"message that is there"
            )


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
        """Those that are there; waits for the first; empty: none within a second or so."""
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


async def pulled(client: Any, js: Any, stream: str, config: Any, limit: int) -> list[Any]:
    """Up to ``limit`` messages that are there, by a consumer that is used once."""
    pull = await Pull.begin(client, js, stream, config)
    return await pull.messages(limit)


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
