"""Channels within a process, backoff, and the placeholder. Rows 93-95, 97-99, 147."""

from collections import deque
from collections.abc import Callable

import pytest

from headgate.base.errors import (
    EventsUnsent,
    EventUnclaimed,
    PartitionNotFound,
    PartitionTaken,
    ProducerFailed,
)
from headgate.base.events import CheckpointBarrier, TaskEvent
from headgate.base.ids import PartitionId
from headgate.core.buffers.buffer import Buffer
from headgate.core.egress.registry import EventDispatcher
from headgate.core.exchange.view import PolledBuffer
from headgate.core.ingress.channel import (
    MAX_KEPT_EVENTS,
    Backoff,
    BufferAndAvailability,
    LocalChannel,
    UnknownChannel,
)
from tests.core.pair import Timers

P = PartitionId("p")


class Ping(TaskEvent):
    __slots__ = ()


class FakeView:
    def __init__(self, on_data: Callable[[], None]) -> None:
        self.on_data = on_data
        self.queue: deque[Buffer] = deque()
        self.is_released = False
        self.failure: Exception | None = None
        self.releases = 0
        self.backlog = 0

    def poll(self) -> PolledBuffer | None:
        if not self.queue:
            return None
        buffer = self.queue.popleft()
        return PolledBuffer(buffer, bool(self.queue), 0, False)

    def take_references(self) -> None:
        pass

    def resize(self, size: int) -> None:
        self.size = size

    def tell_barriers(self, on_barrier: Callable[[CheckpointBarrier], None]) -> None:
        self.on_barrier = on_barrier

    def available(self, has_credit: bool) -> bool:
        return bool(self.queue)

    def release(self) -> None:
        self.releases += 1


class Bench:
    """A local channel and everything around it."""

    def __init__(self, initial_ms: int = 10, max_ms: int = 40) -> None:
        self.ready: list[int] = []
        self.asked = 0
        self.error: Exception | None = None
        self.view: FakeView | None = None
        self.announced: list[tuple[int, int, bool]] = []
        self.on_arrived: Callable[[int, Buffer], None] | None = None
        self.timers = Timers()
        self.events = EventDispatcher()
        self.channel = LocalChannel(
            3,
            P,
            1,
            self,
            self,
            self.events,
            Backoff(initial_ms, max_ms),
            self.timers.later,
        )

    def channel_ready(self, index: int) -> None:
        self.ready.append(index)

    def barrier_arrived(self, index: int, barrier: CheckpointBarrier, is_next: bool) -> None:
        self.announced.append((index, barrier.checkpoint, is_next))

    def create_view(
        self, partition: PartitionId, subpartition: int, on_data: Callable[[], None]
    ) -> FakeView:
        assert (partition, subpartition) == (P, 1)
        self.asked += 1
        if self.error is not None:
            raise self.error
        self.view = FakeView(on_data)
        return self.view

    def requested(self) -> FakeView:
        self.channel.request()
        assert self.view is not None
        return self.view


def next_of(channel: LocalChannel) -> BufferAndAvailability:
    got = channel.next()
    assert got is not None
    return got


def test_buffer_is_handed_over_and_not_copied() -> None:
    bench = Bench()
    view, buffer = bench.requested(), Buffer(b"data")
    view.queue.append(buffer)
    assert next_of(bench.channel).buffer is buffer


def test_channel_says_whether_it_has_more() -> None:
    bench = Bench()
    bench.requested().queue.extend([Buffer(b"1"), Buffer(b"2")])
    assert [next_of(bench.channel).more for _ in range(2)] == [True, False]
    assert bench.channel.next() is None


def test_channel_counts_bytes_and_buffers() -> None:
    bench = Bench()
    bench.requested().queue.extend([Buffer(b"123"), Buffer(b"45")])
    while bench.channel.next() is not None:
        pass
    counted = bench.channel.statistics()
    assert (counted.bytes_in, counted.buffers_in, counted.queued) == (5, 2, 0)


def test_gate_is_told_when_there_may_be_data() -> None:
    bench = Bench()
    view = bench.requested()
    before = len(bench.ready)
    view.on_data()
    assert bench.ready[before:] == [3]


def test_channel_before_its_request_has_nothing() -> None:
    assert Bench().channel.next() is None


def test_second_request_gets_no_second_view() -> None:
    bench = Bench()
    bench.requested()
    bench.channel.request()
    assert bench.asked == 1


def test_pauses_double_up_to_the_maximum_and_then_the_error_is_raised() -> None:
    bench = Bench(initial_ms=10, max_ms=50)
    bench.error = PartitionNotFound(P)
    bench.channel.request()
    for pause_ms in (10, 20, 40, 50):
        assert bench.ready == [] and bench.channel.next() is None
        bench.timers.pass_ms(pause_ms)
    assert bench.timers.pauses == [10, 20, 40, 50]
    assert bench.ready == [3]
    for _ in range(2):  # on every access
        with pytest.raises(PartitionNotFound):
            bench.channel.next()
    assert bench.asked == 5


def test_request_is_not_repeated_before_its_pause_is_over() -> None:
    bench = Bench()
    bench.error = PartitionNotFound(P)
    bench.channel.request()
    bench.timers.pass_ms(9)
    assert bench.asked == 1
    bench.timers.pass_ms(1)
    assert bench.asked == 2


def test_partition_that_appears_during_the_pauses_is_read() -> None:
    bench = Bench()
    bench.error = PartitionNotFound(P)
    bench.channel.request()
    bench.error = None
    bench.timers.pass_ms(10)
    assert bench.view is not None and bench.ready == [3]


def test_without_a_pause_the_error_comes_at_once() -> None:
    bench = Bench(initial_ms=0, max_ms=0)
    bench.error = PartitionNotFound(P)
    bench.channel.request()
    with pytest.raises(PartitionNotFound):
        bench.channel.next()


def test_channel_released_during_a_pause_asks_no_more() -> None:
    bench = Bench()
    bench.error = PartitionNotFound(P)
    bench.channel.request()
    bench.channel.release()
    bench.timers.pass_ms(100)
    assert bench.asked == 1


@pytest.mark.parametrize("error", [PartitionTaken(P, "is read"), OSError("no such file")])
def test_other_errors_of_a_request_are_kept_for_the_reader(error: Exception) -> None:
    bench = Bench()
    bench.error = PartitionNotFound(P)
    bench.channel.request()
    bench.error = error
    bench.timers.pass_ms(10)  # a timer has nobody to raise to
    assert bench.ready == [3]
    with pytest.raises(type(error)):
        bench.channel.next()


def test_view_released_by_its_producer_is_a_failure_with_its_cause() -> None:
    bench = Bench()
    view = bench.requested()
    view.is_released, view.failure = True, ValueError("broken")
    with pytest.raises(ProducerFailed, match="broken") as caught:
        bench.channel.next()
    assert caught.value.partition == P


def test_view_released_without_a_failure_is_an_early_end() -> None:
    bench = Bench()
    bench.requested().is_released = True
    with pytest.raises(ProducerFailed, match="before all was read"):
        bench.channel.next()


def test_released_channel_gives_nothing_and_releases_its_view_once() -> None:
    bench = Bench()
    view = bench.requested()
    view.queue.append(Buffer(b"x"))
    bench.channel.release()
    bench.channel.release()
    assert view.releases == 1
    assert bench.channel.next() is None


def test_task_event_reaches_the_producer_in_the_same_process() -> None:
    bench, got = Bench(), list[TaskEvent]()
    bench.events.register(P)
    bench.events.subscribe(P, Ping, got.append)
    bench.requested()
    bench.channel.send_event(Ping())
    assert len(got) == 1


def test_unclaimed_task_event_is_an_error() -> None:
    bench = Bench()
    bench.requested()
    with pytest.raises(EventUnclaimed, match="Ping"):
        bench.channel.send_event(Ping())


def test_task_event_waits_for_a_producer_that_has_not_started() -> None:
    bench, got = Bench(), list[TaskEvent]()
    event = Ping()
    bench.channel.send_event(event)
    bench.events.register(P)
    bench.events.subscribe(P, Ping, got.append)
    bench.requested()
    assert got == [event]


def test_kept_task_event_that_nobody_receives_is_an_error_of_the_channel() -> None:
    bench = Bench()
    bench.channel.send_event(Ping())
    bench.requested()
    with pytest.raises(EventUnclaimed, match="Ping"):
        bench.channel.next()


# Barriers.


def test_barrier_that_stands_first_in_the_producers_queue_is_told_to_the_gate() -> None:
    bench = Bench()
    bench.requested().on_barrier(CheckpointBarrier(7, 0, unaligned=True))
    assert bench.announced == [(3, 7, True)]


def test_buffer_of_a_producer_in_the_process_arrives_when_it_is_read() -> None:
    bench = Bench()
    view, arrived = bench.requested(), []
    view.queue += [Buffer(b"a"), Buffer(b"b")]
    assert next_of(bench.channel).buffer.view == b"a"
    bench.on_arrived = lambda index, buffer: arrived.append((index, buffer.view))
    assert bench.channel.queued() == () and arrived == []
    assert next_of(bench.channel).buffer.view == b"b"
    assert arrived == [(3, b"b")]


def test_failure_of_the_producer_can_be_seen_without_reading() -> None:
    bench = Bench()
    assert bench.channel.failure() is None
    view = bench.requested()
    assert bench.channel.failure() is None
    view.is_released, view.failure = True, ValueError("broken")
    view.queue.append(Buffer(b"a"))
    assert "broken" in str(bench.channel.failure())
    bench.channel.release()
    assert bench.channel.failure() is None


def test_unknown_channel_keeps_a_request_in_mind_and_gives_nothing() -> None:
    channel = UnknownChannel(2, P, 1)
    assert not channel.requested
    channel.request()
    assert channel.requested and channel.next() is None
    channel.release()
    assert channel.statistics().buffers_in == 0


def test_unknown_channel_keeps_a_bounded_number_of_events() -> None:
    channel, event = UnknownChannel(2, P, 1), Ping()
    for _ in range(MAX_KEPT_EVENTS):
        channel.send_event(event)
    assert channel.unsent == [event] * MAX_KEPT_EVENTS
    with pytest.raises(EventsUnsent, match="has not started"):
        channel.send_event(event)


@pytest.mark.parametrize(
    ("initial_ms", "max_ms", "pauses"),
    [(0, 0, []), (0, 100, []), (5, 5, [5]), (1, 8, [1, 2, 4, 8]), (3, 10, [3, 6, 10])],
)
def test_backoff_doubles_up_to_its_maximum(initial_ms: int, max_ms: int, pauses: list[int]) -> None:
    backoff = Backoff(initial_ms, max_ms)
    assert [backoff.next_pause_ms() for _ in range(len(pauses) + 2)] == [*pauses, None, None]
