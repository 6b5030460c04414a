"""Frames: how messages look on the wire. ``docs/protocol.md`` is the text to this.

Little-endian. Every frame starts with 8 bytes: length of what follows them, magic, version, type.
A buffer frame goes on with a fixed head of 24 bytes, so that its payload can land in a segment of
its own; all other messages are short. Strings carry a 2-byte length.
"""

import struct
from enum import IntEnum
from typing import Final, TypeAlias

import msgspec

from headgate.base.errors import FrameMalformed
from headgate.base.ids import MAX_PARTITION_ID_BYTES, ChannelId, PartitionId, PeerName

MAGIC: Final = 0x4847  # "GH" as it stands on the wire
VERSION: Final = 3
NONCE_BYTES: Final = 16
PROOF_BYTES: Final = 32
MAX_TEXT_BYTES: Final = 16 * 1024
MAX_GRANTS: Final = 1024
MAX_RUNTIME_EVENT_BYTES: Final = 64 * 1024
"""Largest event that travels with the data; the longest is the barrier of a savepoint."""

PREFIX: Final = struct.Struct("<IHBB")
"""Length of the rest, magic, version, type."""

BUFFER_HEAD: Final = struct.Struct("<IHBBQQIB3x")
"""The prefix, then receiver, sequence number, backlog, flags."""

BUFFER_HEAD_REST: Final = BUFFER_HEAD.size - PREFIX.size

FLAG_EVENT: Final = 1
FLAG_COMPRESSED: Final = 2


class Kind(IntEnum):
    """The type byte. Who sends it: C the consumer's side (client), P the producer's (server)."""

    HELLO = 1  # C
    CHALLENGE = 2  # P
    PROOF = 3  # C
    WELCOME = 4  # P
    PARTITION_REQUEST = 16  # C
    ADD_CREDIT = 17  # C
    CANCEL = 18  # C
    CLOSE = 19  # C
    TASK_EVENT = 20  # C
    BUFFER_SIZE = 21  # C
    BUFFER = 32  # P
    ERROR = 33  # P and C
    BACKLOG = 34  # P
    ALIVE = 48  # both


BUFFER_TYPE: Final = int(Kind.BUFFER)
"""The type byte of a buffer, as a plain number: it is looked at for every frame."""


class ErrorCode(IntEnum):
    """What went wrong at the other side."""

    PARTITION_NOT_FOUND = 1
    PRODUCER_FAILED = 2
    EVENT_UNCLAIMED = 3
    PROTOCOL = 4
    UNPROVEN = 5
    INTERNAL = 6
    BUSY = 7


class LinkHello(msgspec.Struct, frozen=True):
    """First word of the consumer's side: how it wants to talk, and a nonce."""

    flow_control: int
    segment_bytes: int
    nonce: bytes
    compression: int = 0


class LinkChallenge(msgspec.Struct, frozen=True):
    """The producer's side proves itself and asks for the same."""

    nonce: bytes
    proof: bytes


class LinkProof(msgspec.Struct, frozen=True):
    """The consumer's side proves itself."""

    proof: bytes


class LinkWelcome(msgspec.Struct, frozen=True):
    """Both are proven; everything else may follow."""


class PartitionRequest(msgspec.Struct, frozen=True):
    """Send me this subpartition; I have room for ``credit`` buffers."""

    receiver: ChannelId
    credit: int
    subpartition: int
    partition: PartitionId


class AddCredit(msgspec.Struct, frozen=True):
    """Room for more buffers, for one or more receivers; each names what it once requested."""

    grants: tuple[tuple[ChannelId, int], ...]


class CancelReceiver(msgspec.Struct, frozen=True):
    """Send nothing more to this receiver."""

    receiver: ChannelId


class Close(msgspec.Struct, frozen=True):
    """The consumer's side needs the connection no more."""


class TaskEventRequest(msgspec.Struct, frozen=True):
    """An event for the producer of a partition."""

    receiver: ChannelId
    partition: PartitionId
    event: bytes


class BufferSize(msgspec.Struct, frozen=True):
    """From now on put at most so many bytes into a data buffer for this receiver."""

    receiver: ChannelId
    size: int


class ErrorReport(msgspec.Struct, frozen=True):
    """An error for one receiver, or (receiver None) for the whole connection."""

    receiver: ChannelId | None
    code: int
    partition: PartitionId
    text: str


class Backlog(msgspec.Struct, frozen=True):
    """Data waits, but the receiver has given no credit."""

    receiver: ChannelId
    backlog: int


class Alive(msgspec.Struct, frozen=True):
    """A sign of life of a connection that is quiet."""


Message: TypeAlias = (
    LinkHello
    | LinkChallenge
    | LinkProof
    | LinkWelcome
    | PartitionRequest
    | AddCredit
    | CancelReceiver
    | Close
    | TaskEventRequest
    | BufferSize
    | ErrorReport
    | Backlog
    | Alive
)

_HELLO: Final = struct.Struct(f"<BI{NONCE_BYTES}sB")
_CHALLENGE: Final = struct.Struct(f"<{NONCE_BYTES}s{PROOF_BYTES}s")
_PROOF: Final = struct.Struct(f"<{PROOF_BYTES}s")
_REQUEST: Final = struct.Struct("<QII")
_CREDIT: Final = struct.Struct("<QI")
_RECEIVER: Final = struct.Struct("<Q")
_ERROR: Final = struct.Struct("<?QB")
_TEXT: Final = struct.Struct("<H")

BODY_LIMITS: Final = {
    Kind.HELLO: _HELLO.size,
    Kind.CHALLENGE: _CHALLENGE.size,
    Kind.PROOF: _PROOF.size,
    Kind.WELCOME: 0,
    Kind.PARTITION_REQUEST: _REQUEST.size + _TEXT.size + MAX_PARTITION_ID_BYTES,
    Kind.ADD_CREDIT: MAX_GRANTS * _CREDIT.size,
    Kind.CANCEL: _RECEIVER.size,
    Kind.CLOSE: 0,
    Kind.BUFFER_SIZE: _CREDIT.size,
    Kind.ERROR: _ERROR.size + 2 * _TEXT.size + MAX_PARTITION_ID_BYTES + MAX_TEXT_BYTES,
    Kind.BACKLOG: _CREDIT.size,
    Kind.ALIVE: 0,
}
"""The longest body of each message; buffers and task events are bounded by settings."""

TASK_EVENT_OVERHEAD: Final = _RECEIVER.size + _TEXT.size + MAX_PARTITION_ID_BYTES


def encode_buffer_head(
    receiver: ChannelId, sequence: int, backlog: int, flags: int, size: int
) -> bytes:
    """The first 32 bytes of a buffer frame; ``size`` bytes of payload follow."""
    return BUFFER_HEAD.pack(
        size + BUFFER_HEAD_REST, MAGIC, VERSION, BUFFER_TYPE, receiver, sequence, backlog, flags
    )


def encode(message: Message) -> bytes:
    """The whole frame of a message."""
    kind, body = _encode_body(message)
    return PREFIX.pack(len(body), MAGIC, VERSION, kind) + body


def _encode_body(message: Message) -> tuple[Kind, bytes]:
    match message:
        case AddCredit(grants):
            return Kind.ADD_CREDIT, b"".join([_CREDIT.pack(*grant) for grant in grants])
        case Backlog(receiver, backlog):
            return Kind.BACKLOG, _CREDIT.pack(receiver, backlog)
        case BufferSize(receiver, size):
            return Kind.BUFFER_SIZE, _CREDIT.pack(receiver, size)
        case PartitionRequest(receiver, credit, subpartition, partition):
            head = _REQUEST.pack(receiver, credit, subpartition)
            return Kind.PARTITION_REQUEST, head + _text(partition, MAX_PARTITION_ID_BYTES)
        case CancelReceiver(receiver):
            return Kind.CANCEL, _RECEIVER.pack(receiver)
        case Close():
            return Kind.CLOSE, b""
        case TaskEventRequest(receiver, partition, event):
            name = _text(partition, MAX_PARTITION_ID_BYTES)
            return Kind.TASK_EVENT, _RECEIVER.pack(receiver) + name + event
        case ErrorReport(receiver, code, partition, text):
            head = _ERROR.pack(receiver is not None, receiver or 0, code)
            name = _text(partition, MAX_PARTITION_ID_BYTES)
            return Kind.ERROR, head + name + _text(text, MAX_TEXT_BYTES)
        case LinkHello(flow_control, segment_bytes, nonce, compression):
            return Kind.HELLO, _HELLO.pack(flow_control, segment_bytes, nonce, compression)
        case LinkChallenge(nonce, proof):
            return Kind.CHALLENGE, _CHALLENGE.pack(nonce, proof)
        case LinkProof(proof):
            return Kind.PROOF, _PROOF.pack(proof)
        case LinkWelcome():
            return Kind.WELCOME, b""
        case Alive():
            return Kind.ALIVE, b""


def decode(kind: Kind, body: memoryview, peer: PeerName) -> Message:
    """The message in a frame's body; FrameMalformed names the peer and what does not fit."""
    try:
        return _decode_body(kind, body)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise FrameMalformed(
            peer, f"a {kind.name} frame of {len(body)} bytes does not parse: {error}"
        ) from error


def _decode_body(kind: Kind, body: memoryview) -> Message:
    match kind:
        case Kind.ADD_CREDIT:
            return AddCredit(_decode_grants(body))
        case Kind.BACKLOG:
            return Backlog(*_CREDIT.unpack(body))
        case Kind.BUFFER_SIZE:
            return BufferSize(*_CREDIT.unpack(body))
        case Kind.PARTITION_REQUEST:
            receiver, credit, subpartition = _REQUEST.unpack_from(body)
            partition, end = _read_text(body, _REQUEST.size)
            _expect_end(body, end)
            return PartitionRequest(receiver, credit, subpartition, PartitionId(partition))
        case Kind.CANCEL:
            return CancelReceiver(*_RECEIVER.unpack(body))
        case Kind.TASK_EVENT:
            (receiver,) = _RECEIVER.unpack_from(body)
            partition, end = _read_text(body, _RECEIVER.size)
            return TaskEventRequest(receiver, PartitionId(partition), bytes(body[end:]))
        case Kind.ERROR:
            return _decode_error(body)
        case Kind.HELLO:
            return LinkHello(*_HELLO.unpack(body))
        case Kind.CHALLENGE:
            return LinkChallenge(*_CHALLENGE.unpack(body))
        case Kind.PROOF:
            return LinkProof(*_PROOF.unpack(body))
        case Kind.WELCOME | Kind.CLOSE | Kind.ALIVE:
            _expect_end(body, 0)
            return _EMPTY[kind]
        case Kind.BUFFER:
            raise ValueError("a buffer is no message of its own")


_EMPTY: Final[dict[Kind, Message]] = {
    Kind.WELCOME: LinkWelcome(),
    Kind.CLOSE: Close(),
    Kind.ALIVE: Alive(),
}


def _decode_grants(body: memoryview) -> tuple[tuple[ChannelId, int], ...]:
    grants = tuple(_CREDIT.iter_unpack(body))
    if not grants:
        raise ValueError("it grants nothing")
    return grants


def _decode_error(body: memoryview) -> ErrorReport:
    has_receiver, receiver, code = _ERROR.unpack_from(body)
    partition, end = _read_text(body, _ERROR.size)
    text, end = _read_text(body, end)
    _expect_end(body, end)
    return ErrorReport(receiver if has_receiver else None, code, PartitionId(partition), text)


def _text(text: str, limit: int) -> bytes:
    data = text.encode()[:limit]
    return _TEXT.pack(len(data)) + data


def _read_text(body: memoryview, start: int) -> tuple[str, int]:
    (size,) = _TEXT.unpack_from(body, start)
    start += _TEXT.size
    if start + size > len(body):
        raise ValueError(f"a text of {size} bytes ends beyond the frame")
    return str(body[start : start + size], "utf-8", "replace"), start + size


def _expect_end(body: memoryview, end: int) -> None:
    if end != len(body):
        raise ValueError(f"{len(body) - end} bytes too many")
