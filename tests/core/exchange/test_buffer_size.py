"""A consumer asks for shorter buffers: over the wire, within the process, before and after."""

import pytest

from headgate.base.elements import Record
from headgate.base.errors import PeerBrokeProtocol, UnknownReceiver
from headgate.base.ids import ChannelId
from headgate.core.egress.router import RoundRobin
from headgate.core.egress.writer import RecordWriter
from headgate.core.exchange.frames import BufferSize, CancelReceiver
from headgate.core.exchange.view import NO_LIMIT
from headgate.core.ingress.gate import Gate, UnionGate
from headgate.core.task.environment import Here, Input, RemoteProducer, UnplacedProducer
from tests.core.pair import ADDRESS, PARTITION, Pair, read_all, write

RECORDS: list[Record] = ["x" * 30] * 20


def longest(gate: Gate) -> int:
    return max(len(data) for _, data in read_all(gate) if isinstance(data, bytes))


def test_the_producer_over_the_wire_obeys() -> None:
    with Pair() as pair:
        partition, gate = pair.open()
        writer = RecordWriter(partition, RoundRobin(), timeout_ms=0)
        gate.resize(20)
        pair.settle()
        assert writer.sizes == [20]
        writer.emit_all(RECORDS[:3])
        pair.settle()
        assert longest(gate) == 20
        gate.resize(64)  # a segment: as long as can be
        pair.settle()
        assert writer.sizes == [NO_LIMIT]
        writer.emit_all(RECORDS[:3])
        pair.settle()
        assert longest(gate) > 20
        writer.close()


def test_a_size_that_was_wanted_before_the_producer_was_known_goes_with_the_request() -> None:
    for place in (RemoteProducer(ADDRESS), Here()):
        with Pair() as pair:
            side = pair.producer if isinstance(place, Here) else pair.consumer
            gate = side.create_gate("g", [Input(PARTITION, 0, UnplacedProducer())])
            gate.request_partitions()
            gate.resize(20)
            side.place(gate, 0, place)
            pair.settle()
            partition = pair.partition()  # it comes when it was asked for once already
            pair.tick(10)
            pair.settle()
            assert partition.subpartitions[0].buffer_size == 20
            gate.close()


def test_a_channel_within_the_process_tells_at_once() -> None:
    with Pair() as pair:
        partition = pair.partition(2)
        inputs = [Input(PARTITION, index, Here()) for index in range(2)]
        gates = [pair.producer.create_gate("g", [source]) for source in inputs]
        for gate in gates:
            gate.request_partitions()
        union = UnionGate(list(gates))
        union.resize(33)
        assert [subpartition.buffer_size for subpartition in partition.subpartitions] == [33, 33]
        union.close()


def test_channels_that_have_ended_are_not_told() -> None:
    with Pair() as pair:
        partition, gate = pair.open(2)
        partition.subpartitions[0].finish()
        pair.settle()
        read_all(gate)
        pair.settle()
        gate.resize(20)
        pair.settle()
        assert pair.wire.producer.is_open
        assert [subpartition.buffer_size for subpartition in partition.subpartitions] == [
            NO_LIMIT,
            20,
        ]
        gate.close()
        gate.resize(10)
        pair.settle()
        assert partition.subpartitions[1].buffer_size == 20


def test_what_waits_is_counted_at_both_ends() -> None:
    with Pair() as pair:
        partition, gate = pair.open(2)
        union = UnionGate([gate, pair.gate(name="other")])
        assert union.waiting() == 0
        for _ in range(7):
            write(partition, b"data", 0)
        write(partition, b"data", 1)
        pair.settle()
        queued = gate.statistics().figures.queued_buffers
        assert queued < 8, "some wait for credit"
        assert gate.waiting() == union.waiting() == 8
        for _ in range(3):
            arrival = gate.poll()
            assert arrival is not None and arrival.buffer is not None
            arrival.buffer.release()
            pair.settle()
        assert gate.waiting() == 5
        read_all(gate)
        pair.settle()
        read_all(gate)
        assert gate.waiting() == 0


def test_what_waits_within_the_process_waits_with_the_producer() -> None:
    with Pair() as pair:
        partition = pair.partition()
        gate = pair.producer.create_gate("g", [Input(PARTITION, 0, Here())])
        assert gate.waiting() == 0
        gate.request_partitions()
        for _ in range(3):
            write(partition, b"data")
        assert gate.waiting() == 3
        read_all(gate)
        assert gate.waiting() == 0


class Served:
    """A sending session that serves one reader."""

    def __init__(self, pair: Pair) -> None:
        self.partition, self.gate = pair.open()
        self.session = pair.wire.producer.session
        (self.receiver,) = self.session.readers


def test_buffers_of_no_bytes_are_refused() -> None:
    with Pair() as pair:
        served = Served(pair)
        with pytest.raises(PeerBrokeProtocol, match="buffers of 0 bytes"):
            served.session.message_received(BufferSize(served.receiver, 0))


def test_a_stranger_is_refused_and_one_that_has_ended_is_not() -> None:
    with Pair() as pair:
        served = Served(pair)
        with pytest.raises(UnknownReceiver, match="a size of buffers"):
            served.session.message_received(BufferSize(ChannelId(99), 100))
        served.partition.release(RuntimeError("the task failed"))
        served.session.message_received(BufferSize(served.receiver, 100))
        served.session.message_received(CancelReceiver(served.receiver))
