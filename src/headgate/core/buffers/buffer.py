"""Buffers: readable ranges of segments, counted, and returned home exactly once.

Law: a lease starts with one reader; when the last reader lets go the segment goes home, once.
A buffer without a lease is unpooled memory (events, replies) and needs no home.
"""

from typing import Protocol

import msgspec

from headgate.base.elements import ByteLike
from headgate.core.buffers.segment import Segment


class Home(Protocol):
    """Where a freed segment goes: its local pool, its channel, or the global pool."""

    def segment_returned(self, segment: Segment) -> None: ...


class Lease:
    """A segment on loan from ``home``, with the number of its readers."""

    __slots__ = ("home", "readers", "segment")

    def __init__(self, segment: Segment, home: Home) -> None:
        self.segment = segment
        self.home = home
        self.readers = 1

    def retain(self) -> "Lease":
        assert self.readers > 0, f"{self.segment} was retained after it had gone home"
        self.readers += 1
        return self

    def release(self) -> None:
        self.readers = readers = self.readers - 1
        if readers == 0:
            self.home.segment_returned(self.segment)
        else:
            assert readers > 0, f"{self.segment} was released twice"


class Buffer(msgspec.Struct, gc=False):
    """A readable range. The receiver of the object owns one count of its lease."""

    view: ByteLike
    lease: Lease | None = None
    is_event: bool = False
    compressed: bool = False

    @property
    def size(self) -> int:
        return len(self.view)

    def release(self) -> None:
        """Give up this reader's count; the view must not be used afterwards."""
        lease = self.lease
        if lease is not None:
            lease.release()


class BufferBuilder:
    """The producer's side of one segment: append or write in place, commit, finish."""

    __slots__ = ("capacity", "committed", "finished", "lease", "memory")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.memory = lease.segment.memory
        self.capacity = len(self.memory)
        self.committed = 0
        self.finished = False

    def append(self, data: memoryview) -> int:
        """Copy as much of ``data`` as fits, make it readable, say how much that was."""
        start = self.committed
        count = min(len(data), self.capacity - start)
        self.memory[start : start + count] = data[:count]
        self.committed = start + count
        return count

    def commit(self, count: int) -> None:
        """Make ``count`` bytes readable that were written in place."""
        assert not self.finished and self.committed + count <= self.capacity
        self.committed += count

    @property
    def is_full(self) -> bool:
        return self.committed == self.capacity

    def consumer(self) -> "BufferConsumer":
        """A reader of what is written from here on; every channel gets its own."""
        return BufferConsumer(self, self.lease.retain(), self.committed)

    def finish(self) -> int:
        """No more data; returns how much was written. Gives up the producer's count."""
        assert not self.finished, "a builder was finished twice"
        self.finished = True
        self.lease.release()
        return self.committed


class BufferConsumer:
    """The reader's side of a segment that may still be written: each committed byte once.

    Events and stored data come as consumers too: ``BufferConsumer.of`` wraps a finished buffer.
    """

    __slots__ = ("builder", "is_event", "lease", "position", "ready")

    def __init__(self, builder: BufferBuilder | None, lease: Lease | None, position: int) -> None:
        self.builder = builder
        self.lease = lease
        self.position = position
        self.is_event = False
        self.ready: Buffer | None = None

    @classmethod
    def of(cls, buffer: Buffer) -> "BufferConsumer":
        """A consumer of one complete buffer, for instance an event."""
        consumer = cls(None, None, 0)
        consumer.ready = buffer
        consumer.is_event = buffer.is_event
        return consumer

    @property
    def is_finished(self) -> bool:
        """Whether nothing will follow what can be built now."""
        builder = self.builder
        return builder is None or builder.finished

    @property
    def has_data(self) -> bool:
        builder = self.builder
        if builder is None:
            return self.ready is not None
        return builder.committed > self.position

    def build(self) -> Buffer | None:
        """What was committed since the last build, or None if that is nothing."""
        builder = self.builder
        if builder is None:
            ready, self.ready = self.ready, None
            return ready
        start, end = self.position, builder.committed
        if start == end:
            return None
        self.position = end
        lease = self.lease
        assert lease is not None, "a closed consumer was built"
        if builder.finished:
            self.lease = None  # the last slice takes the consumer's own count
        else:
            lease.retain()
        return Buffer(builder.memory[start:end], lease)

    def copy(self) -> "BufferConsumer":
        """An independent reader that starts where this one stands."""
        twin = BufferConsumer(self.builder, self.lease and self.lease.retain(), self.position)
        twin.is_event = self.is_event
        if self.ready is not None:
            if self.ready.lease is not None:
                self.ready.lease.retain()
            twin.ready = Buffer(
                self.ready.view, self.ready.lease, self.ready.is_event, self.ready.compressed
            )
        return twin

    def close(self) -> None:
        """Let go of the segment; may be called after the last build as well."""
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()
        ready, self.ready = self.ready, None
        if ready is not None:
            ready.release()
