"""Events: what travels in a channel and is never data.

Runtime events are built in; task events are the user's and travel backwards, from consumer to
producer. On the wire an event is a tag byte and a body. Decoding a task event unpickles, so it is
only done for bytes of a proven peer (the handshake comes first) or of this process.
"""

import pickle
import struct
from typing import ClassVar, Final, TypeAlias

import msgspec

from headgate.base.checkpoints import CheckpointKind, Stop
from headgate.base.errors import ElementBroken, EventTooLarge


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
    """Of a savepoint, its own; empty: the job's folder for checkpoints."""

    @property
    def is_savepoint(self) -> bool:
        return self.kind is CheckpointKind.SAVEPOINT


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

_BARRIER: Final = struct.Struct("<Bqq?BB")
_KINDS: Final = tuple(CheckpointKind)
_STOPS: Final = tuple(Stop)
_CANCEL: Final = struct.Struct("<Bq")
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
    if tag == _BARRIER_TAG and len(data) >= _BARRIER.size:
        return _decode_barrier(data)
    if tag == _CANCEL_TAG and len(data) == _CANCEL.size:
        return CancelMarker(*_CANCEL.unpack(data)[1:])
    if tag == _TASK_TAG:
        return _decode_task_event(data)
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
        return CheckpointBarrier(
            checkpoint, timestamp_ms, unaligned, _KINDS[kind], _STOPS[stop], directory
        )
    except (IndexError, UnicodeDecodeError) as error:
        raise ElementBroken(f"{len(data)} bytes are no barrier: {error}") from error


def _decode_task_event(data: bytes | bytearray | memoryview) -> TaskEvent:
    try:
        event = pickle.loads(memoryview(data)[1:])
    except Exception as error:
        raise ElementBroken(f"a task event cannot be unpickled: {error!r}") from error
    if not isinstance(event, TaskEvent):
        raise ElementBroken(f"a task event holds a {type(event).__name__}, not a TaskEvent")
    return event
