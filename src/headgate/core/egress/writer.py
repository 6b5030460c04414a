"""The record writer: routes records, serializes them a list at a time, fills buffers.

Law: what a channel gets is what was emitted for it, in order, elements and events alike; a buffer
is requested only when there is a byte to put into it. Records wait in one list until there are
enough for a bundle to each channel, or until ``seal``; only then are user objects looked at.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from math import inf
from typing import Final

from headgate.base.elements import (
    MIN_WATERMARK_MS,
    Bundle,
    ByteLike,
    Element,
    PickleSerializer,
    Record,
    Serializer,
    Watermark,
    encode_element,
    takes_fields,
)
from headgate.base.errors import FlushFailed, SettingsInvalid
from headgate.base.events import CheckpointBarrier, Event
from headgate.base.fields import FieldShape
from headgate.core.buffers.buffer import Buffer, BufferBuilder, BufferConsumer
from headgate.core.egress.partition import Partition
from headgate.core.egress.router import KeyGroupPartitioner, Router, split_bundle
from headgate.core.exchange.view import NO_LIMIT


class SerializationResult(Enum):
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

    def copy_to(self, builder: BufferBuilder) -> SerializationResult:
        """Move on into ``builder`` until it is full or the element is complete."""
        if self._prefix_at < len(self._prefix):
            self._prefix_at += builder.append(self._prefix[self._prefix_at :])
        if self._body_at < len(self._body) and not builder.is_full:
            at = self._body_at
            self._body_at += builder.append(self._body[at:] if at else self._body)
        if self.has_rest:
            return SerializationResult.PART_AND_FULL
        return SerializationResult.WHOLE_AND_FULL if builder.is_full else SerializationResult.WHOLE

    @property
    def has_rest(self) -> bool:
        return self._body_at < len(self._body) or self._prefix_at < len(self._prefix)

    def prune(self) -> None:
        """Let go of the bytes; a large element must not outlive its writing."""
        self._prefix = self._body = _NOTHING
        self._prefix_at = self._body_at = 0


BUNDLE_RECORDS: Final = 1024
STAGED_RECORDS: Final = 4096
"""So many records wait at most to be routed, whatever the number of channels."""

BUNDLE_BYTES: Final = 64 * 1024
"""Target size of a bundle. The number of records follows from the size of the last bundle."""

BUNDLE_MAX_BYTES: Final = 256 * BUNDLE_BYTES
"""Only a single record may be longer: many large ones must not add up to a refused element."""


PUT_TOGETHER: Final = 16
"""After so many bundles that only pickle could write, records are no longer taken apart."""


class RecordWriter:
    """Writes to the partition of one task. ``timeout_ms`` 0 flushes after every emit."""

    def __init__(
        self,
        partition: Partition,
        router: Router,
        serializer: Serializer | None = None,
        timeout_ms: int = -1,
    ) -> None:
        if timeout_ms < -1:
            raise SettingsInvalid(
                "execution.buffer-timeout.interval",
                f"{timeout_ms} is below -1; use -1 for no flush by time, 0 for always",
            )
        self.partition = partition
        self.timeout_ms = timeout_ms
        self.channels = len(partition.subpartitions)
        self.records_out = 0
        self.bytes_out = 0
        """Bytes and buffers count when a buffer is finished."""
        self.buffers_out = 0
        self.watermark_ms = MIN_WATERMARK_MS
        """The last watermark that went to all channels."""
        self.hands_over = False
        """Whether records may go by reference to a consumer in this process: nobody keeps them."""
        self.flush_error: Callable[[], None] = lambda: None
        """Raises what a flush by time had met; the flusher sets it."""
        self.unflushed = False
        """Whether anything was written since the last flush by time."""
        self.rested: Callable[[], None] = lambda: None
        """Called when the task has nothing to do now; the flusher sets it."""
        router.set_up(self.channels)
        self._router = router
        self._serializer = serializer or PickleSerializer()
        self._spanning = SpanningSerializer()
        self._lanes = 1 if router.is_broadcast else self.channels
        self._builders: list[BufferBuilder | None] = [None] * self._lanes
        self._staged: Bundle | None = None
        self._put_together = 0
        self._limit = BUNDLE_RECORDS
        self._record_bytes = 1  # as the last bundle was
        self.sizes = [NO_LIMIT] * self.channels
        """Bytes that a buffer for each channel may have; readers change it, ``resizes`` counts."""
        self.resizes = 0
        partition.on_resized = self._resized
        for index, subpartition in enumerate(partition.subpartitions):
            self._resized(index, subpartition.buffer_size)

    @property
    def is_keyed(self) -> bool:
        """Whether records go by their keys."""
        return isinstance(self._router, KeyGroupPartitioner)

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        """Whether records with so many fields travel apart; otherwise they are made here."""
        router, serializer = self._router, self._serializer
        if type(serializer) is not PickleSerializer and not takes_fields(serializer, shape, count):
            return False
        if self._put_together >= PUT_TOGETHER:
            return False
        return isinstance(router, KeyGroupPartitioner) and router.takes_fields(shape, count)

    def available(self) -> bool:
        """Whether the partition may be written; while not, the task takes no input."""
        return self.partition.available()

    def emit(self, record: Record, timestamp: int | None = None) -> None:
        """Send one record where the router says."""
        self.emit_all([record], None if timestamp is None else [timestamp])

    def emit_all(self, records: list[Record], timestamps: list[int | None] | None = None) -> None:
        """Send records, in order, each where the router says."""
        self.emit_bundle(Bundle(records, timestamps).copy())

    def emit_bundle(self, bundle: Bundle) -> None:
        """Send the records of a bundle, which belongs to the writer from now on."""
        self.flush_error()
        count = len(bundle)
        if not count:
            return
        self.records_out += count
        self.unflushed = True
        staged = self._stage(bundle)
        if self.timeout_ms == 0:
            self._flush_lanes(self._route())
        elif len(staged) >= min(STAGED_RECORDS, self._limit * self._lanes):
            self._route()

    def emit_element(self, element: Element, channel: int | None = None) -> None:
        """Send a watermark, status or marker to one channel, or (None) to every channel."""
        self.flush_error()
        self.seal()
        self.unflushed = True
        prefix, body = encode_element(element, self._serializer)
        if channel is None:
            for lane in range(self._lanes):
                self._copy(lane, prefix, body)
            if isinstance(element, Watermark):
                self.watermark_ms = element.timestamp_ms
        elif self._router.is_broadcast:
            self._copy_alone(channel, prefix, body)
        else:
            self._copy(channel, prefix, body)
        if self.timeout_ms == 0:
            self._flush_lanes(range(self._lanes) if channel is None else [channel])

    def broadcast_event(self, event: Event) -> None:
        """Send an event to every channel, after all that was emitted before."""
        self._finish_buffers()
        self.partition.broadcast_event(event)

    def send_barrier(self, barrier: CheckpointBarrier) -> None:
        """Send an aligned barrier after all that was emitted before; readers are told at once."""
        assert self.partition.kind.is_pipelined, "barriers are never stored"
        self.broadcast_event(barrier)

    def overtake(
        self, barrier: CheckpointBarrier, subpartitions: Iterable[int] | None = None
    ) -> dict[int, list[bytes]]:
        """Put an unaligned barrier before what waits in these subpartitions (None: in all).

        Returns what it has overtaken in each of them, none of it read. That may begin in the middle
        of an element: its reader has the beginning.
        """
        self._finish_buffers()
        chosen = range(self.channels) if subpartitions is None else subpartitions
        return {
            index: self.partition.overtake(barrier, index, self._serializer) for index in chosen
        }

    def restore(self, subpartition: int, parts: Iterable[bytes]) -> None:
        """Let a subpartition begin with what was overtaken in it; before the first record."""
        assert not self.records_out, "a restore comes before the first record"
        self.partition.restore(subpartition, parts)

    def seal(self) -> None:
        """Route and serialize the records that wait; the task calls this at the end of a step."""
        self._route()

    def flush_all(self) -> None:
        """Let the consumers have what is in the buffers, full or not."""
        self.partition.flush_all()

    def finish(self) -> None:
        """Write out everything and end the partition."""
        self._finish_buffers()
        self.partition.finish()

    def close(self) -> None:
        """Give up the buffers that are being written (after a failure). Idempotent."""
        self._staged = None
        self._spanning.prune()
        for lane in range(self._lanes):
            self._finish_builder(lane)

    def _stage(self, bundle: Bundle) -> Bundle:
        staged = self._staged
        if staged is not None and (staged.timestamps is None) != (bundle.timestamps is None):
            self.seal()
            staged = None
        if staged is None:
            self._staged = bundle
            return bundle
        staged.add(bundle)
        return staged

    def _route(self) -> list[int]:
        staged, self._staged = self._staged, None
        if staged is None:
            return []
        split = [(0, staged)] if self._router.is_broadcast else split_bundle(self._router, staged)
        for lane, part in split:
            self._write_records(lane, part)
        return [lane for lane, _ in split]

    def _write_records(self, lane: int, bundle: Bundle, alone: bool = False) -> None:
        if self._may_hand_over(lane):
            self._hand_over(lane, bundle)
            return
        start, count = 0, len(bundle)
        while start < count:
            end = start + self._limit_of(lane)
            part = bundle if end >= count and not start else bundle.part(start, end)
            self._write_bundle(lane, part, alone)
            start = end

    def _may_hand_over(self, lane: int) -> bool:
        if not self.hands_over or self._router.is_broadcast:  # several would get the same records
            return False
        return self.partition.is_read_here(lane)

    def _hand_over(self, lane: int, bundle: Bundle) -> None:
        """The consumer runs here: it gets the records themselves, in place of a buffer's bytes."""
        self._finish_builder(lane)
        count = len(bundle)
        self._measured(len(self._serializer.dumps(bundle.part(0, 1).records)))  # for all of them
        most = self._limit_of(lane)
        start = self._add_to_last(lane, bundle, most)
        while start < count:
            end = start + most
            part = bundle if end >= count and not start else bundle.part(start, end)
            lease = self.partition.request_builder().lease
            buffer = Buffer(b"", lease, bundle=part, weight=len(part) * self._record_bytes)
            self.partition.add(BufferConsumer.of(buffer), lane)
            self.buffers_out += 1
            start = end

    def _add_to_last(self, lane: int, bundle: Bundle, most: int) -> int:
        """Fill what its consumer has not taken yet, as far as a buffer of bytes would go.

        Says how many records have gone there.
        """
        partition, size = self.partition, self._record_bytes
        most = min(most, partition.segment_bytes // size)
        return partition.add_to_last(lane, bundle, most, size)

    def _write_bundle(self, lane: int, bundle: Bundle, alone: bool) -> None:
        came_apart = bundle.fields is not None
        prefix, body = encode_element(bundle, self._serializer)
        if came_apart and bundle.fields is None:  # only pickle gives back what they hold
            self._put_together += 1
        size, count = len(body), len(bundle)
        if size > BUNDLE_MAX_BYTES and count > 1:
            del prefix, body
            for start, end in ((0, count // 2), (count // 2, count)):
                self._write_bundle(lane, bundle.part(start, end), alone)
            return
        if alone:
            self._copy_alone(lane, prefix, body)
        else:
            self._copy(lane, prefix, body)
        self._measured(size // count)

    def _measured(self, size: int) -> None:
        """Remember the size of a record, which sets the length of bundles."""
        self._record_bytes = size + 1
        self._limit = max(1, min(BUNDLE_RECORDS, BUNDLE_BYTES // self._record_bytes))

    def _limit_of(self, lane: int) -> int:
        """Records of a bundle: it is of no use before all of it has arrived, so a lane with short
        buffers has short bundles."""
        size = self.sizes[lane]
        if size >= BUNDLE_BYTES:
            return self._limit
        return max(1, min(self._limit, size // self._record_bytes))

    def _resized(self, index: int, size: int) -> None:
        """A reader wants other buffers; what all of them get suits the one who wants the least."""
        self.resizes += 1
        if self._router.is_broadcast:
            index, size = 0, min(reader.buffer_size for reader in self.partition.subpartitions)
            self.sizes = [size] * self.channels
        self.sizes[index] = size
        builder = self._builders[index]
        if builder is not None:
            builder.trim(size)

    def _copy(self, lane: int, prefix: bytes, body: ByteLike) -> None:
        builder = self._builders[lane]
        if builder is not None and builder.try_append_whole(prefix, body):
            return
        spanning = self._spanning
        spanning.begin(prefix, body)
        if builder is None:
            builder = self._next_builder(lane)
        while (copied := spanning.copy_to(builder)) is not SerializationResult.WHOLE:
            self._finish_builder(lane)
            if copied is SerializationResult.WHOLE_AND_FULL:
                break
            builder = self._next_builder(lane)
        spanning.prune()

    def _next_builder(self, lane: int) -> BufferBuilder:
        assert self._builders[lane] is None, "a builder was requested while one is unfinished"
        builder = self.partition.request_builder()
        builder.trim(self.sizes[lane])
        self._builders[lane] = builder
        if not self._router.is_broadcast:
            self.partition.add(builder.consumer(), lane)
            return builder
        for channel in range(self.channels):
            self.partition.add(builder.consumer(), channel)
        return builder

    def _copy_alone(self, channel: int, prefix: bytes, body: ByteLike) -> None:
        """A broadcast writer sends to one channel: in buffers that only this channel gets."""
        self._finish_builder(0)
        self._spanning.begin(prefix, body)
        copied = SerializationResult.PART_AND_FULL
        while copied is SerializationResult.PART_AND_FULL:
            builder = self.partition.request_builder()
            try:
                builder.trim(self.sizes[channel])
                self.partition.add(builder.consumer(), channel)
                copied = self._spanning.copy_to(builder)
            finally:
                self._finished(builder)
        self._spanning.prune()

    def _flush_lanes(self, lanes: Iterable[int]) -> None:
        if self._router.is_broadcast:
            self.partition.flush_all()
            return
        for lane in lanes:
            self.partition.flush(lane)

    def _finish_buffers(self) -> None:
        self.flush_error()
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


class Flusher:
    """Flushes one writer by time; named after its task.

    Law: nothing waits for longer than the period. What a task has written before it rests does not
    wait for the next tick: it is flushed at once, at most twice in a period.
    """

    def __init__(self, name: str, writer: RecordWriter, now_ms: float) -> None:
        self.name = f"flusher of {name}"
        self.error: Exception | None = None
        self._writer = writer
        self._period_ms = writer.timeout_ms
        self._next_ms = now_ms + self._period_ms
        self._rested_ms = -inf
        writer.flush_error = self.raise_error

    @property
    def next_deadline_ms(self) -> float | None:
        """When to tick next; None: never (the writer flushes itself, or only full buffers go)."""
        return self._next_ms if self._period_ms > 0 and self.error is None else None

    def tick(self, now_ms: float) -> None:
        """Flush if it is time to."""
        if self.next_deadline_ms is not None and now_ms >= self._next_ms:
            self._flush(now_ms)

    def rest(self, now_ms: float) -> None:
        """The task has nothing to do: what it has written waits for nothing."""
        if self.next_deadline_ms is None or not self._writer.unflushed:
            return
        if now_ms >= self._rested_ms + self._period_ms / 2:
            self._rested_ms = now_ms
            self._flush(now_ms)

    def _flush(self, now_ms: float) -> None:
        self._next_ms = now_ms + self._period_ms
        self._writer.unflushed = False
        try:
            self._writer.flush_all()
        except Exception as error:
            self.error = error

    def raise_error(self) -> None:
        """Raise what a tick has met, if anything."""
        if self.error is not None:
            raise FlushFailed(f"{self.name} failed: {self.error}") from self.error


def flush_by_time(
    name: str,
    writer: RecordWriter,
    now_ms: Callable[[], float],
    later: Callable[[float, Callable[[], None]], object],
) -> Flusher:
    """Flush a writer with its buffer timeout until its partition ends; ``later`` calls back."""
    flusher = Flusher(name, writer, now_ms())
    if writer.partition.kind.is_pipelined:
        writer.rested = lambda: flusher.rest(now_ms())

    def tick() -> None:
        flusher.tick(now_ms())
        schedule()

    def schedule() -> None:
        deadline_ms = flusher.next_deadline_ms
        partition = writer.partition
        if deadline_ms is None or not partition.kind.is_pipelined:
            return  # a blocking partition is not read before its end
        if not (partition.finished or partition.released):
            later(max(0.0, deadline_ms - now_ms()), tick)

    schedule()
    return flusher
