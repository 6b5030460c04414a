"""The outbox: frames on their way into a socket, many in one system call.

Law: bytes leave in the order they were put in; a buffer is released when its last byte has gone,
or when the outbox is closed. Above the high water mark the connection is not writable, below the
low one it is again; one burst may go beyond the high mark. Messages go in whatever the mark says,
so whoever answers a peer looks at ``is_clogged`` before it listens to more questions.
"""

from collections import deque
from itertools import islice
from typing import Final

from headgate.base.elements import ByteLike
from headgate.core.buffers.buffer import Buffer

MAX_PARTS: Final = 128
"""Pieces given to one system call; the kernel takes up to 1024."""

CLOG_BYTES: Final = 1024 * 1024
"""Bytes of messages that wait; with more than this the peer does not read its answers."""


class Outbox:
    """Pending bytes of one connection."""

    def __init__(self, low_bytes: int, high_bytes: int) -> None:
        self.pending_bytes = 0
        self.writable = True
        self._low_bytes = low_bytes
        self._high_bytes = high_bytes
        self._parts: deque[ByteLike] = deque()
        self._buffers: deque[tuple[int, Buffer]] = deque()  # with the total after its last byte
        self._buffer_bytes = 0  # of the buffers that have not gone
        self._total = 0  # bytes that were ever put in
        self._cut = False  # the first part has gone in part

    def add(self, frame: ByteLike) -> None:
        """Put a whole frame in."""
        self._parts.append(frame)
        self._total += len(frame)
        self.pending_bytes += len(frame)
        if self.pending_bytes > self._high_bytes:
            self.writable = False

    def add_buffer(self, head: bytes, buffer: Buffer) -> None:
        """Put in a frame's head and the buffer after it; the outbox owns the buffer now."""
        view = buffer.view
        size = len(view)
        count = len(head) + size
        self._parts.append(head)
        self._total += count
        self.pending_bytes += count
        if self.pending_bytes > self._high_bytes:
            self.writable = False
        if size:
            self._parts.append(view)
            self._buffers.append((self._total, buffer))
            self._buffer_bytes += size
        else:
            buffer.release()

    @property
    def is_clogged(self) -> bool:
        """So many messages wait that the peer does not read them; buffers do not count."""
        return self.pending_bytes - self._buffer_bytes > CLOG_BYTES

    def gather(self) -> list[ByteLike]:
        """What to hand to the socket now."""
        return list(islice(self._parts, MAX_PARTS))

    def sent(self, count: int) -> None:
        """The socket took this many bytes."""
        assert 0 <= count <= self.pending_bytes
        self.pending_bytes -= count
        if self.pending_bytes:
            self._take_out(count)
        else:
            self._parts.clear()
            self._cut = False
        gone, buffers = self._total - self.pending_bytes, self._buffers
        while buffers and buffers[0][0] <= gone:
            buffer = buffers.popleft()[1]
            self._buffer_bytes -= len(buffer.view)
            if buffer.lease is not None:
                buffer.lease.release()
        if self.pending_bytes < self._low_bytes:
            self.writable = True

    @property
    def is_between_frames(self) -> bool:
        """Whether what has gone so far ends with a whole frame."""
        begun = self._buffers and self._buffers[0][1].view is self._parts[0]
        return not (self._cut or begun)

    def close(self) -> None:
        """Drop what was not sent."""
        self._parts.clear()
        self._cut = False
        while self._buffers:
            self._buffers.popleft()[1].release()
        self.pending_bytes = self._buffer_bytes = 0

    def unsent(self) -> list[ByteLike]:
        """All parts that wait, for observers."""
        return list(self._parts)

    def buffers(self) -> list[Buffer]:
        """The buffers that the outbox holds, for observers."""
        return [buffer for _, buffer in self._buffers]

    def _take_out(self, count: int) -> None:
        parts = self._parts
        while count:
            size = len(parts[0])
            self._cut = count < size
            if self._cut:
                parts[0] = memoryview(parts[0])[count:]
                return
            count -= size
            parts.popleft()
