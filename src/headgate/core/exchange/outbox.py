"""The outbox: frames on their way into a socket, many in one system call.

Law: bytes leave in the order they were put in; a buffer is released when its last byte has gone,
or when the outbox is closed. Above the high water mark the connection is not writable, below the
low one it is again; one burst may go beyond the high mark.
"""

from collections import deque
from itertools import islice
from typing import Final

from headgate.base.elements import ByteLike
from headgate.core.buffers.buffer import Buffer

MAX_PARTS: Final = 128
"""Pieces given to one system call; the kernel takes up to 1024."""


class Outbox:
    """Pending bytes of one connection."""

    def __init__(self, low_bytes: int, high_bytes: int) -> None:
        self.pending_bytes = 0
        self.writable = True
        self._low_bytes = low_bytes
        self._high_bytes = high_bytes
        self._parts: deque[tuple[ByteLike, Buffer | None]] = deque()
        self._cut = False  # the first part has gone in part

    def add(self, frame: ByteLike) -> None:
        """Put a whole frame in."""
        self._parts.append((frame, None))
        self._grown(len(frame))

    def add_buffer(self, head: bytes, buffer: Buffer) -> None:
        """Put a frame's head and the buffer behind it in; the outbox owns the buffer now."""
        size = len(buffer.view)
        self._parts.append((head, None))
        if size:
            self._parts.append((buffer.view, buffer))
        else:
            buffer.release()
        self._grown(len(head) + size)

    def gather(self) -> list[ByteLike]:
        """What to hand to the socket now."""
        return [part for part, _ in islice(self._parts, MAX_PARTS)]

    def sent(self, count: int) -> None:
        """The socket took this many bytes."""
        assert 0 <= count <= self.pending_bytes
        self.pending_bytes -= count
        parts = self._parts
        while count:
            part, buffer = parts[0]
            size = len(part)
            if count < size:
                parts[0] = (memoryview(part)[count:], buffer)
                self._cut = True
                break
            self._cut = False
            count -= size
            parts.popleft()
            if buffer is not None:
                buffer.release()
        if self.pending_bytes < self._low_bytes:
            self.writable = True

    @property
    def is_between_frames(self) -> bool:
        """Whether what has gone so far ends with a whole frame."""
        return not self._cut and not (self._parts and self._parts[0][1] is not None)

    def close(self) -> None:
        """Drop what was not sent."""
        while self._parts:
            _, buffer = self._parts.popleft()
            if buffer is not None:
                buffer.release()
        self.pending_bytes = 0

    def _grown(self, count: int) -> None:
        self.pending_bytes += count
        if self.pending_bytes > self._high_bytes:
            self.writable = False
