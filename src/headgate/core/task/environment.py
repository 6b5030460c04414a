"""The exchange environment of a task manager: pool, registry, dispatcher, directory, in one place.

A task is set up here: first its partitions, then its gates (exclusive buffers, pool, channels; the
request comes last, when the task starts). If a set-up fails, what it had taken is given back.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from headgate.base.elements import Serializer
from headgate.base.errors import PartitionError, TaskCancelled
from headgate.base.ids import MAX_PARTITION_ID_BYTES, ChannelId, PartitionId, PeerName
from headgate.base.settings import ExchangeSettings, FlowControl
from headgate.base.spilling import SpillRoom
from headgate.core.buffers.buffer import Segment
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.buffers.sizing import gate_bounds, partition_bounds
from headgate.core.egress.blocking import EntryStore
from headgate.core.egress.partition import Partition, PartitionKind, Wait, cannot_wait
from headgate.core.egress.registry import EventDispatcher, PartitionRegistry
from headgate.core.exchange.compression import CompressionCodec
from headgate.core.exchange.frames import MAX_RUNTIME_EVENT_BYTES
from headgate.core.exchange.link import Address, ConsumerEnd, Directory, ProducerEnd
from headgate.core.ingress.channel import Backoff, Channel, Later, LocalChannel, UnknownChannel
from headgate.core.ingress.deserializer import Deserializer
from headgate.core.ingress.gate import Gate, InputGate
from headgate.core.ingress.remote import RemoteChannel, RemoteServices


@dataclass(frozen=True, slots=True)
class Here:
    """The producer runs in the same process."""


@dataclass(frozen=True, slots=True)
class RemoteProducer:
    """The producer runs in the task manager at this address."""

    address: Address


@dataclass(frozen=True, slots=True)
class UnplacedProducer:
    """It is not known yet where the producer runs."""


Place: TypeAlias = Here | RemoteProducer | UnplacedProducer


@dataclass(frozen=True, slots=True)
class Input:
    """What one channel reads, and where that is."""

    partition: PartitionId
    subpartition: int
    place: Place


class Environment:
    """Makes partitions, gates and the ends of connections. The driver brings world and time."""

    def __init__(
        self,
        settings: ExchangeSettings,
        segments: list[Segment],
        *,
        secret: bytes,
        dial: Callable[[Address], ConsumerEnd],
        later: Later,
        codec: CompressionCodec | None = None,
        make_store: Callable[[PartitionId, int], EntryStore] | None = None,
        spill_room: SpillRoom | None = None,
    ) -> None:
        self.settings = settings
        self.pool = GlobalPool(segments)
        self.partitions = PartitionRegistry()
        self.events = EventDispatcher()
        self.directory = Directory(dial)
        self.codec = codec
        self._secret = secret
        self.later = later
        uses_credit = settings.flow_control is FlowControl.CREDIT
        self._remote = RemoteServices(self.directory, later, uses_credit, settings.connect_retry_ms)
        self._make_store = make_store
        self._spill_room = spill_room
        self._gates: list[Gate] = []
        self._next_channel = 0
        self._closed = False

    def create_partition(
        self,
        partition: PartitionId,
        kind: PartitionKind,
        subpartitions: int,
        wait: Wait = cannot_wait,
    ) -> Partition:
        """A task's output, with its pool, registered so that consumers find it."""
        self._check_open()
        _check_id(partition)
        bounds = partition_bounds(self.settings, subpartitions, kind.is_bounded)
        pool = self.pool.create_pool(
            f"partition {partition!r}",
            bounds.minimum,
            bounds.maximum,
            self.settings.overdraft_buffers,
        )
        try:
            created = Partition(
                partition,
                kind,
                subpartitions,
                pool,
                wait=wait,
                make_store=self._store_maker(partition),
                max_event_bytes=min(self.settings.max_event_bytes, MAX_RUNTIME_EVENT_BYTES),
                segment_bytes=self.settings.segment_bytes,
            )
        except BaseException:
            pool.destroy()
            raise
        try:
            self.partitions.register(created)
            self.events.register(partition)
        except BaseException:
            created.release()
            raise
        self._unregister_with(created)
        return created

    def create_gate(self, name: str, inputs: list[Input], *, bounded: bool = True) -> Gate:
        """A task's input, ready to request its partitions."""
        self._check_open()
        bounds = gate_bounds(self.settings, len(inputs), bounded)
        pool = self.pool.create_pool(f"gate {name!r}", bounds.minimum, bounds.maximum)
        gate = Gate(name, pool, self.settings.segment_bytes, self.codec)
        channels: list[Channel] = []
        try:
            for index, source in enumerate(inputs):
                channels.append(self._create_channel(gate, index, source))
        except BaseException:
            with ExitStack() as all_of_it:
                all_of_it.callback(pool.destroy)
                for channel in channels:
                    all_of_it.callback(channel.release)
            raise
        gate.set_channels(channels)
        self._gates = [known for known in self._gates if not known.closed] + [gate]
        return gate

    def create_deserializers(
        self, gate: InputGate, serializer: Serializer | None = None
    ) -> list[Deserializer]:
        """One deserializer for each channel of a gate."""
        return [self.create_deserializer(serializer) for _ in range(gate.channel_count)]

    def create_deserializer(self, serializer: Serializer | None = None) -> Deserializer:
        """For one stream of elements, within the limits of the settings."""
        settings = self.settings
        return Deserializer(
            serializer, self._spill_room, settings.spill_bytes, settings.max_element_bytes
        )

    def place(self, gate: Gate, index: int, place: Here | RemoteProducer) -> None:
        """The producer of an unknown channel now has a place."""
        unknown = gate.channels[index]
        assert isinstance(unknown, UnknownChannel), f"channel {index} is placed already"
        source = Input(unknown.partition, unknown.subpartition, place)
        kept = None if gate.closed else unknown  # a closed gate has given everything back
        gate.replace(self._create_channel(gate, index, source, kept))
        unknown.release()  # a channel within the process needs no exclusive buffers

    def consumer_end(self, peer: PeerName, nonce: bytes, now_ms: float) -> ConsumerEnd:
        """This side of a connection that the driver is about to make."""
        return ConsumerEnd(self.settings, self._secret, nonce, peer, self.pool, now_ms)

    def producer_end(self, peer: PeerName, nonce: bytes, now_ms: float) -> ProducerEnd:
        """This side of a connection that the driver has accepted."""
        return ProducerEnd(
            self.settings,
            self._secret,
            nonce,
            peer,
            self.partitions,
            self.events,
            self.codec,
            now_ms,
        )

    def close(self) -> None:
        """Close all gates, release all partitions, refuse new ones. Idempotent."""
        self._closed = True
        gates, self._gates = self._gates, []
        with ExitStack() as all_of_it:  # whatever one of them raises, the others are closed
            all_of_it.callback(self.pool.close)
            all_of_it.callback(self.partitions.close)
            for gate in reversed(gates):
                all_of_it.callback(gate.close)

    def _unregister_with(self, created: Partition) -> None:
        """However a partition ends (consumed, released, shut down), its subscribers go too."""
        forget = created.on_released

        def released(partition: Partition) -> None:
            forget(partition)
            self.events.unregister(partition.id)

        created.on_released = released

    def _create_channel(
        self, gate: Gate, index: int, source: Input, unknown: UnknownChannel | None = None
    ) -> Channel:
        _check_id(source.partition)
        backoff = Backoff(self.settings.backoff_initial_ms, self.settings.backoff_max_ms)
        match source.place:
            case Here():
                return LocalChannel(
                    index,
                    source.partition,
                    source.subpartition,
                    gate,
                    self.partitions,
                    self.events,
                    backoff,
                    self.later,
                )
            case RemoteProducer(address):
                return self._create_remote(gate, index, source, address, backoff, unknown)
            case UnplacedProducer():
                stand_in = UnknownChannel(index, source.partition, source.subpartition)
                stand_in.reserve(self.pool, self._exclusive)
                return stand_in

    def _create_remote(
        self,
        gate: Gate,
        index: int,
        source: Input,
        address: Address,
        backoff: Backoff,
        unknown: UnknownChannel | None,
    ) -> RemoteChannel:
        channel = RemoteChannel(
            index,
            ChannelId(self._next_channel),
            source.partition,
            source.subpartition,
            address,
            gate,
            backoff,
            self._remote,
        )
        self._next_channel += 1
        channel.assign_pools(self.pool, gate.pool, self._exclusive, unknown)
        return channel

    @property
    def _exclusive(self) -> int:
        """Buffers of its own that a channel over the network has."""
        uses_credit = self.settings.flow_control is FlowControl.CREDIT
        return self.settings.buffers_per_channel if uses_credit else 0

    def _store_maker(self, partition: PartitionId) -> Callable[[int], EntryStore] | None:
        make_store = self._make_store
        if make_store is None:
            return None
        return lambda index: make_store(partition, index)

    def _check_open(self) -> None:
        if self._closed:
            raise TaskCancelled("the task manager is shutting down and sets up no more tasks")


def _check_id(partition: PartitionId) -> None:
    size = len(partition.encode())
    if size > MAX_PARTITION_ID_BYTES:
        raise PartitionError(
            partition, f"has an id of {size} bytes, the limit is {MAX_PARTITION_ID_BYTES}"
        )
