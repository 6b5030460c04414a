"""Frames of the control connection: a length of four bytes, then one message in msgpack.

Law: how the stream was cut makes no difference, and no more is kept than the limit allows. The
limit is small until the peer is proven.
"""

import struct
from typing import Final, TypeVar

import msgspec

from headgate.base.errors import FrameMalformed, FrameTooLong
from headgate.base.ids import PeerName
from headgate.base.messages import ControlMessage, Greeting, ToDriver, ToTaskManager, ToVisitor

GREETING_BYTES: Final = 4 * 1024
"""The longest frame of a peer that is not proven."""
MESSAGE_BYTES: Final = 2**31 - 1
"""The longest frame at all; the job's code with everything its functions hold travels in one."""

_LENGTH: Final = struct.Struct("<I")
_ENCODER: Final = msgspec.msgpack.Encoder()

GREETINGS: Final[msgspec.msgpack.Decoder[Greeting]] = msgspec.msgpack.Decoder(Greeting)
TO_DRIVER: Final[msgspec.msgpack.Decoder[ToDriver]] = msgspec.msgpack.Decoder(ToDriver)
TO_TASK_MANAGER: Final[msgspec.msgpack.Decoder[ToTaskManager]] = msgspec.msgpack.Decoder(
    ToTaskManager
)
TO_VISITOR: Final[msgspec.msgpack.Decoder[ToVisitor]] = msgspec.msgpack.Decoder(ToVisitor)

_M = TypeVar("_M")


def encode(message: ControlMessage) -> bytes:
    """One frame."""
    body = _ENCODER.encode(message)
    if len(body) > MESSAGE_BYTES:
        what = type(message).__name__
        raise FrameTooLong(PeerName("this side"), len(body), MESSAGE_BYTES, what)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into messages."""

    def __init__(self, peer: PeerName) -> None:
        self.peer = peer
        self.limit = GREETING_BYTES
        self._kept = bytearray()

    @property
    def is_between_frames(self) -> bool:
        """Whether an end of the stream would be an orderly one."""
        return not self._kept

    def received(self, data: bytes) -> None:
        """The stream goes on."""
        self._kept += data

    def next(self, decoder: "msgspec.msgpack.Decoder[_M]") -> _M | None:
        """The next message, if it is whole; raises if it is not one that the decoder knows."""
        if len(self._kept) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._kept)
        if length > self.limit:
            raise FrameTooLong(self.peer, length, self.limit, "control")
        end = _LENGTH.size + length
        if len(self._kept) < end:
            return None
        body = bytes(memoryview(self._kept)[_LENGTH.size : end])
        del self._kept[:end]
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise FrameMalformed(self.peer, f"sent no message of the control: {error}") from error
