"""A partition: the output of one task, with a subpartition for each consumer.

The writer asks it for buffers and adds them to subpartitions; consumers get views through the
registry. Law: a pipelined partition is released when it is finished and all its subpartitions are
consumed; a blocking one stays until somebody releases it. Readers that leave early do not stop the
producer: what it writes for them is dropped. What was restored counts as in flight: while some of
it waits, no step begins that would write more.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from enum import Enum
from functools import partial
from typing import TypeAlias

from headgate.base.elements import Bundle, Serializer
from headgate.base.errors import PartitionError, PartitionFinished, PoolDestroyed, TaskCancelled
from headgate.base.events import CheckpointBarrier, Event, encode_event_within
from headgate.base.ids import PartitionId
from headgate.base.settings import KIB, MIB
from headgate.core.buffers.buffer import Buffer, BufferBuilder, BufferConsumer, Lease
from headgate.core.buffers.local_pool import LocalPool
from headgate.core.egress.blocking import BlockingSubpartition, EntryStore
from headgate.core.egress.pipelined import (
    PipelinedSubpartition,
    restored_consumers,
)
from headgate.core.exchange.view import View


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
        """See ``PipelinedSubpartition``; only for one that is read here."""
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
        """Of what waits in memory."""
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
