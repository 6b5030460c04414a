"""Buffers: readable ranges of segments, counted, and returned home exactly once.

The arena is all exchange memory of a task manager, cut once into segments of equal size. The driver
allocates the memory. Segments begin on a page boundary (64 bytes for ones smaller than a page),
because copies to addresses that are not aligned are many times slower.

Law: a lease starts with one reader; when the last reader releases it the segment goes home, once.
A buffer without a lease is unpooled memory (events, replies) and needs no home.

For unaligned checkpoints the bytes in flight are copied at once, as a deserializer would read them:
slow storage then holds no segment, and records handed over by reference are encoded before their
consumer can change them.
"""

from typing import Final, Protocol

import msgspec

from headgate.base.elements import LENGTH, Bundle, ByteLike, Serializer, encode_element
from headgate.base.errors import MemoryShort

PAGE_BYTES: Final = 4096
_LINE_BYTES: Final = 64


class Segment:
    """One piece of the arena. Who holds the object may write to its memory."""

    __slots__ = ("index", "memory")

    def __init__(self, index: int, memory: memoryview) -> None:
        self.index = index
        self.memory = memory

    def __repr__(self) -> str:
        return f"<Segment {self.index}, {len(self.memory)} bytes>"


def stride_bytes(segment_bytes: int) -> int:
    """How far apart segments begin in the arena."""
    unit = PAGE_BYTES if segment_bytes >= PAGE_BYTES else _LINE_BYTES
    return -(-segment_bytes // unit) * unit


def cut_arena(memory: memoryview, segment_bytes: int, count: int) -> list[Segment]:
    """Cut page-aligned memory into ``count`` segments; says what is missing if it is too small."""
    stride = stride_bytes(segment_bytes)
    if len(memory) < stride * count:
        raise MemoryShort(required=stride * count, allocated=len(memory))
    return [
        Segment(index, memory[index * stride : index * stride + segment_bytes])
        for index in range(count)
    ]


class Home(Protocol):
    """Where a freed segment goes: its local pool, its channel, or the global pool."""

    def segment_returned(self, segment: Segment) -> None: ...


class Lease(msgspec.Struct, eq=False):
    """A segment on loan from ``home``, with the number of its readers."""

    segment: Segment
    home: Home
    readers: int = 1

    def retain(self) -> "Lease":
        assert self.readers > 0, f"{self.segment} was retained after it had gone home"
        self.readers += 1
        return self

    def release(self) -> None:
        self.readers = readers = self.readers - 1
        if not readers:
            self.home.segment_returned(self.segment)
        else:
            assert readers > 0, f"{self.segment} was released twice"


class Buffer(msgspec.Struct, eq=False):
    """A readable range. The receiver of the object owns one count of its lease."""

    view: ByteLike
    lease: Lease | None = None
    is_event: bool = False
    compressed: bool = False
    bundle: Bundle | None = None
    """Records handed over within the process instead of bytes; the lease bounds their number."""
    weight: int = 0
    """Estimated size of those records in bytes."""

    @property
    def size(self) -> int:
        return len(self.view)

    def release(self) -> None:
        """Give up this reader's count; the view must not be used afterwards."""
        lease = self.lease
        if lease is not None:
            lease.release()


class BufferBuilder(msgspec.Struct, eq=False):
    """The producer's side of one segment: append or write in place, commit, finish."""

    lease: Lease
    committed: int = 0
    finished: bool = False
    capacity: int = 0
    """Bytes that it may hold at most; 0: the whole segment."""

    def __post_init__(self) -> None:
        longest = len(self.lease.segment.memory)
        self.capacity = min(self.capacity or longest, longest)

    @property
    def memory(self) -> memoryview:
        return self.lease.segment.memory

    def trim(self, size: int) -> None:
        """Let it hold at most ``size`` bytes, or what it holds already; it never grows again."""
        self.capacity = max(self.committed, min(self.capacity, size))

    def append(self, data: memoryview) -> int:
        """Copy as much of ``data`` as fits and make it readable; returns the number of bytes."""
        memory, start = self.lease.segment.memory, self.committed
        count = min(len(data), self.capacity - start)
        self.committed = end = start + count
        memory[start:end] = data if count == len(data) else data[:count]
        return count

    def try_append_whole(self, prefix: ByteLike, body: ByteLike) -> bool:
        """Copy both if they fit and leave room; else copy nothing and return False."""
        memory, start = self.lease.segment.memory, self.committed
        middle = start + len(prefix)
        end = middle + len(body)
        if end >= self.capacity:
            return False
        memory[start:middle] = prefix
        memory[middle:end] = body
        self.committed = end
        return True

    def commit(self, count: int) -> None:
        """Make ``count`` bytes readable that were written in place."""
        assert not self.finished and self.committed + count <= self.capacity
        self.committed += count

    @property
    def is_full(self) -> bool:
        return self.committed == self.capacity

    def consumer(self) -> "BufferConsumer":
        """A reader of what is written from here on; every channel gets its own."""
        lease = self.lease
        lease.readers += 1
        return BufferConsumer(self, lease, self.committed)

    def finish(self) -> int:
        """No more data; returns how much was written. Gives up the producer's count."""
        assert not self.finished, "a builder was finished twice"
        self.finished = True
        lease = self.lease
        if lease.readers > 1:
            lease.readers -= 1
        else:
            lease.release()
        return self.committed


class BufferConsumer(msgspec.Struct, eq=False):
    """The reader's side of a segment that may still be written: each committed byte once.

    Events and stored data come as consumers too: ``BufferConsumer.of`` wraps a finished buffer.
    """

    builder: BufferBuilder | None
    lease: Lease | None
    position: int
    is_event: bool = False
    ready: Buffer | None = None

    @classmethod
    def of(cls, buffer: Buffer) -> "BufferConsumer":
        """A consumer of one complete buffer, for instance an event."""
        return cls(None, None, 0, buffer.is_event, buffer)

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

    @property
    def size(self) -> int:
        """Bytes that can be built now; an estimate for records that are handed over."""
        builder = self.builder
        if builder is None:
            return 0 if self.ready is None else self.ready.weight or self.ready.size
        return builder.committed - self.position

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
        memory = builder.lease.segment.memory
        return Buffer(memory if end - start == len(memory) else memory[start:end], lease)

    def peek(self) -> Buffer | None:
        """What ``build`` would return; it stays here, and so does the count of its lease."""
        builder = self.builder
        if builder is None:
            return self.ready
        start, end = self.position, builder.committed
        return None if start == end else Buffer(builder.memory[start:end])

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
        """Release the segment; may be called after the last build as well."""
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()
        ready, self.ready = self.ready, None
        if ready is not None:
            ready.release()


def bundle_bytes(bundle: Bundle, serializer: Serializer) -> bytes:
    """A bundle as it would have been written into buffers."""
    return b"".join(encode_element(bundle, serializer))


def buffer_bytes(buffer: Buffer, serializer: Serializer) -> bytes:
    """All of a data buffer."""
    if buffer.bundle is not None:
        return bundle_bytes(buffer.bundle, serializer)
    return bytes(buffer.view)


def waiting_bytes(consumer: BufferConsumer, serializer: Serializer) -> bytes:
    """What was written and not read yet; the consumer stays where it is."""
    builder = consumer.builder
    if builder is not None:
        return bytes(builder.memory[consumer.position : builder.committed])
    return b"" if consumer.ready is None else buffer_bytes(consumer.ready, serializer)


def begun_bytes(length: ByteLike, gathered: ByteLike | None, missing: int) -> bytes:
    """What a deserializer has taken of an element that spans buffers.

    ``length``: the bytes of its length as long as that is not complete; then ``gathered`` holds
    what follows it, and ``missing`` bytes are still to come.
    """
    if gathered is None:
        return bytes(length)
    return LENGTH.pack(len(gathered) + missing) + bytes(gathered)
