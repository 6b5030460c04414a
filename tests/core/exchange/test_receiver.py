"""The receiving end: what concerns one channel stays with it. Rows 100, 107, 116, 130-132."""

from dataclasses import dataclass, field

import pytest

from headgate.base.errors import (
    CreditOverdrawn,
    EventsOverdrawn,
    EventUnclaimed,
    HeadgateError,
    PartitionNotFound,
    PeerBrokeProtocol,
    PeerLost,
    PeerReported,
    PeerSilent,
    ProducerFailed,
    SequenceGap,
    UnknownReceiver,
)
from headgate.base.events import TaskEvent, encode_event
from headgate.base.ids import ChannelId, PartitionId, PeerName
from headgate.core.buffers.buffer import Buffer, Lease, Segment
from headgate.core.exchange.decoder import NoLease
from headgate.core.exchange.frames import (
    MAX_GRANTS,
    AddCredit,
    Alive,
    Backlog,
    CancelReceiver,
    ErrorCode,
    ErrorReport,
    Message,
    PartitionRequest,
    TaskEventRequest,
)
from headgate.core.exchange.outbox import CLOG_BYTES, Outbox
from headgate.core.exchange.receiver import MOST_EVENT_BYTES, ReceiverSession
from tests.arena import plain_segments
from tests.core.exchange.kit import parse

PEER = PeerName("producer")
P = PartitionId("p")


class Ping(TaskEvent):
    __slots__ = ()


@dataclass
class FakeChannel:
    """Remembers what it is told; has one buffer for each of its segments."""

    id: ChannelId
    segments: list[Segment] = field(default_factory=list)
    credit: int = 0
    expected: int = 0
    arrived: list[bytes] = field(default_factory=list)
    backlogs: list[int] = field(default_factory=list)
    missing: list[PartitionNotFound] = field(default_factory=list)
    errors: list[HeadgateError] = field(default_factory=list)
    unreached: list[HeadgateError] = field(default_factory=list)
    most_event_bytes: int = 1000
    waiting_event_bytes: int = 7
    refused_events: int = 0

    def room_for_event(self, size: int) -> bool:
        return size <= self.most_event_bytes

    def event_bytes(self) -> int:
        return self.waiting_event_bytes

    def sends_event_again(self) -> bool:
        self.refused_events -= 1
        return self.refused_events >= 0

    def unreachable(self, error: HeadgateError) -> None:
        self.unreached.append(error)

    def room_for(self, size: int) -> Lease | None:
        return Lease(self.segments.pop(), self) if self.segments else None

    def buffer_arrived(self, sequence: int, backlog: int, buffer: Buffer) -> None:
        if sequence != self.expected:
            buffer.release()
            raise SequenceGap(PEER, self.id, self.expected, sequence)
        self.expected += 1
        self.arrived.append(bytes(buffer.view))
        buffer.release()

    def backlog_told(self, backlog: int) -> None:
        self.backlogs.append(backlog)

    def partition_missing(self, error: PartitionNotFound) -> None:
        self.missing.append(error)

    def failed(self, error: HeadgateError) -> None:
        self.errors.append(error)

    def take_credit(self) -> int:
        credit, self.credit = self.credit, 0
        return credit

    def segment_returned(self, segment: Segment) -> None:
        self.segments.append(segment)


@dataclass
class Desk:
    uses_credit: bool = True
    opened: bool = True
    wakes: int = 0

    def __post_init__(self) -> None:
        self.outbox = Outbox(10_000, 20_000)
        self.session = ReceiverSession(self.outbox, PEER, self._wake, uses_credit=self.uses_credit)
        if self.opened:
            self.session.opened()

    def channel(self, number: int, segments: int = 0, credit: int = 0) -> FakeChannel:
        channel = FakeChannel(ChannelId(number), plain_segments(segments))
        self.session.request(channel, P, 0, credit)
        return channel

    def said(self) -> list[object]:
        stream = b"".join(self.outbox.gather())
        self.outbox.sent(len(stream))
        return list(parse(stream))

    def pump(self) -> list[object]:
        self.said()
        self.session.pump(16)
        return self.said()

    def arrive(self, number: int, sequence: int, data: bytes, lease: Lease | None = None) -> None:
        self.session.buffer_received(ChannelId(number), sequence, 0, Buffer(data, lease))

    def _wake(self) -> None:
        self.wakes += 1


def test_request_tells_partition_receiver_and_credit() -> None:
    desk = Desk()
    desk.session.request(FakeChannel(ChannelId(4)), P, 3, 2)
    assert desk.said() == [PartitionRequest(ChannelId(4), 2, 3, P)]


def test_what_is_said_before_the_handshake_is_over_waits_for_it() -> None:
    desk = Desk(opened=False)
    channel = desk.channel(1)
    desk.session.send_event(channel, P, Ping())
    desk.session.cancel(channel)
    assert desk.said() == []
    desk.session.opened()
    assert [type(message) for message in desk.said()] == [
        PartitionRequest,
        TaskEventRequest,
        CancelReceiver,
    ]


def test_task_event_goes_to_the_producer_of_a_partition() -> None:
    desk = Desk()
    channel = desk.channel(1)
    desk.said()
    desk.session.send_event(channel, P, Ping())
    assert desk.said() == [TaskEventRequest(ChannelId(1), P, encode_event(Ping()))]


# Credit.


def test_new_credit_of_a_channel_goes_in_one_message() -> None:
    desk = Desk()
    channel = desk.channel(1)
    channel.credit = 5
    desk.session.credit_grew(channel)
    assert desk.session.has_work
    assert desk.pump() == [AddCredit(((ChannelId(1), 5),))]
    assert not desk.session.has_work
    assert desk.pump() == []


def test_channels_with_credit_are_announced_in_their_order() -> None:
    desk = Desk()
    channels = [desk.channel(number) for number in (3, 1, 2)]
    for channel in channels:
        channel.credit = 1
        desk.session.credit_grew(channel)
    assert desk.pump() == [AddCredit(((ChannelId(3), 1), (ChannelId(1), 1), (ChannelId(2), 1)))]


def test_one_message_holds_no_more_grants_than_the_peer_accepts() -> None:
    desk = Desk()
    for number in range(MAX_GRANTS + 1):
        channel = desk.channel(number)
        channel.credit = 1
        desk.session.credit_grew(channel)
    desk.outbox.close()
    desk.outbox.writable = True
    assert [len(message.grants) for message in desk.pump()] == [MAX_GRANTS]  # type: ignore[attr-defined]
    assert [len(message.grants) for message in desk.pump()] == [1]  # type: ignore[attr-defined]


def test_credit_waits_while_the_connection_is_not_writable() -> None:
    desk = Desk()
    channel = desk.channel(1)
    channel.credit = 1
    desk.session.credit_grew(channel)
    desk.said()
    desk.outbox.writable = False
    desk.session.pump(16)
    assert desk.outbox.pending_bytes == 0 and channel.credit == 1
    desk.outbox.writable = True
    assert desk.pump() == [AddCredit(((ChannelId(1), 1),))]


def test_credit_of_a_released_channel_is_not_announced() -> None:
    desk = Desk()
    released, kept = desk.channel(1), desk.channel(2)
    for channel in (released, kept):
        channel.credit = 1
        desk.session.credit_grew(channel)
    desk.session.cancel(released)
    assert desk.pump() == [AddCredit(((ChannelId(2), 1),))]


def test_credit_that_is_gone_by_now_is_not_announced() -> None:
    desk = Desk()
    channel = desk.channel(1)
    desk.session.credit_grew(channel)
    assert desk.pump() == []


def test_without_credit_control_none_is_announced() -> None:
    desk = Desk(uses_credit=False)
    channel = desk.channel(1)
    channel.credit = 1
    desk.session.credit_grew(channel)
    assert desk.pump() == [] and not desk.session.has_work


# Buffers.


def test_data_gets_a_promised_buffer_and_events_none() -> None:
    desk = Desk()
    channel = desk.channel(1, segments=1)
    assert desk.session.buffer_announced(ChannelId(1), 9, True) is NoLease.UNPOOLED
    lease = desk.session.buffer_announced(ChannelId(1), 9, False)
    assert isinstance(lease, Lease) and channel.segments == []


def test_data_without_credit_concerns_its_channel_alone() -> None:
    desk = Desk()
    channel, other = desk.channel(1), desk.channel(2, segments=1)
    desk.said()
    assert desk.session.buffer_announced(ChannelId(1), 9, False) is NoLease.SKIP
    (error,) = channel.errors
    assert isinstance(error, CreditOverdrawn) and error.peer == PEER
    assert desk.said() == [CancelReceiver(ChannelId(1))]
    assert other.errors == []
    assert isinstance(desk.session.buffer_announced(ChannelId(2), 9, False), Lease)


def test_data_without_room_waits_where_the_socket_is_the_brake() -> None:
    desk = Desk(uses_credit=False)
    channel = desk.channel(1)
    assert desk.session.buffer_announced(ChannelId(1), 9, False) is NoLease.LATER
    assert channel.errors == []


def test_buffer_for_a_released_channel_is_dropped() -> None:
    desk = Desk()
    released, home = desk.channel(1), FakeChannel(ChannelId(9))
    desk.session.cancel(released)
    assert desk.session.buffer_announced(ChannelId(1), 9, False) is NoLease.SKIP
    (segment,) = plain_segments(1)
    desk.arrive(1, 0, b"x", Lease(segment, home))
    assert released.arrived == [] and home.segments == [segment]


def test_message_for_a_channel_that_never_was_is_an_error() -> None:
    desk = Desk()
    desk.channel(1)
    with pytest.raises(UnknownReceiver) as caught:
        desk.session.buffer_announced(ChannelId(2), 9, False)
    assert caught.value.receiver == 2
    with pytest.raises(UnknownReceiver):
        desk.arrive(2, 0, b"")
    with pytest.raises(UnknownReceiver):
        desk.session.message_received(Backlog(ChannelId(2), 1))
    with pytest.raises(UnknownReceiver):
        desk.session.message_received(ErrorReport(ChannelId(2), 1, P, ""))


def test_buffer_for_a_stranger_goes_home_before_the_error() -> None:
    desk, home = Desk(), FakeChannel(ChannelId(9))
    (segment,) = plain_segments(1)
    with pytest.raises(UnknownReceiver):
        desk.arrive(2, 0, b"x", Lease(segment, home))
    assert home.segments == [segment]


def test_sequence_gap_concerns_its_channel_alone_and_frees_the_buffer() -> None:
    desk, home = Desk(), FakeChannel(ChannelId(9))
    channel, other = desk.channel(1), desk.channel(2)
    desk.said()
    (segment,) = plain_segments(1)
    desk.arrive(1, 0, b"0")
    desk.arrive(1, 2, b"2", Lease(segment, home))
    (error,) = channel.errors
    assert isinstance(error, SequenceGap)
    assert (error.channel, error.expected, error.got) == (1, 1, 2)
    assert home.segments == [segment]
    assert desk.said() == [CancelReceiver(ChannelId(1))]
    desk.arrive(2, 0, b"x")
    assert other.arrived == [b"x"] and other.errors == []


def test_backlog_is_told_to_its_channel() -> None:
    desk = Desk()
    channel = desk.channel(1)
    desk.session.message_received(Backlog(ChannelId(1), 7))
    assert channel.backlogs == [7]


# Errors.


def test_missing_partition_is_told_as_something_to_retry() -> None:
    desk = Desk()
    channel = desk.channel(1)
    report = ErrorReport(ChannelId(1), ErrorCode.PARTITION_NOT_FOUND, P, "not here")
    desk.session.message_received(report)
    (error,) = channel.missing
    assert error.partition == P and PEER in str(error)
    assert channel.errors == [] and ChannelId(1) in desk.session.channels


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.PRODUCER_FAILED, ProducerFailed),
        (ErrorCode.EVENT_UNCLAIMED, EventUnclaimed),
        (ErrorCode.INTERNAL, PeerReported),
        (99, PeerReported),
    ],
)
def test_error_for_one_channel_is_told_to_it_alone(code: int, kind: type[HeadgateError]) -> None:
    desk = Desk()
    channel, other = desk.channel(1), desk.channel(2)
    desk.session.message_received(ErrorReport(ChannelId(1), code, P, "why it was"))
    assert [type(error) for error in channel.errors] == [kind]
    assert other.errors == []


def test_producers_failure_arrives_with_its_cause() -> None:
    desk = Desk()
    channel = desk.channel(1)
    report = ErrorReport(ChannelId(1), ErrorCode.PRODUCER_FAILED, P, "division by zero")
    desk.session.message_received(report)
    (error,) = channel.errors
    assert isinstance(error, ProducerFailed)
    assert error.partition == P and "division by zero" in error.cause


def test_channel_whose_producer_failed_is_not_cancelled_again() -> None:
    desk = Desk()
    channel = desk.channel(1)
    desk.session.message_received(ErrorReport(ChannelId(1), ErrorCode.PRODUCER_FAILED, P, ""))
    desk.said()
    desk.session.cancel(channel)
    assert desk.said() == []


def test_error_for_the_whole_connection_is_raised() -> None:
    desk = Desk()
    desk.channel(1)
    with pytest.raises(PeerReported, match="all is lost"):
        desk.session.message_received(ErrorReport(None, ErrorCode.PROTOCOL, P, "all is lost"))


def test_end_of_the_connection_is_told_to_every_channel_once() -> None:
    desk = Desk()
    channels = [desk.channel(1), desk.channel(2)]
    channels[0].credit = 1
    desk.session.credit_grew(channels[0])
    why = PeerLost(PEER, "gone")
    desk.session.fail(why)
    desk.session.fail(PeerLost(PEER, "again"))
    assert [channel.errors for channel in channels] == [[why], [why]]
    assert desk.pump() == []


@pytest.mark.parametrize("message", [Alive(), CancelReceiver(ChannelId(1))])
def test_message_for_the_other_side_breaks_the_protocol(message: Message) -> None:
    with pytest.raises(PeerBrokeProtocol, match="not for the receiving side"):
        Desk().session.message_received(message)


def test_cancel_is_sent_once() -> None:
    desk = Desk()
    channel = desk.channel(1)
    desk.said()
    desk.session.cancel(channel)
    desk.session.cancel(channel)
    assert desk.said() == [CancelReceiver(ChannelId(1))]


def test_an_event_for_which_its_channel_has_no_room_ends_that_channel_alone() -> None:
    desk = Desk()
    channel, other = desk.channel(1), desk.channel(2)
    channel.most_event_bytes = 8
    assert desk.session.buffer_announced(ChannelId(1), 9, True) is NoLease.SKIP
    (error,) = channel.errors
    assert isinstance(error, EventsOverdrawn)
    assert (error.channel, error.waiting) == (1, 7)
    assert desk.said()[-1] == CancelReceiver(ChannelId(1))
    assert desk.session.buffer_announced(ChannelId(2), 9, True) is NoLease.UNPOOLED
    assert other.errors == []


def test_events_of_all_channels_together_are_bounded_too() -> None:
    desk = Desk()
    greedy, modest = desk.channel(1), desk.channel(2)
    greedy.waiting_event_bytes = MOST_EVENT_BYTES
    assert desk.session.buffer_announced(ChannelId(2), 9, True) is NoLease.UNPOOLED
    assert desk.session.buffer_announced(ChannelId(1), 9, True) is NoLease.SKIP
    assert [type(error) for error in greedy.errors] == [EventsOverdrawn]
    assert modest.errors == []


def test_a_refused_event_that_its_channel_sends_again_is_no_error() -> None:
    desk = Desk()
    channel = desk.channel(1)
    channel.refused_events = 1
    report = ErrorReport(ChannelId(1), ErrorCode.EVENT_UNCLAIMED, P, "nobody")
    desk.session.message_received(report)
    assert channel.errors == []
    desk.session.message_received(report)
    assert [type(error) for error in channel.errors] == [EventUnclaimed]


def test_a_connection_that_never_came_about_gives_its_channels_back() -> None:
    desk = Desk(opened=False)
    channel = desk.channel(1)
    error = PeerLost(PEER, "it closed the connection")
    desk.session.fail(error, may_pass=True)
    assert (channel.unreached, channel.errors) == ([error], [])
    assert desk.session.channels == {}


def test_a_task_event_is_refused_where_the_peer_takes_nothing() -> None:
    desk = Desk()
    channel = desk.channel(1)
    while not desk.outbox.is_clogged:
        desk.session.send_event(channel, P, Ping())
    with pytest.raises(PeerSilent, match="takes no task event"):
        desk.session.send_event(channel, P, Ping())
    assert desk.outbox.pending_bytes < CLOG_BYTES + 1000


def test_a_backlog_where_credit_is_not_used_breaks_the_protocol() -> None:
    desk = Desk(uses_credit=False)
    channel = desk.channel(1)
    with pytest.raises(PeerBrokeProtocol, match="credit is not used"):
        desk.session.message_received(Backlog(ChannelId(1), 5))
    assert channel.backlogs == []


def test_a_channel_that_raises_does_not_keep_the_others_from_trying_again() -> None:
    desk = Desk(opened=False)
    broken, sound = desk.channel(1), desk.channel(2)

    def refuse(error: HeadgateError) -> None:
        raise ValueError("a bug")

    broken.unreachable = refuse  # type: ignore[method-assign]
    error = PeerLost(PEER, "it closed the connection")
    with pytest.raises(ValueError, match="a bug"):
        desk.session.fail(error, may_pass=True)
    assert sound.unreached == [error]
