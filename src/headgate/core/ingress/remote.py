"""The remote channel: buffers of a producer in another process, under credit.

Law: announced + unannounced credit is exactly the number of free buffers that the channel keeps
(exclusive + floating); wanted buffers are backlog + initial credit. Exclusive buffers come back to
the channel and are its credit for good; floating ones are borrowed from the gate's pool by need.
While it is blocked it announces nothing and keeps no floating buffer that was not promised.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.base.errors import ConnectFailed, HeadgateError, PartitionNotFound, SequenceGap
from headgate.base.events import TaskEvent, barrier_in
from headgate.base.ids import ChannelId, PartitionId, PeerName
from headgate.core.buffers.buffer import Buffer, Lease, Segment
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.buffers.local_pool import LocalPool, OfferAnswer
from headgate.core.exchange.link import Address, ConsumerEnd, Directory
from headgate.core.exchange.view import NO_LIMIT
from headgate.core.ingress.channel import (
    Backoff,
    BufferAndAvailability,
    Channel,
    ChannelStatistics,
    GatePort,
    Later,
    UnknownChannel,
    keep_event,
)

FIRST_PAUSE_MS: Final = 50
LONGEST_PAUSE_MS: Final = 1_000
"""Between two attempts to reach the producer's process."""

KEPT_EVENT_BYTES: Final = 256 * 1024
EVENT_OVERHEAD_BYTES: Final = 256
"""Events cost no credit, so what waits of them is weighed: their bytes, and so much for each."""


@dataclass(frozen=True, slots=True)
class RemoteServices:
    """What the remote channels of a process share: connections, time and how they are set."""

    directory: Directory
    later: Later
    uses_credit: bool
    retry_ms: int = 0
    """For so long a channel tries to reach the producer's process; 0: once."""


class RemoteChannel(Channel):
    """One channel over the network; also the home of its exclusive buffers."""

    def __init__(
        self,
        index: int,
        channel: ChannelId,
        partition: PartitionId,
        subpartition: int,
        address: Address,
        gate: GatePort,
        backoff: Backoff,
        services: RemoteServices,
    ) -> None:
        self.index = index
        self.id = channel
        self.partition = partition
        self.subpartition = subpartition
        self.address = address
        self.bytes_in = 0
        self.buffers_in = 0
        self.initial_credit = 0
        self.wanted = 0
        self.unannounced = 0
        self._gate = gate
        self._backoff = backoff
        self._directory = services.directory
        self._later = services.later
        self._uses_credit = services.uses_credit
        self._retry_ms = services.retry_ms
        self._attempts = 0  # failed ones, to reach the producer's process
        self._obstacle = ""  # of the last one
        self._unsent: list[TaskEvent] = []  # of which it is not known that the producer has them
        self._events_sent = self._events_refused = 0  # since the request; because it found nothing
        self._is_missing = False
        self._event_bytes = 0
        self._global: GlobalPool | None = None
        self._pool: LocalPool | None = None
        self._link: ConsumerEnd | None = None
        self._exclusive: deque[Segment] = deque()
        self._floating: deque[Lease] = deque()
        self._received: deque[Buffer] = deque()
        self._expected = 0
        self._listening = False
        self._requested = False
        self._released = False
        self._blocked = False
        self._size = NO_LIMIT
        self._error: HeadgateError | None = None

    # Set up, read, end: the task's side.

    def assign_pools(
        self,
        global_pool: GlobalPool,
        pool: LocalPool,
        exclusive: int,
        unknown: UnknownChannel | None = None,
    ) -> None:
        """Its exclusive buffers, those that ``unknown`` has kept for it, and its gate's pool."""
        self._pool = pool
        self._global = global_pool
        self.initial_credit = self.wanted = exclusive
        if unknown is not None:
            unknown.bequeath(self)
        elif exclusive:
            who = f"channel {self.index} from partition {self.partition!r}"
            global_pool.claim(who, self, exclusive)

    def request(self) -> None:
        """Ask the producer's process for the subpartition."""
        if self._released or self._error is not None:
            return
        self._requested = True
        if self._link is None:
            self._link = self._directory.attach(self.address)
            error = self._link.error
            if not self._link.is_alive and error is not None:
                self.unreachable(error) if self._link.may_pass else self.failed(error)
                return
        self.unannounced = self._available if self._blocked else 0
        credit = self._available - self.unannounced
        self._link.session.request(self, self.partition, self.subpartition, credit)
        if self._size != NO_LIMIT:
            self._link.session.resize(self, self._size)
        self._is_missing = False
        self._events_sent = 0
        self._send_kept_events(self._link)

    def next(self) -> BufferAndAvailability | None:
        """The next buffer that has arrived, or None: not now."""
        if self._received:
            buffer = self._received.popleft()
            if buffer.is_event:
                self._event_bytes -= len(buffer.view) + EVENT_OVERHEAD_BYTES
            return BufferAndAvailability(buffer, bool(self._received) or self._error is not None)
        if self._error is not None:
            raise self._error
        return None

    def block(self) -> None:
        """Promise nothing more; what was promised may still come, and waits."""
        if self._blocked or self._released:
            return
        self._blocked = True
        if not self._uses_credit:
            return
        if self._listening and self._pool is not None:
            self._pool.forget(self)
            self._listening = False
        while self._floating and self.unannounced:
            self.unannounced -= 1
            self._floating.popleft().release()
        if not self.initial_credit:
            for at, buffer in enumerate(self._received):
                self._received[at] = _copied(buffer)

    def unblock(self) -> None:
        """Announce what there is, and borrow again what the backlog needs."""
        if not self._blocked or self._released:
            return
        self._blocked = False
        if not self._uses_credit:
            return
        if self.unannounced:
            self._tell_credit()
        self.backlog_told(self.wanted - self.initial_credit)

    def queued(self) -> Sequence[Buffer]:
        """What has arrived and was not read."""
        return tuple(self._received)

    def peek(self) -> Iterator[Buffer]:
        """What has arrived; what is still with the producer is in another process."""
        return iter(self._received)

    def failure(self) -> Exception | None:
        """What it will raise."""
        return self._error

    def waiting(self) -> int:
        """What has arrived, and what the producer said that it has."""
        return len(self._received) + self.wanted - self.initial_credit

    def resize(self, size: int) -> None:
        """The producer learns of it at once, or with the request."""
        self._size = size
        if self._link is not None and self._requested and self._error is None:
            self._link.session.resize(self, size)

    def send_event(self, event: TaskEvent) -> None:
        """An event back to the producer.

        Until something has come from it, it may not have started: the event is kept, and goes with
        every request until one finds the partition.
        """
        if self._released or self._error is not None:
            return
        if not self._expected:
            keep_event(self._unsent, event, self.partition)
        if self._link is None or self._is_missing:
            return
        try:
            self._send_event(self._link, event)
        except BaseException:
            self._unsent = self._unsent[:-1]
            raise

    def release(self) -> None:
        """The end: every buffer goes home, the producer is notified. Idempotent."""
        if self._released:
            return
        self._released = True
        if self._listening and self._pool is not None:
            self._pool.forget(self)
        while self._received:
            self._received.popleft().release()
        while self._floating:
            self._floating.popleft().release()
        if self._global is not None and self.initial_credit:
            segments = list(self._exclusive)
            self._exclusive.clear()
            self._global.unclaim(self, segments)
        link, self._link = self._link, None
        if link is not None:
            try:
                link.session.cancel(self)
                link.resume()  # in TCP mode it may have stopped to read for a buffer of this one
            finally:
                self._directory.detach(link)
        self._unsent.clear()

    def statistics(self) -> ChannelStatistics:
        return sum_statistics((self,))

    # What the connection tells (ReceivingChannel).

    def room_for(self, size: int) -> Lease | None:
        """A buffer that the sender was promised."""
        if self.unannounced and self.unannounced >= self._available and self._uses_credit:
            return None
        if self._floating:
            return self._floating.pop()
        if self._exclusive:
            return Lease(self._exclusive.pop(), self)  # the last one back is warm in the cache
        if self._uses_credit or self._pool is None or self._pool.destroyed:
            return None
        lease = self._pool.try_request()
        if lease is None and not self._listening:
            self._listening = self._pool.listen(self)
        return lease

    def room_for_event(self, size: int) -> bool:
        """Whether the reader keeps up with the events."""
        return self._event_bytes + size + EVENT_OVERHEAD_BYTES <= KEPT_EVENT_BYTES

    def event_bytes(self) -> int:
        """What the events weigh that were not read."""
        return self._event_bytes

    def buffer_arrived(self, sequence: int, backlog: int, buffer: Buffer) -> None:
        """A buffer is here and belongs to the channel, whatever this raises.

        Out of order it is refused with an error.
        """
        if sequence != self._expected:
            buffer.release()
            assert self._link is not None
            raise SequenceGap(self._link.peer, self.id, self._expected, sequence)
        self._expected = sequence + 1
        if self._unsent:  # the producer is there, and has them
            self._unsent.clear()
        size = len(buffer.view)
        if size or buffer.is_event:
            self.bytes_in += size
            self.buffers_in += 1
            self._put(buffer)
        else:
            buffer.release()
        if not self._uses_credit:
            return
        self.wanted = wanted = backlog + self.initial_credit
        if len(self._exclusive) + len(self._floating) < wanted and not self._listening:
            self.backlog_told(backlog)

    def _put(self, buffer: Buffer) -> None:
        received, gate = self._received, self._gate
        try:
            if gate.on_arrived is not None:
                gate.on_arrived(self.index, buffer)
            if self._blocked and self._uses_credit and not self.initial_credit:
                buffer = _copied(buffer)
        except BaseException:
            buffer.release()
            raise
        received.append(buffer)
        is_next = len(received) == 1
        if is_next:
            gate.channel_ready(self.index)
        if buffer.is_event:
            self._event_bytes += len(buffer.view) + EVENT_OVERHEAD_BYTES
            barrier = barrier_in(buffer.view)
            if barrier is not None:
                gate.barrier_arrived(self.index, barrier, is_next)

    def backlog_told(self, backlog: int) -> None:
        """The sender has this many data buffers waiting: get floating ones for them."""
        self.wanted = wanted = backlog + self.initial_credit
        if len(self._exclusive) + len(self._floating) >= wanted or self._listening or self._blocked:
            return
        pool = self._pool
        if pool is None or pool.destroyed:
            return
        while len(self._exclusive) + len(self._floating) < self.wanted and not self._listening:
            lease = pool.try_request()
            if lease is not None:
                self._floating.append(lease)
                self._credit_grew(1)
            else:
                self._listening = pool.listen(self)
                if not self._listening:
                    break

    def partition_missing(self, error: PartitionNotFound) -> None:
        """The producer's process does not have the partition yet: ask again after a pause."""
        self._is_missing = True
        self._events_refused += self._events_sent
        self._events_sent = 0
        pause_ms = self._backoff.next_pause_ms()
        if pause_ms is None:
            self.failed(error)
        else:
            self._later(pause_ms, self._request_again)

    def sends_event_again(self) -> bool:
        """A refused event: it went after a request that found nothing, and goes with the next."""
        if not self._events_refused:
            return False
        self._events_refused -= 1
        return True

    def unreachable(self, error: HeadgateError) -> None:
        """No connection: try again after a pause, until the retry time is over."""
        if self._released or self._error is not None:
            return
        link, self._link = self._link, None
        if link is not None:
            self._directory.detach(link)
        if not self._retry_ms:
            self.failed(error)
            return
        if not self._attempts:
            self._later(self._retry_ms, self._give_up)
        pause_ms = min(FIRST_PAUSE_MS << min(self._attempts, 8), LONGEST_PAUSE_MS)
        self._attempts += 1
        self._obstacle = str(error)
        self._later(pause_ms, self._request_again)

    def failed(self, error: HeadgateError) -> None:
        """Remember the first error; the gate's reader gets it after what has arrived before."""
        if self._error is None and not self._released:
            self._error = error
            self._gate.channel_ready(self.index)

    def take_credit(self) -> int:
        if self._blocked:
            return 0
        credit, self.unannounced = self.unannounced, 0
        return credit

    def _request_again(self) -> None:
        """After a pause; there is no caller who could be told that it does not work."""
        try:
            self.request()
        except HeadgateError as error:
            self.failed(error)

    def _give_up(self) -> None:
        if self._link is not None and self._link.is_open:
            return
        peer = PeerName(f"{self.address[0]}:{self.address[1]}")
        who = f"the reader of subpartition {self.subpartition} of {self.partition!r}"
        problem = f"{who} could not reach it within {self._retry_ms} ms"
        last = f"in {self._attempts} attempts; the last one: {self._obstacle}"
        self.failed(ConnectFailed(peer, f"{problem}, {last}"))

    def _send_kept_events(self, link: ConsumerEnd) -> None:
        try:
            for event in self._unsent:
                self._send_event(link, event)
        except HeadgateError as error:  # its sender has gone on
            self.failed(error)

    def _send_event(self, link: ConsumerEnd, event: TaskEvent) -> None:
        link.session.send_event(self, self.partition, event)
        self._events_sent += 1

    # Where buffers come back (Home, Listener).

    def segment_returned(self, segment: Segment) -> None:
        """An exclusive buffer was consumed, or is assigned: it is new credit."""
        if self._released:
            assert self._global is not None
            self._global.unclaim(self, [segment])
            return
        self._exclusive.append(segment)
        if self._floating and (self._available > self.wanted or self._blocked):
            self._floating.popleft().release()  # one came, one goes: the credit stays
        else:
            self._credit_grew(1)

    def buffer_offered(self, lease: Lease) -> OfferAnswer:
        """The gate's pool has a buffer for us."""
        if not self._uses_credit:
            self._listening = False
            return self._resume_with(lease)
        if self._released or self._blocked or self._available >= self.wanted:
            self._listening = False
            return OfferAnswer.REFUSED
        self._floating.append(lease)
        self._credit_grew(1)
        if self._available < self.wanted:
            return OfferAnswer.WANTS_MORE
        self._listening = False
        return OfferAnswer.ENOUGH

    def pool_destroyed(self) -> None:
        self._listening = False

    def check(self) -> None:
        """Assert the law's local half; ``announced`` credit can only be seen from outside."""
        uses_credit = self._uses_credit and not self._released
        assert not uses_credit or 0 <= self.unannounced <= self._available
        assert not self._released or not self._available
        if uses_credit and self._blocked:
            assert not self._listening, "a blocked channel asks for buffers"
            assert not (self.unannounced and self._floating), "it keeps what it does not need"

    @property
    def _available(self) -> int:
        return len(self._exclusive) + len(self._floating)

    def _credit_grew(self, count: int) -> None:
        self.unannounced += count
        if self.unannounced == count and not self._blocked:
            self._tell_credit()

    def _tell_credit(self) -> None:
        link = self._link
        if link is not None and self._requested:
            link.session.credit_grew(self)

    def _resume_with(self, lease: Lease) -> OfferAnswer:
        if self._released or self._link is None:
            return OfferAnswer.REFUSED
        self._floating.append(lease)
        self._link.resume()
        return OfferAnswer.ENOUGH


def sum_statistics(channels: Iterable[RemoteChannel]) -> ChannelStatistics:
    """The sum over many channels, in a fourth of the time that they take one by one."""
    bytes_in = buffers_in = queued = queued_bytes = backlog = 0
    credit = exclusive = exclusive_free = floating_free = 0
    uses_credit = False
    for channel in channels:
        bytes_in += channel.bytes_in
        buffers_in += channel.buffers_in
        free, floating = len(channel._exclusive), len(channel._floating)
        exclusive_free += free
        floating_free += floating
        if channel._received:
            queued += len(channel._received)
            queued_bytes += sum([len(buffer.view) for buffer in channel._received])
        if not channel._released:
            backlog += channel.wanted - channel.initial_credit
            exclusive += channel.initial_credit
            if channel._uses_credit:
                uses_credit = True
                credit += free + floating - channel.unannounced
    return ChannelStatistics(
        bytes_in,
        buffers_in,
        queued,
        queued_bytes,
        backlog,
        credit,
        exclusive,
        exclusive_free,
        floating_free,
        uses_credit,
    )


def _copied(buffer: Buffer) -> Buffer:
    """In memory of its own. A blocked channel whose buffers are all borrowed gives them back so:
    other channels of the gate may wait for them, and it waits for these channels."""
    if buffer.lease is None:
        return buffer
    copy = Buffer(bytes(buffer.view), compressed=buffer.compressed)
    buffer.release()
    return copy
