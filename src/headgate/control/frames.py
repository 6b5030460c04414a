"""Frames of the driver's connections: a length of four bytes, then one message in msgpack.

Once both sides are proven, every frame is sealed, and the seal is checked before the message is
decoded. Both sides derive two keys from the job's secret and what the handshake agreed upon, one
for each direction. A frame has two codes: one for its number and length, so that a false length is
found before anybody waits for the body, one for the whole. Law: a frame opens only as the next one
of the direction that it was sealed for, on its own connection; what was changed, repeated,
reordered, left out or sent back does not. How the stream was cut makes no difference, and no more
is kept than the limit allows, which is small until the peer is proven.
"""

import hmac
import struct
from dataclasses import dataclass, field
from typing import Final, TypeVar, get_args

import msgspec

from headgate.base.elements import ByteLike
from headgate.base.errors import FrameForged, FrameMalformed, FrameTooLong
from headgate.base.ids import PeerName
from headgate.base.messages import ControlMessage, Greeting, ToDriver, ToTaskManager, ToVisitor

LENGTH: Final = struct.Struct("<I")
HEAD_CODE_BYTES: Final = 16
BODY_CODE_BYTES: Final = 32
HEAD_BYTES: Final = LENGTH.size + HEAD_CODE_BYTES
"""The length and its code."""
SEALED_BYTES: Final = HEAD_BYTES + BODY_CODE_BYTES
"""What stands in front of the body."""
_PLACE: Final = struct.Struct("<QI")
_AT_ONCE: Final = 64 * 1024
"""Shorter bodies are joined with their number, which is quicker than a second call."""


@dataclass(frozen=True, slots=True)
class SealKeys:
    """The keys of one connection, as one of its sides sees them."""

    sending: bytes = field(repr=False)
    receiving: bytes = field(repr=False)


def driver_keys(secret: bytes, agreed: bytes) -> SealKeys:
    """The driver's view; ``agreed`` is what the proofs cover, both fresh nonces among it."""
    return SealKeys(_derive(secret, _TO_WORKER, agreed), _derive(secret, _TO_DRIVER, agreed))


def worker_keys(secret: bytes, agreed: bytes) -> SealKeys:
    """The task manager's view of the same keys."""
    keys = driver_keys(secret, agreed)
    return SealKeys(keys.receiving, keys.sending)


class Seal:
    """One direction of a connection; it counts the frames."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.number = 0
        """Number of the frame that is made or read next."""

    def make(self, body: ByteLike) -> bytes:
        """What stands in front of the next body to be sent."""
        length = LENGTH.pack(len(body))
        sealed = length + self._head_code(len(body)) + self._body_code(body)
        self.number += 1
        return sealed

    def fits_head(self, head: ByteLike) -> bool:
        """Whether the next frame begins so; the other side then means its length."""
        (length,) = LENGTH.unpack_from(head)
        return hmac.compare_digest(head[LENGTH.size : HEAD_BYTES], self._head_code(length))

    def opens(self, code: ByteLike, body: ByteLike) -> bool:
        """Whether this is the next body that the other side has sealed; then it is counted."""
        if not hmac.compare_digest(code, self._body_code(body)):
            return False
        self.number += 1
        return True

    def _head_code(self, length: int) -> bytes:
        place = _PLACE.pack(self.number, length)
        return hmac.digest(self._key, _HEAD + place, "sha256")[:HEAD_CODE_BYTES]

    def _body_code(self, body: ByteLike) -> bytes:
        place = _PLACE.pack(self.number, len(body))
        if len(body) <= _AT_ONCE:
            return hmac.digest(self._key, b"".join((_BODY, place, body)), "sha256")
        code = hmac.new(self._key, _BODY + place, "sha256")
        code.update(body)
        return code.digest()


_HEAD: Final = b"head"
_BODY: Final = b"body"
_TO_DRIVER: Final = b"seal to driver"
_TO_WORKER: Final = b"seal to worker"


def _derive(secret: bytes, purpose: bytes, agreed: bytes) -> bytes:
    return hmac.digest(secret, purpose + agreed, "sha256")


GREETING_BYTES: Final = 4 * 1024
"""The longest frame of a peer that is not proven."""
MAX_STRANGE_TEXT: Final = 300
MESSAGE_BYTES: Final = 2**31 - 1
"""The longest frame at all; the job's code with everything its functions hold travels in one, from
the driver to a task manager."""
REPORT_BYTES: Final = 64 * 1024 * 1024
"""The longest frame to the driver, which has a connection to each worker: what is acknowledged of a
checkpoint names files, and answers to inspections, log lines and exceptions are bounded."""

_ENCODER: Final = msgspec.msgpack.Encoder()

GREETINGS: Final[msgspec.msgpack.Decoder[Greeting]] = msgspec.msgpack.Decoder(Greeting)
TO_DRIVER: Final[msgspec.msgpack.Decoder[ToDriver]] = msgspec.msgpack.Decoder(ToDriver)
TO_TASK_MANAGER: Final[msgspec.msgpack.Decoder[ToTaskManager]] = msgspec.msgpack.Decoder(
    ToTaskManager
)
TO_VISITOR: Final[msgspec.msgpack.Decoder[ToVisitor]] = msgspec.msgpack.Decoder(ToVisitor)

_REPORTS: Final = frozenset(get_args(ToDriver))

_M = TypeVar("_M")


def encode(message: ControlMessage) -> bytes:
    """One frame of the handshake, which is not sealed."""
    body = _encode_body(message)
    return LENGTH.pack(len(body)) + body


class FrameWriter:
    """Makes frames of what this side sends once both are proven.

    Law: frames are sent in the order in which they were made.
    """

    def __init__(self, key: bytes) -> None:
        self._seal = Seal(key)

    def encode(self, message: ControlMessage) -> bytes:
        """One sealed frame."""
        body = _encode_body(message)
        return self.head(body) + body

    def head(self, body: ByteLike) -> bytes:
        """What is sent in front of a body that is bytes already."""
        return self._seal.make(body)


class FrameReader:
    """Cuts a stream of bytes into messages."""

    def __init__(self, peer: PeerName) -> None:
        self.peer = peer
        self.limit = GREETING_BYTES
        self._kept = bytearray()
        self._seal: Seal | None = None
        self._end: int | None = None  # of the frame that has begun, once its length is known

    @property
    def is_between_frames(self) -> bool:
        """Whether an end of the stream would be an orderly one."""
        return not self._kept

    def proven(self, key: bytes, limit: int) -> None:
        """The handshake is over: frames are sealed from here on, and may be so long."""
        assert self._end is None, "in the middle of a greeting"
        self._seal = Seal(key)
        self.limit = limit

    def received(self, data: bytes) -> None:
        """The stream goes on."""
        self._kept += data

    def next(self, decoder: "msgspec.msgpack.Decoder[_M]") -> _M | None:
        """The next message, if it is whole; raises if it is not one that the decoder knows."""
        body = self.next_body()
        if body is None:
            return None
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            problem = f"sent no message of the control: {_one_line(str(error))}"
            raise FrameMalformed(self.peer, problem) from error

    def next_body(self) -> bytes | None:
        """The bytes of the next frame, if it is whole; raises FrameForged if a code is wrong."""
        if self._end is None:
            self._begin_frame()
        if self._end is None or len(self._kept) < self._end:
            return None
        begin = LENGTH.size if self._seal is None else SEALED_BYTES
        with memoryview(self._kept) as kept:
            body = bytes(kept[begin : self._end])
            code = bytes(kept[HEAD_BYTES:begin])
        del self._kept[: self._end]
        self._end = None
        if self._seal is not None and not self._seal.opens(code, body):
            raise FrameForged(self.peer, self._seal.number)
        return body

    def _begin_frame(self) -> None:
        """Find out where the frame ends, as soon as its head is there."""
        seal, head = self._seal, LENGTH.size if self._seal is None else HEAD_BYTES
        if len(self._kept) < head:
            return
        if seal is not None and not seal.fits_head(self._kept[:head]):
            raise FrameForged(self.peer, seal.number)
        (length,) = LENGTH.unpack_from(self._kept)
        if length > self.limit:
            raise FrameTooLong(self.peer, length, self.limit, "control")
        self._end = length + (LENGTH.size if seal is None else SEALED_BYTES)


def _one_line(text: str) -> str:
    """It may quote a stranger, and goes into logs."""
    shown = text[:MAX_STRANGE_TEXT]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in shown)


def _encode_body(message: ControlMessage) -> bytes:
    body = _ENCODER.encode(message)
    limit = REPORT_BYTES if type(message) in _REPORTS else MESSAGE_BYTES
    if len(body) > limit:
        raise FrameTooLong(PeerName("this side"), len(body), limit, type(message).__name__)
    return body
