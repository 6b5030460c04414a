"""The two ends joined: requests, credit and data over whole links. Rows 96, 103, 111, 116-121, 138.

The twin of the two ends stands in test_credit_pair.py.
"""

import pytest

from headgate.base.errors import (
    EventUnclaimed,
    InsufficientBuffers,
    PartitionNotFound,
    PeerReported,
    ProducerFailed,
)
from headgate.base.events import CheckpointBarrier, EndOfPartition, EndOfSuperstep, TaskEvent
from headgate.base.ids import PartitionId, PeerName
from headgate.base.settings import FlowControl
from headgate.core.exchange.frames import AddCredit, Kind, PartitionRequest
from headgate.core.exchange.link import ConsumerEnd
from headgate.core.task.environment import Input, RemoteProducer
from tests.arena import assert_all_home, plain_pool
from tests.core.ingress.credit import credit_of
from tests.core.pair import (
    ADDRESS,
    PARTITION,
    SECRET,
    SMALL,
    Pair,
    assert_credit_law,
    read_all,
    remote,
    with_settings,
    write,
    write_event,
)


class Ping(TaskEvent):
    __slots__ = ()


def test_connection_claims_its_landing_buffers_and_gives_them_back() -> None:
    pool = plain_pool(5)
    end = ConsumerEnd(SMALL, SECRET, bytes(16), PeerName("p"), pool, 0.0)
    assert pool.claimed == SMALL.landing_buffers and len(pool.free) == 3
    end.close()
    assert_all_home(pool)


def test_connection_without_landing_buffers_is_refused() -> None:
    with pytest.raises(InsufficientBuffers, match="the connection to p"):
        ConsumerEnd(SMALL, SECRET, bytes(16), PeerName("p"), plain_pool(1), 0.0)


def test_request_carries_the_exclusive_buffers_as_initial_credit() -> None:
    with Pair() as pair:
        pair.partition()
        gate = pair.gate()
        gate.request_partitions()
        pair.settle()
        reader = pair.wire.producer.session.readers[remote(gate).id]
        assert reader.credit == 2
        assert reader.partition == PARTITION


@pytest.mark.parametrize("chunk", [1, 7, 33, 1 << 20])
@pytest.mark.parametrize("exclusive", [0, 1, 2])
def test_data_and_events_arrive_in_order(chunk: int, exclusive: int) -> None:
    with Pair(with_settings(buffers_per_channel=exclusive)) as pair:
        partition, gate = pair.open()
        sent: list[object] = []
        got: list[object] = []
        for i in range(12):
            if i % 4 == 3:
                event = CheckpointBarrier(i, 0) if i % 8 == 3 else EndOfSuperstep()
                write_event(partition, event)
                sent.append(event)
            else:
                data = bytes([i]) * (64 if i % 3 else i + 1)
                write(partition, data)
                sent.append(data)
            pair.settle(chunk)
            assert_credit_law(pair.wire, remote(gate))
            got += [content for _, content in read_all(gate)]
            assert_credit_law(pair.wire, remote(gate))
        partition.finish()
        pair.settle(chunk)
        got += [content for _, content in read_all(gate)]
        assert got == [*sent, EndOfPartition()]
        assert gate.finished
        pair.settle(chunk)
        assert partition.released  # the end of the channel has reached the producer


def test_barrier_passes_though_there_is_no_credit() -> None:
    with Pair(with_settings(floating_per_gate=0)) as pair:
        partition, gate = pair.open()
        write(partition, b"1")
        write(partition, b"2")
        pair.settle()
        channel = remote(gate)
        assert credit_of(channel).exclusive == 0
        write_event(partition, CheckpointBarrier(1, 0))
        pair.settle()
        assert [content for _, content in read_all(gate)] == [b"1", b"2", CheckpointBarrier(1, 0)]


def test_channel_without_credit_does_not_stop_its_neighbours() -> None:
    with Pair(with_settings(floating_per_gate=0)) as pair:
        partition = pair.partition(2)
        slow = pair.consumer.create_gate("slow", pair_inputs(0))
        fast = pair.consumer.create_gate("fast", pair_inputs(1))
        for gate in (slow, fast):
            gate.request_partitions()
        pair.settle()
        assert len(pair.wires) == 1
        for i in range(9):
            if i < 4:
                write(partition, b"s", 0)
            write(partition, bytes([i]), 1)
            pair.settle()
            assert read_all(fast) == [(0, bytes([i]))]
            pair.settle()
        assert pair.wire.producer.session.readers[remote(slow).id].credit == 0
        assert len(read_all(slow)) == 2


def test_channel_without_buffers_stops_its_neighbours_where_the_socket_is_the_brake() -> None:
    settings = with_settings(flow_control=FlowControl.TCP, floating_per_gate=0)
    with Pair(settings) as pair:
        partition = pair.partition(2)
        slow = pair.consumer.create_gate("slow", pair_inputs(0))
        fast = pair.consumer.create_gate("fast", pair_inputs(1))
        for gate in (slow, fast):
            gate.request_partitions()
        for _ in range(3):
            write(partition, b"s", 0)
        pair.settle()
        write(partition, b"f", 1)
        pair.settle()
        assert read_all(fast) == []  # the price of the comparison mode
        assert len(read_all(slow)) == 3
        pair.settle()
        assert read_all(fast) == [(0, b"f")]


def pair_inputs(index: int) -> list[Input]:
    return [Input(PARTITION, index, RemoteProducer(ADDRESS))]


def test_several_freed_buffers_are_announced_in_one_message() -> None:
    with Pair(with_settings(floating_per_gate=0)) as pair:
        partition, gate = pair.open()
        write(partition, b"1")
        write(partition, b"2")
        pair.settle()
        read_all(gate)
        pair.wire.consumer.outgoing()
        frames = pair.wire.up.unread_frames()
        assert frames == [(Kind.ADD_CREDIT, AddCredit(((remote(gate).id, 2),)))]


def test_partition_that_comes_late_is_found_by_asking_again() -> None:
    with Pair() as pair:
        gate = pair.gate()
        gate.request_partitions()
        pair.settle()
        assert read_all(gate) == []
        assert pair.timers.pauses == [10]
        partition = pair.partition()
        write(partition, b"at last")
        pair.timers.pass_ms(10)
        pair.settle()
        assert read_all(gate) == [(0, b"at last")]
        pair.settle()
        assert_credit_law(pair.wire, remote(gate))


def test_partition_that_never_comes_is_an_error_after_growing_pauses() -> None:
    with Pair() as pair:
        gate = pair.gate()
        gate.request_partitions()
        for _ in range(6):
            pair.settle()
            pair.timers.pass_ms(40)
        assert pair.timers.pauses == [10, 20, 40]
        with pytest.raises(PartitionNotFound, match="producer") as caught:
            read_all(gate)
        assert caught.value.partition == PARTITION


def test_subpartition_that_does_not_exist_is_reported() -> None:
    with Pair() as pair:
        pair.partition(1)
        gate = pair.gate(2)
        gate.request_partitions()
        pair.settle()
        with pytest.raises(PeerReported, match="none with index 1"):
            read_all(gate)


def test_failure_of_the_producer_arrives_with_its_cause() -> None:
    with Pair() as pair:
        partition, gate = pair.open()
        partition.release(ValueError("division by zero"))
        pair.settle()
        with pytest.raises(ProducerFailed, match="division by zero"):
            read_all(gate)


def test_task_event_travels_to_the_producer() -> None:
    with Pair() as pair:
        _, gate = pair.open()
        got: list[TaskEvent] = []
        pair.producer.events.subscribe(PARTITION, Ping, got.append)
        gate.send_event(Ping())
        pair.settle()
        assert [type(event) for event in got] == [Ping]


def test_unclaimed_task_event_comes_back_as_an_error() -> None:
    with Pair() as pair:
        _, gate = pair.open()
        gate.send_event(Ping())
        pair.settle()
        with pytest.raises(EventUnclaimed) as caught:
            read_all(gate)
        assert caught.value.partition == PARTITION


def test_released_channel_drops_what_is_still_on_its_way() -> None:
    with Pair() as pair:
        partition, gate = pair.open(2)
        write(partition, bytes(64), 0)
        write(partition, bytes(64), 1)
        pair.wire.down.take()
        pair.wire.down.deliver(40)  # the first has begun to arrive
        remote(gate, 0).release()
        pair.settle()
        assert pair.wire.consumer.is_open
        assert read_all(gate) == [(1, bytes(64))]


def test_two_gates_share_the_connection_and_its_end() -> None:
    with Pair() as pair:
        _, first = pair.open()
        pair.partition(1, PartitionId("q"))
        second = pair.gate(1, PartitionId("q"), "h")
        second.request_partitions()
        pair.settle()
        assert len(pair.wires) == 1 and pair.wire.consumer.users == 2
        first.close()
        pair.settle()
        assert pair.wire.consumer.is_open
        second.close()
        pair.settle()
        assert not pair.wire.consumer.is_alive


def test_request_made_while_the_link_connects_waits_for_it() -> None:
    with Pair() as pair:
        pair.partition(2)
        gate = pair.gate(2)
        gate.request_partitions()
        assert pair.wire.up.take() > 0  # the hello, and nothing more
        assert [kind for kind, _ in pair.wire.up.unread_frames()] == [Kind.HELLO]
        pair.settle()
        assert len(pair.wire.producer.session.readers) == 2


def test_request_frames_carry_the_channel_as_receiver() -> None:
    with Pair() as pair:
        gate = pair.gate()
        gate.request_partitions()
        wire = pair.wire
        while not wire.consumer.is_open:
            wire.up.take()
            wire.up.deliver()
            wire.down.take()
            wire.down.deliver()
        wire.consumer.outgoing()
        requests = [
            message
            for _, message in wire.up.unread_frames()
            if isinstance(message, PartitionRequest)
        ]
        assert requests == [PartitionRequest(remote(gate).id, 2, 0, PARTITION)]
