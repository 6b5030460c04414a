"""Streams of Redis as a source: one split per stream; the position is the id of an entry.

Law: positions are kept in the checkpoints of the job, not in a consumer group of the server, so
each entry counts once in the job's state. Nobody tells the server what was read: trimming is left
to those who write. Entries that were trimmed before they were read are noticed by the number of
entries that were ever added, and named. Ids are compared as pairs of numbers, never as texts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, NamedTuple, cast

from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.connectors.background import (
    Fetcher,
    MessageSource,
    QueueReader,
    ReadBatch,
    ReadQueue,
    check_lost,
)
from headgate.connectors.checks import DESERIALIZER, TEXT, Check, check_settings, one_of, optional
from headgate.connectors.formats.schemas import DeserializationSchema, SerializationSchema
from headgate.connectors.redis.client import RedisServer
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position


class EntryId(NamedTuple):
    """When an entry was added, in milliseconds since 1970, and its number within that time."""

    time_ms: int
    number: int

    def __str__(self) -> str:
        return f"{self.time_ms}-{self.number}"

    @classmethod
    def of(cls, text: "str | bytes") -> "EntryId":
        """Raises ValueError for what is no id."""
        words = text.decode() if isinstance(text, bytes) else text
        time_ms, _, number = words.partition("-")
        return cls(int(time_ms), int(number or "0"))


BEGINNING: Final = EntryId(0, 0)
MOST_FIELDS: Final = 2000
"""The most fields of an entry: so many values fit on the stack of a script."""
_SENDABLE: Final = frozenset({str, bytes, int, float})


class RedisEntry(NamedTuple):
    """An entry as it is in the stream."""

    stream: str
    id: str
    fields: dict[Any, Any]
    """Texts, or bytes with ``text=False``."""


class StreamFacts(NamedTuple):
    """What ``XINFO STREAM`` says; of a stream that is not there, zeros."""

    exists: bool
    length: int
    last: EntryId
    """The id of the entry that was added last, also if it is gone."""
    first: EntryId | None
    """The id of the oldest entry that is there."""
    added: int | None
    """How many were added ever; None: the server is older than Redis 7."""

    @classmethod
    def of(cls, info: Mapping[str, Any] | None) -> "StreamFacts":
        """``info`` is None if there is no such key."""
        if info is None:
            return cls(False, 0, BEGINNING, None, 0)
        first = info.get("first-entry")
        return cls(
            True,
            info["length"],
            EntryId.of(info["last-generated-id"]),
            None if first is None else EntryId.of(first[0]),
            info.get("entries-added"),
        )


def entry_reader(
    stream: str, schema: DeserializationSchema | None, field: str, text: bool
) -> Callable[[tuple[bytes, dict[bytes, bytes]]], Record]:
    """What makes a record of an entry as the client brings it."""
    if schema is None:
        return lambda entry: _whole(stream, entry, text)
    key, deserialize = field.encode(), schema.deserialize

    def read(entry: tuple[bytes, dict[bytes, bytes]]) -> Record:
        value = entry[1].get(key)
        if value is None:
            raise ValueError(f"it has no field {field!r}")
        return deserialize(value)

    return read


def _whole(stream: str, entry: tuple[bytes, dict[bytes, bytes]], text: bool) -> RedisEntry:
    identity, fields = entry
    if text:
        words = {key.decode(): value.decode() for key, value in fields.items()}
        return RedisEntry(stream, identity.decode(), words)
    return RedisEntry(stream, identity.decode(), fields)


def field_maker(
    schema: "SerializationSchema | Callable[[Record], Any] | None", field: str
) -> Callable[[Record], tuple[Any, ...]]:
    """What makes fields and values of a record, one after the other, as ``XADD`` takes them."""
    if schema is None:
        return _pairs
    serialize: Any = getattr(schema, "serialize", schema)

    def make(record: Record) -> tuple[Any, ...]:
        value = serialize(record)
        if not isinstance(value, bytes | str):
            raise TypeError(f"the schema returned {type(value).__name__} instead of bytes")
        return field, value

    return make


def _pairs(record: Record) -> tuple[Any, ...]:
    if not isinstance(record, Mapping) or not record:
        raise TypeError(
            f"it is {type(record).__name__} and not a dict with fields; map it to a dict, or give "
            f"the sink a schema"
        )
    if len(record) > MOST_FIELDS:
        raise TypeError(f"it has {len(record)} fields, and {MOST_FIELDS} is the limit")
    flat: list[Any] = []
    for key, value in record.items():
        if type(value) not in _SENDABLE or type(key) not in (str, bytes):
            raise TypeError(
                f"field {key!r} holds {type(value).__name__}; texts, bytes and numbers can be sent"
            )
        flat += (key, value)
    return tuple(flat)


FETCH_ENTRIES: Final = 1000
BLOCK_MS: Final = 200
"""For so long the server lets a reader wait for new entries; closing takes as long at most."""
LOOK_S: Final = 1.0
"""Between two looks at a stream in which nothing is new, or that a task is too slow for."""
CHECKS: Final = {
    "streams": Check(
        "the key of a stream, or a list of keys",
        lambda keys: bool(keys) and all(map(TEXT.is_right, keys)),
    ),
    "schema": optional(DESERIALIZER),
    "on_trimmed": one_of("fail", "continue"),
}


class StreamPlace(NamedTuple):
    """The place after an entry of a stream; what a reader keeps in checkpoints."""

    id: EntryId
    added: int | None
    """How many entries the stream has had up to there; None: not known."""

    def __str__(self) -> str:
        return f"entry {self.id}"


class RedisSplit(NamedTuple):
    """One stream, from its start (exclusive) to its stop (inclusive)."""

    stream: str
    start: StreamPlace
    stop: EntryId | None


@dataclass(eq=False, repr=False)
class RedisStreamSource(MessageSource):
    """Entries of one or more streams.

    ::

        RedisStreamSource("redis://localhost:6379/0", "orders")
        RedisStreamSource(url, ["orders", "returns"], schema=SimpleStringSchema(), start="$")

    Without a schema records are ``RedisEntry`` with stream, id and a dict of fields; with one, what
    it makes of the field ``field``. The time in an entry's id is its event time. ``start`` is "0"
    (the oldest entry), "$" (those after the start of the job) or an id, after which reading
    begins; a job that goes on from a checkpoint goes on where that was taken. ``bounded=True``
    ends with the entries that are there when the job starts.
    """

    url: str
    streams: "str | Sequence[str]"
    _: KW_ONLY
    schema: DeserializationSchema | None = None
    field: str = "value"
    text: bool = True
    start: str = "0"
    bounded: bool = False
    on_trimmed: str = "fail"

    def __post_init__(self) -> None:
        self.server = RedisServer("RedisStreamSource", self.url)
        self.streams = (self.streams,) if isinstance(self.streams, str) else tuple(self.streams)
        if len(set(self.streams)) < len(self.streams):
            raise PlanInvalid("RedisStreamSource was given a stream twice")
        self.first = None if self.start == "$" else _id(self.start)
        """After which entry reading begins; None: the last one that is there."""
        check_settings(self, CHECKS)

    @property
    def default_name(self) -> str:
        return f"Redis {', '.join(self.streams)}"

    @property
    def names(self) -> Sequence[str]:
        return self.streams

    def find(self, names: Sequence[str], is_first: bool) -> list[RedisSplit]:
        start = self.first if is_first else BEGINNING
        client = self.server.client("start")
        try:
            return [
                self._split(
                    name, start, self.server.asked(f"looking at {name!r}", _asking(client, name))
                )
                for name in names
            ]
        finally:
            client.close()

    def _split(self, stream: str, start: EntryId | None, facts: StreamFacts) -> RedisSplit:
        if start is None or start == facts.last:
            place = StreamPlace(facts.last, facts.added)
        elif start == BEGINNING and facts.added is not None:
            place = StreamPlace(start, facts.added - facts.length)  # what is gone already
        else:
            place = StreamPlace(start, None)
        return RedisSplit(stream, place, facts.last if self.bounded else None)

    def open(self, split: object, position: Position, context: ConnectorContext) -> QueueReader:
        # Read as tuples: what a checkpoint brings back need not be of the same class.
        stream, start, stop = cast("RedisSplit", split)
        known = cast("StreamPlace", start if position is None else position)
        place = StreamPlace(EntryId(*known[0]), known[1])
        end = None if stop is None else EntryId(*stop)
        decode = entry_reader(stream, self.schema, self.field, self.text)
        return QueueReader(StreamFetcher(self, stream, place, end), decode, place, context)


class StreamFetcher(Fetcher):
    """Reads a stream by a thread that waits in ``XREAD BLOCK``."""

    def __init__(
        self, source: RedisStreamSource, stream: str, place: StreamPlace, stop: EntryId | None
    ) -> None:
        super().__init__(source.server, f"stream {stream!r}")
        self._added: int | None = None
        """How many entries the stream has had ever, as it was last seen."""
        self._client_of = source.server.client
        self._goes_on = source.on_trimmed == "continue"
        self._stream = stream
        self._place = place
        self._stop = stop

    def session(self, queue: ReadQueue) -> None:
        client = self._client_of(f"source {self._stream}")
        try:
            while not queue.closing and self._step(client, queue):
                self.well()
        finally:
            client.close()

    def unread(self, position: Position, queued: int) -> int | None:
        read = cast("StreamPlace", position).added
        return None if self._added is None or read is None else max(0, self._added - read)

    def _step(self, client: Any, queue: ReadQueue) -> bool:
        """False: the end was reached."""
        is_full = queue.is_full
        if is_full and queue.wait_for_room(LOOK_S):
            return True
        facts, entries = self._read(client, 1 if is_full else FETCH_ENTRIES)
        self._added = facts.added
        if is_full:
            return True  # it has only looked how far behind it is
        self._check(facts)
        stop = self._stop
        if entries:
            return self._enqueue(queue, entries, facts)
        if stop is not None and facts.last >= stop:
            return False
        if facts.last == self._place.id:  # deleted ones among those that were read count, too
            self._place = self._place._replace(added=facts.added)
        look_s = time.monotonic() + LOOK_S
        while not self._wait(client) and not queue.closing and time.monotonic() < look_s:
            self.well()
        return True

    def _read(self, client: Any, limit: int) -> tuple[StreamFacts, list[Any]]:
        """Both in one transaction, so that nothing is trimmed between them."""
        with client.pipeline(transaction=True) as pipe:
            pipe.xinfo_stream(self._stream)
            pipe.xread({self._stream: str(self._place.id)}, count=limit)
            info, found = pipe.execute(raise_on_error=False)
        if isinstance(found, Exception):
            raise found
        return _facts(info), found[0][1] if found else []

    def _wait(self, client: Any) -> bool:
        """Whether there is something new."""
        return bool(client.xread({self._stream: str(self._place.id)}, count=1, block=BLOCK_MS))

    def _enqueue(self, queue: ReadQueue, entries: list[Any], facts: StreamFacts) -> bool:
        ids = [EntryId.of(identity) for identity, _ in entries]
        count = self._place.added
        counts: list[int | None] = [None] * len(ids)
        if count is not None:
            counts = list(range(count + 1, count + 1 + len(ids)))
        if ids[-1] == facts.last:  # known for sure, whatever was deleted before it
            counts[-1] = facts.added
        places = list(map(StreamPlace, ids, counts))
        stop = self._stop
        kept = len(ids) if stop is None else sum(at <= stop for at in ids)
        if kept:
            size = sum(len(key) + len(value) for _, of in entries for key, value in of.items())
            times = [at.time_ms for at in ids]
            batch = ReadBatch(entries, times, places, size)
            queue.add(batch if kept == len(ids) else batch.divided(kept)[0])
        self._place = places[-1]
        return stop is None or ids[-1] < stop

    def _check(self, facts: StreamFacts) -> None:
        """Whether entries after the place are gone."""
        place, added = self._place, facts.added
        if place.added is None or added is None:
            return
        name = f"{self.what} of {self.server.address}"
        if facts.last < place.id or added < place.added:
            problem = f"{name} is not the one that was read up to {place.id}"
            why = "it was deleted and begun anew, or the server has lost what it had not saved"
            self._place = StreamPlace(BEGINNING, 0)
        else:
            is_cut = facts.first is None or facts.first > place.id
            missing = added - place.added - facts.length if is_cut else 0
            if missing <= 0:
                return
            problem = f"{missing} entries of {name} after {place.id} are gone and were not read"
            why = (
                "they were trimmed (MAXLEN, XTRIM) or deleted; let the stream keep them for longer"
            )
            self._place = place._replace(added=place.added + missing)
        option = "on_trimmed='continue' goes on with the oldest entry that is there"
        check_lost(self.server.user, problem, why, option, self._goes_on)


def _facts(info: Any) -> StreamFacts:
    if isinstance(info, Exception):
        if "no such key" not in str(info):
            raise info
        return StreamFacts.of(None)
    return StreamFacts.of(info)


def _asking(client: Any, stream: str) -> Any:
    def ask() -> StreamFacts:
        try:
            return StreamFacts.of(client.xinfo_stream(stream))
        except Exception as error:
            return _facts(error)

    return ask


def _id(start: object) -> EntryId:
    try:
        return EntryId.of(cast("str", start))
    except (ValueError, AttributeError):
        raise PlanInvalid(
            f"RedisStreamSource: start is {start!r}; give '0', '$' or the id of an entry such as "
            f"'1700000000000-0'"
        ) from None
