"""The partition: builders, events, consumability, the end. Rows 35, 36, 53, 56, 61-63, 66, 67."""

from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.base.elements import PickleSerializer
from headgate.base.errors import PartitionError, PartitionFinished, TaskCancelled
from headgate.base.events import END_OF_PARTITION, CheckpointBarrier, encode_event
from headgate.core.buffers.buffer import BufferBuilder
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.egress.blocking import BlockingSubpartition
from headgate.core.egress.partition import Partition, PartitionKind, PipelinedSubpartition
from headgate.core.egress.router import Forward
from headgate.core.egress.writer import RecordWriter
from headgate.core.exchange.view import View
from tests.arena import assert_all_home, plain_pool
from tests.core.egress.kit import ORDERS, MemoryStore, make_partition

MakePool = Callable[..., GlobalPool]


def ignore() -> None: ...


def write(partition: Partition, index: int, data: bytes) -> BufferBuilder:
    builder = partition.request_builder()
    partition.add(builder.consumer(), index)
    builder.append(memoryview(data))
    return builder


def poll(view: View) -> bytes | None:
    polled = view.poll()
    if polled is None:
        return None
    data = bytes(polled.buffer.view)
    polled.buffer.release()
    return data


# Kinds (row 67).


@pytest.mark.parametrize(
    ("kind", "pipelined", "bounded", "back_pressure"),
    [
        (PartitionKind.PIPELINED, True, False, True),
        (PartitionKind.PIPELINED_BOUNDED, True, True, True),
        (PartitionKind.BLOCKING, False, False, False),
    ],
)
def test_a_kind_decides_on_subpartitions_and_sizes(
    make_pool: MakePool, kind: PartitionKind, pipelined: bool, bounded: bool, back_pressure: bool
) -> None:
    assert (kind.is_pipelined, kind.is_bounded) == (pipelined, bounded)
    assert kind.has_back_pressure == back_pressure
    partition = make_partition(make_pool(4), 2, kind, stores=[MemoryStore(), MemoryStore()])
    expected = PipelinedSubpartition if pipelined else BlockingSubpartition
    assert [type(subpartition) for subpartition in partition.subpartitions] == [expected] * 2


def test_a_blocking_partition_without_a_store_is_a_bug(make_pool: MakePool) -> None:
    with pytest.raises(AssertionError, match="needs a store"):
        make_partition(make_pool(4), 1, PartitionKind.BLOCKING)


# Builders (rows 35, 53, 61).


def test_overdraft_finishes_what_was_begun_before_anybody_waits(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(10), 1, maximum=2, overdraft=2)
    builders = [partition.request_builder() for _ in range(4)]
    assert not partition.available()
    with pytest.raises(AssertionError, match="ran out of buffers"):
        partition.request_builder()
    for builder in builders:
        builder.finish()
    assert partition.available()


def test_without_a_buffer_the_producer_waits_until_there_is_one(make_pool: MakePool) -> None:
    waits: list[bool] = []

    def wait(condition: Callable[[], bool]) -> None:
        waits.append(condition())
        if len(waits) == 2:  # it may also be woken for nothing
            held.pop().finish()
        assert condition() == (len(waits) == 2)

    held: list[BufferBuilder] = []
    partition = make_partition(make_pool(2), 1, maximum=2, wait=wait)
    held += [partition.request_builder(), partition.request_builder()]
    assert partition.pool.try_request() is None
    assert waits == []
    held.append(partition.request_builder())
    assert waits == [False, False]
    for builder in held:
        builder.finish()


def test_the_end_of_the_partition_wakes_a_waiting_producer(make_pool: MakePool) -> None:
    def wait(condition: Callable[[], bool]) -> None:
        assert not condition()
        partition.release()
        assert condition()

    partition = make_partition(make_pool(2), 1, wait=wait)
    builders = [partition.request_builder(), partition.request_builder()]
    with pytest.raises(TaskCancelled, match="'orders/map/3#0' was released while written"):
        partition.request_builder()
    for builder in builders:
        builder.finish()


def test_a_wait_that_is_cancelled_reaches_the_producer(make_pool: MakePool) -> None:
    def wait(condition: Callable[[], bool]) -> None:
        raise TaskCancelled("by the user")

    partition = make_partition(make_pool(2), 1, wait=wait)
    builders = [partition.request_builder(), partition.request_builder()]
    with pytest.raises(TaskCancelled, match="by the user"):
        partition.request_builder()
    for builder in builders:
        builder.finish()


def test_a_slow_consumer_empties_the_pool_and_a_read_makes_the_writer_available(
    make_pool: MakePool,
) -> None:
    partition = make_partition(make_pool(8), 1, maximum=2)
    calls: list[str] = []
    partition.pool.notify = lambda: calls.append("available")
    view = partition.create_view(0, ignore)
    for data in (b"a", b"b"):
        write(partition, 0, data).finish()
    assert not partition.available()
    assert poll(view) == b"a"
    assert calls == ["available"]
    assert partition.available()
    partition.release()


def test_while_restored_data_wait_no_step_begins(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8), 3)
    partition.segment_bytes = 4
    calls: list[str] = []
    partition.pool.notify = lambda: calls.append("available")
    partition.restore(0, [b"abcd", b"ef"])
    partition.restore(1, [b"gh"])
    partition.restore(2, [b"", b""])
    views = [partition.create_view(index, ignore) for index in range(3)]
    builder = write(partition, 0, b"of a step that had begun")
    builder.finish()
    assert [poll(views[1]), poll(views[0])] == [b"gh", b"abcd"]
    assert not partition.available() and calls == []
    barrier = CheckpointBarrier(1, 0, unaligned=True)
    assert partition.overtake(barrier, 0, PickleSerializer())[0] == b"ef"
    assert poll(views[0]) == encode_event(barrier)
    assert not partition.available(), "what was overtaken still waits"
    assert poll(views[0]) == b"ef"
    assert partition.available() and calls == ["available"]
    partition.release()
    assert calls == ["available"]


def test_restored_data_that_nobody_will_read_hold_up_nobody(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8), 2)
    calls: list[str] = []
    partition.pool.notify = lambda: calls.append("available")
    view = partition.create_view(0, ignore)
    partition.restore(0, [b"ab"])
    assert not partition.available()
    view.release()
    assert partition.available() and calls == ["available"]
    partition.restore(0, [b"for one who has gone"])
    assert partition.available()
    partition.restore(1, [b"cd"])
    partition.release()
    assert partition.available() and "available" in calls[1:], "it learns that it was released"


# Adding (row 62).


def test_a_finished_partition_refuses_data_and_closes_it(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(4))
    builder = partition.request_builder()
    partition.finish()
    with pytest.raises(PartitionFinished, match="takes no more data"):
        partition.add(builder.consumer(), 0)
    builder.finish()
    assert partition.pool.lent == 0
    with pytest.raises(PartitionFinished, match="finished before"):
        partition.finish()
    with pytest.raises(PartitionFinished):
        partition.broadcast_event(CheckpointBarrier(1, 0))


# Events (row 36).


def test_events_take_no_pooled_buffer(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(4), 3)
    partition.broadcast_event(CheckpointBarrier(7, 1000))
    assert (partition.pool.lent, partition.queued) == (0, 3)


# Flush, backlog.


def test_flushing_reaches_one_or_all_subpartitions(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(4), 2)
    builders = [write(partition, index, b"a") for index in range(2)]
    views = [partition.create_view(index, ignore) for index in range(2)]
    assert [view.available(True) for view in views] == [False, False]
    partition.flush(1)
    assert [view.available(True) for view in views] == [False, True]
    assert partition.queued == 2
    partition.flush_all()
    assert [view.available(True) for view in views] == [True, True]
    assert partition.queued == 2
    for builder in builders:
        builder.finish()
    partition.release()


# Consumable (row 66).


# The end.


def test_a_producer_that_waits_goes_on_when_its_last_reader_leaves(make_pool: MakePool) -> None:
    def wait(condition: Callable[[], bool]) -> None:
        assert not condition()
        view.release()
        assert condition()

    partition = make_partition(make_pool(2), 1, maximum=2, wait=wait)
    view = partition.create_view(0, ignore)
    for _ in range(3):
        write(partition, 0, b"x").finish()
    assert not partition.released
    partition.finish()
    assert partition.released


def test_a_partition_that_readers_have_left_is_still_released_by_a_failure(
    make_pool: MakePool,
) -> None:
    shelf = make_pool(4)
    partition = make_partition(shelf, 1)
    partition.create_view(0, ignore).release()
    partition.release(RuntimeError("boom"))
    assert partition.released and not shelf.pools
    with pytest.raises(TaskCancelled):
        partition.request_builder()


def test_a_listener_that_raises_when_a_reader_goes_keeps_nothing_back(make_pool: MakePool) -> None:
    shelf = make_pool(4)
    partition = make_partition(shelf, 1)

    def refuse(index: int) -> None:
        raise RuntimeError("not now")

    partition.on_reader_gone = refuse
    partition.finish()
    with pytest.raises(RuntimeError, match="not now"):
        partition.create_view(0, ignore).release()
    assert partition.released and not shelf.pools


class LeavingTwin(RuleBasedStateMachine):
    """Readers leave when they like. The producer never notices, the others miss nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = plain_pool(8, 64)
        self.partition = make_partition(self.shelf, 3, maximum=8)
        self.views: dict[int, View] = {}
        self.gone: set[int] = set()
        self.waiting: list[list[bytes]] = [[], [], []]
        self.number = 0

    @precondition(lambda self: not self.partition.finished and self.partition.available())
    @rule(index=st.integers(0, 2))
    def producer_writes(self, index: int) -> None:
        self.number += 1
        data = str(self.number).encode()
        write(self.partition, index, data).finish()
        if index not in self.gone:
            self.waiting[index].append(data)

    @precondition(lambda self: not self.partition.finished)
    @rule()
    def producer_broadcasts_an_event(self) -> None:
        self.number += 1
        event = CheckpointBarrier(self.number, 0)
        self.partition.broadcast_event(event)
        for index in {0, 1, 2} - self.gone:
            self.waiting[index].append(encode_event(event))

    @precondition(lambda self: not self.partition.finished)
    @rule(sure=st.integers(0, 9))
    def producer_finishes(self, sure: int) -> None:
        if not sure:
            self.partition.finish()
            for index in {0, 1, 2} - self.gone:
                self.waiting[index].append(encode_event(END_OF_PARTITION))

    @rule(index=st.integers(0, 2))
    def reader_comes(self, index: int) -> None:
        if index not in self.views and index not in self.gone:
            self.views[index] = self.partition.create_view(index, ignore)

    @rule(index=st.integers(0, 2))
    def reader_reads(self, index: int) -> None:
        if index in self.views and self.waiting[index]:
            assert poll(self.views[index]) == self.waiting[index].pop(0)

    @rule(index=st.integers(0, 2))
    def reader_leaves(self, index: int) -> None:
        view = self.views.pop(index, None)
        if view is not None:
            view.release()
            self.gone.add(index)
            self.waiting[index].clear()

    @invariant()
    def it_is_released_when_nobody_writes_and_nobody_reads(self) -> None:
        assert self.partition.released == (self.partition.finished and len(self.gone) == 3)

    @invariant()
    def only_what_somebody_will_read_is_lent(self) -> None:
        data = sum(not is_event(entry) for waiting in self.waiting for entry in waiting)
        assert self.partition.pool.lent == data
        self.shelf.check()

    def teardown(self) -> None:
        self.partition.release()
        assert_all_home(self.shelf)


def is_event(data: bytes) -> bool:
    return not data.isdigit()


TestLeavingTwin = LeavingTwin.TestCase


def test_a_blocking_partition_stays_until_it_is_released(make_pool: MakePool) -> None:
    store = MemoryStore()
    partition = make_partition(make_pool(4), 1, PartitionKind.BLOCKING, stores=[store])
    partition.finish()
    for _ in range(2):
        partition.create_view(0, ignore).release()
    assert not partition.released
    partition.release()
    assert store.log[-1] == "deleted"


def test_a_failed_partition_tells_its_readers_why_and_gives_everything_back(
    make_pool: MakePool,
) -> None:
    shelf = make_pool(4)
    partition = make_partition(shelf, 2)
    released: list[Partition] = []
    partition.on_released = released.append
    view = partition.create_view(0, ignore)
    write(partition, 0, b"a").finish()
    failure = RuntimeError("boom")
    partition.release(failure)
    partition.release(RuntimeError("later"))
    assert released == [partition]
    assert view.is_released and view.failure is failure
    assert len(shelf.free) == 4


def test_an_index_that_does_not_exist_is_refused_by_number(make_pool: MakePool) -> None:
    with pytest.raises(PartitionError, match="has 2 subpartitions, none with index 2") as caught:
        make_partition(make_pool(4), 2).create_view(2, ignore)
    assert caught.value.partition == ORDERS


# Memory (row 56).


def test_only_a_partition_without_back_pressure_is_asked_for_memory(make_pool: MakePool) -> None:
    shelf = make_pool(8)
    assert make_partition(shelf).pool.owner is None
    store = MemoryStore()
    blocking = make_partition(shelf, 1, PartitionKind.BLOCKING, stores=[store])
    write(blocking, 0, b"a").finish()
    assert (store.entries, blocking.pool.lent) == ([], 1)
    blocking.pool.minimum = 0
    blocking.pool.size = 0
    blocking.pool.settle()
    assert (store.entries, blocking.pool.held) == ([(b"a", False)], 0)
    blocking.release()


def test_a_subpartition_that_cannot_be_released_does_not_keep_the_others(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [MemoryStore(), MemoryStore()]

    def refuse() -> None:
        raise OSError("disk full")

    monkeypatch.setattr(stores[0], "delete", refuse)
    partition = make_partition(make_pool(8), 2, PartitionKind.BLOCKING, stores=stores)
    gone = []
    partition.on_released = gone.append
    with pytest.raises(OSError, match="disk full"):
        partition.release()
    assert "deleted" in stores[1].log
    assert partition.pool.destroyed
    assert gone == [partition]


# Barriers.


def test_barriers_that_leave_and_readers_that_go_are_told_by_their_index(
    make_pool: MakePool,
) -> None:
    partition = make_partition(make_pool(4), 2)
    barrier = CheckpointBarrier(1, 0)
    partition.broadcast_event(barrier)
    views = [partition.create_view(index, ignore) for index in range(2)]
    poll(views[0])  # nobody listens
    calls: list[object] = []
    partition.on_barrier_left = lambda index, left: calls.append((index, left))
    partition.on_reader_gone = calls.append
    poll(views[1])
    views[1].release()
    views[1].release()
    views[0].release()
    assert calls == [(1, barrier), 1, 0]


def test_a_blocking_partition_stores_no_barriers(make_pool: MakePool) -> None:
    stores = [MemoryStore()]
    partition = make_partition(make_pool(3), 1, PartitionKind.BLOCKING, stores=stores)
    with pytest.raises(AssertionError, match="never stored"):
        partition.overtake(CheckpointBarrier(1, 0, unaligned=True), 0, PickleSerializer())
    with pytest.raises(AssertionError, match="not in flight"):
        partition.restore(0, [b"data"])
    with pytest.raises(AssertionError, match="never stored"):
        RecordWriter(partition, Forward()).send_barrier(CheckpointBarrier(1, 0))
    partition.release()
