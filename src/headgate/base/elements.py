"""Elements: what flows in a channel as data. Records travel in bundles, a list at a time.

On the wire an element is a length (4 bytes, little-endian, of what follows), a tag byte, a body.
How the records of a bundle become bytes is the stream's serializer; the rest is fixed here.
"""

import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast

import msgspec

from headgate.base.errors import ElementBroken
from headgate.base.fields import FieldShape, RecordFields, Same
from headgate.base.moved import NOT_FOUND, loads_moved
from headgate.base.shapes import ShapeReader, ShapeWriter, written_fields

Record: TypeAlias = Any
"""A user's value. Headgate never looks into it."""

Key: TypeAlias = Any
"""What ``key_by`` takes of a record; equal keys meet in the same task."""


Times: TypeAlias = list[int | None] | None
"""Event times of records; None: they have none."""


class Bundle:
    """Records in order, with their event times in a list beside them (or None: no times).

    Records of one shape may be taken apart into ``fields``. Whoever asks for ``records`` has them
    made, and the fields are gone then.
    """

    __slots__ = ("_records", "fields", "known_immutable", "timestamps")
    __match_args__ = ("records", "timestamps")

    def __init__(self, records: list[Record], timestamps: Times = None) -> None:
        self._records: list[Record] | None = records
        self.fields: RecordFields | None = None
        self.timestamps = timestamps
        self.known_immutable: bool | None = None
        """Whether nobody can change any of the records; None: nobody has looked."""

    @classmethod
    def of_fields(cls, fields: RecordFields, timestamps: Times = None) -> "Bundle":
        """A bundle of records that are taken apart."""
        bundle = cls.__new__(cls)
        bundle._records, bundle.fields, bundle.timestamps = None, fields, timestamps
        bundle.known_immutable = None
        return bundle

    @property
    def records(self) -> list[Record]:
        if self._records is None:
            assert self.fields is not None
            self._records, self.fields = self.fields.records(), None
        return self._records

    @records.setter
    def records(self, records: list[Record]) -> None:
        self._records, self.fields, self.known_immutable = records, None, None

    def __len__(self) -> int:
        return len(self.records) if self.fields is None else self.fields.count

    def part(self, start: int, end: int) -> "Bundle":
        """The records from one place to another."""
        times = self.timestamps and self.timestamps[start:end]
        if self.fields is not None:
            return Bundle.of_fields(self.fields.part(start, end), times)
        return Bundle(self.records[start:end], times)

    def copy(self) -> "Bundle":
        """A copy with lists of its own; the records are the same."""
        times = None if self.timestamps is None else list(self.timestamps)
        if self.fields is not None:
            return Bundle.of_fields(self.fields.copy(), times)
        return Bundle(list(self.records), times)

    def add(self, other: "Bundle") -> None:
        """Add records at the end; either both have times, or none."""
        assert (self.timestamps is None) == (other.timestamps is None), "some have no times"
        fields = self.fields
        if fields is None or other.fields is None or not fields.add(other.fields):
            self.records.extend(other.records)
            self.known_immutable = None
        if self.timestamps is not None and other.timestamps is not None:
            self.timestamps.extend(other.timestamps)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bundle):
            return NotImplemented
        return self.records == other.records and self.timestamps == other.timestamps

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        records = self._records if self.fields is None else self.fields.records()
        return f"Bundle({records!r}, {self.timestamps!r})"


MIN_WATERMARK_MS: Final = -(2**63)
"""Where event time stands before the first watermark."""

MAX_WATERMARK_MS: Final = 2**63 - 1
"""Where event time stands when the input has ended."""


class Watermark(msgspec.Struct, frozen=True):
    """No record with a timestamp at or below this one follows in the channel."""

    timestamp_ms: int

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
        return self.timestamp_ms

    def get_timestamp(self) -> int:
        return self.timestamp_ms


class StreamStatus(msgspec.Struct, frozen=True):
    """Whether the channel takes part in event time, or is idle."""

    active: bool
    together: bool = False
    """Idle with its whole stream: while another channel of the stream is active, it counts."""
    awaits_splits: bool = False
    """Idle because there is nothing to read, not by a strategy: it has not given way to the end."""


class LatencyMarker(msgspec.Struct, frozen=True):
    """Sent now and then by sources to measure how long the way through the channels is."""

    marked_ms: int
    operator: int
    subtask: int


Element: TypeAlias = Bundle | Watermark | StreamStatus | LatencyMarker

ByteLike: TypeAlias = bytes | bytearray | memoryview


class Serializer(Protocol):
    """Turns the records of a bundle into bytes and back, a list at a time."""

    def dumps(self, records: Sequence[Any]) -> ByteLike: ...

    def loads(self, data: memoryview) -> Any:
        """The records; they must not refer to ``data``, which is reused after the call."""


class FieldsSerializer(Serializer, Protocol):
    """Writes records of one shape as they are taken apart, too."""

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        """Whether it writes such records."""

    def dumps_fields(self, fields: RecordFields, times: Times) -> ByteLike | None:
        """``loads`` gives fields then, or fields and times; None: records have to be written."""


def takes_fields(serializer: Serializer, shape: FieldShape, count: int) -> bool:
    """Whether a serializer, which may be one for fields, writes such records."""
    takes: Callable[[FieldShape, int], bool] | None = getattr(serializer, "takes_fields", None)
    return takes is not None and takes(shape, count)


class PickleSerializer:
    """Any Python object, by pickle protocol 5.

    One pickler serves all bundles of a writer: its memo table is emptied, not grown anew, which
    saves a quarter of the time. After a very large bundle or an error it is replaced.
    """

    __slots__ = ("_chunks", "_pickler", "shape_reader", "shape_writer")

    def __init__(self) -> None:
        self._renew()
        self.shape_reader = ShapeReader(self.loads)
        self.shape_writer = ShapeWriter()

    def dumps(self, records: Sequence[Any]) -> bytes:
        chunks = self._chunks
        try:
            self._pickler.dump(records)
        except BaseException:
            self._renew()
            raise
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if len(data) > _PICKLER_KEPT_BYTES:
            self._renew()
        else:
            chunks.clear()
            self._pickler.clear_memo()
        return data

    def loads(self, data: bytes | memoryview) -> Any:
        try:
            return pickle.loads(data)
        except NOT_FOUND as error:  # records in flight that an earlier release has written
            return loads_moved(data, error)

    def __reduce__(self) -> tuple[type["PickleSerializer"], tuple[()]]:
        return PickleSerializer, ()

    def _renew(self) -> None:
        self._chunks: list[bytes] = []
        self._pickler = pickle.Pickler(_Chunks(self._chunks.append), 5)


class _Chunks:
    """The file that a pickler writes to."""

    __slots__ = ("write",)

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.write = write


_PICKLER_KEPT_BYTES = 1 << 20
"""A pickler that has made more than this at once would keep a large memo table."""


LENGTH: Final = struct.Struct("<I")
PREFIX: Final = struct.Struct("<IB")
"""Length and tag: what stands in front of every element's body."""

_WATERMARK: Final = struct.Struct("<q")
_STATUS: Final = struct.Struct("<B")
_LATENCY: Final = struct.Struct("<qqi")

RECORDS, TIMED_RECORDS, WATERMARK, STATUS, LATENCY = range(1, 6)
FIELDS, TIMED_FIELDS, SHAPED, TIMED_SHAPED = range(6, 10)
OF_RECORDS: Final = frozenset({RECORDS, TIMED_RECORDS, FIELDS, TIMED_FIELDS, SHAPED, TIMED_SHAPED})
"""The tags of bundles."""

_TIME_KINDS: Final = frozenset({int, type(None)})
_write_parts: Final = msgspec.msgpack.Encoder().encode
_read_parts: Final = msgspec.msgpack.Decoder().decode


def encode_element(element: Element, serializer: Serializer) -> tuple[bytes, ByteLike]:
    """The prefix and the body of an element, to be written one after the other."""
    tag: int
    body: ByteLike
    match element:
        case Bundle():
            tag, body = _encode_bundle(element, serializer)
        case Watermark(timestamp_ms):
            tag, body = WATERMARK, _WATERMARK.pack(timestamp_ms)
        case StreamStatus(active, together, awaits_splits):
            tag, body = STATUS, _STATUS.pack(active | together << 1 | awaits_splits << 2)
        case LatencyMarker(marked_ms, operator, subtask):
            tag, body = LATENCY, _LATENCY.pack(marked_ms, operator, subtask)
    if isinstance(body, memoryview):
        body = body.cast("B")  # a serializer may answer with wider items; lengths are in bytes
    return PREFIX.pack(1 + len(body), tag), body


def _encode_bundle(bundle: Bundle, serializer: Serializer) -> tuple[int, ByteLike]:
    """Records that are taken apart and records of one shape as MessagePack, others by pickle."""
    times = bundle.timestamps
    if type(serializer) is PickleSerializer and (
        times is None or _TIME_KINDS.issuperset(map(type, times))  # a source has made them
    ):
        tags, parts = _bundle_parts(bundle, serializer)
        if parts is not None:
            try:
                if times is None:
                    return tags[0], _write_parts(parts)
                return tags[1], _write_parts([*parts, times])
            except (OverflowError, UnicodeEncodeError):  # a large number, half a surrogate pair
                pass
    elif bundle.fields is not None:
        fields, writer = bundle.fields, cast("FieldsSerializer", serializer)
        if takes_fields(serializer, fields.shape, len(fields.places)):
            data = writer.dumps_fields(fields, times)
            if data is not None:
                return (RECORDS if times is None else TIMED_RECORDS), data
    if times is None:
        return RECORDS, serializer.dumps(bundle.records)
    return TIMED_RECORDS, serializer.dumps((bundle.records, times))


def _bundle_parts(
    bundle: Bundle, serializer: PickleSerializer
) -> tuple[tuple[int, int], list[object] | None]:
    """Tags, and what MessagePack is to write; None: only pickle gives back the records."""
    fields = bundle.fields
    if fields is None:
        return (SHAPED, TIMED_SHAPED), serializer.shape_writer.write(bundle.records)
    if fields.shape.kind is not tuple:
        return (SHAPED, TIMED_SHAPED), written_fields(fields)
    if not fields.are_plain():
        return (SHAPED, TIMED_SHAPED), None
    lists = [place if type(place) is list else None for place in fields.places]
    same = [None if type(place) is list else place[0] for place in fields.places]
    return (FIELDS, TIMED_FIELDS), [lists, same]


def _decode_fields(body: memoryview, timed: bool) -> Bundle:
    lists, same, *more = _read_parts(body)
    (times,) = map(_list, more) if timed else (*more, None)
    counts = {len(_list(items)) for items in (*lists, times) if items is not None}
    places = [
        Same(value) if items is None else items
        for items, value in zip(lists, _list(same), strict=True)
    ]
    if len(counts) != 1 or lists.count(None) == len(lists):
        raise ValueError(f"{len(lists)} fields with lists of {sorted(counts)} items")
    fields = RecordFields(places, counts.pop())
    if not fields.are_plain() or not (times is None or _TIME_KINDS.issuperset(map(type, times))):
        raise ValueError("fields with items that are not plain")
    return Bundle.of_fields(fields, times)


def _decode_shaped(body: memoryview, timed: bool, serializer: Serializer) -> Bundle:
    name, names, columns, *more = _read_parts(body)
    (times,) = map(_list, more) if timed else (*more, None)
    if type(serializer) is not PickleSerializer:
        raise TypeError("the stream has a declared type, and its records have none")
    found = serializer.shape_reader.read(name, names, columns)
    bundle = Bundle.of_fields(found) if isinstance(found, RecordFields) else Bundle(found)
    if times is not None and (
        len(times) != len(bundle) or not _TIME_KINDS.issuperset(map(type, times))
    ):
        raise ValueError(f"{len(bundle)} records with {len(times)} timestamps")
    bundle.timestamps = times
    return bundle


UNREADABLE: Final = (Exception, SystemExit, GeneratorExit)
"""What reading a record may raise: a pickle calls what it likes, ``sys.exit`` among it."""


def decode_element(tag: int, body: memoryview, serializer: Serializer) -> Element:
    """The element after a prefix; raises ElementBroken if tag and body do not fit."""
    try:
        if tag == RECORDS:
            return _bundle(serializer.loads(body))
        if tag == TIMED_RECORDS:
            records, timestamps = serializer.loads(body)
            bundle = _bundle(records)
            if len(bundle) != len(_list(timestamps)):
                raise ValueError(f"{len(bundle)} records with {len(timestamps)} timestamps")
            bundle.timestamps = timestamps
            return bundle
        if tag in (FIELDS, TIMED_FIELDS):
            return _decode_fields(body, tag == TIMED_FIELDS)
        if tag in (SHAPED, TIMED_SHAPED):
            return _decode_shaped(body, tag == TIMED_SHAPED, serializer)
        if tag == WATERMARK:
            return Watermark(*_WATERMARK.unpack(body))
        if tag == STATUS:
            (flags,) = _STATUS.unpack(body)
            return StreamStatus(bool(flags & 1), bool(flags & 2), bool(flags & 4))
        if tag == LATENCY:
            return LatencyMarker(*_LATENCY.unpack(body))
    except UNREADABLE as error:
        raise ElementBroken(
            f"an element with tag {tag} and {len(body)} bytes cannot be read: {error_text(error)}"
        ) from error
    raise ElementBroken(f"no element has tag {tag}")


def _bundle(records: Any) -> Bundle:
    """Make a bundle of what a serializer has read."""
    if isinstance(records, RecordFields):
        return Bundle.of_fields(records)
    return Bundle(_list(records))


def _list(records: Any) -> list[Any]:
    if type(records) is not list:
        raise TypeError(f"a {type(records).__name__} is no list of records")
    return records


def error_text(error: BaseException) -> str:
    """The text of an error; its class, if the user's own ``repr`` fails."""
    try:
        return repr(error)
    except UNREADABLE:
        return type(error).__name__
