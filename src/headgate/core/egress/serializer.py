"""One element on its way into buffers: it may fill part of one, or any number of them.

Law: what is copied is exactly prefix + body, in order; between two elements nothing is left over.
"""

from enum import Enum

from headgate.base.elements import ByteLike
from headgate.core.buffers.buffer import BufferBuilder


class Copied(Enum):
    """How far a copy into a buffer came."""

    WHOLE = "the element is complete, the buffer has room"
    WHOLE_AND_FULL = "the element is complete, the buffer is full"
    PART_AND_FULL = "the buffer is full, the element is not complete"


_NOTHING = memoryview(b"")


class SpanningSerializer:
    """Holds the bytes of the element that is being written."""

    __slots__ = ("_body", "_body_at", "_prefix", "_prefix_at")

    def __init__(self) -> None:
        self._prefix = self._body = _NOTHING
        self._prefix_at = self._body_at = 0

    def begin(self, prefix: ByteLike, body: ByteLike) -> None:
        """Take a new element; the one before must have been copied whole."""
        assert not self.has_rest, "an element was begun before the last one was complete"
        self._prefix, self._body = memoryview(prefix), memoryview(body).cast("B")
        self._prefix_at = self._body_at = 0

    def rewind(self) -> None:
        """Start over with the same element, for the next channel."""
        self._prefix_at = self._body_at = 0

    def copy_to(self, builder: BufferBuilder) -> Copied:
        """Move on into ``builder`` until it is full or the element is complete."""
        if self._prefix_at < len(self._prefix):
            self._prefix_at += builder.append(self._prefix[self._prefix_at :])
        if self._body_at < len(self._body) and not builder.is_full:
            at = self._body_at
            self._body_at += builder.append(self._body[at:] if at else self._body)
        if self.has_rest:
            return Copied.PART_AND_FULL
        return Copied.WHOLE_AND_FULL if builder.is_full else Copied.WHOLE

    @property
    def has_rest(self) -> bool:
        return self._body_at < len(self._body) or self._prefix_at < len(self._prefix)

    def prune(self) -> None:
        """Let go of the bytes; a large element must not outlive its writing."""
        self._prefix = self._body = _NOTHING
        self._prefix_at = self._body_at = 0
