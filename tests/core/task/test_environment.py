"""The environment: set up and give back, places, shutdown. Rows 89, 97, 109, 148, 151."""

import pytest

from headgate.base.errors import (
    InsufficientBuffers,
    PartitionTaken,
    PoolDestroyed,
    TaskCancelled,
)
from headgate.base.events import END_OF_PARTITION, TaskEvent
from headgate.base.ids import ChannelId, PartitionId
from headgate.base.settings import FlowControl
from headgate.core.egress.partition import PartitionKind
from headgate.core.ingress.channel import LocalChannel, UnknownChannel
from headgate.core.ingress.gate import Gate
from headgate.core.ingress.remote import RemoteChannel
from headgate.core.task.environment import (
    Environment,
    Here,
    Input,
    Place,
    RemoteProducer,
    UnplacedProducer,
)
from tests.arena import assert_all_home, plain_segments
from tests.core.exchange.kit import ListStore
from tests.core.ingress.credit import credit_of
from tests.core.pair import (
    ADDRESS,
    PARTITION,
    SECRET,
    SMALL,
    Pair,
    Timers,
    read_all,
    remote,
    with_settings,
    write,
)

KIND = PartitionKind.PIPELINED_BOUNDED


class Ping(TaskEvent):
    __slots__ = ()


def local_environment(segments: int = 20) -> tuple[Environment, list[ListStore]]:
    stores: list[ListStore] = []

    def dial(address: object) -> "object":
        raise AssertionError("a local environment dials nobody")

    def make_store(partition: PartitionId, index: int) -> ListStore:
        stores.append(ListStore())
        return stores[-1]

    environment = Environment(
        SMALL,
        plain_segments(segments),
        secret=SECRET,
        dial=dial,  # type: ignore[arg-type]
        later=Timers().later,
        make_store=make_store,  # type: ignore[arg-type]
    )
    return environment, stores


def inputs(count: int, place: Place) -> list[Input]:
    return [Input(PARTITION, index, place) for index in range(count)]


def test_local_exchange_hands_buffers_over() -> None:
    environment, _ = local_environment()
    partition = environment.create_partition(PARTITION, KIND, 2)
    gate = environment.create_gate("g", inputs(2, Here()))
    gate.request_partitions()
    write(partition, b"a", 0)
    write(partition, b"b", 1)
    partition.finish()
    assert sorted(read_all(gate)[:2]) == [(0, b"a"), (1, b"b")]
    assert gate.finished and partition.released
    gate.close()
    environment.close()
    assert_all_home(environment.pool)


def test_gate_gets_a_channel_of_the_right_kind_for_every_place() -> None:
    with Pair() as pair:
        places: list[Place] = [Here(), RemoteProducer(ADDRESS), UnplacedProducer()]
        gate = pair.consumer.create_gate("g", [Input(PARTITION, 0, place) for place in places])
        kinds = [type(channel) for channel in gate.channels]
        assert kinds == [LocalChannel, RemoteChannel, UnknownChannel]
        assert pair.wires == []  # nothing is requested before the task starts


def test_remote_channels_have_ids_of_their_own_across_gates() -> None:
    with Pair() as pair:
        gates = [pair.gate(2, name="a"), pair.gate(2, name="b")]
        ids = [remote(gate, index).id for gate in gates for index in range(2)]
        assert ids == [ChannelId(0), ChannelId(1), ChannelId(2), ChannelId(3)]


def test_exclusive_buffers_belong_to_remote_channels_with_credit_only() -> None:
    for settings, claimed in ((SMALL, 4), (with_settings(flow_control=FlowControl.TCP), 0)):
        with Pair(settings) as pair:
            pair.gate(2)
            pair.consumer.create_gate("local", inputs(2, Here()))
            assert pair.consumer.pool.claimed == claimed


def test_set_up_of_a_gate_that_fails_halfway_gives_everything_back() -> None:
    with Pair(segments=5) as pair:
        with pytest.raises(InsufficientBuffers, match="channel 2 from partition"):
            pair.gate(3)
        assert pair.consumer.pool.pools == [] and pair.consumer.pool.claimed == 0
        assert len(pair.consumer.pool.free) == 5
        pair.gate(2)  # what fits is not refused afterwards


def test_partition_registered_twice_is_refused_and_gives_everything_back() -> None:
    environment, stores = local_environment()
    environment.create_partition(PARTITION, PartitionKind.BLOCKING, 1)
    pool = environment.pool
    before = len(pool.free), pool.required, len(pool.pools)
    with pytest.raises(PartitionTaken):
        environment.create_partition(PARTITION, PartitionKind.BLOCKING, 2)
    assert (len(pool.free), pool.required, len(pool.pools)) == before
    assert [store.deleted for store in stores] == [0, 1, 1]
    assert PARTITION in environment.partitions
    environment.close()
    assert_all_home(environment.pool)


def test_partition_without_enough_buffers_is_refused() -> None:
    environment, _ = local_environment(segments=2)
    with pytest.raises(InsufficientBuffers):
        environment.create_partition(PARTITION, KIND, 2)
    assert PARTITION not in environment.partitions
    assert not environment.events.publish(PARTITION, Ping())
    assert_all_home(environment.pool)


def test_partition_whose_store_cannot_be_made_is_refused_and_gives_its_pool_back() -> None:
    environment, _ = local_environment()

    def fail(partition: PartitionId, index: int) -> ListStore:
        raise OSError("the disk is full")

    environment._make_store = fail  # type: ignore[assignment]
    with pytest.raises(OSError, match="the disk is full"):
        environment.create_partition(PARTITION, PartitionKind.BLOCKING, 1)
    assert_all_home(environment.pool)


def test_nothing_is_set_up_after_the_shutdown() -> None:
    with Pair() as pair:
        gate = pair.consumer.create_gate("g", inputs(1, UnplacedProducer()))
        pair.consumer.close()
        pair.consumer.close()
        with pytest.raises(TaskCancelled, match="shutting down"):
            pair.consumer.create_partition(PARTITION, KIND, 1)
        with pytest.raises(TaskCancelled, match="shutting down"):
            pair.gate(1)
        with pytest.raises(PoolDestroyed):
            pair.consumer.place(gate, 0, RemoteProducer(ADDRESS))


def test_shutdown_closes_gates_and_releases_partitions() -> None:
    with Pair() as pair:
        partition, gate = pair.open()
        own = pair.consumer.create_partition(PartitionId("own"), KIND, 1)
        write(partition, b"x")
        pair.settle()
        pair.consumer.close()
        assert gate.closed and own.released
        pair.settle()
        assert not pair.wire.consumer.is_alive and partition.subpartitions[0].released
        assert_all_home(pair.consumer.pool)


@pytest.mark.parametrize("requested", [False, True])
def test_unknown_channel_becomes_local(requested: bool) -> None:
    environment, _ = local_environment()
    partition = environment.create_partition(PARTITION, KIND, 1)
    gate = environment.create_gate("g", inputs(1, UnplacedProducer()))
    place_and_read(environment, gate, requested, Here())
    write(partition, b"x")
    assert read_all(gate) == [(0, b"x")]
    environment.close()
    assert_all_home(environment.pool)


@pytest.mark.parametrize("requested", [False, True])
def test_unknown_channel_becomes_remote(requested: bool) -> None:
    with Pair() as pair:
        partition = pair.partition()
        gate = pair.consumer.create_gate("g", inputs(1, UnplacedProducer()))
        place_and_read(pair.consumer, gate, requested, RemoteProducer(ADDRESS))
        pair.settle()
        write(partition, b"x")
        pair.settle()
        assert read_all(gate) == [(0, b"x")]


def place_and_read(
    environment: Environment, gate: Gate, requested: bool, place: Here | RemoteProducer
) -> None:
    if requested:
        gate.request_partitions()
        assert gate.poll() is None
    environment.place(gate, 0, place)
    gate.request_partitions()


def test_an_unknown_channel_keeps_the_buffers_that_it_will_need() -> None:
    """Claimed only when it is placed, others may hold them who wait for this channel to read."""
    with Pair(segments=4) as pair:
        gate = pair.consumer.create_gate("g", inputs(1, UnplacedProducer()))
        own = pair.consumer.create_partition(PartitionId("own"), KIND, 1)
        held = [own.pool.try_request() for _ in range(3)]
        assert [lease is not None for lease in held] == [True, True, False]
        pair.consumer.place(gate, 0, RemoteProducer(ADDRESS))
        assert credit_of(remote(gate)).exclusive == SMALL.buffers_per_channel
        for lease in held[:2]:
            assert lease is not None
            lease.release()
        gate.close()
        own.release()


def test_an_unknown_channel_that_becomes_local_gives_its_buffers_back() -> None:
    environment, _ = local_environment(4)
    gate = environment.create_gate("g", inputs(1, UnplacedProducer()))
    assert environment.pool.claimed == SMALL.buffers_per_channel
    environment.place(gate, 0, Here())
    assert environment.pool.claimed == 0
    gate.close()
    assert_all_home(environment.pool)


def test_an_unknown_channel_that_is_owed_buffers_leaves_that_to_the_channel() -> None:
    with Pair(segments=4) as pair:
        other = pair.consumer.create_partition(PartitionId("other"), KIND, 1)
        held = [other.pool.try_request() for _ in range(4)]
        assert None not in held
        gate = pair.consumer.create_gate("g", inputs(1, UnplacedProducer()))
        pair.consumer.place(gate, 0, RemoteProducer(ADDRESS))
        assert credit_of(remote(gate)).exclusive == 0
        for lease in held:
            assert lease is not None
            lease.release()
        assert credit_of(remote(gate)).exclusive == SMALL.buffers_per_channel
        gate.close()
        other.release()
        assert_all_home(pair.consumer.pool)


def test_channel_is_placed_once() -> None:
    environment, _ = local_environment()
    gate = environment.create_gate("g", inputs(1, UnplacedProducer()))
    environment.place(gate, 0, Here())
    with pytest.raises(AssertionError, match="placed already"):
        environment.place(gate, 0, Here())


def test_channel_placed_in_a_closed_gate_keeps_no_buffers() -> None:
    with Pair() as pair:
        gate = pair.consumer.create_gate("g", inputs(1, UnplacedProducer()))
        gate.close()
        pair.consumer.place(gate, 0, RemoteProducer(ADDRESS))
        assert pair.consumer.pool.claimed == 0


def test_subscribers_go_with_their_partition_however_it_ends() -> None:
    environment, _ = local_environment()
    ends = {
        "consumed": PartitionId("consumed"),
        "released": PartitionId("released"),
        "closed": PartitionId("closed"),
    }
    made = {}
    for name, partition in ends.items():
        made[name] = environment.create_partition(partition, KIND, 1)
        environment.events.subscribe(partition, Ping, lambda event: None)
        assert environment.events.publish(partition, Ping())
    gate = environment.create_gate("g", [Input(ends["consumed"], 0, Here())])
    gate.request_partitions()
    made["consumed"].finish()
    assert read_all(gate) == [(0, END_OF_PARTITION)]
    made["released"].release(ValueError("why"))
    assert environment.events.publish(ends["closed"], Ping())
    environment.close()
    assert [environment.events.publish(partition, Ping()) for partition in ends.values()] == [
        False,
        False,
        False,
    ]
    assert len(environment.partitions) == 0


def test_closed_gates_are_forgotten() -> None:
    environment, _ = local_environment()
    for number in range(5):
        environment.create_gate(f"g{number}", inputs(1, Here())).close()
    assert len(environment._gates) == 1
    environment.close()
