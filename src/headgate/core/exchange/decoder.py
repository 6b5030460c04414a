"""The decoder: bytes in, frames out, wherever the bytes were cut.

The driver reads into ``targets()`` and says ``received(n)``. The landing, a row of heads and
segments for one scattered read, expects frames with full payloads; if they come, nothing is copied:
the landed segment changes places with the one that the channel had promised. All else is handed to
the sink as a frame. Law: how the stream was cut makes no difference, and every payload byte is in
exactly one place. A sink may say "not now" (``LATER``) for a buffer; then the decoder keeps what it
has and reads no more until ``resume``.
"""

from enum import Enum
from typing import Final, Protocol, TypeAlias

from headgate.base.errors import (
    FrameMalformed,
    FrameTooLong,
    FrameTruncated,
    UnknownMessage,
    WrongVersion,
)
from headgate.base.ids import ChannelId, PeerName
from headgate.core.buffers.buffer import Buffer, Lease, Segment
from headgate.core.exchange.frames import (
    BUFFER_HEAD,
    BUFFER_HEAD_REST,
    BUFFER_TYPE,
    FLAG_COMPRESSED,
    FLAG_EVENT,
    MAGIC,
    MAX_RUNTIME_EVENT_BYTES,
    PREFIX,
    VERSION,
    Kind,
)

HEAD_BYTES: Final = BUFFER_HEAD.size
CONTROL_BYTES: Final = 64 * 1024
GREETING_BYTES: Final = 256
"""Room for what a peer may say before it is proven."""


class Landing:
    """The segments of one connection that bytes are read into (a claim on the global pool)."""

    def __init__(self, segment_bytes: int) -> None:
        self.segment_bytes = segment_bytes
        self.segments: list[Segment] = []
        self.heads: list[memoryview] = [memoryview(bytearray(HEAD_BYTES))]
        self._row: list[memoryview] = list(self.heads)

    def segment_returned(self, segment: Segment) -> None:
        """The global pool hands over a segment of the claim."""
        self.segments.append(segment)
        self.heads.append(memoryview(bytearray(HEAD_BYTES)))
        self._row += (segment.memory, self.heads[-1])

    def row(self) -> list[memoryview]:
        """Head, segment, head, segment, … , head: the targets of one read."""
        return list(self._row)

    def swap(self, index: int, lease: Lease) -> None:
        """The segment at ``index`` goes with the lease; the lease's own takes its place."""
        spare = lease.segment
        lease.segment = self.segments[index]
        self.segments[index] = spare
        self._row[2 * index + 1] = spare.memory

    def surrender(self) -> list[Segment]:
        """Give up all segments, to return them."""
        segments, self.segments = self.segments, []
        self.heads = self.heads[:1]
        self._row = list(self.heads)
        return segments


class ControlLanding(Landing):
    """For the side that receives no buffers: one plain area, no segments.

    It is small until the peer is proven, so that strangers cost little.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self._row = [self.heads[0], memoryview(bytearray(GREETING_BYTES))]

    def widen(self) -> None:
        """The peer is proven: many of its messages shall be read at once."""
        self._row = [self.heads[0], memoryview(bytearray(CONTROL_BYTES))]


Head: TypeAlias = tuple[ChannelId, int, int, int, int]
"""Receiver, sequence number, backlog, flags, payload size of a buffer frame."""

HIGHEST_FLAGS: Final = max(FLAG_EVENT, FLAG_COMPRESSED)
"""A buffer holds an event, or is compressed, or neither; never both."""

_NOTHING: Final = memoryview(b"")


class NoLease(Enum):
    """What a sink says instead of a lease."""

    UNPOOLED = "unpooled memory, it is an event"
    SKIP = "nobody wants it"
    LATER = "no buffer now"


class FrameSink(Protocol):
    """Who gets the frames."""

    def limit(self, kind: Kind) -> int:
        """The longest body allowed now; raises if the message is not allowed at all."""

    def frame_received(self, kind: Kind, body: memoryview) -> None: ...


class BufferSink(Protocol):
    """Who gets the buffers."""

    def buffer_announced(self, receiver: ChannelId, size: int, is_event: bool) -> "Lease | NoLease":
        """Where the payload shall go."""

    def buffer_received(
        self, receiver: ChannelId, sequence: int, backlog: int, buffer: Buffer
    ) -> None: ...


class _Nobody:
    """The sink of a decoder that is closed."""

    def limit(self, kind: Kind) -> int:
        return 0

    def frame_received(self, kind: Kind, body: memoryview) -> None:
        """The link has ended."""


_NOBODY: Final = _Nobody()


class Decoder:
    """Cuts one connection's byte stream into frames."""

    def __init__(self, sink: FrameSink, landing: Landing, peer: PeerName) -> None:
        self.peer = peer
        self.paused = False
        self.closed = False
        self.landing = landing
        self._sink: FrameSink = sink
        self._buffers: BufferSink | None = None
        self._buffer_limit = 0  # longest buffer frame that needs no further check
        self._head = bytearray()  # of a frame whose head is not complete
        self._kind = Kind.ALIVE
        self._want = 0  # bytes missing of the current body or payload
        self._into: memoryview | None = None  # where they go; None: skipped
        self._at = 0
        self._lease: Lease | None = None
        self._buffer_head: Head | None = None
        self._stash: list[memoryview] = []  # unread bytes while paused

    def allow_buffers(self, buffers: BufferSink, limit: int) -> None:
        """From now on buffer frames may come, up to ``limit`` bytes long."""
        self._buffers = buffers
        self._buffer_limit = limit

    def targets(self) -> list[memoryview]:
        """Where the next bytes shall be read to; nothing while paused."""
        if self.paused:
            return []
        row = self.landing.row()
        if self._want:
            if self._into is not None:
                row.insert(0, self._into[self._at : self._at + self._want])
        elif self._head:
            have = len(self._head)
            row[0][:have] = self._head
            row[0] = row[0][have:]
        return row

    def received(self, count: int) -> None:
        """``count`` bytes have been read into the targets, in their order."""
        if self._want and self._into is not None:
            taken = min(count, self._want)
            self._moved(taken)
            count -= taken
        if count and not self.closed:
            self._walk(count)

    def resume(self) -> None:
        """There may be room again for the buffer that the decoder waits with."""
        if not self.paused:
            return
        self.paused = False
        stash, self._stash = self._stash, []
        assert self._buffer_head is not None
        if not self._place(self._buffer_head):
            self._stash = stash
            return
        self._feed_all(stash, kept=True)

    def ended(self) -> None:
        """The connection is at its end; raises if that is in the middle of a frame."""
        if self._want or self._head or self._buffer_head is not None:
            raise FrameTruncated(self.peer, "the connection ended in the middle of a frame")

    def close(self) -> None:
        """Give up a half-received buffer."""
        lease, self._lease = self._lease, None
        self._into = self._buffer_head = None
        self._want = 0
        self._head.clear()
        self._stash = []
        self.paused = False
        self.closed = True
        self._sink = _NOBODY  # nothing shall keep a link that has ended
        self._buffers = None
        if lease is not None:
            lease.release()

    # The scattered row: as long as frames lie in it as expected, payloads are not copied.

    def _walk(self, count: int) -> None:
        row = self.landing.row()
        segments = self.landing.segments
        index = 0
        while count and index < len(segments) and not self._want:
            head, have = row[2 * index], len(self._head)
            if have + count < HEAD_BYTES or head[7] != BUFFER_TYPE:
                break
            self._head.clear()
            count -= HEAD_BYTES - have
            parsed = self._parse_buffer_head(head)
            size = parsed[4]
            if not size or parsed[3] & FLAG_EVENT or count < size:
                self._feed_rest(row, 2 * index + 1, 0, count, parsed, index)
                return
            assert self._buffers is not None
            room = self._buffers.buffer_announced(parsed[0], size, False)
            if not isinstance(room, Lease):
                self._settle(parsed, room)
                self._feed_rest(row, 2 * index + 1, 0, count, None)
                return
            self.landing.swap(index, room)
            count -= size
            memory = room.segment.memory
            view = memory if size == len(memory) else memory[:size]
            buffer = Buffer(view, room, False, parsed[3] & FLAG_COMPRESSED != 0)
            self._buffers.buffer_received(parsed[0], parsed[1], parsed[2], buffer)
            if count and size < self.landing.segment_bytes:
                self._feed_rest(row, 2 * index + 1, size, count, None)
                return
            index += 1
        if count:
            start = 0 if self._want else len(self._head)
            self._feed_rest(row, 2 * index, start, count, None)

    def _feed_rest(
        self,
        row: list[memoryview],
        part: int,
        start: int,
        count: int,
        parsed: Head | None,
        landed: int | None = None,
    ) -> None:
        """The rest of the row does not lie as expected: go through it byte range by byte range."""
        regions = []
        while count:
            region = row[part][start : start + count]
            regions.append(region)
            count -= len(region)
            part, start = part + 1, 0
        if parsed is not None and not self._place(parsed):
            self._stash = [memoryview(bytes(region)) for region in regions]
            return
        if landed is not None and self._lease is not None and regions:
            # The payload is cut, but what there is of it lies at the start of a landed segment.
            self.landing.swap(landed, self._lease)
            self._into = self._lease.segment.memory
            self._moved(len(regions[0]))
            return
        self._feed_all(regions)

    def _feed_all(self, regions: list[memoryview], kept: bool = False) -> None:
        for number, region in enumerate(regions):
            used = self._feed(region)
            if self.paused:
                left = [region[used:], *regions[number + 1 :]]
                # What waits in the row would be overwritten by the next read, so it is kept apart.
                unread = [rest for rest in left if len(rest)]
                self._stash = unread if kept else [memoryview(bytes(rest)) for rest in unread]
                return

    def _feed(self, data: memoryview) -> int:
        at, end = 0, len(data)
        while at < end and not (self.paused or self.closed):
            if self._want:
                taken = min(self._want, end - at)
                if self._into is not None:
                    self._into[self._at : self._at + taken] = data[at : at + taken]
                self._moved(taken)
                at += taken
            else:
                at += self._feed_head(data, at)
        return at

    def _feed_head(self, data: memoryview, at: int) -> int:
        head = self._head
        need = PREFIX.size if len(head) < PREFIX.size else HEAD_BYTES
        taken = min(need - len(head), len(data) - at)
        head += data[at : at + taken]
        if len(head) == PREFIX.size:
            if head[7] == BUFFER_TYPE:
                self._check_prefix(*PREFIX.unpack(head))
            else:
                self._begin_frame(*PREFIX.unpack(head))
        elif len(head) == HEAD_BYTES:
            parsed = self._parse_buffer_head(head)
            head.clear()
            self._place(parsed)
        return taken

    def _begin_frame(self, length: int, magic: int, version: int, kind: int) -> None:
        self._head.clear()
        self._kind = self._check_prefix(length, magic, version, kind)
        self._want, self._at = length, 0
        self._into = memoryview(bytearray(length))
        if not length:
            self._moved(0)

    def _check_prefix(self, length: int, magic: int, version: int, kind: int) -> Kind:
        if magic != MAGIC:
            raise FrameMalformed(self.peer, f"magic {magic:#06x} is not Headgate's")
        if version != VERSION:
            raise WrongVersion(self.peer, version, VERSION)
        try:
            known = Kind(kind)
        except ValueError:
            raise UnknownMessage(self.peer, f"message type {kind} is not known") from None
        limit = self._sink.limit(known)
        if length > limit:
            raise FrameTooLong(self.peer, length, limit, known.name)
        return known

    def _parse_buffer_head(self, head: memoryview | bytearray) -> Head:
        length, magic, version, kind, receiver, sequence, backlog, flags = BUFFER_HEAD.unpack(head)
        if length > self._buffer_limit or magic != MAGIC or version != VERSION:
            self._check_prefix(length, magic, version, kind)
        size = length - BUFFER_HEAD_REST
        if size < 0 or flags > HIGHEST_FLAGS or (flags and not size):
            raise FrameMalformed(self.peer, f"a buffer frame of {length} bytes with flags {flags}")
        is_event = flags & FLAG_EVENT
        limit = MAX_RUNTIME_EVENT_BYTES if is_event else self.landing.segment_bytes
        if size > limit:
            raise FrameTooLong(self.peer, size, limit, "event" if is_event else "data buffer")
        return receiver, sequence, backlog, flags, size

    # A buffer: where it goes, and when it is there.

    def _place(self, parsed: Head) -> bool:
        receiver, _, _, flags, size = parsed
        if size == 0:
            self._buffer_head = parsed
            self._moved(0)
            return True
        assert self._buffers is not None
        is_event = bool(flags & FLAG_EVENT)
        return self._settle(parsed, self._buffers.buffer_announced(receiver, size, is_event))

    def _settle(self, parsed: Head, room: "Lease | NoLease") -> bool:
        self._buffer_head = parsed
        if room is NoLease.LATER:
            self.paused = True
            return False
        size = parsed[4]
        self._want, self._at = size, 0
        if isinstance(room, Lease):
            self._lease = room
            self._into = room.segment.memory
        elif room is NoLease.UNPOOLED:
            self._into = memoryview(bytearray(size))
        else:
            self._into = self._buffer_head = None
        return True

    def _moved(self, count: int) -> None:
        self._at += count
        self._want -= count
        if self._want:
            return
        into, self._into = self._into, None
        parsed, self._buffer_head = self._buffer_head, None
        if parsed is not None:
            lease, self._lease = self._lease, None
            self._deliver(parsed, lease, into)
        elif into is not None:
            self._sink.frame_received(self._kind, into)

    def _deliver(self, parsed: Head, lease: Lease | None, memory: memoryview | None) -> None:
        receiver, sequence, backlog, flags, size = parsed
        if memory is None:
            view = _NOTHING
        else:
            view = memory if size == len(memory) else memory[:size]
        buffer = Buffer(view, lease, flags & FLAG_EVENT != 0, flags & FLAG_COMPRESSED != 0)
        assert self._buffers is not None
        self._buffers.buffer_received(receiver, sequence, backlog, buffer)
