"""The remote channel: exclusive, floating, wanted buffers, credit, release. Rows 96, 98, 100-108.

Unit tests with a link that only records; whole links are in tests/core/exchange/test_ends.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from headgate.base.errors import (
    ConnectFailed,
    EventsUnsent,
    InsufficientBuffers,
    PartitionNotFound,
    PeerLost,
    SequenceGap,
)
from headgate.base.events import CancelMarker, CheckpointBarrier, TaskEvent, encode_event
from headgate.base.ids import ChannelId, PartitionId, PeerName
from headgate.core.buffers.buffer import Buffer
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.buffers.local_pool import OfferAnswer
from headgate.core.exchange.frames import MAX_RUNTIME_EVENT_BYTES
from headgate.core.ingress.channel import MAX_KEPT_EVENTS, Backoff
from headgate.core.ingress.remote import RemoteChannel, RemoteServices
from tests.core.ingress.credit import credit_of
from tests.core.pair import Timers

P = PartitionId("p")
MakePool = Callable[..., GlobalPool]


@dataclass
class FakeSession:
    requests: list[int] = field(default_factory=list)
    credited: list[int] = field(default_factory=list)
    cancels: list[int] = field(default_factory=list)
    events: list[TaskEvent] = field(default_factory=list)

    def request(
        self, channel: RemoteChannel, partition: PartitionId, subpartition: int, credit: int
    ) -> None:
        assert (partition, subpartition) == (P, 5)
        self.requests.append(credit)

    def credit_grew(self, channel: RemoteChannel) -> None:
        self.credited.append(channel.unannounced)

    def cancel(self, channel: RemoteChannel) -> None:
        self.cancels.append(channel.id)

    def send_event(self, channel: RemoteChannel, partition: PartitionId, event: TaskEvent) -> None:
        self.events.append(event)


@dataclass
class FakeLink:
    session: FakeSession = field(default_factory=FakeSession)
    peer: PeerName = PeerName("producer")
    is_alive: bool = True
    error: PeerLost | None = None
    may_pass: bool = False
    is_open: bool = True
    resumes: int = 0
    attached: int = 0
    detached: int = 0

    def attach(self, address: object) -> "FakeLink":
        self.attached += 1
        return self

    def detach(self, link: object) -> None:
        self.detached += 1

    def resume(self) -> None:
        self.resumes += 1


class Bench:
    """A remote channel with pools of its own: `floating` is the size of its gate's pool."""

    def __init__(
        self,
        make_pool: MakePool,
        exclusive: int = 2,
        floating: int = 4,
        credit: bool = True,
        retry_ms: int = 0,
    ) -> None:
        self.global_pool = make_pool(exclusive + floating)
        self.pool = self.global_pool.create_pool("gate", 0, floating)
        self.link = FakeLink()
        self.ready: list[int] = []
        self.announced: list[tuple[int, bool]] = []
        self.on_arrived: Callable[[int, Buffer], None] | None = None
        self.timers = Timers()
        self.channel = RemoteChannel(
            3,
            ChannelId(9),
            P,
            5,
            ("host", 1),
            self,
            Backoff(10, 20),
            RemoteServices(self.link, self.timers.later, credit, retry_ms),  # type: ignore[arg-type]
        )
        self.channel.assign_pools(self.global_pool, self.pool, exclusive)
        self.sequence = 0

    def channel_ready(self, index: int) -> None:
        self.ready.append(index)

    def barrier_arrived(self, index: int, barrier: CheckpointBarrier, is_next: bool) -> None:
        self.announced.append((barrier.checkpoint, is_next))

    def opened(self) -> RemoteChannel:
        self.channel.request()
        return self.channel

    def arrive(self, data: bytes = b"x", backlog: int = 0) -> None:
        """A data buffer comes, as it would through a session."""
        lease = self.channel.room_for(len(data)) if data else None
        assert lease is not None or not data
        self.channel.buffer_arrived(self.sequence, backlog, Buffer(data, lease))
        self.sequence += 1
        self.channel.check()

    def consume(self) -> bytes:
        got = self.channel.next()
        assert got is not None
        data = bytes(got.buffer.view)
        got.buffer.release()
        self.channel.check()
        return data

    def credit(self) -> tuple[int, int, int, int]:
        """Exclusive, floating, unannounced, wanted."""
        now = credit_of(self.channel)
        return now.exclusive, now.floating, now.unannounced, now.wanted


# Exclusive buffers and the request.


def test_exclusive_buffers_are_claimed_once_and_are_the_initial_credit(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=2)
    assert bench.global_pool.claimed == 2
    assert bench.credit() == (2, 0, 2, 2)
    bench.opened()
    assert bench.link.session.requests == [2]
    assert bench.credit() == (2, 0, 0, 2)
    bench.channel.release()


def test_request_on_a_connection_that_failed_at_once_is_the_channels_error(
    make_pool: MakePool,
) -> None:
    bench = Bench(make_pool)
    bench.link.is_alive, bench.link.error = False, PeerLost(PeerName("producer"), "refused")
    bench.channel.request()
    assert bench.ready == [3] and bench.link.session.requests == []
    with pytest.raises(PeerLost, match="refused"):
        bench.channel.next()
    bench.channel.release()
    assert bench.link.detached == 1


# Floating buffers.


def test_wanted_is_backlog_plus_initial_credit(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=2, floating=4)
    bench.opened()
    bench.arrive(backlog=1)
    assert bench.credit() == (1, 2, 2, 3)
    bench.arrive(backlog=0)  # takes a floating one first
    assert bench.credit() == (1, 1, 2, 2)
    bench.channel.release()


def test_backlog_alone_brings_floating_buffers(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=0, floating=4)
    bench.opened()
    assert bench.link.session.requests == [0]
    bench.channel.backlog_told(3)
    assert bench.credit() == (0, 3, 3, 3)
    bench.channel.release()


def test_channel_that_gets_too_few_listens_once(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=1, floating=1)
    bench.opened()
    for backlog in (4, 5, 6):
        bench.channel.backlog_told(backlog)
        assert len(bench.pool._listeners) == 1
    assert bench.credit() == (1, 1, 1, 7)
    bench.channel.release()


def test_offered_buffer_is_taken_until_there_are_enough(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=1, floating=3)
    taken = [bench.pool.try_request() for _ in range(3)]
    bench.opened()
    bench.channel.backlog_told(2)
    assert bench.credit() == (1, 0, 0, 3)
    for lease, floating in zip(taken, (1, 2, 2), strict=True):
        assert lease is not None
        lease.release()
        assert bench.credit()[1] == floating
    assert len(bench.pool._listeners) == 0
    assert len(bench.pool.free) == 1
    assert bench.link.session.credited == [1]  # only the step from 0
    bench.channel.release()


def test_offered_buffer_is_refused_when_the_need_has_gone(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=1, floating=1)
    lease = bench.pool.try_request()
    assert lease is not None
    bench.opened()
    bench.channel.backlog_told(1)
    bench.channel.backlog_told(0)
    bench.channel.check()
    lease.release()
    assert bench.credit() == (1, 0, 0, 1)
    assert len(bench.pool.free) == 1
    bench.channel.backlog_told(1)  # it may listen or take again
    assert bench.credit() == (1, 1, 1, 2)
    bench.channel.release()


def test_returning_exclusive_buffer_sends_a_surplus_floating_one_home(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=1, floating=2)
    bench.opened()
    bench.arrive(backlog=1)
    assert bench.credit() == (0, 2, 2, 2)
    bench.channel.take_credit()
    bench.arrive(backlog=0)
    assert bench.credit() == (0, 1, 0, 1)
    bench.consume()  # the exclusive one: one came, one goes
    assert bench.credit() == (1, 0, 0, 1)
    assert bench.pool.lent == 1  # the one in the queue
    bench.consume()
    bench.channel.release()


# Credit.


def test_only_the_step_from_zero_is_told_and_taking_resets(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=3, floating=0)
    bench.opened()
    for _ in range(3):
        bench.arrive()
    for _ in range(2):
        bench.consume()
    assert bench.link.session.credited == [1]
    assert bench.channel.take_credit() == 2 and bench.channel.take_credit() == 0
    bench.consume()
    assert bench.link.session.credited == [1, 1]
    assert bench.channel.take_credit() == 1
    bench.channel.release()


def test_buffer_that_was_not_announced_is_not_given_away(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=1, floating=0)
    bench.opened()
    bench.arrive()
    bench.consume()
    assert bench.credit() == (1, 0, 1, 1)
    assert bench.channel.room_for(1) is None  # the sender cannot know of it yet
    bench.channel.take_credit()
    lease = bench.channel.room_for(1)
    assert lease is not None
    lease.release()
    bench.channel.release()


# Arrival.


def test_gate_is_told_when_the_queue_was_empty(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=3)
    bench.opened()
    bench.arrive(b"1")
    bench.arrive(b"2")
    assert bench.ready == [3]
    got = [bench.channel.next(), bench.channel.next()]
    assert [taken and (bytes(taken.buffer.view), taken.more) for taken in got] == [
        (b"1", True),
        (b"2", False),
    ]
    assert bench.channel.next() is None
    for taken in got:
        assert taken is not None
        taken.buffer.release()
    bench.arrive(b"3")
    assert bench.ready == [3, 3]
    bench.channel.release()


@pytest.mark.parametrize("sequence", [0, 2, 7])
def test_any_other_sequence_number_is_refused_with_its_facts(
    make_pool: MakePool, sequence: int
) -> None:
    bench = Bench(make_pool)
    bench.opened()
    bench.arrive()
    with pytest.raises(SequenceGap) as caught:
        bench.channel.buffer_arrived(sequence, 0, Buffer(b"x"))
    error = caught.value
    assert (error.channel, error.expected, error.got, error.peer) == (9, 1, sequence, "producer")
    bench.channel.release()


def test_empty_buffer_advances_sequence_and_backlog_and_takes_none(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=1, floating=2)
    bench.opened()
    bench.arrive(b"", backlog=1)
    assert bench.credit() == (1, 1, 1, 2)
    assert bench.ready == [] and bench.channel.next() is None
    bench.arrive(b"x")  # number 1
    assert bench.channel.statistics().buffers_in == 1
    bench.channel.release()


def test_bytes_and_buffers_are_counted_with_events(make_pool: MakePool) -> None:
    bench = Bench(make_pool)
    bench.opened()
    bench.arrive(b"123")
    bench.channel.buffer_arrived(1, 0, Buffer(b"\x01", is_event=True))
    counted = bench.channel.statistics()
    assert (counted.bytes_in, counted.buffers_in, counted.queued) == (4, 2, 2)
    bench.channel.release()


def test_statistics_tell_what_is_queued_announced_and_in_use(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=2, floating=2)
    bench.opened()
    bench.arrive(b"123", backlog=2)
    seen = bench.channel.statistics()
    assert (seen.queued, seen.queued_bytes, seen.backlog) == (1, 3, 2)
    assert (seen.exclusive, seen.exclusive_free, seen.floating_free) == (2, 1, 2)
    assert seen.credit == 3 - bench.channel.unannounced, "what the producer knows of"
    bench.channel.release()
    seen = bench.channel.statistics()
    assert (seen.backlog, seen.credit, seen.exclusive) == (0, 0, 0), "nobody sends any more"


def test_first_error_is_kept_and_raised_after_what_had_arrived(make_pool: MakePool) -> None:
    bench = Bench(make_pool)
    bench.opened()
    bench.arrive(b"1")
    bench.channel.failed(PeerLost(PeerName("producer"), "first"))
    bench.channel.failed(PeerLost(PeerName("producer"), "second"))
    assert bench.ready == [3, 3]
    got = bench.channel.next()
    assert got is not None and got.more
    got.buffer.release()
    for _ in range(2):
        with pytest.raises(PeerLost, match="first"):
            bench.channel.next()
    bench.channel.release()


# Retry.


def test_missing_partition_is_asked_for_again_with_all_free_buffers(make_pool: MakePool) -> None:
    bench = Bench(make_pool)
    bench.opened()
    bench.channel.partition_missing(PartitionNotFound(P))
    assert bench.link.session.requests == [2]
    bench.timers.pass_ms(10)
    assert bench.link.session.requests == [2, 2] and bench.link.attached == 1
    bench.channel.partition_missing(PartitionNotFound(P))
    bench.timers.pass_ms(20)
    bench.channel.partition_missing(PartitionNotFound(P))
    assert bench.timers.pauses == [10, 20]
    with pytest.raises(PartitionNotFound):
        bench.channel.next()
    bench.channel.release()


def test_channel_released_during_a_pause_asks_no_more(make_pool: MakePool) -> None:
    bench = Bench(make_pool)
    bench.opened()
    bench.channel.partition_missing(PartitionNotFound(P))
    bench.channel.release()
    bench.timers.pass_ms(10)
    assert bench.link.session.requests == [2]


# Blocked: exclusive, floating, unannounced, wanted.


def test_blocked_channel_promises_nothing_and_gives_back_what_it_has_not_promised(
    make_pool: MakePool,
) -> None:
    bench = Bench(make_pool, exclusive=2, floating=4)
    channel = bench.opened()
    channel.backlog_told(3)
    assert bench.credit() == (2, 3, 3, 5)
    channel.block()
    channel.block()
    channel.check()
    assert bench.credit() == (2, 0, 0, 5) and bench.pool.lent == 0
    assert channel.take_credit() == 0
    channel.unblock()
    channel.unblock()
    channel.check()
    assert bench.credit() == (2, 3, 3, 5), "it borrows again what the backlog needs"
    assert channel.take_credit() == 3
    channel.release()


def test_blocked_channel_keeps_what_it_has_promised_and_what_comes_for_it(
    make_pool: MakePool,
) -> None:
    bench = Bench(make_pool, exclusive=2, floating=4)
    channel = bench.opened()
    channel.backlog_told(2)
    assert channel.take_credit() == 2
    channel.block()
    assert bench.credit() == (2, 2, 0, 4), "all four were promised"
    before = len(bench.link.session.credited)
    for _ in range(4):
        bench.arrive(backlog=9)
    assert bench.credit() == (0, 0, 0, 11), "nothing new is borrowed"
    assert [buffer.size for buffer in channel.queued()] == [1] * 4
    for _ in range(4):
        bench.consume()
    assert bench.credit() == (2, 0, 2, 11) and len(bench.link.session.credited) == before
    assert channel.take_credit() == 0, "it had asked for a turn before it was blocked"
    channel.unblock()
    assert len(bench.link.session.credited) == before + 1
    assert bench.credit() == (2, 4, 6, 11)
    channel.release()


def test_returning_exclusive_buffer_of_a_blocked_channel_sends_a_floating_one_home(
    make_pool: MakePool,
) -> None:
    bench = Bench(make_pool, exclusive=1, floating=2)
    channel = bench.opened()
    bench.arrive(backlog=2)
    assert channel.take_credit() == 2 and bench.credit() == (0, 2, 0, 3)
    channel.block()
    bench.consume()
    assert bench.credit() == (1, 1, 0, 3), "the promise of one is kept by the other"
    channel.unblock()
    channel.release()


def test_blocked_channel_leaves_the_queue_for_floating_buffers(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=1, floating=1)
    channel, other = bench.opened(), bench.pool.try_request()
    assert other is not None
    channel.backlog_told(4)
    assert len(bench.pool._listeners) == 1
    channel.block()
    assert len(bench.pool._listeners) == 0
    assert channel.buffer_offered(other) is OfferAnswer.REFUSED
    channel.unblock()
    assert len(bench.pool._listeners) == 1
    other.release()
    assert bench.credit() == (1, 1, 1, 5)
    channel.release()


def test_channel_that_is_blocked_before_its_request_asks_with_no_credit(
    make_pool: MakePool,
) -> None:
    bench = Bench(make_pool, exclusive=2)
    bench.channel.block()
    bench.opened()
    assert bench.link.session.requests == [0]
    assert bench.credit() == (2, 0, 2, 2)
    bench.channel.unblock()
    assert bench.link.session.credited == [2] and bench.channel.take_credit() == 2
    bench.channel.release()


def test_channel_that_only_borrows_gives_buffers_back_with_what_they_hold(
    make_pool: MakePool,
) -> None:
    """Else the channels for which it waits could wait for these very buffers."""
    bench = Bench(make_pool, exclusive=0, floating=2)
    channel = bench.opened()
    channel.backlog_told(2)
    assert channel.take_credit() == 2
    bench.arrive(b"before", backlog=1)
    assert bench.pool.lent == 2
    channel.block()
    assert bench.pool.lent == 1
    bench.arrive(b"behind", backlog=7)
    assert bench.pool.lent == 0 and bench.credit() == (0, 0, 0, 7)
    assert [bytes(buffer.view) for buffer in channel.queued()] == [b"before", b"behind"]
    channel.unblock()
    assert bench.credit() == (0, 2, 2, 7)
    assert [bench.consume() for _ in range(2)] == [b"before", b"behind"]
    channel.release()


def test_without_credit_a_blocked_channel_only_waits(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=0, floating=1, credit=False)
    channel = bench.opened()
    channel.block()
    bench.arrive(b"x")
    assert bench.pool.lent == 1, "nothing is copied aside without end"
    assert channel.room_for(1) is None
    channel.unblock()
    assert bench.consume() == b"x"
    channel.release()
    channel.block()
    channel.unblock()


# Barriers and arrivals.


def test_barriers_are_told_when_they_arrive_wherever_they_stand(make_pool: MakePool) -> None:
    bench = Bench(make_pool)
    channel = bench.opened()
    events = [CancelMarker(1), CheckpointBarrier(2, 0), CheckpointBarrier(3, 0)]
    for number, event in enumerate(events[:2]):
        channel.buffer_arrived(number, 0, Buffer(encode_event(event), is_event=True))
    assert bench.announced == [(2, False)]
    assert channel.next() is not None and channel.next() is not None
    channel.buffer_arrived(2, 0, Buffer(encode_event(events[2]), is_event=True))
    assert bench.announced == [(2, False), (3, True)] and bench.ready == [3, 3]
    broken = encode_event(events[2])[:-1] + b"\x63"
    channel.buffer_arrived(3, 0, Buffer(broken, is_event=True))  # its reader will say so
    assert len(bench.announced) == 2
    channel.release()


def test_arrivals_are_told_before_they_can_be_read(make_pool: MakePool) -> None:
    bench = Bench(make_pool)
    channel, arrived = bench.opened(), []

    def record(index: int, buffer: Buffer) -> None:
        arrived.append((index, bytes(buffer.view), len(channel.queued())))

    bench.arrive(b"nobody listens")
    bench.on_arrived = record
    bench.arrive(b"x")
    bench.arrive(b"")
    assert arrived == [(3, b"x", 1)], "an empty one is nothing"
    channel.release()


# Release: make_pool asserts that everything is back.


def test_release_tells_the_connection_once(make_pool: MakePool) -> None:
    bench = Bench(make_pool)
    bench.opened()
    bench.channel.release()
    bench.channel.release()
    assert bench.link.session.cancels == [9]
    assert bench.link.detached == 1


def test_released_channel_refuses_offers_and_ignores_errors(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=0, floating=1)
    lease = bench.pool.try_request()
    bench.opened()
    bench.channel.backlog_told(1)
    bench.channel.release()
    assert len(bench.pool._listeners) == 0
    bench.channel.failed(PeerLost(PeerName("producer"), "late"))
    assert lease is not None
    bench.channel.wanted = 1
    assert bench.channel.buffer_offered(lease) is OfferAnswer.REFUSED
    lease.release()
    assert bench.ready == [] and bench.credit()[:2] == (0, 0)
    bench.channel.check()


def test_release_after_the_gates_pool_was_destroyed_gives_all_back(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=1, floating=1)
    bench.opened()
    bench.arrive(backlog=5)
    bench.pool.destroy()
    bench.channel.backlog_told(7)
    bench.channel.release()


def test_claim_that_is_still_owed_is_given_up_by_the_release(make_pool: MakePool) -> None:
    pool = make_pool(4)
    local = pool.create_pool("other", 0, 4)
    leases = [local.try_request() for _ in range(3)]
    bench = Bench(make_pool)
    bench.channel.release()
    channel = RemoteChannel(
        0,
        ChannelId(1),
        P,
        0,
        ("host", 1),
        bench,
        Backoff(0, 0),
        RemoteServices(bench.link, bench.timers.later, uses_credit=True),  # type: ignore[arg-type]
    )
    channel.assign_pools(pool, pool.create_pool("gate", 0, 0), 2)
    assert credit_of(channel).exclusive == 1  # the other is still out
    channel.release()
    for lease in leases:
        assert lease is not None
        lease.release()


# Without credit: the socket is the brake.


def test_without_credit_buffers_come_from_the_gates_pool_as_data_comes(make_pool: MakePool) -> None:
    bench = Bench(make_pool, exclusive=0, floating=1, credit=False)
    bench.opened()
    bench.arrive(b"1", backlog=9)
    assert len(bench.pool._listeners) == 0  # the backlog plays no part
    assert bench.channel.room_for(1) is None
    assert bench.channel.room_for(1) is None
    assert len(bench.pool._listeners) == 1
    bench.consume()
    assert bench.link.resumes == 1
    lease = bench.channel.room_for(1)
    assert lease is not None
    lease.release()
    bench.channel.release()
    assert bench.link.resumes == 2  # the link may have waited for this channel


def test_task_event_goes_through_the_session(make_pool: MakePool) -> None:
    bench = Bench(make_pool)
    bench.opened()
    bench.channel.send_event(TaskEvent())
    assert len(bench.link.session.events) == 1
    bench.channel.release()


def test_task_events_before_the_request_go_behind_it(make_pool: MakePool) -> None:
    bench = Bench(make_pool)
    first, second = TaskEvent(), TaskEvent()
    bench.channel.send_event(first)
    bench.channel.send_event(second)
    assert bench.link.session.events == []
    bench.opened()
    assert bench.link.session.events == [first, second]
    bench.channel.release()


def test_task_events_are_sent_again_until_a_request_finds_the_partition(
    make_pool: MakePool,
) -> None:
    bench = Bench(make_pool)
    session, early, late = bench.link.session, TaskEvent(), TaskEvent()
    bench.opened().send_event(early)
    bench.channel.partition_missing(PartitionNotFound(P))
    bench.channel.send_event(late)  # waits for the next request
    assert session.events == [early]
    bench.timers.pass_ms(10)
    assert session.events == [early, early, late]
    assert bench.channel.sends_event_again()  # the answer to the first one, which comes late
    assert not bench.channel.sends_event_again()
    bench.arrive(b"")
    bench.channel.partition_missing(PartitionNotFound(P))  # a peer that says so is wrong
    bench.timers.pass_ms(20)
    assert session.events == [early, early, late]
    bench.channel.release()


def test_only_so_many_task_events_are_kept_for_a_producer_to_come(make_pool: MakePool) -> None:
    bench = Bench(make_pool)
    for _ in range(MAX_KEPT_EVENTS):
        bench.channel.send_event(TaskEvent())
    with pytest.raises(EventsUnsent, match="'p'"):
        bench.channel.send_event(TaskEvent())
    bench.channel.release()


def test_events_that_nobody_reads_fill_a_channel(make_pool: MakePool) -> None:
    bench = Bench(make_pool)
    channel = bench.opened()
    data = encode_event(CancelMarker(1))
    count = 0
    assert channel.room_for_event(MAX_RUNTIME_EVENT_BYTES)
    while channel.room_for_event(len(data)):
        channel.buffer_arrived(count, 0, Buffer(data, is_event=True))
        count += 1
        assert count < 2000
    assert count > 500  # a slow reader may well leave hundreds of barriers unread
    assert channel.event_bytes() == count * (len(data) + 256)
    bench.consume()
    assert channel.room_for_event(len(data))
    while channel.next() is not None:
        pass
    assert channel.event_bytes() == 0
    channel.release()


# Attempts to reach the producer's process.


def test_a_peer_that_cannot_be_reached_is_tried_again_after_growing_pauses(
    make_pool: MakePool,
) -> None:
    bench = Bench(make_pool, retry_ms=10_000)
    bench.link.is_open = False
    bench.opened()
    for _ in range(3):
        bench.channel.unreachable(PeerLost(PeerName("producer"), "it closed the connection"))
        bench.timers.pass_ms(bench.timers.pauses[-1])
    assert bench.timers.pauses == [10_000, 50, 100, 200]
    assert (bench.link.attached, bench.link.detached) == (4, 3)
    assert bench.link.session.requests == [2, 2, 2, 2]
    bench.link.is_open = True
    bench.timers.pass_ms(10_000)
    assert bench.channel.failure() is None and bench.ready == []
    bench.channel.release()


def test_attempts_end_with_an_error_that_says_who_could_not_reach_whom(
    make_pool: MakePool,
) -> None:
    bench = Bench(make_pool, retry_ms=1000)
    bench.link.is_alive = bench.link.is_open = False
    bench.link.may_pass, bench.link.error = True, PeerLost(PeerName("host:1"), "it closed")
    bench.opened()
    for _ in range(40):
        bench.timers.pass_ms(50)
    attempts = bench.link.attached
    assert attempts < 10 and bench.link.detached == attempts
    error = bench.channel.failure()
    assert isinstance(error, ConnectFailed) and error.peer == "host:1"
    for fact in ("subpartition 5 of 'p'", "within 1000 ms", "attempts", "it closed"):
        assert fact in str(error)
    bench.channel.release()


def test_a_channel_that_was_released_does_not_try_again(make_pool: MakePool) -> None:
    bench = Bench(make_pool, retry_ms=1000)
    bench.opened()
    bench.channel.unreachable(PeerLost(PeerName("host:1"), "it closed"))
    bench.channel.release()
    bench.timers.pass_ms(1000)
    assert (bench.link.attached, bench.link.detached) == (1, 1)
    assert bench.channel.failure() is None


def test_an_attempt_for_which_there_is_no_memory_is_the_channels_error(
    make_pool: MakePool,
) -> None:
    bench = Bench(make_pool, retry_ms=1000)
    bench.opened()
    bench.channel.unreachable(PeerLost(PeerName("host:1"), "it closed"))

    def attach(address: object) -> FakeLink:
        raise InsufficientBuffers("the connection", 24, 0, 10)

    bench.link.attach = attach  # type: ignore[method-assign]
    bench.timers.pass_ms(50)
    assert isinstance(bench.channel.failure(), InsufficientBuffers)
    bench.channel.release()
