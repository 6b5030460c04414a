"""A tap: listens to the bytes of a pipe and knows which frames in it have not been read yet.

It sees only what the credit law needs: requests, credit, and buffers. ``peek`` goes on with bytes
that are not in the pipe yet, without remembering them.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from headgate.base.elements import ByteLike
from headgate.base.ids import PeerName
from headgate.core.exchange.frames import (
    BUFFER_HEAD,
    FLAG_EVENT,
    PREFIX,
    AddCredit,
    Kind,
    PartitionRequest,
    decode,
)

_WHOLE: Final = (Kind.ADD_CREDIT, Kind.PARTITION_REQUEST)
_HERE: Final = PeerName("the tap")


@dataclass(frozen=True, slots=True)
class Seen:
    """A frame for one receiver: a request, a grant (with its credit), or a data buffer."""

    kind: Kind
    receiver: int
    credit: int
    end: int
    """Where the frame ends in the stream."""


@dataclass(slots=True)
class Tap:
    """Cuts a byte stream into frames."""

    frames: deque[Seen] = field(default_factory=deque)
    start: int = 0  # of the current frame
    skip: int = 0  # bytes of it that are of no interest
    head: bytearray = field(default_factory=bytearray)

    def feed(self, data: ByteLike) -> None:
        """Go on in the stream."""
        at, end = 0, len(data)
        head = self.head
        while at < end:
            if self.skip:
                taken = min(self.skip, end - at)
                self.skip -= taken
                at += taken
                continue
            need = self._need()
            taken = min(need - len(head), end - at)
            head += data[at : at + taken]
            at += taken
            if len(head) == self._need():
                self._seen()

    def forget(self, read: int) -> None:
        """Frames that end at or before this offset have been read."""
        frames = self.frames
        while frames and frames[0].end <= read:
            frames.popleft()

    def peek(self, parts: list[ByteLike]) -> list[Seen]:
        """The frames unread in the pipe, and those of bytes that will follow."""
        ahead = Tap(deque(), self.start, self.skip, bytearray(self.head))
        for part in parts:
            ahead.feed(part)
        return [*self.frames, *ahead.frames]

    def _need(self) -> int:
        head = self.head
        if len(head) < PREFIX.size:
            return PREFIX.size
        length, _, _, kind = PREFIX.unpack_from(head)
        if kind == Kind.BUFFER:
            return BUFFER_HEAD.size
        return PREFIX.size + (int(length) if kind in _WHOLE else 0)

    def _seen(self) -> None:
        head = self.head
        length, _, _, kind = PREFIX.unpack_from(head)
        self.start += PREFIX.size + length
        self.skip = PREFIX.size + length - len(head)
        if kind == Kind.BUFFER:
            _, _, _, _, receiver, _, _, flags = BUFFER_HEAD.unpack(head)
            if not flags & FLAG_EVENT and length > BUFFER_HEAD.size - PREFIX.size:
                self.frames.append(Seen(Kind.BUFFER, receiver, 0, self.start))
        elif kind in _WHOLE:
            message = decode(Kind(kind), memoryview(bytes(head))[PREFIX.size :], _HERE)
            if isinstance(message, PartitionRequest):
                self._found(Kind.PARTITION_REQUEST, message.receiver, message.credit)
            elif isinstance(message, AddCredit):
                for receiver, credit in message.grants:
                    self._found(Kind.ADD_CREDIT, receiver, credit)
        head.clear()

    def _found(self, kind: Kind, receiver: int, credit: int) -> None:
        self.frames.append(Seen(kind, receiver, credit, self.start))
