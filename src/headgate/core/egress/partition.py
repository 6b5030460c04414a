"""A partition: the output of one task, with a subpartition for each consumer.

The writer asks it for buffers and adds them to subpartitions; consumers get views through the
registry. Law: a pipelined partition is released when it is finished and all its subpartitions are
consumed; a blocking one stays until somebody releases it. Readers that leave early do not stop the
producer: what it writes for them is dropped. What was restored counts as in flight: while some of
it waits, no step begins that would write more.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from enum import Enum
from functools import partial
from typing import TypeAlias

from headgate.base.elements import Bundle, Serializer
from headgate.base.errors import (
    PartitionError,
    PartitionFinished,
    PartitionTaken,
    PoolDestroyed,
    TaskCancelled,
)
from headgate.base.events import (
    END_OF_PARTITION,
    CheckpointBarrier,
    Event,
    barrier_in,
    decode_event,
    encode_event,
    encode_event_within,
)
from headgate.base.ids import PartitionId
from headgate.base.settings import KIB, MIB
from headgate.core.buffers.buffer import Buffer, BufferBuilder, BufferConsumer, Lease, waiting_bytes
from headgate.core.buffers.local_pool import LocalPool
from headgate.core.egress.blocking import BlockingSubpartition, EntryStore
from headgate.core.exchange.view import NO_LIMIT, PolledBuffer, View


class PipelinedSubpartition:
    """Buffers in memory, read once, by one view, while they are written.

    Law: buffers leave in the order they came, except for barriers that overtake; the backlog is the
    number of queued data buffers; the reader is notified once when there is something to read, not
    for every buffer, and of every barrier that overtakes. The last, unfinished buffer counts as
    readable only after a flush, so that a reader never runs after single bytes.
    """

    def __init__(
        self,
        partition: PartitionId,
        index: int,
        on_consumed: Callable[[], None] = lambda: None,
        on_barrier_left: Callable[[CheckpointBarrier], None] = lambda barrier: None,
        on_resized: Callable[[int], None] = lambda size: None,
        on_restored_gone: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_consumed`` is called once, when its reader is through; ``on_barrier_left`` with each
        barrier that its reader has taken; ``on_resized`` when its reader wants longer or shorter
        buffers; ``on_restored_gone`` when nothing that was restored waits.
        """
        self.partition = partition
        self.index = index
        self.finished = False
        self.released = False
        self.failure: Exception | None = None
        self.flush_requested = False
        self.is_read_here = False
        """Its reader runs in this process and takes records as they are."""
        self.buffer_size = NO_LIMIT
        """Its reader wants data buffers of at most so many bytes."""
        self._queue: deque[BufferConsumer] = deque()
        self._data_queued = 0
        self._restored = 0
        self._on_data: Callable[[], None] | None = None
        self._on_barrier: Callable[[CheckpointBarrier], None] | None = None
        self._on_consumed = on_consumed
        self._on_barrier_left = on_barrier_left
        self._on_resized = on_resized
        self._on_restored_gone = on_restored_gone

    def add(self, consumer: BufferConsumer) -> bool:
        """Append; a finished or released subpartition closes the consumer and says False."""
        if self.finished or self.released:
            consumer.close()
            return False
        builder = consumer.builder
        if builder is not None and builder.finished and not consumer.has_data:
            consumer.close()  # there will never be anything to read
            return True
        queue = self._queue
        if len(queue) == 1:
            self._drop_spent_head()
        queue.append(consumer)
        if not consumer.is_event:
            self._data_queued += 1
        if len(queue) <= 2 and not self.flush_requested and self._finished_buffers() == 1:
            self._tell_reader()
        if consumer.is_event and len(queue) == 1:
            self._announce_first()
        return True

    def add_to_last(self, bundle: Bundle, most: int, record_bytes: int) -> int:
        """Add to the records that were handed over last, while they wait: ``most`` of them in all.

        Says how many of the bundle have gone there.
        """
        last = self._queue[-1].ready if self._queue else None
        waiting = None if last is None else last.bundle
        if last is None or waiting is None:
            return 0
        if (waiting.timestamps is None) != (bundle.timestamps is None):
            return 0
        count = min(len(bundle), most - len(waiting))
        if count <= 0:
            return 0
        waiting.add(bundle if count == len(bundle) else bundle.part(0, count))
        last.weight += count * record_bytes
        return count

    def restore(self, consumers: Iterable[BufferConsumer]) -> bool:
        """Begin with these, before all other data; says whether any of them waits."""
        assert self._data_queued == self._restored, "a restore comes before the first record"
        for consumer in consumers:
            self._restored += self.add(consumer)
        return bool(self._restored)

    def overtake(self, barrier: CheckpointBarrier, serializer: Serializer) -> list[bytes]:
        """Put a barrier before what waits; returns what it overtakes, as bytes."""
        if self.finished or self.released:
            return []
        self._drop_spent_head()
        overtaken = overtake(self._queue, barrier, serializer)
        self._tell_reader()
        if self._on_barrier is not None:
            self._on_barrier(barrier)
        return overtaken

    def flush(self) -> None:
        """Let the reader have the last buffer although it is not full."""
        queue = self._queue
        if not queue or self.flush_requested:
            return
        alone_with_data = len(queue) == 1 and queue[0].has_data
        self.flush_requested = len(queue) > 1 or alone_with_data
        if alone_with_data:  # of more than one buffer the reader already knows
            self._tell_reader()

    def finish(self) -> None:
        """End the data with an event; the reader is notified in any case."""
        if self.finished or self.released:
            return
        self._drop_spent_head()
        event = Buffer(encode_event(END_OF_PARTITION), is_event=True)
        self._queue.append(BufferConsumer.of(event))
        self.finished = True
        self._tell_reader()

    def poll(self) -> PolledBuffer | None:
        """The next readable buffer; empty finished ones are skipped."""
        queue = self._queue
        buffer = None
        while queue and buffer is None:
            head = queue[0]
            builder = head.builder
            finished = builder is None or builder.finished
            buffer = head.build()
            if len(queue) == 1:
                self.flush_requested = False
            if not finished:
                assert len(queue) == 1, "an unfinished buffer has others after it"
                break
            queue.popleft()
            if head.lease is not None:
                head.close()
            if not head.is_event:
                self._data_queued -= 1
                if self._restored:  # they are the first: data are read in their order
                    self._restored_left(1)
        if buffer is None:
            return None
        if buffer.is_event:
            self._event_left(buffer)
        if not queue:
            return PolledBuffer(buffer, False, 0, False)
        last = queue[-1].builder
        if self.flush_requested or self.finished or last is None or last.finished:
            return PolledBuffer(buffer, True, self._data_queued, queue[0].is_event)
        return PolledBuffer(buffer, len(queue) > 1, self._data_queued - 1, queue[0].is_event)

    def peek(self) -> Iterator[Buffer]:
        """What waits, also what was not flushed; nothing of it leaves."""
        for consumer in self._queue:
            buffer = consumer.peek()
            if buffer is not None:
                yield buffer

    def resize(self, size: int) -> None:
        """What is written from now on comes in buffers of this size; what waits stays as it is."""
        if size != self.buffer_size and not self.released:
            self.buffer_size = size
            self._on_resized(size)

    def create_view(self, on_data: Callable[[], None]) -> "PipelinedView":
        """The one reading; ``on_data`` is called when there may be data, at once if there is."""
        if self._on_data is not None or self.released:
            raise PartitionTaken(
                self.partition, f"subpartition {self.index} was already read or released"
            )
        self._on_data = on_data
        if self._queue:
            on_data()
        return PipelinedView(self)

    def tell_barriers(self, on_barrier: Callable[[CheckpointBarrier], None]) -> None:
        """The reader wants to know of barriers that stand first, at once if one does."""
        self._on_barrier = on_barrier
        self._announce_first()

    def release(self, failure: Exception | None = None) -> None:
        """Drop all that is queued; the reader learns of it, with the failure if there is one."""
        if self.released:
            return
        self.released = True
        self.failure = failure
        while self._queue:
            self._queue.popleft().close()
        self._data_queued = 0
        self._restored_left(self._restored)
        self._tell_reader()

    def view_released(self) -> None:
        """The reader has gone: nobody else may read, so the subpartition is consumed."""
        self._on_data = _ignore
        self._on_barrier = None
        self.release()
        on_consumed, self._on_consumed = self._on_consumed, _ignore
        on_consumed()

    @property
    def is_available(self) -> bool:
        queue = self._queue
        return bool(queue) and (self.flush_requested or len(queue) > 1 or queue[0].is_finished)

    @property
    def next_is_event(self) -> bool:
        return bool(self._queue) and self._queue[0].is_event

    @property
    def backlog(self) -> int:
        if self.flush_requested or self.finished or self._last_is_finished():
            return self._data_queued
        return max(0, self._data_queued - 1)

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def queued_bytes(self) -> int:
        return sum(
            [
                each.size if each.builder is None else each.builder.committed - each.position
                for each in self._queue
            ]
        )

    def check(self) -> None:
        """Assert the law."""
        if not self._queue:
            assert self._restored == self._data_queued == 0
            return
        assert not self.released
        data = sum(not consumer.is_event for consumer in self._queue)
        assert 0 <= self._restored <= data == self._data_queued
        assert all(consumer.is_finished for consumer in list(self._queue)[:-1])

    def _drop_spent_head(self) -> None:
        """A buffer that was read to its end before it was finished must not hide an event."""
        queue = self._queue
        if queue and queue[0].is_finished and not queue[0].has_data:
            queue.popleft().close()
            self._data_queued -= 1

    def _finished_buffers(self) -> int:
        queue = self._queue
        if len(queue) == 1:
            return int(queue[0].is_finished)
        return max(0, len(queue) - 1)

    def _last_is_finished(self) -> bool:
        return bool(self._queue) and self._queue[-1].is_finished

    def _announce_first(self) -> None:
        if self._on_barrier is not None and self._queue:
            first = self._queue[0].ready
            barrier = None if first is None or not first.is_event else barrier_in(first.view)
            if barrier is not None:
                self._on_barrier(barrier)

    def _restored_left(self, count: int) -> None:
        self._restored -= count
        if count and not self._restored:
            self._on_restored_gone()

    def _event_left(self, buffer: Buffer) -> None:
        barrier = barrier_in(buffer.view)
        if barrier is not None:
            self._on_barrier_left(barrier)

    def _tell_reader(self) -> None:
        if self._on_data is not None:
            self._on_data()


class PipelinedView:
    """The reader's end of a pipelined subpartition."""

    __slots__ = ("_parent", "_released", "poll")

    def __init__(self, parent: PipelinedSubpartition) -> None:
        self.poll = parent.poll
        self._parent = parent
        self._released = False

    def peek(self) -> Iterator[Buffer]:
        return iter(()) if self._released else self._parent.peek()

    def available(self, has_credit: bool) -> bool:
        parent = self._parent
        return parent.is_available if has_credit else parent.next_is_event

    @property
    def backlog(self) -> int:
        return self._parent.backlog

    @property
    def failure(self) -> Exception | None:
        return self._parent.failure

    @property
    def is_released(self) -> bool:
        return self._released or self._parent.released

    def take_references(self) -> None:
        self._parent.is_read_here = True

    def tell_barriers(self, on_barrier: Callable[[CheckpointBarrier], None]) -> None:
        self._parent.tell_barriers(on_barrier)

    def resize(self, size: int) -> None:
        self._parent.resize(size)

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._parent.view_released()


def overtake(
    queue: deque[BufferConsumer], barrier: CheckpointBarrier, serializer: Serializer
) -> list[bytes]:
    """Put an unaligned barrier before the data of a subpartition; returns what it overtakes.

    If the barrier waits in the queue, it is moved from there.
    """
    assert barrier.unaligned, "a barrier that overtakes says so, for the receiver's sake"
    overtaken: list[bytes] = []
    first, at = 0, None
    for number, consumer in enumerate(queue):
        event = event_of(consumer)
        if isinstance(event, CheckpointBarrier) and event.checkpoint == barrier.checkpoint:
            at = number
            break
        if first == number and isinstance(event, CheckpointBarrier) and event.unaligned:
            first += 1
        if not consumer.is_event:
            overtaken.append(waiting_bytes(consumer, serializer))
    if at is not None:
        queue[at].close()
        del queue[at]
    queue.insert(first, BufferConsumer.of(Buffer(encode_event(barrier), is_event=True)))
    return [data for data in overtaken if data]


def event_of(consumer: BufferConsumer) -> Event | None:
    """The event that a consumer holds, if it does."""
    ready = consumer.ready
    return decode_event(ready.view) if consumer.is_event and ready is not None else None


def restored_consumers(parts: Iterable[bytes], segment_bytes: int) -> Iterator[BufferConsumer]:
    """What a subpartition begins with after a restore: buffers as long as segments may be."""
    data = memoryview(b"".join(parts))
    for start in range(0, len(data), segment_bytes):
        yield BufferConsumer.of(Buffer(data[start : start + segment_bytes]))


def _ignore() -> None:
    """What a consumed subpartition calls instead of a reader that has gone."""


class PartitionKind(Enum):
    """How a partition hands on its data: (pipelined?, bounded pool?, back pressure?)."""

    PIPELINED = (True, False, True)
    PIPELINED_BOUNDED = (True, True, True)
    BLOCKING = (False, False, False)

    @property
    def is_pipelined(self) -> bool:
        return self.value[0]

    @property
    def is_bounded(self) -> bool:
        return self.value[1]

    @property
    def has_back_pressure(self) -> bool:
        return self.value[2]


Subpartition: TypeAlias = PipelinedSubpartition | BlockingSubpartition
"""A partition's part for one consumer."""

Wait = Callable[[Callable[[], bool]], None]
"""How a task waits in the middle of a step: returns when the condition holds, or raises."""


def cannot_wait(condition: Callable[[], bool]) -> None:
    """For tasks without a thread: they must look at ``available()`` before they write."""
    raise AssertionError("a writer without a thread ran out of buffers in the middle of a step")


class Partition:
    """Set up with its pool; written by one task; read through views."""

    def __init__(
        self,
        partition: PartitionId,
        kind: PartitionKind,
        subpartitions: int,
        pool: LocalPool,
        *,
        wait: Wait = cannot_wait,
        make_store: Callable[[int], EntryStore] | None = None,
        max_event_bytes: int = MIB,
        segment_bytes: int = 32 * KIB,
    ) -> None:
        self.id = partition
        self.kind = kind
        self.pool = pool
        self.finished = False
        self.released = False
        self.on_released: Callable[[Partition], None] = lambda partition: None
        self.on_barrier_left: Callable[[int, CheckpointBarrier], None] = _unheard
        """Called when the reader of a subpartition has taken a barrier out of it."""
        self.on_reader_gone: Callable[[int], None] = lambda index: None
        """Called once when a subpartition has lost its reader, at its end or before."""
        self.on_resized: Callable[[int, int], None] = lambda index, size: None
        """Called when the reader of a subpartition wants buffers of another size."""
        self.segment_bytes = segment_bytes
        """No buffer is longer: a reader elsewhere has no more room for one."""
        self._wait = wait
        self._max_event_bytes = max_event_bytes
        self._unconsumed = subpartitions
        self._restored: dict[int, None] = {}
        self.subpartitions: list[Subpartition]
        if kind.is_pipelined:
            self.subpartitions = [
                PipelinedSubpartition(
                    partition,
                    index,
                    partial(self._subpartition_consumed, index),
                    partial(self._barrier_left, index),
                    partial(self._resized, index),
                    partial(self._restored_gone, index),
                )
                for index in range(subpartitions)
            ]
        else:
            assert make_store is not None, "a blocking partition needs a store"
            self.subpartitions = self._stored(subpartitions, make_store)
        if not kind.has_back_pressure:
            pool.owner = self._release_memory

    def available(self) -> bool:
        """Whether a step may write now; the pool's ``notify`` tells when that changes."""
        return not self._restored and self.pool.available()

    def request_builder(self) -> BufferBuilder:
        """A fresh buffer, within the pool, by overdraft, or after waiting for one."""
        lease = self._try_lease()
        while lease is None:
            self._wait(self.pool.available)
            lease = self._try_lease()
        return BufferBuilder(lease)

    def add(self, consumer: BufferConsumer, index: int) -> bool:
        """Append to one subpartition; False if its consumer has gone and the data is dropped."""
        if self.finished:
            consumer.close()
            raise PartitionFinished(self.id, "is finished and takes no more data")
        return self.subpartitions[index].add(consumer)

    def add_to_last(self, index: int, bundle: Bundle, most: int, record_bytes: int) -> int:
        """Add records to the last buffer of a subpartition that is read in this process."""
        subpartition = self.subpartitions[index]
        assert isinstance(subpartition, PipelinedSubpartition), "what is stored is not handed over"
        return subpartition.add_to_last(bundle, most, record_bytes)

    def broadcast_event(self, event: Event) -> None:
        """Write an event to every subpartition, in order with the data before and after it."""
        data = encode_event_within(event, self._max_event_bytes)
        for index in range(len(self.subpartitions)):
            self.add(BufferConsumer.of(Buffer(data, is_event=True)), index)

    def overtake(
        self, barrier: CheckpointBarrier, index: int, serializer: Serializer
    ) -> list[bytes]:
        """Put a barrier before the data of a subpartition; returns what it overtakes."""
        subpartition = self.subpartitions[index]
        assert isinstance(subpartition, PipelinedSubpartition), "barriers are never stored"
        return subpartition.overtake(barrier, serializer)

    def restore(self, index: int, parts: Iterable[bytes]) -> None:
        """Let a subpartition begin with what was overtaken in it; that is memory of its own."""
        subpartition = self.subpartitions[index]
        assert isinstance(subpartition, PipelinedSubpartition), "what is stored is not in flight"
        if subpartition.restore(restored_consumers(parts, self.segment_bytes)):
            self._restored[index] = None

    def is_read_here(self, index: int) -> bool:
        """Whether the consumer of a subpartition is known to run in this process."""
        return self.subpartitions[index].is_read_here

    def flush(self, index: int) -> None:
        self.subpartitions[index].flush()

    def flush_all(self) -> None:
        for subpartition in self.subpartitions:
            subpartition.flush()

    def finish(self) -> None:
        """No more data: every subpartition ends with the end-of-partition event."""
        if self.finished:
            raise PartitionFinished(self.id, "was finished before")
        for subpartition in self.subpartitions:
            subpartition.finish()
        self.finished = True
        self._release_if_consumed()

    def create_view(self, index: int, on_data: Callable[[], None]) -> View:
        """A reading of one subpartition."""
        if not 0 <= index < len(self.subpartitions):
            raise PartitionError(
                self.id, f"has {len(self.subpartitions)} subpartitions, none with index {index}"
            )
        return self.subpartitions[index].create_view(on_data)

    def release(self, failure: Exception | None = None) -> None:
        """Drop everything, give the pool back. Idempotent."""
        if self.released:
            return
        self.released = True
        with ExitStack() as all_of_it:  # whatever one of them raises, the others are ended too
            all_of_it.callback(self.on_released, self)
            all_of_it.callback(self.pool.destroy)
            for subpartition in reversed(self.subpartitions):
                all_of_it.callback(subpartition.release, failure)

    @property
    def queued(self) -> int:
        return sum([subpartition.queued for subpartition in self.subpartitions])

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait in memory."""
        return sum([each.queued_bytes for each in self.subpartitions if each.queued])

    def _try_lease(self) -> Lease | None:
        try:
            return self.pool.try_request() or self.pool.try_request_overdraft()
        except PoolDestroyed as error:
            raise TaskCancelled(f"partition {self.id!r} was released while written") from error

    def _stored(self, count: int, make_store: Callable[[int], EntryStore]) -> list[Subpartition]:
        made: list[Subpartition] = []
        try:
            for index in range(count):
                store = make_store(index)
                made.append(BlockingSubpartition(self.id, index, store))
        except BaseException:
            with ExitStack() as all_of_them:
                for subpartition in made:
                    all_of_them.callback(subpartition.release)
            raise
        return made

    def _barrier_left(self, index: int, barrier: CheckpointBarrier) -> None:
        self.on_barrier_left(index, barrier)

    def _resized(self, index: int, size: int) -> None:
        self.on_resized(index, size)

    def _restored_gone(self, index: int) -> None:
        self._restored.pop(index, None)
        if not self._restored and self.pool.notify is not None:
            self.pool.notify()

    def _subpartition_consumed(self, index: int) -> None:
        self._unconsumed -= 1
        try:
            self.on_reader_gone(index)
        finally:
            self._release_if_consumed()

    def _release_if_consumed(self) -> None:
        """Release when all is written and read; a partition being written keeps its pool."""
        if self.finished and self._unconsumed == 0 and self.kind.is_pipelined:
            self.release()

    def _release_memory(self, count: int) -> None:
        # Asked for on behalf of others, who must not pay for a full disk: the subpartition
        # remembers it and tells its own writer.
        for subpartition in self.subpartitions:
            with suppress(OSError, PartitionError):
                subpartition.flush()


def _unheard(index: int, barrier: CheckpointBarrier) -> None:
    """The default for ``on_barrier_left``."""
