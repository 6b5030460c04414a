"""The two ends joined: requests, credit and data over whole links. Rows 96, 103, 111, 116-121, 138.

The twin of the two ends stands in test_credit_pair.py.
"""

import pytest

from headgate.base.errors import (
    InsufficientBuffers,
    ProducerFailed,
)
from headgate.base.events import TaskEvent
from headgate.base.ids import PartitionId, PeerName
from headgate.base.settings import FlowControl
from headgate.core.exchange.frames import Kind
from headgate.core.exchange.link import ConsumerEnd
from headgate.core.task.environment import Input, RemoteProducer
from tests.arena import assert_all_home, plain_pool
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
