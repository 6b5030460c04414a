"""Streams of Redis as a sink, at least once or exactly once.

At least once, entries are sent at once, pipelined, and the task waits for the answers. Exactly once
they wait in the task and in its checkpoints, and are added when the checkpoint completes. Law: a
batch is added by one script together with the note of its number (``progress_key``), unless the
note says that it is in; so it is in the stream once, whoever repeats a commit. (Not by MULTI: that
would take the note also if an entry is refused.)
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Final

from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.connectors.checks import (
    COUNT,
    GUARANTEE,
    SERIALIZER,
    TEXT,
    Check,
    check_settings,
    optional,
)
from headgate.connectors.formats.schemas import SerializationSchema
from headgate.connectors.redis.client import RedisServer
from headgate.connectors.redis.source import field_maker
from headgate.connectors.servers import Sleep, shut_down
from headgate.connectors.staged import (
    BATCH_MESSAGES,
    PENDING_BYTES,
    DirectWriter,
    MessageMaker,
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

PROGRESS_DAYS: Final = 90
_DAY_S: Final = 24 * 60 * 60
_ADD_ONCE: Final = """
if tonumber(redis.call('GET', KEYS[2]) or '0') >= tonumber(ARGV[1]) then return 0 end
local at = 4
while at <= #ARGV do
  local last = at + tonumber(ARGV[at])
  if ARGV[3] == '' then
    redis.call('XADD', KEYS[1], '*', unpack(ARGV, at + 1, last))
  else
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', unpack(ARGV, at + 1, last))
  end
  at = last + 1
end
redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[2])
return 1
"""
"""Keys: the stream, the note. Values: number of the batch, lifetime of the note in seconds, limit
of the stream, then for each entry how many values it has, and these."""


CHECKS: Final = {
    "stream": Check("its key", TEXT.is_right),
    "schema": optional(SERIALIZER),
    "guarantee": GUARANTEE,
    "max_len": optional(COUNT),
    "max_pending_bytes": COUNT,
    "progress_days": COUNT,
}


@dataclass(eq=False, repr=False)
class RedisStreamSink(TwoPhaseCommittingSink):
    """Records as entries of a stream.

    ::

        RedisStreamSink("redis://localhost:6379/0", "orders", schema=SimpleStringSchema())

    With a schema the entry has the field ``field``; without one a record is a dict of fields, whose
    values are texts, bytes or numbers. ``max_len`` keeps about so many entries in the stream.
    Exactly once, a small key per task and restart notes what was added; it expires after
    ``progress_days``, and a savepoint that is older than that must not be gone back to.
    """

    url: str
    stream: str
    _: KW_ONLY
    schema: "SerializationSchema | Callable[[Record], bytes] | None" = None
    field: str = "value"
    guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE
    max_len: int | None = None
    max_pending_bytes: int = PENDING_BYTES
    progress_days: int = PROGRESS_DAYS

    def __post_init__(self) -> None:
        self.server = RedisServer("RedisStreamSink", self.url)
        check_settings(self, CHECKS)

    @property
    def default_name(self) -> str:
        return f"Redis {self.stream}"

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        make = MessageMaker(field_maker(self.schema, self.field), context).messages
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return StagingWriter(make, context, self.max_pending_bytes)
        adder = self._adder(context)
        return DirectWriter(make, adder.add, adder.close)

    def create_committer(self, context: ConnectorContext) -> "RedisCommitter":
        return RedisCommitter(checked(self._adder(context), StreamAdder.check))

    def _adder(self, context: ConnectorContext) -> "StreamAdder":
        adder = StreamAdder(self, whose(context), context.sleep)
        context.when_cancelled(adder.abort)
        return adder


class RedisCommitter(Committer):
    """Adds batches that are not in the stream yet."""

    def __init__(self, adder: "StreamAdder") -> None:
        self._adder = adder

    def commit(self, committables: Sequence[Record]) -> None:
        for writer, number, entries in batches_of(committables):
            self._adder.add_once(writer, number, entries)

    def close(self) -> None:
        self._adder.close()


class StreamAdder:
    """A task's connection, and how entries get into the stream."""

    def __init__(self, sink: RedisStreamSink, whose: str, sleep: Sleep = time.sleep) -> None:
        self._sleep = sleep
        self._server = sink.server
        self._stream = sink.stream
        self._doing = f"{whose}: adding to stream {sink.stream!r}"
        self._ttl_s = sink.progress_days * _DAY_S
        limit = () if sink.max_len is None else ("MAXLEN", "~", sink.max_len)
        self._head = ("XADD", sink.stream, *limit, "*")
        self._max_len = sink.max_len or ""
        self._client = sink.server.client(whose)

    def check(self) -> None:
        """Raises if the key holds something else, or the server cannot be used."""

        def look() -> None:
            kind = self._client.type(self._stream)
            if kind not in (b"stream", b"none"):
                raise PlanInvalid(
                    f"RedisStreamSink: key {self._stream!r} of {self._server.address} holds a "
                    f"{kind.decode()}; give the key of a stream, or one that is free"
                )

        self._server.asked(self._doing, look)

    def add(self, entries: Sequence[tuple[Any, ...]]) -> None:
        """All of them; those before an error are not added again when it has passed."""
        for start in range(0, len(entries), BATCH_MESSAGES):
            left = list(entries[start : start + BATCH_MESSAGES])
            self._server.repeated(self._doing, partial(self._send, left), sleep=self._sleep)

    def _send(self, left: list[tuple[Any, ...]]) -> None:
        with self._client.pipeline(transaction=False) as pipe:
            for entry in left:
                pipe.execute_command(*self._head, *entry)
            answers = pipe.execute(raise_on_error=False)
        for number, answer in enumerate(answers):
            if isinstance(answer, Exception):
                del left[:number]
                raise answer

    def add_once(self, writer: str, number: int, entries: Sequence[tuple[Any, ...]]) -> None:
        """The batch of this number, unless it or a later one is in the stream."""
        key = progress_key(self._stream, writer)

        values: list[Any] = [number, self._ttl_s, self._max_len]
        for entry in entries:
            values += (len(entry), *entry)
        self._server.repeated(
            self._doing,
            lambda: self._client.eval(_ADD_ONCE, 2, self._stream, key, *values),
            sleep=self._sleep,
        )

    def abort(self) -> None:
        """A command under way fails; from any thread."""
        for connection in list(getattr(self._client.connection_pool, "_in_use_connections", ())):
            shut_down(getattr(connection, "_sock", None))

    def close(self) -> None:
        self._client.close()


def progress_key(stream: str, writer: str) -> str:
    """The key that notes a writer's last batch, in the same hash slot as the stream."""
    _, opening, rest = stream.partition("{")
    tag, closing, _ = rest.partition("}")
    hashed = tag if opening and closing and tag else stream
    return f"headgate:progress:{{{hashed}}}:{writer}"
