"""Events: what travels in a channel and is never data.

Runtime events are built in and travel with the data; task events are the user's and travel
backwards, from consumer to producer. On the wire an event is a tag byte and a body. Law: reading
an event runs no code but that of a class which somebody here has subscribed to.

Attributes of task events are plain data of a closed set of types, as MessagePack with extensions
for tuples, sets and long integers. Law: they arrive equal, with equal types, and reading them looks
up no class and calls nothing, whatever the bytes are.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, TypeAlias, TypeVar

import msgspec
from msgspec.msgpack import Ext

from headgate.base.checkpoints import CheckpointKind, Stop
from headgate.base.elements import UNREADABLE
from headgate.base.errors import ElementBroken, EventTooLarge, EventUnsendable


class EndOfPartition(msgspec.Struct, frozen=True):
    """All data of a subpartition has been read."""


class EndOfSuperstep(msgspec.Struct, frozen=True):
    """One step of an iteration has ended in this channel."""


class CheckpointBarrier(msgspec.Struct, frozen=True):
    """Separates what belongs to a checkpoint from what follows it."""

    checkpoint: int
    timestamp_ms: int
    """When the driver began it, in milliseconds since 1970."""
    unaligned: bool = False
    """It overtakes what is in its way; that belongs to the checkpoint."""
    kind: CheckpointKind = CheckpointKind.CHECKPOINT
    stop: Stop = Stop.NO
    """What follows the barrier, of a savepoint."""
    directory: str = ""
    """The savepoint's own folder; empty: the job's folder for checkpoints."""

    @property
    def is_savepoint(self) -> bool:
        return self.kind is CheckpointKind.SAVEPOINT


class CancelMarker(msgspec.Struct, frozen=True):
    """A checkpoint was given up; nobody shall wait for its barriers."""

    checkpoint: int


class TaskEvent:
    """Base of events that a consumer's user code sends to its producers.

    An event travels as the name of its class and its attributes, which may hold None, bool, int,
    float, str, bytes, and lists, tuples, sets and dicts of these. ``__init__`` is not called when
    it arrives. Whoever needs more than that overrides ``to_bytes`` and ``from_bytes``, together.
    """

    __slots__: ClassVar[tuple[str, ...]] = ()

    def to_bytes(self) -> bytes:
        """What ``from_bytes`` of the same class makes the event of again."""
        return pack_values(type(self).__name__, dict(_attributes(self)))

    @classmethod
    def from_bytes(cls: "type[AnyTaskEvent]", data: memoryview) -> "AnyTaskEvent":
        """The event; ``data`` comes from another process and may be anything."""
        return _restored(cls, unpack_values(data))


AnyTaskEvent = TypeVar("AnyTaskEvent", bound=TaskEvent)
RuntimeEvent: TypeAlias = EndOfPartition | EndOfSuperstep | CheckpointBarrier | CancelMarker
Event: TypeAlias = RuntimeEvent | TaskEvent
END_OF_PARTITION: Final = EndOfPartition()
END_OF_SUPERSTEP: Final = EndOfSuperstep()
_BARRIER: Final = struct.Struct("<Bqq?BB")
_KINDS: Final = tuple(CheckpointKind)
_STOPS: Final = tuple(Stop)
_CANCEL: Final = struct.Struct("<Bq")
_NAME_LENGTH: Final = struct.Struct("<H")
_PARTITION_END, _SUPERSTEP_END, _BARRIER_TAG, _CANCEL_TAG, _TASK_TAG = range(1, 6)


def encode_event(event: Event) -> bytes:
    """The bytes of an event as they stand in a buffer."""
    match event:
        case EndOfPartition():
            return bytes([_PARTITION_END])
        case EndOfSuperstep():
            return bytes([_SUPERSTEP_END])
        case CheckpointBarrier():
            return _encode_barrier(event)
        case CancelMarker(checkpoint):
            return _CANCEL.pack(_CANCEL_TAG, checkpoint)
        case TaskEvent():
            return _encode_task_event(event)


def encode_event_within(event: Event, limit: int) -> bytes:
    """The bytes of an event; EventTooLarge if the receiver would refuse them."""
    data = encode_event(event)
    if len(data) > limit:
        raise EventTooLarge(type(event).__name__, len(data), limit)
    return data


def decode_event(data: bytes | bytearray | memoryview) -> RuntimeEvent:
    """The runtime event that the bytes stand for; raises ElementBroken if they stand for none."""
    tag = data[0] if len(data) else 0
    if tag == _PARTITION_END and len(data) == 1:
        return END_OF_PARTITION
    if tag == _SUPERSTEP_END and len(data) == 1:
        return END_OF_SUPERSTEP
    if tag == _BARRIER_TAG and len(data) >= _BARRIER.size:
        return _decode_barrier(data)
    if tag == _CANCEL_TAG and len(data) == _CANCEL.size:
        return CancelMarker(*_CANCEL.unpack(data)[1:])
    if tag == _TASK_TAG:
        raise ElementBroken("a task event among the data; they travel to producers only")
    raise ElementBroken(f"{len(data)} bytes with tag {tag} are no event")


def barrier_in(data: bytes | bytearray | memoryview) -> CheckpointBarrier | None:
    """The barrier that the bytes of an event stand for, if they stand for one.

    Nothing is raised: bytes that cannot be read are left to whoever reads the event.
    """
    if len(data) < _BARRIER.size or data[0] != _BARRIER_TAG:
        return None
    try:
        return _decode_barrier(data)
    except ElementBroken:
        return None


def _encode_barrier(barrier: CheckpointBarrier) -> bytes:
    fixed = _BARRIER.pack(
        _BARRIER_TAG,
        barrier.checkpoint,
        barrier.timestamp_ms,
        barrier.unaligned,
        _KINDS.index(barrier.kind),
        _STOPS.index(barrier.stop),
    )
    return fixed + barrier.directory.encode()


def _decode_barrier(data: bytes | bytearray | memoryview) -> CheckpointBarrier:
    _, checkpoint, timestamp_ms, unaligned, kind, stop = _BARRIER.unpack_from(data)
    try:
        directory = bytes(data[_BARRIER.size :]).decode()
        if "\0" in directory:
            raise ElementBroken(f"{len(data)} bytes are no barrier: a NUL in its directory")
        return CheckpointBarrier(
            checkpoint, timestamp_ms, unaligned, _KINDS[kind], _STOPS[stop], directory
        )
    except (IndexError, UnicodeDecodeError) as error:
        raise ElementBroken(f"{len(data)} bytes are no barrier: {error}") from error


def event_class_name(kind: type[TaskEvent]) -> str:
    """How the wire calls a class of task events; both sides know it from the job's code."""
    return f"{kind.__module__}:{kind.__qualname__}"


def split_task_event(data: bytes) -> tuple[str, memoryview] | None:
    """The name of a task event's class, and what its ``from_bytes`` gets; None: it is none."""
    if not data or data[0] != _TASK_TAG:
        return None
    start = 1 + _NAME_LENGTH.size
    if len(data) < start:
        raise ElementBroken(f"a task event of {len(data)} bytes")
    end = start + _NAME_LENGTH.unpack_from(data, 1)[0]
    if end > len(data):
        raise ElementBroken(f"a task event of {len(data)} bytes whose class's name ends at {end}")
    return str(data[start:end], "utf-8", "replace"), memoryview(data)[end:]


def decode_task_event(kind: type[AnyTaskEvent], body: memoryview) -> AnyTaskEvent:
    """The event of a class that is subscribed for; ElementBroken if it does not make one of it."""
    try:
        event = kind.from_bytes(body)
    except UNREADABLE as error:
        raise ElementBroken(f"task event {kind.__name__} cannot be read: {error!r}") from error
    if type(event) is not kind:
        made = type(event).__name__
        raise ElementBroken(f"from_bytes of task event {kind.__name__} made a {made}")
    return event


def _encode_task_event(event: TaskEvent) -> bytes:
    name = event_class_name(type(event)).encode()
    body = event.to_bytes()
    return b"".join((bytes([_TASK_TAG]), _NAME_LENGTH.pack(len(name)), name, body))


def _attributes(event: TaskEvent) -> Iterator[tuple[str, object]]:
    yield from getattr(event, "__dict__", {}).items()
    for name in _slots(type(event)):
        if hasattr(event, name):
            yield name, getattr(event, name)


def _slots(kind: type) -> list[str]:
    """The slots of a class and its bases, under the names that they have on an instance."""
    found = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            is_private = name.startswith("__") and not name.endswith("__")
            stem = base.__name__.lstrip("_")
            if name not in ("__dict__", "__weakref__"):
                found.append(f"_{stem}{name}" if is_private and stem else name)
    return found


def _restored(kind: type[AnyTaskEvent], values: dict[str, object]) -> AnyTaskEvent:
    if issubclass(kind, msgspec.Struct):
        return kind(**values)
    event = object.__new__(kind)
    slots = set(_slots(kind))
    for name, value in values.items():
        if name in slots:
            object.__setattr__(event, name, value)
        elif name.isidentifier() and hasattr(event, "__dict__"):
            event.__dict__[name] = value
        else:
            raise ElementBroken(f"{kind.__name__} has no attribute {name!r}")
    return event


_TUPLE, _SET, _FROZENSET, _LONG = range(1, 5)
_ARRAYS: Final[dict[type, int]] = {tuple: _TUPLE, set: _SET, frozenset: _FROZENSET}
_ATOMS: Final = frozenset({type(None), bool, float, str, bytes})
_INT_BITS: Final = 63
"""Longer integers go as bytes; MessagePack has one bit more, for those above zero."""


def pack_values(event: str, values: Mapping[str, object]) -> bytes:
    """The bytes of an event's attributes; EventUnsendable names the one that cannot travel."""
    packed = {}
    for name, value in values.items():
        try:
            packed[name] = _packed(value)
            _ENCODER.encode(packed[name])
        except (TypeError, ValueError, RecursionError) as error:
            raise EventUnsendable(event, name, str(error)) from error
    return _ENCODER.encode(packed)


def unpack_values(data: bytes | memoryview) -> dict[str, object]:
    """The attributes again; ElementBroken if the bytes hold none."""
    try:
        return _VALUES.decode(data)
    except Exception as error:
        raise ElementBroken(f"{len(data)} bytes hold no attributes: {error}") from error


def _packed(value: object) -> object:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, int) and kind is int:
        if value.bit_length() <= _INT_BITS:
            return value
        return Ext(_LONG, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    if isinstance(value, list) and kind is list:
        return [_packed(item) for item in value]
    if isinstance(value, dict) and kind is dict:
        return {_packed_key(key): _packed(item) for key, item in value.items()}
    if isinstance(value, tuple | set | frozenset) and kind in _ARRAYS:
        return Ext(_ARRAYS[kind], _ENCODER.encode([_packed(item) for item in value]))
    raise TypeError(f"holds a {kind.__qualname__}")


def _packed_key(key: object) -> object:
    if type(key) in _ATOMS or (isinstance(key, int) and -(2**63) <= key < 2**63):
        return key
    raise TypeError(f"holds a dict with a {type(key).__qualname__} as key")


def _unpacked(code: int, data: memoryview) -> object:
    if code == _TUPLE:
        return tuple(_ITEMS.decode(data))
    if code == _SET:
        return set(_ITEMS.decode(data))
    if code == _FROZENSET:
        return frozenset(_ITEMS.decode(data))
    if code == _LONG:
        return int.from_bytes(data, "little", signed=True)
    raise ValueError(f"extension {code} is not known")


_ENCODER: Final = msgspec.msgpack.Encoder()
_ITEMS: Final = msgspec.msgpack.Decoder(list[object], ext_hook=_unpacked)
_VALUES: Final = msgspec.msgpack.Decoder(dict[str, object], ext_hook=_unpacked)
