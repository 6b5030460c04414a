"""The twin of the two ends: a real producer and consumer over byte pipes. Rows 101-108, 124-140.

Law, for every channel and after every step: the sender's credit + credit and data under way +
what is not announced == the free buffers of the channel. Nothing is lost, doubled or reordered but
for barriers that overtake, nothing comes out of a blocked channel, every segment of both sides is
in exactly one place, and at the end everything drains.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headgate.base.elements import PickleSerializer
from headgate.base.events import END_OF_PARTITION, CheckpointBarrier, Event, decode_event
from headgate.base.settings import ExchangeSettings, FlowControl
from headgate.core.buffers.buffer import Buffer, BufferBuilder, Segment
from headgate.core.egress.partition import PipelinedSubpartition, event_of
from headgate.core.ingress.gate import BufferOrEvent
from tests.core.pair import (
    Pair,
    assert_credit_law,
    read_all,
    remote,
    with_settings,
    write,
    write_event,
)

SEGMENT = 8


def pair_settings(credit: bool, exclusive: int, floating: int, burst: int) -> ExchangeSettings:
    return with_settings(
        segment_bytes=SEGMENT,
        flow_control=FlowControl.CREDIT if credit else FlowControl.TCP,
        buffers_per_channel=exclusive,
        floating_per_gate=floating,
        landing_buffers=2,
        burst_frames=burst,
    )


class Sent:
    """What one channel was given: a stream of bytes with events at their places."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.events: list[tuple[int, Event]] = []
        self.read_bytes = 0
        self.read_events = 0

    def expect_data(self, data: bytes) -> None:
        at = self.read_bytes
        assert self.data[at : at + len(data)] == data, "data was lost, doubled or reordered"
        self.read_bytes += len(data)
        if self.read_events < len(self.events):
            assert self.read_bytes <= self.events[self.read_events][0], "an event was overtaken"

    def expect_event(self, event: Event | None) -> None:
        assert (self.read_bytes, event) == self.events[self.read_events]
        self.read_events += 1


class CreditPairTwin(RuleBasedStateMachine):
    @initialize(
        channels=st.integers(1, 3),
        credit=st.sampled_from([True, True, True, False]),
        exclusive=st.integers(0, 2),
        floating=st.integers(1, 3),
        burst=st.integers(1, 4),
        end=st.sampled_from(["drained", "drained", "closed", "reset"]),
    )
    def open(
        self, channels: int, credit: bool, exclusive: int, floating: int, burst: int, end: str
    ) -> None:
        self.end = end
        self.uses_credit = credit
        self.channels = channels
        self.pair = Pair(pair_settings(credit, exclusive, floating, burst), segments=24)
        self.partition = self.pair.partition(channels)
        self.gate = self.pair.gate(channels)
        self.gate.request_partitions()
        self.wire = self.pair.wire
        self.sent = [Sent() for _ in range(channels)]
        self.builders: list[BufferBuilder | None] = [None] * channels
        self.held: list[Buffer] = []
        self.checkpoints = 0
        self.blocked = [False] * channels
        self.announced: list[tuple[int, int]] = []
        self.gate.on_announced = lambda channel, barrier: self.announced.append(
            (channel, barrier.checkpoint)
        )
        self.arrived = [0] * channels
        self.gate.on_arrived = self._buffer_arrived

    def _buffer_arrived(self, channel: int, buffer: Buffer) -> None:
        self.arrived[channel] += 0 if buffer.is_event else buffer.size

    # The producer's task.

    @rule(channel=st.integers(0, 2), size=st.integers(1, 20), finish=st.booleans())
    def producer_writes(self, channel: int, size: int, finish: bool) -> None:
        channel %= self.channels
        sent = self.sent[channel]
        while size:
            builder = self.builders[channel]
            if builder is None:
                if not self.partition.available():
                    return
                builder = self.builders[channel] = self.partition.request_builder()
                self.partition.add(builder.consumer(), channel)
            start = len(sent.data)
            data = bytes((channel * 83 + start + i) % 251 for i in range(size))
            count = builder.append(memoryview(data))
            sent.data += data[:count]
            size -= count
            if builder.is_full:
                self._finish_buffer(channel)
        if finish:
            self._finish_buffer(channel)

    @rule(channel=st.integers(0, 2))
    def producer_flushes(self, channel: int) -> None:
        self.partition.flush(channel % self.channels)

    @rule()
    def producer_sends_a_barrier(self) -> None:
        self.checkpoints += 1
        event = CheckpointBarrier(self.checkpoints, 0)
        for channel in range(self.channels):
            self._finish_buffer(channel)
            self.sent[channel].events.append((len(self.sent[channel].data), event))
            write_event(self.partition, event, channel)

    @rule(channel=st.integers(0, 2))
    def barrier_overtakes(self, channel: int) -> None:
        channel %= self.channels
        self.checkpoints += 1
        event = CheckpointBarrier(self.checkpoints, 0, unaligned=True)
        self._finish_buffer(channel)
        subpartition = self.partition.subpartitions[channel]
        assert isinstance(subpartition, PipelinedSubpartition)
        waiting = [event_of(consumer) for consumer in subpartition._queue]
        overtook = [isinstance(event, CheckpointBarrier) and event.unaligned for event in waiting]
        overtaken = self.partition.overtake(event, channel, PickleSerializer())
        sent = self.sent[channel]
        at = len(sent.data) - sum(len(part) for part in overtaken)
        assert sent.data[at:] == b"".join(overtaken)
        events_waiting = sum(event is not None for event in waiting)
        first = (*overtook, False).index(False)
        sent.events.insert(len(sent.events) - events_waiting + first, (at, event))

    def _finish_buffer(self, channel: int) -> None:
        builder, self.builders[channel] = self.builders[channel], None
        if builder is not None:
            builder.finish()

    # The network.

    @rule(count=st.integers(1, 200))
    def producers_socket_takes(self, count: int) -> None:
        self.wire.down.take(count)

    @rule(count=st.integers(1, 200))
    def consumers_socket_takes(self, count: int) -> None:
        self.wire.up.take(count)

    @rule(count=st.integers(1, 200))
    def consumer_receives(self, count: int) -> None:
        self.wire.down.deliver(count)

    @rule(count=st.integers(1, 200))
    def producer_receives(self, count: int) -> None:
        self.wire.up.deliver(count)

    @rule()
    def network_catches_up(self) -> None:
        self.wire.settle(chunk=50)

    # The consumer's task.

    @rule(count=st.integers(1, 4))
    def consumer_reads(self, count: int) -> None:
        for _ in range(count):
            arrival = self.gate.poll()
            if arrival is None:
                return
            sent = self.sent[arrival.channel]
            assert not self.blocked[arrival.channel]
            if arrival.buffer is None:
                sent.expect_event(arrival.event)
            else:
                sent.expect_data(bytes(arrival.buffer.view))
                self.held.append(arrival.buffer)

    @precondition(lambda self: self.uses_credit)  # TCP would hold up the other channels too
    @rule(channel=st.integers(0, 2), blocks=st.booleans())
    def consumer_blocks_or_unblocks(self, channel: int, blocks: bool) -> None:
        channel %= self.channels
        self.blocked[channel] = blocks
        (self.gate.block if blocks else self.gate.unblock)(channel)

    @rule(at=st.integers(0, 9))
    def consumer_recycles(self, at: int) -> None:
        if self.held:
            self.held.pop(at % len(self.held)).release()

    # Laws.

    @precondition(lambda self: hasattr(self, "wire"))
    @invariant()
    def credit_law_holds(self) -> None:
        self.wire.check()
        self.gate.check()
        for channel in range(self.channels):
            remote(self.gate, channel).check()
            if self.uses_credit:
                assert_credit_law(self.wire, remote(self.gate, channel))

    @precondition(lambda self: hasattr(self, "wire"))
    @invariant()
    def blocked_channels_gain_no_credit_and_hide_no_barrier(self) -> None:
        for index in range(self.channels):
            channel, sent = remote(self.gate, index), self.sent[index]
            queued = [buffer for buffer in self.gate.queued(index) if not buffer.is_event]
            assert self.arrived[index] == sent.read_bytes + sum(buffer.size for buffer in queued)
            if self.blocked[index]:
                assert channel.take_credit() == 0
            read = [event for _, event in sent.events[: sent.read_events]]
            waiting = [
                decode_event(buffer.view) for buffer in self.gate.queued(index) if buffer.is_event
            ]
            barriers = [event for event in read + waiting if isinstance(event, CheckpointBarrier)]
            announced = [checkpoint for channel, checkpoint in self.announced if channel == index]
            assert announced == [barrier.checkpoint for barrier in barriers]

    @precondition(lambda self: hasattr(self, "wire"))
    @invariant()
    def every_segment_is_in_one_place(self) -> None:
        pair = self.pair
        pair.producer.pool.check()
        pair.consumer.pool.check()
        assert_complete(self._consumers_segments(), pair.consumer.pool.total)
        assert_complete(self._producers_segments(), pair.producer.pool.total)

    def _consumers_segments(self) -> list[Segment]:
        found = [*self.pair.consumer.pool.free, *self.gate.pool.free]
        for index in range(self.channels):
            channel = remote(self.gate, index)
            found += channel._exclusive
            found += [lease.segment for lease in channel._floating]
            found += segments_of([*channel._received])
        decoder = self.wire.consumer.decoder
        found += decoder.landing.segments
        found += [decoder._lease.segment] if decoder._lease is not None else []
        return found + segments_of(self.held)

    def _producers_segments(self) -> list[Segment]:
        lent = {}  # several consumers and buffers may read one segment
        for builder in self.builders:
            if builder is not None:
                lent[builder.lease.segment.index] = builder.lease.segment
        for subpartition in self.partition.subpartitions:
            assert isinstance(subpartition, PipelinedSubpartition)
            subpartition.check()
            for consumer in subpartition._queue:
                if consumer.lease is not None:
                    lent[consumer.lease.segment.index] = consumer.lease.segment
        in_outbox = self.wire.producer.outbox.buffers()
        lent |= {segment.index: segment for segment in segments_of(in_outbox)}
        return [*self.pair.producer.pool.free, *self.partition.pool.free, *lent.values()]

    # The end.

    def teardown(self) -> None:
        if not hasattr(self, "wire"):
            return
        for channel in range(self.channels):
            self._finish_buffer(channel)
        if self.end == "drained":
            self._drain()
        elif self.end == "reset":
            self.wire.consumer.ended("reset")
            self.wire.producer.ended("reset")
        self.gate.close()
        for buffer in self.held:
            buffer.release()
        self.pair.close()

    def _drain(self) -> None:
        self.partition.finish()
        for channel in range(self.channels):
            self.blocked[channel] = False
            self.gate.unblock(channel)
        for sent in self.sent:
            sent.events.append((len(sent.data), END_OF_PARTITION))
        for _ in range(2000):
            if self.gate.finished:
                break
            self.wire.settle()
            self.consumer_reads(1)
            while self.held:
                self.held.pop().release()
            self.credit_law_holds()
        assert self.gate.finished, "it does not drain"
        for sent in self.sent:
            assert sent.read_bytes == len(sent.data)
            assert sent.read_events == len(sent.events)
        self.wire.settle()
        assert self.partition.released


def segments_of(buffers: list[Buffer]) -> list[Segment]:
    return [buffer.lease.segment for buffer in buffers if buffer.lease is not None]


def assert_complete(segments: list[Segment], total: int) -> None:
    indexes = sorted(segment.index for segment in segments)
    assert indexes == list(range(total)), f"{len(indexes)} of {total}: {indexes}"


TestCreditPairTwin = CreditPairTwin.TestCase
TestCreditPairTwin.settings = settings(max_examples=2 * settings.default.max_examples)  # type: ignore[union-attr]


def test_blocked_channel_without_buffers_of_its_own_does_not_starve_the_others() -> None:
    """The channel that is waited for needs the very buffers that the blocked one had borrowed."""
    with Pair(pair_settings(True, 0, 1, 4)) as pair:
        partition, gate = pair.open(2)
        barrier = CheckpointBarrier(1, 0)
        write_event(partition, barrier, 0)
        for data in (b"1", b"2"):
            write(partition, data, 0)
        pair.settle()
        assert gate.poll() == BufferOrEvent(0, None, barrier, True)
        gate.block(0)
        write(partition, b"a", 1)
        write_event(partition, barrier, 1)
        pair.settle()
        assert read_all(gate) == [(1, b"a"), (1, barrier)]
        gate.unblock(0)
        pair.settle()
        got = read_all(gate)
        pair.settle()
        assert got + read_all(gate) == [(0, b"1"), (0, b"2")]
