"""Two task managers joined by byte pipes that the test drives: whole links without a socket.

`Pair` holds a producer's and a consumer's environment. Each dial makes a `Wire` of two pipes; bytes
move only when the test says so, as many as it says. Time stands still unless the test moves it.
"""

from collections.abc import Callable
from dataclasses import replace

from headgate.base.events import encode_event
from headgate.base.ids import ChannelId, PartitionId, PeerName
from headgate.base.settings import ExchangeSettings
from headgate.core.buffers.buffer import Buffer, BufferConsumer
from headgate.core.egress.partition import Partition, PartitionKind
from headgate.core.exchange.compression import CompressionCodec
from headgate.core.exchange.frames import (
    BUFFER_HEAD,
    PREFIX,
    AddCredit,
    Kind,
    Message,
    PartitionRequest,
    decode,
)
from headgate.core.exchange.link import Address, ConsumerEnd, Link, ProducerEnd
from headgate.core.ingress.gate import BufferOrEvent, Gate
from headgate.core.ingress.remote import RemoteChannel
from headgate.core.task.environment import Environment, Input, RemoteProducer
from tests.arena import assert_all_home, plain_segments
from tests.core.ingress.credit import credit_of

SECRET = b"a secret of the job"
ADDRESS: Address = ("producer", 4711)
PARTITION = PartitionId("orders/map/0#0")
SMALL = ExchangeSettings(
    segment_bytes=64,
    buffers_per_channel=2,
    floating_per_gate=4,
    landing_buffers=2,
    burst_frames=4,
    max_event_bytes=64,
    backoff_initial_ms=10,
    backoff_max_ms=40,
    connect_retry_ms=0,
)


class Timers:
    """Stands in for the driver's clock: callbacks wait until the test lets time pass."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.pauses: list[float] = []
        self._due: list[tuple[float, Callable[[], None]]] = []

    def later(self, pause_ms: float, call: Callable[[], None]) -> None:
        self.pauses.append(pause_ms)
        self._due.append((self.now_ms + pause_ms, call))

    def pass_ms(self, pause_ms: float) -> None:
        self.now_ms += pause_ms
        due = [call for at, call in self._due if at <= self.now_ms]
        self._due = [(at, call) for at, call in self._due if at > self.now_ms]
        for call in due:
            call()


class Pipe:
    """One direction: what the source has sent, and how much of it the target has got."""

    def __init__(self, source: Link, target: Link, timers: Timers) -> None:
        self.source = source
        self.target = target
        self.stream = bytearray()
        self.delivered = 0
        self._timers = timers

    @property
    def under_way(self) -> int:
        return len(self.stream) - self.delivered

    def take(self, limit: int = 1 << 30) -> int:
        """Let the source send up to ``limit`` bytes; says how many it had."""
        data = b"".join(self.source.outgoing())[:limit]
        if data:
            self.stream += data
            self.source.sent(len(data), self._timers.now_ms)
        return len(data)

    def deliver(self, limit: int = 1 << 30) -> int:
        """Let the target read up to ``limit`` bytes of what is under way, in one read."""
        left = min(limit, self.under_way)
        count = scatter(self.target, self.stream[self.delivered : self.delivered + left])
        self.delivered += count
        if count:
            self.target.received(count, self._timers.now_ms)
        return count

    def unread_frames(self) -> list[tuple[Kind, Message | tuple[int, ...]]]:
        """Frames that are in the outbox, under way, or only partly read. Buffers as raw heads."""
        stream = bytes(self.stream) + b"".join(self.source.outbox.unsent())
        found: list[tuple[Kind, Message | tuple[int, ...]]] = []
        at = 0
        while at < len(stream):
            length, _, _, kind = PREFIX.unpack_from(stream, at)
            end = at + PREFIX.size + length
            if end > self.delivered:
                if kind == Kind.BUFFER:
                    found.append((Kind.BUFFER, BUFFER_HEAD.unpack_from(stream, at)))
                else:
                    body = memoryview(stream)[at + PREFIX.size : end]
                    found.append((Kind(kind), decode(Kind(kind), body, PeerName("test"))))
            at = end
        return found


def scatter(link: Link, data: bytes | bytearray) -> int:
    """Put bytes where a link wants them, as one scattered read would; says how many fitted."""
    at = 0
    for target in link.targets():
        part = data[at : at + len(target)]
        target[: len(part)] = part
        at += len(part)
        if at == len(data):
            break
    return at


class Wire:
    """A connection: the consumer's end, the producer's end, a pipe each way."""

    def __init__(self, consumer: ConsumerEnd, producer: ProducerEnd, timers: Timers) -> None:
        self.consumer = consumer
        self.producer = producer
        self.up = Pipe(consumer, producer, timers)
        self.down = Pipe(producer, consumer, timers)

    def move(self, chunk: int = 1 << 30) -> bool:
        """Everything that both sides have goes one step on; says whether anything moved."""
        moved = 0
        for pipe in (self.up, self.down):
            moved += pipe.take()
            while (count := pipe.deliver(chunk)) > 0:
                moved += count
        return bool(moved)

    def settle(self, chunk: int = 1 << 30) -> None:
        while self.move(chunk):
            pass

    def check(self) -> None:
        self.producer.session.check()


class Pair:
    """A producer's and a consumer's task manager."""

    def __init__(
        self,
        settings: ExchangeSettings = SMALL,
        *,
        segments: int = 40,
        codec: CompressionCodec | None = None,
        consumer_secret: bytes = SECRET,
        consumer_settings: ExchangeSettings | None = None,
    ) -> None:
        self.settings = settings
        self.timers = Timers()
        self.wires: list[Wire] = []
        self._nonces = 0
        self.producer = Environment(
            settings,
            plain_segments(segments, settings.segment_bytes),
            secret=SECRET,
            dial=self._refuse,
            later=self.timers.later,
            codec=codec,
        )
        self.consumer = Environment(
            consumer_settings or settings,
            plain_segments(segments, (consumer_settings or settings).segment_bytes),
            secret=consumer_secret,
            dial=self._dial,
            later=self.timers.later,
            codec=codec,
        )

    @property
    def wire(self) -> Wire:
        return self.wires[-1]

    def partition(self, subpartitions: int = 1, partition: PartitionId = PARTITION) -> Partition:
        return self.producer.create_partition(
            partition, PartitionKind.PIPELINED_BOUNDED, subpartitions
        )

    def gate(self, channels: int = 1, partition: PartitionId = PARTITION, name: str = "g") -> Gate:
        """A gate over the subpartitions of one remote partition, not requested yet."""
        inputs = [Input(partition, index, RemoteProducer(ADDRESS)) for index in range(channels)]
        return self.consumer.create_gate(name, inputs)

    def open(self, channels: int = 1) -> tuple[Partition, Gate]:
        """A partition and the gate that reads it, joined."""
        partition, gate = self.partition(channels), self.gate(channels)
        gate.request_partitions()
        self.settle()
        assert self.wire.consumer.is_open and self.wire.producer.is_open
        return partition, gate

    def settle(self, chunk: int = 1 << 30) -> None:
        for wire in self.wires:
            wire.settle(chunk)

    def tick(self, pause_ms: float) -> None:
        self.timers.pass_ms(pause_ms)
        for wire in self.wires:
            wire.consumer.tick(self.timers.now_ms)
            wire.producer.tick(self.timers.now_ms)

    def close(self) -> None:
        """End both sides; then every segment of both must be at home."""
        self.consumer.close()
        self.settle()
        self.producer.close()
        for wire in self.wires:
            wire.consumer.close()
            wire.producer.close()
            wire.consumer.ended("the test is over")
            wire.producer.ended("the test is over")
        assert_all_home(self.consumer.pool)
        assert_all_home(self.producer.pool)

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.close()

    def nonce(self) -> bytes:
        self._nonces += 1
        return self._nonces.to_bytes(16, "little")

    def _dial(self, address: Address) -> ConsumerEnd:
        now_ms = self.timers.now_ms
        consumer = self.consumer.consumer_end(PeerName("producer"), self.nonce(), now_ms)
        producer = self.producer.producer_end(PeerName("consumer"), self.nonce(), now_ms)
        self.wires.append(Wire(consumer, producer, self.timers))
        consumer.connected(now_ms)
        return consumer

    def _refuse(self, address: Address) -> ConsumerEnd:
        raise AssertionError("the producer's side dials nobody")


def with_settings(**changes: object) -> ExchangeSettings:
    return replace(SMALL, **changes)  # type: ignore[arg-type]


def remote(gate: Gate, index: int = 0) -> RemoteChannel:
    channel = gate.channels[index]
    assert isinstance(channel, RemoteChannel)
    return channel


def write(partition: Partition, data: bytes, index: int = 0) -> None:
    """One finished buffer with this data."""
    builder = partition.request_builder()
    partition.add(builder.consumer(), index)
    assert builder.append(memoryview(data)) == len(data)
    builder.finish()
    partition.flush(index)


def write_event(partition: Partition, event: object, index: int = 0) -> None:
    data = encode_event(event)  # type: ignore[arg-type]
    partition.add(BufferConsumer.of(Buffer(data, is_event=True)), index)


def read_all(gate: Gate) -> list[tuple[int, object]]:
    """Everything that has arrived: bytes or events, with their channels; buffers are returned."""
    got: list[tuple[int, object]] = []
    while (arrival := gate.poll()) is not None:
        got.append(taken(arrival))
    return got


def taken(arrival: BufferOrEvent) -> tuple[int, object]:
    if arrival.buffer is None:
        return arrival.channel, arrival.event
    data = bytes(arrival.buffer.view)
    arrival.buffer.release()
    return arrival.channel, data


def credit_under_way(wire: Wire, receiver: ChannelId) -> int:
    """Credit that was announced and has not reached the sender."""
    early = b"".join(wire.consumer.session._early or ())
    assert not early, "count credit only on an open wire"
    total = 0
    for _, message in wire.up.unread_frames():
        if isinstance(message, AddCredit):
            total += sum(credit for target, credit in message.grants if target == receiver)
        elif isinstance(message, PartitionRequest) and message.receiver == receiver:
            total += message.credit
    return total


def data_under_way(wire: Wire, receiver: ChannelId) -> int:
    """Data buffers that cost a credit and have not fully reached the receiver."""
    heads = [head for kind, head in wire.down.unread_frames() if kind is Kind.BUFFER]
    return sum(head[4] == receiver and not head[7] & 1 and head[0] > 24 for head in heads)


def assert_credit_law(wire: Wire, channel: RemoteChannel) -> None:
    """Sender's credit + credit and data under way + unannounced == free buffers of the channel."""
    reader = wire.producer.session.readers.get(channel.id)
    if reader is None or channel._released:
        return
    have = credit_of(channel)
    landing = wire.consumer.decoder._buffer_head
    half_here = int(
        wire.consumer.decoder._lease is not None
        and landing is not None
        and landing[0] == channel.id
    )
    promised = reader.credit + credit_under_way(wire, channel.id) + data_under_way(wire, channel.id)
    assert promised + have.unannounced == have.exclusive + have.floating + half_here, (
        f"channel {channel.id}: credit {reader.credit}, "
        f"credit under way {credit_under_way(wire, channel.id)}, "
        f"data under way {data_under_way(wire, channel.id)}, {have}, half here {half_here}"
    )
