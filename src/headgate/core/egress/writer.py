"""The record writer: routes records, serializes them a list at a time, fills buffers.

Law: what a channel gets is what was emitted for it, in order, elements and events alike; a buffer
is requested only when there is a byte to put into it. Records wait in a list for each channel until
it is long enough or ``seal`` closes it; nothing else calls user objects.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.base.elements import (
    Bundle,
    Element,
    PickleSerializer,
    Record,
    Serializer,
    encode_element,
)
from headgate.base.events import Event
from headgate.core.buffers.buffer import BufferBuilder
from headgate.core.egress.partition import Partition
from headgate.core.egress.router import Router
from headgate.core.egress.serializer import Copied, SpanningSerializer

BUNDLE_RECORDS: Final = 256
BUNDLE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class WriterStatistics:
    """Totals of a writer. Bytes and buffers count when a buffer is finished."""

    records_out: int
    bytes_out: int
    buffers_out: int


class RecordWriter:
    """Writes to the partition of one task. ``timeout_ms`` 0 flushes after every emit."""

    def __init__(
        self,
        partition: Partition,
        router: Router,
        serializer: Serializer | None = None,
        timeout_ms: int = -1,
    ) -> None:
        self.partition = partition
        self.timeout_ms = timeout_ms
        self.channels = len(partition.subpartitions)
        self.records_out = 0
        self.bytes_out = 0
        self.buffers_out = 0
        self.flush_error: Callable[[], None] = lambda: None
        """Raises what a flush by time had met; the flusher sets it."""
        router.set_up(self.channels)
        self._router = router
        self._serializer = serializer or PickleSerializer()
        self._spanning = SpanningSerializer()
        self._lanes = 1 if router.is_broadcast else self.channels
        self._builders: list[BufferBuilder | None] = [None] * self._lanes
        self._pending: list[Bundle | None] = [None] * self._lanes
        self._limit = BUNDLE_RECORDS

    def available(self) -> bool:
        """Whether the partition has a buffer; while not, the task takes no input."""
        return self.partition.available()

    def emit(self, record: Record, timestamp: int | None = None) -> None:
        """Send one record where the router says."""
        self.emit_all([record], None if timestamp is None else [timestamp])

    def emit_all(self, records: list[Record], timestamps: list[int | None] | None = None) -> None:
        """Send records, in order, each where the router says."""
        self.flush_error()
        self.records_out += len(records)
        if self._router.is_broadcast:
            split = [(0, records, timestamps)]
        else:
            split = self._router.split(records, timestamps)
        for lane, part, times in split:
            self._collect(lane, part, times)
            if self.timeout_ms == 0:
                self._close_bundle(lane)
                self._flush_lane(lane)

    def emit_element(self, element: Element, channel: int | None = None) -> None:
        """Send a watermark, status or marker to one channel, or (None) to every channel."""
        if channel is None:
            for lane in range(self._lanes):
                self._close_bundle(lane)
                self._write(lane, element)
                if self.timeout_ms == 0:
                    self._flush_lane(lane)
        elif self._router.is_broadcast:
            self._write_alone(channel, element)
        else:
            self._close_bundle(channel)
            self._write(channel, element)
            if self.timeout_ms == 0:
                self.partition.flush(channel)

    def emit_to(self, channel: int, records: list[Record]) -> None:
        """Send records to one chosen channel, whatever the router would say."""
        self.records_out += len(records)
        self.emit_element(Bundle(list(records)), channel)

    def broadcast_event(self, event: Event) -> None:
        """Send an event to every channel, behind all that was emitted before."""
        self._finish_buffers()
        self.partition.broadcast_event(event)

    def seal(self) -> None:
        """Serialize what waits in lists; the task calls this at the end of a step."""
        for lane in range(self._lanes):
            self._close_bundle(lane)

    def flush_all(self) -> None:
        """Let the consumers have what is in the buffers, full or not."""
        self.partition.flush_all()

    def flush(self, channel: int) -> None:
        self.partition.flush(channel)

    def finish(self) -> None:
        """Write out everything and end the partition."""
        self._finish_buffers()
        self.partition.finish()

    def close(self) -> None:
        """Give up the buffers that are being written (after a failure). Idempotent."""
        self._pending = [None] * self._lanes
        self._spanning.prune()
        for lane in range(self._lanes):
            self._finish_builder(lane)

    def statistics(self) -> WriterStatistics:
        return WriterStatistics(self.records_out, self.bytes_out, self.buffers_out)

    def _collect(self, lane: int, records: list[Record], times: list[int | None] | None) -> None:
        pending = self._pending[lane]
        if pending is not None and (pending.timestamps is None) == (times is None):
            pending.records.extend(records)
            if times is not None and pending.timestamps is not None:
                pending.timestamps.extend(times)
        else:
            self._close_bundle(lane)
            pending = self._pending[lane] = Bundle(list(records), times and list(times))
        if len(pending.records) >= self._limit:
            self._close_bundle(lane)

    def _close_bundle(self, lane: int) -> None:
        bundle = self._pending[lane]
        if bundle is None:
            return
        self._pending[lane] = None
        records, times, limit = bundle.records, bundle.timestamps, self._limit
        if len(records) <= limit:
            self._write_bundle(lane, bundle)
            return
        for start in range(0, len(records), limit):
            end = start + limit
            self._write_bundle(lane, Bundle(records[start:end], times and times[start:end]))

    def _write_bundle(self, lane: int, bundle: Bundle) -> None:
        size = self._write(lane, bundle)
        per_record = size // len(bundle.records) + 1
        self._limit = max(1, min(BUNDLE_RECORDS, BUNDLE_BYTES // per_record))

    def _write(self, lane: int, element: Element) -> int:
        prefix, body = encode_element(element, self._serializer)
        self._copy(lane, prefix, body)
        return len(body)

    def _copy(self, lane: int, prefix: bytes, body: bytes | bytearray | memoryview) -> None:
        spanning = self._spanning
        spanning.begin(prefix, body)
        builder = self._builders[lane] or self._next_builder(lane)
        while (copied := spanning.copy_to(builder)) is not Copied.WHOLE:
            self._finish_builder(lane)
            if copied is Copied.WHOLE_AND_FULL:
                break
            builder = self._next_builder(lane)
        spanning.prune()

    def _next_builder(self, lane: int) -> BufferBuilder:
        assert self._builders[lane] is None, "a builder was requested while one is unfinished"
        builder = self.partition.request_builder()
        self._builders[lane] = builder
        if not self._router.is_broadcast:
            self.partition.add(builder.consumer(), lane)
            return builder
        for channel in range(self.channels):
            self.partition.add(builder.consumer(), channel)
        return builder

    def _write_alone(self, channel: int, element: Element) -> None:
        """A broadcast writer sends to one channel: in a buffer that only this channel gets."""
        self._close_bundle(0)
        self._finish_builder(0)
        prefix, body = encode_element(element, self._serializer)
        self._spanning.begin(prefix, body)
        copied = Copied.PART_AND_FULL
        while copied is Copied.PART_AND_FULL:
            builder = self.partition.request_builder()
            self.partition.add(builder.consumer(), channel)
            copied = self._spanning.copy_to(builder)
            self._finished(builder)
        self._spanning.prune()
        if self.timeout_ms == 0:
            self.partition.flush(channel)

    def _flush_lane(self, lane: int) -> None:
        if self._router.is_broadcast:
            self.partition.flush_all()
        else:
            self.partition.flush(lane)

    def _finish_buffers(self) -> None:
        self.seal()
        for lane in range(self._lanes):
            self._finish_builder(lane)

    def _finish_builder(self, lane: int) -> None:
        builder, self._builders[lane] = self._builders[lane], None
        if builder is not None:
            self._finished(builder)

    def _finished(self, builder: BufferBuilder) -> None:
        self.bytes_out += builder.finish()
        self.buffers_out += 1
