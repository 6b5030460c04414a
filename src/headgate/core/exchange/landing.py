"""Where incoming bytes land: a row of headers and segments for one scattered read.

The row expects what a busy connection sends, frames with full payloads: head, segment, head,
segment … If that comes true, nothing is copied: the landed segment changes places with the one that
the channel had promised. Law: the number of segments in the row never changes by a swap.
"""

from typing import Final

from headgate.core.buffers.buffer import Lease
from headgate.core.buffers.segment import Segment
from headgate.core.exchange.frames import BUFFER_HEAD

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
