"""The deserializer: rebuilds the elements of one channel from its buffers.

Law: the elements that come out are those that the writer put in, however they were cut. An element
within one buffer is read in place. One that spans buffers is gathered in memory, and beyond a limit
on disk; the driver brings the disk.
"""

from enum import Enum

from headgate.base.elements import (
    LENGTH,
    OF_RECORDS,
    PREFIX,
    Bundle,
    Element,
    PickleSerializer,
    Serializer,
    decode_element,
)
from headgate.base.errors import ElementBroken, ElementTooLarge
from headgate.base.settings import GIB, MIB
from headgate.base.spilling import SpillFile, SpillRoom
from headgate.core.buffers.buffer import Buffer, begun_bytes, bundle_bytes
from headgate.core.ingress.waiting import LARGEST_ELEMENT_BYTES, Place, WaitingCopier


class DeserializationResult(Enum):
    """How a read ended."""

    PART = "the buffer is used up, an element may be begun"
    MIDDLE = "an element, and the buffer holds more"
    LAST = "an element, and the buffer is used up"


class Deserializer:
    """For one channel: give it a buffer, then read until the result says PART or LAST."""

    def __init__(
        self,
        serializer: Serializer | None = None,
        spill_room: SpillRoom | None = None,
        spill_bytes: int = 5 * MIB,
        max_element_bytes: int = GIB + MIB,
    ) -> None:
        self.serializer: Serializer = serializer or PickleSerializer()
        self._spill_room = spill_room
        self._spill_bytes = spill_bytes
        self._max_element_bytes = max_element_bytes
        self._buffer: Buffer | None = None
        self._view = memoryview(b"")
        self._at = 0
        self._length = bytearray()  # of an element whose length is not complete
        self._missing = 0  # bytes of a begun element that are still to come
        self._begun_bytes = 0  # and those that have come
        self._gathered: bytearray | None = None
        self._spill: SpillFile | None = None
        self._tag = 0
        self.records_in = 0
        self.buffers_in = 0
        self._bytes_in = 0

    def feed(self, buffer: Buffer) -> None:
        """Take the next buffer; the one before must be used up."""
        assert self._buffer is None, "the last buffer is not used up"
        self._buffer = buffer
        self._view = memoryview(buffer.view)
        self._at = 0
        self.buffers_in += 1
        self._bytes_in += len(self._view) or buffer.weight

    def next(self) -> tuple[DeserializationResult, Element | None]:
        """The next element, as far as the buffer goes."""
        if self._buffer is None:
            return DeserializationResult.PART, None
        if self._buffer.bundle is not None:
            return self._handed_over(self._buffer.bundle)
        view, at = self._view, self._at
        if not self._missing and not self._length and len(view) - at >= PREFIX.size:
            length, tag = PREFIX.unpack_from(view, at)
            end = at + LENGTH.size + length
            if end <= len(view):  # the whole element lies in this buffer
                self._check_length(length)
                element = decode_element(tag, view[at + PREFIX.size : end], self.serializer)
                self._tag = tag
                self._count(element)
                return self._advance(end), element
        self._tag = 0
        return self._next_spanning()

    @property
    def has_more_like(self) -> bool:
        """Whether a bundle of the same form as the last element follows, whole, in this buffer."""
        view, at = self._view, self._at
        if self._buffer is None or self._tag not in OF_RECORDS or self._length or self._missing:
            return False
        if len(view) - at < PREFIX.size:
            return False
        length, tag = PREFIX.unpack_from(view, at)
        return bool(tag == self._tag and at + LENGTH.size + length <= len(view))

    def _handed_over(self, bundle: Bundle) -> tuple[DeserializationResult, Element]:
        assert not self._missing and not self._length, "records came in the middle of an element"
        self._count(bundle)
        return self._advance(0), bundle

    @property
    def is_between_elements(self) -> bool:
        """Whether all that came in has gone out."""
        return self._buffer is None and not self._missing and not self._length

    @property
    def bytes_read(self) -> int:
        """What came in, but for the rest of the buffer at hand; records by reference as weighed."""
        view = self._view
        return self._bytes_in - len(view) + self._at if view else self._bytes_in

    def unread(self) -> bytes:
        """All that came in and has not gone out: a stream that goes on with what comes next."""
        gathered = self._gathered if self._spill is None else self._spill.written()
        begun = begun_bytes(self._length, gathered, self._missing)
        if self._buffer is None:
            return begun
        if self._buffer.bundle is not None:
            return begun + bundle_bytes(self._buffer.bundle, self.serializer)
        return begun + bytes(self._view[self._at :])

    def copy_begun(self, copier: WaitingCopier) -> None:
        """Copy what came in and has not gone out; unlike ``unread`` it runs no code of the user."""
        if self._missing or self._length:
            whole = self._begun_bytes + self._missing
            if self._spill is not None or whole > LARGEST_ELEMENT_BYTES:
                copier.skip(whole, self._missing)
            else:
                begun = begun_bytes(self._length, self._gathered, self._missing)
                copier.copy(Buffer(begun), Place.BEGUN)
        if self._buffer is not None:
            rest = Buffer(self._view[self._at :], bundle=self._buffer.bundle)
            copier.copy(rest, Place.BEGUN)

    def close(self) -> None:
        """Drop what is begun; idempotent. At the end of a partition nothing should be."""
        buffer, self._buffer = self._buffer, None
        self._view = memoryview(b"")
        if buffer is not None:
            buffer.release()
        self._length.clear()
        self._missing = 0
        self._drop_gathered()

    def _next_spanning(self) -> tuple[DeserializationResult, Element | None]:
        view, at = self._view, self._at
        if not self._missing:
            taken = min(LENGTH.size - len(self._length), len(view) - at)
            self._length += view[at : at + taken]
            at += taken
            if len(self._length) == LENGTH.size:
                (self._missing,) = LENGTH.unpack(self._length)
                self._length.clear()
                self._check_length(self._missing)
                self._begin_gathering()
        taken = min(self._missing, len(view) - at)
        if taken:
            self._gather(view[at : at + taken])
            self._missing -= taken
            self._begun_bytes += taken
        complete = not self._missing and (self._gathered is not None or self._spill is not None)
        element = self._complete() if complete else None
        result = self._advance(at + taken)
        return (result, element) if complete else (DeserializationResult.PART, None)

    def _begin_gathering(self) -> None:
        self._begun_bytes = 0
        if self._missing > self._spill_bytes and self._spill_room is not None:
            self._spill = self._spill_room.open()
        else:
            self._gathered = bytearray()

    def _gather(self, data: memoryview) -> None:
        if self._spill is not None:
            self._spill.write(data)
        else:
            assert self._gathered is not None
            self._gathered += data

    def _complete(self) -> Element:
        try:
            whole = memoryview(self._gathered) if self._spill is None else self._spill.view()  # type: ignore[arg-type]
            with whole:
                body = whole[1:]
                with body:
                    element = decode_element(whole[0], body, self.serializer)
            self._count(element)
            return element
        finally:
            self._drop_gathered()

    def _count(self, element: Element) -> None:
        if isinstance(element, Bundle):
            self.records_in += len(element)

    def _drop_gathered(self) -> None:
        self._gathered = None
        spill, self._spill = self._spill, None
        if spill is not None:
            spill.close()

    def _check_length(self, length: int) -> None:
        if length > self._max_element_bytes:
            raise ElementTooLarge(length, self._max_element_bytes)
        if length == 0:
            raise ElementBroken("an element of 0 bytes")

    def _advance(self, at: int) -> DeserializationResult:
        if at < len(self._view):
            self._at = at
            return DeserializationResult.MIDDLE
        buffer, self._buffer = self._buffer, None
        self._view = memoryview(b"")
        assert buffer is not None
        buffer.release()
        return DeserializationResult.LAST
