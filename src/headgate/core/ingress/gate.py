"""Input gates: all channels of one consumed output, read fairly, and unions of gates.

Law: a channel with data stands in the queue once; one that has more goes to its end, so none is
starved. Only a barrier that has overtaken goes to the front. A blocked channel gives nothing until
it is unblocked, but its error is raised. When every channel has delivered its end of partition the
gate is finished and gives nothing more. Events come out decoded, compressed buffers expanded.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import msgspec

from headgate.base.elements import ByteLike
from headgate.base.errors import ElementBroken, HeadgateError, TaskCancelled
from headgate.base.events import (
    END_OF_PARTITION,
    CheckpointBarrier,
    Event,
    TaskEvent,
    decode_event,
)
from headgate.base.figures import GateFigures
from headgate.base.inspections import ChannelFigures
from headgate.core.buffers.buffer import Buffer
from headgate.core.buffers.local_pool import LocalPool
from headgate.core.exchange.compression import CompressionCodec, decompress
from headgate.core.exchange.view import NO_LIMIT
from headgate.core.ingress.channel import Channel, LocalChannel, UnknownChannel
from headgate.core.ingress.remote import RemoteChannel, sum_statistics
from headgate.core.ingress.waiting import Place, WaitingCopier


class BufferOrEvent(msgspec.Struct):
    """What a gate returns: a buffer or an event, its channel, and whether more is there now."""

    channel: int
    buffer: Buffer | None
    event: Event | None
    more: bool


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """A moment of a gate, over all its channels."""

    bytes_in: int
    buffers_in: int
    figures: GateFigures


def send_to_all(receivers: Sequence["Channel | Gate"], event: TaskEvent) -> None:
    """Send an event through all of them, whatever some raise; the first error is raised."""
    failures: list[HeadgateError] = []
    for receiver in receivers:
        try:
            receiver.send_event(event)
        except HeadgateError as error:
            failures.append(error)
    if failures:
        raise failures[0]


class Gate:
    """One consumed output. Its pool holds the floating buffers of all its channels."""

    def __init__(
        self, name: str, pool: LocalPool, segment_bytes: int, codec: CompressionCodec | None = None
    ) -> None:
        self.name = name
        self.pool = pool
        self.notify: Callable[[], None] = lambda: None
        """Called when the gate has something after it had nothing."""
        self.on_announced: Callable[[int, CheckpointBarrier], None] = lambda channel, barrier: None
        """Called when a barrier has arrived in a channel and was not read yet."""
        self.on_arrived: Callable[[int, Buffer], None] | None = None
        """Called with every buffer and event as it arrives, before anybody can read it. One of a
        producer in this process arrives when it is read; one from elsewhere may be compressed."""
        self.finished = False
        self.closed = False
        self._segment_bytes = segment_bytes
        self._codec = codec
        self._channels: list[Channel] = []
        self._queue: deque[int] = deque()
        self._queued: list[bool] = []
        self._ended: list[bool] = []
        self._blocked: list[bool] = []
        self._paused: list[bool] = []
        self._left = 0
        self._size = NO_LIMIT
        self._requested = False

    # Set up.

    def set_channels(self, channels: list[Channel]) -> None:
        """All channels, in the order of their index; once, before the request."""
        assert not self._channels and not self._requested, "the channels were set before"
        assert [channel.index for channel in channels] == list(range(len(channels)))
        self._channels = list(channels)
        self._queued = [False] * len(channels)
        self._ended = [False] * len(channels)
        self._blocked = [False] * len(channels)
        self._paused = [False] * len(channels)
        self._left = len(channels)

    def replace(self, channel: Channel) -> None:
        """The producer of an unknown channel has been placed."""
        unknown = self._channels[channel.index]
        assert isinstance(unknown, UnknownChannel), f"channel {channel.index} is known already"
        if self.closed:
            channel.release()
            return
        self._channels[channel.index] = channel
        if self._blocked[channel.index] or self._paused[channel.index]:
            channel.block()
        if self._size != NO_LIMIT:
            channel.resize(self._size)
        for event in unknown.unsent:
            channel.send_event(event)
        if unknown.requested:
            channel.request()

    def request_partitions(self) -> None:
        """Every channel asks for its subpartition; exactly once."""
        if self._requested:
            return
        self._check_open()
        assert self._channels, f"gate {self.name} has no channels"
        self._requested = True
        for channel in list(self._channels):
            channel.request()

    # Read.

    def poll(self) -> BufferOrEvent | None:
        """The next buffer or event of any channel, or None: nothing now (or never: finished)."""
        if self.closed:
            self._check_open()
        queue = self._queue
        while queue:
            index = queue.popleft()
            self._queued[index] = False
            if self._ended[index]:
                continue
            if self._blocked[index]:
                self._raise_failure(index)
                continue
            received = self._channels[index].next()
            if received is None:
                continue
            if received.more:
                self._queued[index] = True
                queue.append(index)
            buffer = received.buffer
            if buffer.is_event:
                return self._event_arrived(index, buffer)
            if buffer.compressed:
                buffer = self._expand(buffer)
            return BufferOrEvent(index, buffer, None, bool(queue))
        return None

    def available(self) -> bool:
        """Whether ``poll`` is worth a call; if not, ``notify`` is called when it is."""
        return bool(self._queue) or self.closed or self.finished

    def block(self, channel: int) -> None:
        """Read nothing more of a channel; what has arrived stays there. Idempotent."""
        if self._blocked[channel] or self._ended[channel] or self.closed:
            return
        self._blocked[channel] = True
        self._channels[channel].block()
        if self._queued[channel]:
            self._queued[channel] = False
            self._queue.remove(channel)
        self.channel_ready(channel)  # it may have failed

    def unblock(self, channel: int) -> None:
        """Read a channel again. Idempotent."""
        if not self._blocked[channel] or self.closed:
            return
        self._blocked[channel] = False
        if not self._paused[channel]:
            self._channels[channel].unblock()
        self.channel_ready(channel)

    def pause_producer(self, channel: int) -> None:
        """Let the producer send no more; what has arrived can be read. Idempotent."""
        if not self._ended[channel] and not self.closed:
            self._paused[channel] = True
            self._channels[channel].block()

    def resume_producer(self, channel: int) -> None:
        """The producer may send again, unless the channel is blocked. Idempotent."""
        if not self._paused[channel] or self.closed:
            return
        self._paused[channel] = False
        if not self._blocked[channel]:
            self._channels[channel].unblock()

    def queued(self, channel: int) -> Sequence[Buffer]:
        """What has arrived in a channel and was not read."""
        return self._channels[channel].queued()

    def copy_waiting(self, channel: int, copier: WaitingCopier) -> None:
        """Copy what waits in a channel, here or with a producer in this process."""
        if self._ended[channel] or self.closed:
            return
        found = self._channels[channel]
        place = Place.PRODUCER if isinstance(found, LocalChannel) else Place.ARRIVED
        for buffer in found.peek():
            if not copier.copy(buffer, place):
                break

    def waiting(self) -> int:
        """Data buffers that have arrived and were not read, or wait at the producers."""
        if True not in self._ended:
            return sum([channel.waiting() for channel in self._channels])
        channels = zip(self._channels, self._ended, strict=True)
        return sum([channel.waiting() for channel, ended in channels if not ended])

    def resize(self, size: int) -> None:
        """Ask the producers that are still sending for buffers of at most so many bytes."""
        self._size = size if size < self._segment_bytes else NO_LIMIT
        for channel, ended in zip(self._channels, self._ended, strict=True):
            if not ended and not self.closed:
                channel.resize(self._size)

    def send_event(self, event: TaskEvent) -> None:
        """An event back to every producer that is still sending.

        Those that have no place yet, or have not started, get it as soon as they have. If one
        does not take it the others get it all the same, and the first error is raised.
        """
        self._check_open()
        channels = zip(self._channels, self._ended, strict=True)
        send_to_all([channel for channel, ended in channels if not ended], event)

    def close(self) -> None:
        """Release all channels and the pool; reading afterwards is an error. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._queue.clear()
        with ExitStack() as all_of_it:  # whatever one of them raises, the others are released
            all_of_it.callback(self.notify)
            all_of_it.callback(self.pool.destroy)
            for channel in reversed(self._channels):
                all_of_it.callback(channel.release)

    def expand(self, data: ByteLike) -> ByteLike:
        """The payload of a compressed buffer as it was."""
        if self._codec is None:
            raise ElementBroken(
                "a compressed buffer, but exchange.compression is `none` on this side; "
                "give all task managers the same settings"
            )
        return decompress(self._codec, data, self._segment_bytes)

    # What channels tell (GatePort).

    def channel_ready(self, index: int) -> None:
        """A channel has data, or an error to raise."""
        if self._queued[index] or self._ended[index] or self.closed:
            return
        if self._blocked[index] and self._channels[index].failure() is None:
            return
        self._queued[index] = True
        self._queue.append(index)
        if len(self._queue) == 1:
            self.notify()

    def barrier_arrived(self, index: int, barrier: CheckpointBarrier, is_next: bool) -> None:
        """A barrier can be read, now or after what has arrived before it."""
        if self._ended[index] or self.closed:
            return
        if is_next and barrier.unaligned and self._queued[index]:
            self._queue.remove(index)
            self._queue.appendleft(index)
        self.on_announced(index, barrier)

    @property
    def channel_count(self) -> int:
        return len(self._channels)

    @property
    def channels(self) -> list[Channel]:
        return self._channels

    def statistics(self) -> GateStatistics:
        """Sums over the channels."""
        remote = [channel for channel in self._channels if isinstance(channel, RemoteChannel)]
        parts = [sum_statistics(remote)]  # there may be thousands of them
        if len(remote) < len(self._channels):
            parts += [
                channel.statistics()
                for channel in self._channels
                if not isinstance(channel, RemoteChannel)
            ]
        floating_free = sum(part.floating_free for part in parts)
        figures = GateFigures(
            len(self._channels),
            sum(part.queued for part in parts),
            sum(part.queued_bytes for part in parts),
            sum(part.backlog for part in parts),
            sum(part.credit for part in parts),
            sum(part.exclusive - part.exclusive_free for part in parts),
            sum(part.exclusive for part in parts),
            max(0, self.pool.lent - floating_free),
            self.pool.size,
        )
        bytes_in = sum(part.bytes_in for part in parts)
        return GateStatistics(bytes_in, sum(part.buffers_in for part in parts), figures)

    def channel_figures(
        self, number: int, producers: Sequence[str], indices: range
    ) -> list[ChannelFigures]:
        """Figures of some channels; ``number`` is the gate's, ``producers`` are the channels'."""
        return [self._figures_of(number, producers[index], index) for index in indices]

    def check(self) -> None:
        """Assert the law."""
        if not self._queue:
            assert not any(self._queued)
        else:
            assert sorted(self._queue) == [i for i, queued in enumerate(self._queued) if queued]
        assert self.finished == (self._left == 0 and bool(self._channels))
        for index in self._queue:
            assert not self._blocked[index] or self._channels[index].failure() is not None

    def _figures_of(self, number: int, producer: str, index: int) -> ChannelFigures:
        channel = self._channels[index]
        is_local = isinstance(channel, LocalChannel)
        seen = channel.statistics()
        sizes = [buffer.weight or buffer.size for buffer in channel.peek()] if is_local else []
        return ChannelFigures(
            number,
            index,
            producer,
            is_local,
            len(sizes) or seen.queued,
            sum(sizes) or seen.queued_bytes,
            seen.backlog,
            seen.credit if seen.uses_credit else -1,
            seen.exclusive_free,
            seen.floating_free,
            self._blocked[index],
            seen.bytes_in,
            seen.buffers_in,
            not isinstance(channel, UnknownChannel),
            self._ended[index],
        )

    def _event_arrived(self, index: int, buffer: Buffer) -> BufferOrEvent:
        try:
            event = decode_event(buffer.view)
        finally:
            buffer.release()
        if event == END_OF_PARTITION:
            self._ended[index] = True
            self._left -= 1
            self.finished = self._left == 0
            self._channels[index].release()
        return BufferOrEvent(index, None, event, bool(self._queue) and not self.finished)

    def _expand(self, buffer: Buffer) -> Buffer:
        try:
            return Buffer(self.expand(buffer.view))
        finally:
            buffer.release()

    def _raise_failure(self, index: int) -> None:
        failure = self._channels[index].failure()
        if failure is not None:
            raise failure

    def _check_open(self) -> None:
        if self.closed:
            raise TaskCancelled(f"gate {self.name} is closed: its task was cancelled")


class UnionGate:
    """Several gates read as one, channels numbered through. Closing it closes the gates.

    Law: channel index = offset of its gate + index within it; gates with data stand in a queue,
    each once, and take turns; one with a barrier that has overtaken goes to the front. The union is
    finished when all of its gates are. It sets the callbacks of its gates.
    """

    def __init__(self, gates: Sequence[Gate]) -> None:
        assert len(gates) > 1, "a union has at least two gates"
        self.notify: Callable[[], None] = lambda: None
        self.on_announced: Callable[[int, CheckpointBarrier], None] = lambda channel, barrier: None
        self.closed = False
        self._on_arrived: Callable[[int, Buffer], None] | None = None
        self._gates = gates
        self._offsets: list[int] = []
        self._count = 0
        self._queue: deque[int] = deque()
        self._queued = [False] * len(gates)
        self._left = set(range(len(gates)))
        for number, gate in enumerate(gates):
            self._offsets.append(self._count)
            self._count += gate.channel_count
            gate.notify = partial(self._gate_ready, number)
            gate.on_announced = partial(self._announced, number)
            if gate.available():
                self._gate_ready(number)

    def poll(self) -> BufferOrEvent | None:
        """The next buffer or event of any gate, or None: nothing now."""
        if self.closed:
            raise TaskCancelled("the union gate is closed: its task was cancelled")
        queue = self._queue
        while queue:
            number = queue.popleft()
            self._queued[number] = False
            gate = self._gates[number]
            arrival = gate.poll()
            if gate.finished:
                self._left.discard(number)
            elif arrival is not None and (arrival.more or gate.available()):
                self._queued[number] = True
                queue.append(number)
            if arrival is not None:
                arrival.channel += self._offsets[number]
                arrival.more = bool(queue)
                return arrival
        return None

    def available(self) -> bool:
        """Whether ``poll`` is worth a call."""
        return bool(self._queue) or self.closed or self.finished

    def block(self, channel: int) -> None:
        """Read nothing more of a channel. Idempotent."""
        gate, index = self._find(channel)
        gate.block(index)

    def unblock(self, channel: int) -> None:
        """Read a channel again. Idempotent."""
        gate, index = self._find(channel)
        gate.unblock(index)

    def pause_producer(self, channel: int) -> None:
        """Let the producer of a channel send no more for now. Idempotent."""
        gate, index = self._find(channel)
        gate.pause_producer(index)

    def resume_producer(self, channel: int) -> None:
        """The producer may send again, unless the channel is blocked. Idempotent."""
        gate, index = self._find(channel)
        gate.resume_producer(index)

    def queued(self, channel: int) -> Sequence[Buffer]:
        """What has arrived in a channel and was not read."""
        gate, index = self._find(channel)
        return gate.queued(index)

    def copy_waiting(self, channel: int, copier: WaitingCopier) -> None:
        """Copy what waits in a channel in this process; it stays there."""
        gate, index = self._find(channel)
        gate.copy_waiting(index, copier)

    def expand(self, data: ByteLike) -> ByteLike:
        """The payload of a compressed buffer as it was; all gates compress alike."""
        return self._gates[0].expand(data)

    @property
    def on_arrived(self) -> Callable[[int, Buffer], None] | None:
        return self._on_arrived

    @on_arrived.setter
    def on_arrived(self, call: Callable[[int, Buffer], None] | None) -> None:
        self._on_arrived = call
        for gate, offset in zip(self._gates, self._offsets, strict=True):
            gate.on_arrived = _with_offset(call, offset)

    def waiting(self) -> int:
        """Data buffers of all gates that were not read."""
        return sum(gate.waiting() for gate in self._gates)

    def resize(self, size: int) -> None:
        """Ask the producers of all gates for buffers of at most so many bytes."""
        for gate in self._gates:
            gate.resize(size)

    def send_event(self, event: TaskEvent) -> None:
        """An event back to the producers of all gates, as one gate sends it to its channels."""
        send_to_all(self._gates, event)

    def close(self) -> None:
        """Close all gates; reading afterwards is an error. Idempotent."""
        if self.closed:
            return
        self.closed = True
        with ExitStack() as all_of_them:  # whatever one of them raises, the others are closed
            all_of_them.callback(self.notify)
            for gate in reversed(self._gates):
                all_of_them.callback(gate.close)

    @property
    def gates(self) -> Sequence[Gate]:
        """Its gates, in the order in which their channels are counted."""
        return self._gates

    @property
    def channel_count(self) -> int:
        return self._count

    @property
    def finished(self) -> bool:
        return not self._left

    def _gate_ready(self, number: int) -> None:
        if self._queued[number] or number not in self._left or self.closed:
            return
        self._queued[number] = True
        self._queue.append(number)
        if len(self._queue) == 1:
            self.notify()

    def _announced(self, number: int, channel: int, barrier: CheckpointBarrier) -> None:
        if barrier.unaligned and self._queued[number]:
            self._queue.remove(number)
            self._queue.appendleft(number)
        self.on_announced(self._offsets[number] + channel, barrier)

    def _find(self, channel: int) -> tuple[Gate, int]:
        number = bisect_right(self._offsets, channel) - 1
        return self._gates[number], channel - self._offsets[number]


def _with_offset(
    call: Callable[[int, Buffer], None] | None, offset: int
) -> Callable[[int, Buffer], None] | None:
    if call is None:
        return None
    return lambda channel, buffer: call(offset + channel, buffer)


InputGate: TypeAlias = Gate | UnionGate
"""What an input of a task reads."""
