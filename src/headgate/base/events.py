"""Events: what travels in a channel and is never data.

Runtime events are built in; task events are the user's and travel backwards, from consumer to
producer. On the wire an event is a tag byte and a body. Decoding a task event unpickles, so it is
only done for bytes of a proven peer (the handshake comes first) or of this process.
"""

import pickle
import struct
from typing import ClassVar, Final, TypeAlias

import msgspec

from headgate.base.errors import ElementBroken, EventTooLarge


class EndOfPartition(msgspec.Struct, frozen=True):
    """All data of a subpartition has been read."""


class EndOfSuperstep(msgspec.Struct, frozen=True):
    """One step of an iteration has ended in this channel."""


class CheckpointBarrier(msgspec.Struct, frozen=True):
    """Separates what belongs to a checkpoint from what follows it."""

    checkpoint: int
    timestamp_ms: int
    unaligned: bool = False


class CancelMarker(msgspec.Struct, frozen=True):
    """A checkpoint was given up; nobody shall wait for its barriers."""

    checkpoint: int


class TaskEvent:
    """Base of events that a consumer's user code sends to its producers."""

    __slots__: ClassVar[tuple[str, ...]] = ()


RuntimeEvent: TypeAlias = EndOfPartition | EndOfSuperstep | CheckpointBarrier | CancelMarker
Event: TypeAlias = RuntimeEvent | TaskEvent

END_OF_PARTITION: Final = EndOfPartition()
END_OF_SUPERSTEP: Final = EndOfSuperstep()

_BARRIER: Final = struct.Struct("<Bqq?")
_CANCEL: Final = struct.Struct("<Bq")
_PARTITION_END, _SUPERSTEP_END, _BARRIER_TAG, _CANCEL_TAG, _TASK_TAG = range(1, 6)


def encode_event(event: Event) -> bytes:
    """The bytes of an event as they stand in a buffer."""
    match event:
        case EndOfPartition():
            return bytes([_PARTITION_END])
        case EndOfSuperstep():
            return bytes([_SUPERSTEP_END])
        case CheckpointBarrier(checkpoint, timestamp_ms, unaligned):
            return _BARRIER.pack(_BARRIER_TAG, checkpoint, timestamp_ms, unaligned)
        case CancelMarker(checkpoint):
            return _CANCEL.pack(_CANCEL_TAG, checkpoint)
        case TaskEvent():
            return bytes([_TASK_TAG]) + pickle.dumps(event, protocol=5)


def encode_event_within(event: Event, limit: int) -> bytes:
    """The bytes of an event; EventTooLarge if the receiver would refuse them."""
    data = encode_event(event)
    if len(data) > limit:
        raise EventTooLarge(type(event).__name__, len(data), limit)
    return data


def decode_event(data: bytes | bytearray | memoryview) -> Event:
    """The event that the bytes stand for; raises ElementBroken if they stand for none."""
    tag = data[0] if len(data) else 0
    if tag == _PARTITION_END and len(data) == 1:
        return END_OF_PARTITION
    if tag == _SUPERSTEP_END and len(data) == 1:
        return END_OF_SUPERSTEP
    if tag == _BARRIER_TAG and len(data) == _BARRIER.size:
        return CheckpointBarrier(*_BARRIER.unpack(data)[1:])
    if tag == _CANCEL_TAG and len(data) == _CANCEL.size:
        return CancelMarker(*_CANCEL.unpack(data)[1:])
    if tag == _TASK_TAG:
        return _decode_task_event(data)
    raise ElementBroken(f"{len(data)} bytes with tag {tag} are no event")


def _decode_task_event(data: bytes | bytearray | memoryview) -> TaskEvent:
    try:
        event = pickle.loads(memoryview(data)[1:])
    except Exception as error:
        raise ElementBroken(f"a task event cannot be unpickled: {error!r}") from error
    if not isinstance(event, TaskEvent):
        raise ElementBroken(f"a task event holds a {type(event).__name__}, not a TaskEvent")
    return event
