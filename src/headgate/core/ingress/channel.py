"""Input channels within a process, and the placeholder for one whose producer has no place yet.

Life of a channel: request → next … next → release. An error that arrives in between is kept and
raised at the next access. The remote channel has a file of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from headgate.base.errors import (
    EventsUnsent,
    EventUnclaimed,
    HeadgateError,
    PartitionNotFound,
    ProducerFailed,
)
from headgate.base.events import CheckpointBarrier, TaskEvent
from headgate.base.ids import PartitionId
from headgate.core.buffers.buffer import Buffer, Home, Segment
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.exchange.view import NO_LIMIT, Events, Partitions, View


class BufferAndAvailability(msgspec.Struct):
    """What a channel gave, and whether it has more right now."""

    buffer: Buffer
    more: bool


class ChannelStatistics(msgspec.Struct, frozen=True):
    """A moment of a channel; what is about credit is zero within a process."""

    bytes_in: int = 0
    buffers_in: int = 0
    queued: int = 0
    """Buffers and events that have arrived and were not read."""
    queued_bytes: int = 0
    backlog: int = 0
    """Data buffers that wait at the producer, as far as known."""
    credit: int = 0
    """Buffers that the producer may send now."""
    exclusive: int = 0
    exclusive_free: int = 0
    floating_free: int = 0
    uses_credit: bool = False


class Channel(ABC):
    """A gate's part from one producer."""

    index: int

    @abstractmethod
    def request(self) -> None:
        """Ask for the subpartition."""

    @abstractmethod
    def next(self) -> BufferAndAvailability | None:
        """The next buffer, or None: not now."""

    def block(self) -> None:  # noqa: B027 - most channels have nothing to do
        """Nobody reads for a while: ask for nothing more. Idempotent, as is its end."""

    def unblock(self) -> None:  # noqa: B027
        """It is read again."""

    def queued(self) -> Sequence[Buffer]:
        """What has arrived and was not read; it stays where it is."""
        return ()

    def peek(self) -> Iterator[Buffer]:
        """What waits in this process, also with the producer; it stays, and is not the caller's."""
        return iter(())

    def failure(self) -> Exception | None:
        """What the channel has met and will raise, after what has arrived before."""
        return None

    def waiting(self) -> int:
        """Data buffers that were not read, here or still with the producer, as far as known."""
        return 0

    def resize(self, size: int) -> None:  # noqa: B027
        """Ask the producer for data buffers of at most so many bytes."""

    @abstractmethod
    def send_event(self, event: TaskEvent) -> None:
        """Send an event back to the producer."""

    @abstractmethod
    def release(self) -> None:
        """The end; idempotent."""

    def statistics(self) -> ChannelStatistics:
        """Its figures now."""
        return ChannelStatistics()


class GatePort(Protocol):
    """What a channel tells its gate."""

    on_arrived: Callable[[int, Buffer], None] | None

    def channel_ready(self, index: int) -> None: ...

    def barrier_arrived(self, index: int, barrier: CheckpointBarrier, is_next: bool) -> None:
        """A barrier is there and was not read; ``is_next``: it will be read before all else."""


Later = Callable[[float, Callable[[], None]], None]
"""Calls back after so many milliseconds, from inside the baton."""


class Backoff:
    """Pauses between requests for a partition that was not found: they double up to a maximum."""

    def __init__(self, initial_ms: int, max_ms: int) -> None:
        self._next_ms = initial_ms
        self._max_ms = max_ms
        self._exhausted = initial_ms == 0

    def next_pause_ms(self) -> int | None:
        """How long to wait before the next request; None: give up."""
        if self._exhausted:
            return None
        pause = self._next_ms
        self._exhausted = pause >= self._max_ms
        self._next_ms = min(2 * pause, self._max_ms)
        return pause


MAX_KEPT_EVENTS: Final = 1024
"""Task events that a channel keeps for a producer which is not there yet."""


def keep_event(kept: list[TaskEvent], event: TaskEvent, partition: PartitionId) -> None:
    """Keep an event until the producer is there; EventsUnsent if there are too many."""
    if len(kept) >= MAX_KEPT_EVENTS:
        raise EventsUnsent(partition, len(kept))
    kept.append(event)


class LocalChannel(Channel):
    """Reads a partition of the same process; buffers are handed over, never copied."""

    def __init__(
        self,
        index: int,
        partition: PartitionId,
        subpartition: int,
        gate: GatePort,
        partitions: Partitions,
        events: Events,
        backoff: Backoff,
        later: Later,
    ) -> None:
        self.index = index
        self.partition = partition
        self.subpartition = subpartition
        self.bytes_in = 0
        self.buffers_in = 0
        self._gate = gate
        self._partitions = partitions
        self._events = events
        self._backoff = backoff
        self._later = later
        self._size = NO_LIMIT
        self._view: View | None = None
        self._unsent: list[TaskEvent] = []
        self._error: Exception | None = None
        self._released = False

    def request(self) -> None:
        """Get a view; if the partition is not there yet, ask again after a pause."""
        if self._released or self._view is not None:
            return
        try:
            self._view = self._partitions.create_view(
                self.partition, self.subpartition, self._data_available
            )
        except PartitionNotFound as error:
            pause_ms = self._backoff.next_pause_ms()
            if pause_ms is None:
                self._fail(error)
            else:
                self._later(pause_ms, self.request)
        except (HeadgateError, OSError) as error:  # a stored partition may not open
            self._fail(error)
        else:
            self._view.take_references()
            self._view.resize(self._size)
            self._view.tell_barriers(self._barrier_stands_first)
            self._send_kept_events()
            self._data_available()

    def next(self) -> BufferAndAvailability | None:
        """The next buffer, or None: not now."""
        if self._error is not None:
            raise self._error
        view = self._view
        if view is None or self._released:
            return None
        polled = view.poll()
        if polled is None:
            failure = self.failure()
            if failure is not None:
                raise failure
            return None
        buffer = polled.buffer
        self.bytes_in += buffer.size
        self.buffers_in += 1
        if self._gate.on_arrived is not None:  # it arrives when it leaves the producer
            try:
                self._gate.on_arrived(self.index, buffer)
            except BaseException:
                buffer.release()
                raise
        return BufferAndAvailability(buffer, polled.more)

    def peek(self) -> Iterator[Buffer]:
        """What waits with the producer."""
        return iter(()) if self._view is None else self._view.peek()

    def failure(self) -> Exception | None:
        """The channel's own error, or that of a producer which has left before its end."""
        view = self._view
        if self._error is None and view is not None and view.is_released:
            cause = view.failure or "it was released before all was read"
            return ProducerFailed(self.partition, str(cause))
        return self._error

    def waiting(self) -> int:
        """What waits, waits with the producer."""
        return 0 if self._view is None else self._view.backlog

    def resize(self, size: int) -> None:
        """The producer learns of it at once, or as soon as it is there."""
        self._size = size
        if self._view is not None:
            self._view.resize(size)

    def send_event(self, event: TaskEvent) -> None:
        """An event back to the producer, when it is there; an error if nobody receives it."""
        if self._released or self._error is not None:
            return
        if self._view is None:
            keep_event(self._unsent, event, self.partition)
        elif not self._events.publish(self.partition, event):
            raise EventUnclaimed(self.partition, type(event).__name__)

    def release(self) -> None:
        """The end; idempotent."""
        self._released = True
        view, self._view = self._view, None
        if view is not None:
            view.release()

    def statistics(self) -> ChannelStatistics:
        return ChannelStatistics(self.bytes_in, self.buffers_in, backlog=self.waiting())

    def _send_kept_events(self) -> None:
        unsent, self._unsent = self._unsent, []
        for event in unsent:
            try:
                self.send_event(event)
            except Exception as error:  # that nobody receives it, or a subscriber's own
                self._fail(error)

    def _data_available(self) -> None:
        self._gate.channel_ready(self.index)

    def _barrier_stands_first(self, barrier: CheckpointBarrier) -> None:
        self._gate.barrier_arrived(self.index, barrier, is_next=True)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._gate.channel_ready(self.index)


class UnknownChannel(Channel):
    """Stands in for a channel whose producer has not been placed.

    It remembers a request, and the task events that were sent; the gate remembers whether the
    channel is blocked and how long its buffers may be. It also keeps the exclusive
    buffers that the channel will need if the producer is elsewhere: claimed only then, others may
    hold them who wait for this very channel to read.
    """

    def __init__(self, index: int, partition: PartitionId, subpartition: int) -> None:
        self.index = index
        self.partition = partition
        self.subpartition = subpartition
        self.requested = False
        self.unsent: list[TaskEvent] = []
        """Events for the producer to come."""
        self._global: GlobalPool | None = None
        self._kept: list[Segment] = []

    def reserve(self, global_pool: GlobalPool, exclusive: int) -> None:
        """Claim the buffers of the channel to come."""
        if exclusive:
            who = f"channel {self.index} from partition {self.partition!r}"
            global_pool.claim(who, self, exclusive)
            self._global = global_pool

    def segment_returned(self, segment: Segment) -> None:
        """A buffer of the claim comes."""
        self._kept.append(segment)

    def bequeath(self, heir: Home) -> None:
        """The channel that takes its place gets what was kept, and what is still owed."""
        pool, self._global = self._global, None
        kept, self._kept = self._kept, []
        if pool is not None:
            pool.rehome(self, heir)
        for segment in kept:
            heir.segment_returned(segment)

    def request(self) -> None:
        self.requested = True

    def next(self) -> BufferAndAvailability | None:
        return None

    def send_event(self, event: TaskEvent) -> None:
        """It waits for the channel to come."""
        keep_event(self.unsent, event, self.partition)

    def release(self) -> None:
        """Give back what was kept; idempotent."""
        pool, self._global = self._global, None
        kept, self._kept = self._kept, []
        if pool is not None:
            pool.unclaim(self, kept)
