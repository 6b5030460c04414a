"""Entries of a stream and what becomes of them; their ids, and what a server tells of a stream.

Law: ids are compared as pairs of numbers, never as texts.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from headgate.base.elements import Record
from headgate.connectors.formats.schemas import DeserializationSchema, SerializationSchema


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
"""Of an entry: so many values fit on the stack of a script."""
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
    """Of the entry that was added last, also if it is gone."""
    first: EntryId | None
    """Of the oldest entry that is there."""
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
