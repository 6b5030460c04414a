"""Whatever a callee raises, every buffer comes home and everybody else is still told.

Each case is a small job, over a wire or within a process, in which one callee (a codec, a disk, a
pickle, somebody who listens) raises at its n-th call. Then all is closed, and the books must
balance.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from headgate.base.elements import ByteLike, PickleSerializer, Watermark
from headgate.base.errors import ElementBroken, HeadgateError, PeerLost
from headgate.base.events import CheckpointBarrier
from headgate.base.ids import PartitionId, PeerName
from headgate.core.buffers.buffer import Buffer
from headgate.core.checkpoint.inputs import InFlightRecorder
from headgate.core.egress.partition import Partition, PartitionKind, PipelinedSubpartition
from headgate.core.egress.router import Broadcast, RoundRobin
from headgate.core.egress.writer import RecordWriter
from headgate.core.exchange.sender import SenderSession
from headgate.core.ingress.channel import LocalChannel
from headgate.core.ingress.deserializer import Deserializer
from headgate.core.ingress.gate import Gate
from headgate.core.ingress.remote import RemoteChannel
from headgate.core.task.environment import Environment, Here, Input
from headgate.core.task.inputs import ENDED, NOTHING, NetworkInput
from tests.arena import assert_all_home, plain_segments
from tests.core.egress.chosen import emit_to
from tests.core.egress.kit import MemoryReader, MemoryStore
from tests.core.pair import PARTITION, SECRET, SMALL, Pair, Timers

ROOMY = replace(SMALL, segment_bytes=256, max_event_bytes=256, spill_bytes=100)


class Injected(RuntimeError):
    """What the callee raises."""


class Fault:
    """Raises at the n-th call of what it is asked about, once."""

    def __init__(self, name: str, number: int, error: type[Exception]) -> None:
        self.name = name
        self.has_raised = False
        self._left = number
        self._error = error

    def reached(self, name: str) -> None:
        if name == self.name and not self.has_raised:
            self._left -= 1
            if self._left < 0:
                self.has_raised = True
                raise self._error(name)

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same callable, which may raise before it does anything."""

        def guarded(*args: Any, **kwargs: Any) -> Any:
            self.reached(name)
            return call(*args, **kwargs)

        return guarded


class FaultyCodec:
    """Works, until it does not."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def compress(self, data: ByteLike) -> bytes:
        self._fault.reached("codec.compress")
        return zlib.compress(data, 1)

    def decompress(self, data: ByteLike, size: int) -> bytes:
        self._fault.reached("codec.decompress")
        return zlib.decompress(data)


class FaultySerializer(PickleSerializer):
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self._fault = fault

    def dumps(self, records: Sequence[Any]) -> bytes:
        self._fault.reached("serializer.dumps")
        return super().dumps(records)

    def loads(self, data: Any) -> Any:
        self._fault.reached("serializer.loads")
        return super().loads(data)


class FaultyStore(MemoryStore):
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self._fault = fault

    def append(self, data: ByteLike, is_event: bool) -> None:
        self._fault.reached("store.append")
        super().append(data, is_event)

    def finish(self) -> None:
        self._fault.reached("store.finish")
        super().finish()

    def open_reader(self) -> MemoryReader:
        self._fault.reached("store.open_reader")
        return FaultyReader(self, self._fault)

    def delete(self) -> None:
        self._fault.reached("store.delete")
        super().delete()


class FaultyReader(MemoryReader):
    def __init__(self, store: MemoryStore, fault: Fault) -> None:
        super().__init__(store)
        self._fault = fault

    def next(self) -> tuple[ByteLike, bool] | None:
        self._fault.reached("reader.next")
        return super().next()

    def close(self) -> None:
        self._fault.reached("reader.close")
        super().close()


class FaultySpill:
    """Of an element that is too long for memory."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._data = bytearray()

    def write(self, data: memoryview) -> None:
        self._fault.reached("spill.write")
        self._data += data

    def written(self) -> bytes:
        return bytes(self._data)

    def view(self) -> memoryview:
        self._fault.reached("spill.view")
        return memoryview(bytes(self._data))

    def close(self) -> None:
        self._fault.reached("spill.close")


class FaultySpillRoom:
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def open(self) -> FaultySpill:
        self._fault.reached("spill_room.open")
        return FaultySpill(self._fault)


def listen(fault: Fault, partition: Partition, gate: Gate) -> InFlightRecorder:
    """Everybody who listens may raise; all arrivals are recorded for a checkpoint."""
    partition.on_reader_gone = fault.around("on_reader_gone", lambda index: None)
    partition.on_barrier_left = fault.around("on_barrier_left", lambda index, barrier: None)
    partition.on_released = fault.around("on_released", partition.on_released)
    gate.on_announced = fault.around("on_announced", lambda channel, barrier: None)
    gate.notify = fault.around("gate.notify", lambda: None)
    recorded = InFlightRecorder([FaultySerializer(fault)] * gate.channel_count, gate.expand)
    gate.on_arrived = fault.around("on_arrived", recorded.arrived)
    for channel in range(gate.channel_count):
        recorded.started(1, channel, b"", ())
    return recorded


def write_some(writer: RecordWriter) -> None:
    for number in range(6):
        writer.emit_all(["x" * 60 + str(number)])
    emit_to(writer, 1, ["alone", "x" * 400])
    writer.emit_element(Watermark(7), 1)
    if writer.partition.kind.is_pipelined:
        writer.broadcast_event(CheckpointBarrier(2, 0))
    writer.emit_all([["x" * 300]])
    writer.flush_all()
    writer.finish()


@contextmanager
def survived(fault: Fault) -> Iterator[None]:
    """The callee's error, or what became of it; nothing else."""
    try:
        yield
    except (Injected, OSError):
        assert fault.has_raised
    except HeadgateError:
        assert fault.has_raised


def read_some(source: NetworkInput) -> None:
    while source.take(10) not in (NOTHING, ENDED):
        pass


WIRE = [
    "codec.compress",
    "codec.decompress",
    "serializer.dumps",
    "serializer.loads",
    "spill_room.open",
    "spill.write",
    "spill.view",
    "spill.close",
    "on_arrived",
    "on_announced",
    "on_barrier_left",
    "on_reader_gone",
    "on_released",
    "gate.notify",
    "RemoteChannel.failed",
    "RemoteChannel.release",
    "RemoteChannel.buffer_arrived",
    "SenderSession._end",
    "Deserializer.feed",
]


@pytest.mark.parametrize("name", WIRE)
def test_over_a_wire(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, broadcast, error in product(range(4), (False, True), (Injected, OSError)):
        with monkeypatch.context() as patch:
            run_over_a_wire(Fault(name, number, error), broadcast, patch)


def run_over_a_wire(fault: Fault, broadcast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    patch_after(fault, RemoteChannel, "failed", monkeypatch)
    patch_after(fault, SenderSession, "_end", monkeypatch)
    patch_after(fault, RemoteChannel, "release", monkeypatch)
    patch_after(fault, RemoteChannel, "buffer_arrived", monkeypatch)
    patch_after(fault, Deserializer, "feed", monkeypatch)
    pair = Pair(ROOMY, segments=60, codec=FaultyCodec(fault))
    partition, gate = pair.open(3)
    listen(fault, partition, gate)
    router = Broadcast() if broadcast else RoundRobin()
    writer = RecordWriter(partition, router, FaultySerializer(fault), timeout_ms=0)
    made = [
        Deserializer(FaultySerializer(fault), FaultySpillRoom(fault), ROOMY.spill_bytes)
        for _ in range(3)
    ]
    source = NetworkInput(0, gate, made)
    source.on_barrier = lambda channel, event: None
    with survived(fault):
        write_some(writer)
    for _ in range(20):
        with survived(fault):
            pair.settle()
        if not fault.has_raised:  # else its task ends
            with survived(fault):
                read_some(source)
    with survived(fault):
        pair.wire.consumer.fail(PeerLost(PeerName("producer"), "the test ends it"))
    close_all(fault, writer.close, source.close, pair.consumer.close)
    for _ in range(3):
        with survived(fault):
            pair.settle()
    close_all(fault, partition.release, pair.producer.close)
    for wire in pair.wires:
        close_all(fault, wire.consumer.close, wire.producer.close)
        close_all(fault, lambda wire=wire: wire.consumer.ended("over"))  # type: ignore[misc]
        close_all(fault, lambda wire=wire: wire.producer.ended("over"))  # type: ignore[misc]
    assert_all_home(pair.consumer.pool)
    assert_all_home(pair.producer.pool)


def patch_after(fault: Fault, owner: type, method: str, patch: pytest.MonkeyPatch) -> None:
    """It does what it should, and raises then: whoever called it must not do it again."""
    path, call = f"{owner.__name__}.{method}", getattr(owner, method)

    def guarded(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        fault.reached(path)
        return result

    patch.setattr(owner, method, guarded)


def close_all(fault: Fault, *calls: Callable[[], None]) -> None:
    for call in calls:
        with survived(fault):
            call()


WITHIN = [
    "serializer.dumps",
    "serializer.loads",
    "store.append",
    "store.finish",
    "store.open_reader",
    "store.delete",
    "reader.next",
    "reader.close",
    "make_store",
    "spill_room.open",
    "spill.write",
    "spill.view",
    "spill.close",
    "on_arrived",
    "on_announced",
    "on_barrier_left",
    "on_reader_gone",
    "on_released",
    "gate.notify",
    "LocalChannel.release",
    "PipelinedSubpartition.add",
]


@pytest.mark.parametrize("name", WITHIN)
@pytest.mark.parametrize("kind", [PartitionKind.PIPELINED_BOUNDED, PartitionKind.BLOCKING])
def test_within_a_process(name: str, kind: PartitionKind, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, broadcast in product(range(4), (False, True)):
        with monkeypatch.context() as patch:
            run_within_a_process(Fault(name, number, OSError), kind, broadcast, patch)


def run_within_a_process(
    fault: Fault, kind: PartitionKind, broadcast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch_after(fault, LocalChannel, "release", monkeypatch)
    patch_after(fault, PipelinedSubpartition, "add", monkeypatch)
    environment = make_environment(fault)
    try:
        partition = environment.create_partition(PARTITION, kind, 3)
    except OSError:
        assert fault.name == "make_store"
        assert_all_home(environment.pool)
        return
    gate = environment.create_gate("g", [Input(PARTITION, index, Here()) for index in range(3)])
    listen(fault, partition, gate)
    router = Broadcast() if broadcast else RoundRobin()
    writer = RecordWriter(partition, router, FaultySerializer(fault), timeout_ms=0)
    writer.hands_over = True
    made = [
        Deserializer(FaultySerializer(fault), FaultySpillRoom(fault), ROOMY.spill_bytes)
        for _ in range(3)
    ]
    source = NetworkInput(0, gate, made)
    source.on_barrier = lambda channel, event: None
    if kind.is_pipelined:
        with survived(fault):
            gate.request_partitions()
    with survived(fault):
        write_some(writer)
    with survived(fault):
        gate.request_partitions()
    with survived(fault):
        read_some(source)
    close_all(fault, writer.close, source.close, partition.release, environment.close)
    assert_all_home(environment.pool)


def make_environment(fault: Fault) -> Environment:
    def make_store(partition: PartitionId, index: int) -> FaultyStore:
        fault.reached("make_store")
        return FaultyStore(fault)

    return Environment(
        ROOMY,
        plain_segments(60, ROOMY.segment_bytes),
        secret=SECRET,
        dial=lambda address: pytest.fail("nobody is dialled"),
        later=Timers().later,
        make_store=make_store,
    )


# What was reported, on its own.


def test_a_corrupt_buffer_that_is_recorded_ends_its_channel_and_no_other() -> None:
    fault = Fault("codec.decompress", 0, Injected)
    with Pair(ROOMY, segments=60, codec=FaultyCodec(fault)) as pair:
        partition, gate = pair.open(2)
        recorded = listen(fault, partition, gate)
        writer = RecordWriter(partition, RoundRobin(), timeout_ms=0)
        emit_to(writer, 0, ["x" * 200])
        pair.settle()
        assert fault.has_raised
        gate.on_arrived = None
        emit_to(writer, 1, ["fine"])
        pair.settle()
        assert pair.wire.consumer.is_open
        failures = [gate.channels[index].failure() for index in range(2)]
        assert isinstance(failures[0], ElementBroken) and failures[1] is None
        arrival = None
        with suppress(ElementBroken):
            gate.poll()
        arrival = gate.poll()
        assert arrival is not None and arrival.channel == 1 and arrival.buffer is not None
        arrival.buffer.release()
        recorded.dropped(1)
        writer.close()


def test_a_broadcast_writer_that_sends_to_one_channel_survives_a_failing_disk() -> None:
    fault = Fault("store.append", 0, OSError)
    environment = make_environment(fault)
    partition = environment.create_partition(PARTITION, PartitionKind.BLOCKING, 2)
    writer = RecordWriter(partition, Broadcast())
    with pytest.raises(OSError, match=r"store\.append"):
        emit_to(writer, 0, ["x" * 600])
    assert partition.pool.lent <= 1, "what the store could not take has gone home"
    writer.close()
    environment.close()
    assert_all_home(environment.pool)


def test_every_channel_learns_that_the_connection_is_gone() -> None:
    pair = Pair(ROOMY)
    _, gate = pair.open(3)
    calls: list[int] = []
    for index, channel in enumerate(gate.channels):
        assert isinstance(channel, RemoteChannel)

        def failed(error: HeadgateError, index: int = index) -> None:
            calls.append(index)
            if index == 0:
                raise Injected("the first")

        channel.failed = failed  # type: ignore[method-assign]
    with pytest.raises(Injected, match="the first"):
        pair.wire.consumer.fail(PeerLost(PeerName("producer"), "gone"))
    assert calls == [0, 1, 2]
    assert not pair.wire.consumer.is_alive
    pair.close()


def test_a_buffer_belongs_to_its_channel_also_if_that_refuses_it() -> None:
    with Pair(ROOMY) as pair:
        _, gate = pair.open(1)
        channel = gate.channels[0]
        assert isinstance(channel, RemoteChannel)
        lease = channel.room_for(4)
        assert lease is not None
        session = pair.wire.consumer.session
        session.buffer_received(channel.id, 99, 0, Buffer(lease.segment.memory[:4], lease))
        assert lease.readers == 0
        assert channel.id not in session.channels
        with ExitStack() as rest:
            rest.callback(gate.close)
            with pytest.raises(HeadgateError, match="99"):
                gate.poll()
