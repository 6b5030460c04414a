"""What waits in a channel, copied to be shown: pieces first, elements of them later.

The copy is made inside the baton and is bounded; it runs no code of the user, so that records which
are handed over by reference are only referred to. The pieces are decoded outside, by whoever wants
to see them. Law: nothing in the channel changes; elements come in the order in which the task will
read them, however they were cut. What cannot be decoded is an answer too, never an error.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from headgate.base.elements import (
    LENGTH,
    PREFIX,
    Bundle,
    ByteLike,
    Element,
    Serializer,
    decode_element,
)
from headgate.base.errors import ElementBroken
from headgate.base.events import RuntimeEvent, decode_event
from headgate.core.buffers.buffer import Buffer

LARGEST_ELEMENT_BYTES: Final = 1024 * 1024
"""A longer element is not decoded, only mentioned."""


class Place(Enum):
    """Where something waits."""

    BEGUN = "begun"
    """The task has taken the buffer, and reads it."""
    ARRIVED = "arrived"
    PRODUCER = "producer"
    """In the subpartition of a producer in the same process."""


class WaitingPiece(msgspec.Struct, frozen=True):
    """A part of a channel's stream."""

    place: Place
    data: bytes = b""
    bundle: Bundle | None = None
    """Records that are handed over as they are, instead of bytes."""
    is_event: bool = False
    compressed: bool = False
    element_bytes: int = 0
    """Bytes of an element that was begun and not copied; ``missing`` of them are still to come."""
    missing: int = 0


class WaitingCopier:
    """Copies the pieces of one channel."""

    def __init__(self, limit_bytes: int) -> None:
        self.pieces: list[WaitingPiece] = []
        self.copied_bytes = 0
        self.complete = True
        """Nothing was left out."""
        self._limit_bytes = limit_bytes
        self._is_full = False

    def copy(self, buffer: Buffer, place: Place) -> bool:
        """Copy a buffer that is not ours; False: there is no room for it, nor for later ones."""
        size = max(1, len(buffer.view) or buffer.weight)
        if self._is_full or self.copied_bytes + size > self._limit_bytes:
            self._is_full, self.complete = True, False
            return False
        self.copied_bytes += size
        bundle = buffer.bundle
        if bundle is not None:  # its writer may add to it
            bundle = bundle.copy()
        data = b"" if bundle is not None else bytes(buffer.view)
        self.pieces.append(WaitingPiece(place, data, bundle, buffer.is_event, buffer.compressed))
        return True

    def skip(self, element_bytes: int, missing: int) -> None:
        """An element was begun that is too long; ``missing`` bytes of it come with the next."""
        self.complete = False
        piece = WaitingPiece(Place.BEGUN, element_bytes=element_bytes, missing=missing)
        self.pieces.append(piece)


class Undecoded(msgspec.Struct, frozen=True):
    """Something that cannot be shown."""

    problem: str


WaitingThing: TypeAlias = Element | RuntimeEvent | Undecoded
Expand: TypeAlias = Callable[[ByteLike], ByteLike]


def decode_waiting(
    pieces: Iterable[WaitingPiece], serializer: Serializer, expand: Expand, complete: bool = True
) -> Iterator[tuple[Place, WaitingThing]]:
    """What the pieces hold, each with the place where it begins; not called inside the baton.

    ``complete``: an element that does not end in them has not arrived yet, rather than being cut.
    """
    stream = _Stream(serializer)
    for piece in pieces:
        if piece.is_event:
            yield piece.place, _event(piece.data)
        elif piece.bundle is not None:
            yield piece.place, piece.bundle
        elif piece.element_bytes:
            stream.left_out = piece.missing
            yield piece.place, _too_long(piece.element_bytes)
        else:
            try:
                data = expand(piece.data) if piece.compressed else piece.data
            except ElementBroken as error:
                yield piece.place, Undecoded(str(error))
                return
            yield from stream.elements(data, piece.place)
            if stream.is_broken:
                return
    if stream.begun and complete:
        text = f"the first {len(stream.begun)} bytes of an element; the others have not arrived"
        yield stream.place, Undecoded(text)


class _Stream:
    """The bytes of a channel: elements, one after the other."""

    def __init__(self, serializer: Serializer) -> None:
        self.begun = bytearray()
        self.place = Place.BEGUN
        """Where the begun element begins."""
        self.left_out = 0
        """So many bytes belong to an element that is not shown."""
        self.is_broken = False
        self._serializer = serializer

    def elements(self, data: ByteLike, place: Place) -> Iterator[tuple[Place, WaitingThing]]:
        """The elements that end in these bytes."""
        skipped = min(self.left_out, len(data))
        self.left_out -= skipped
        if not self.begun:
            self.place = place
        self.begun += memoryview(data)[skipped:]
        while len(self.begun) >= PREFIX.size:
            length, tag = PREFIX.unpack_from(self.begun)
            end = LENGTH.size + length
            if not length:
                self.is_broken = True
                self.begun.clear()
                yield self.place, Undecoded("an element of 0 bytes")
                return
            if length > LARGEST_ELEMENT_BYTES:
                self.left_out = max(0, end - len(self.begun))
                thing: WaitingThing = _too_long(length)
            elif end > len(self.begun):
                return
            else:
                thing = self._decode(tag, bytes(self.begun[PREFIX.size : end]))
            begins, self.place = self.place, place
            del self.begun[:end]
            yield begins, thing

    def _decode(self, tag: int, body: bytes) -> Element | Undecoded:
        try:
            return decode_element(tag, memoryview(body), self._serializer)
        except ElementBroken as error:
            return Undecoded(str(error))


def _event(data: bytes) -> RuntimeEvent | Undecoded:
    try:
        return decode_event(data)
    except ElementBroken as error:
        return Undecoded(str(error))


def _too_long(size: int) -> Undecoded:
    return Undecoded(f"an element of {size} bytes, which is too long to be shown")
