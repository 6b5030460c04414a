"""The sending end: credit, fairness, errors of single readers. Rows 116-118, 120-129, 138-140."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from headgate.base.errors import (
    PartitionNotFound,
    PeerBrokeProtocol,
    TooManyReceivers,
    UnknownReceiver,
)
from headgate.base.events import END_OF_PARTITION, TaskEvent, encode_event
from headgate.base.ids import ChannelId, PartitionId, PeerName
from headgate.core.buffers.buffer import Buffer
from headgate.core.egress.registry import EventDispatcher
from headgate.core.exchange.frames import (
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
from headgate.core.exchange.outbox import Outbox
from headgate.core.exchange.sender import MAX_CREDIT, SenderSession
from headgate.core.exchange.view import PolledBuffer
from tests.core.exchange.kit import Deflate, parse

PEER = PeerName("consumer")
A, B, C = ChannelId(1), ChannelId(2), ChannelId(3)
P = PartitionId("p")


class FakeView:
    """A queue of payloads; texts are data, None is an event."""

    def __init__(self, on_data: Callable[[], None]) -> None:
        self.on_data = on_data
        self.queue: deque[bytes | None] = deque()
        self.is_released = False
        self.failure: Exception | None = None
        self.releases = 0

    def put(self, *payloads: bytes | None) -> None:
        self.queue.extend(payloads)
        self.on_data()

    def poll(self) -> PolledBuffer | None:
        if self.is_released or not self.queue:
            return None
        payload = self.queue.popleft()
        event = encode_event(END_OF_PARTITION)
        buffer = Buffer(event, is_event=True) if payload is None else Buffer(payload)
        return PolledBuffer(buffer, bool(self.queue), self.backlog, self._next_is_event())

    def take_references(self) -> None:
        pass

    def available(self, has_credit: bool) -> bool:
        return bool(self.queue) and (has_credit or self._next_is_event())

    @property
    def backlog(self) -> int:
        return sum(payload is not None for payload in self.queue)

    def fail(self, why: Exception | None) -> None:
        self.is_released, self.failure = True, why
        self.queue.clear()
        self.on_data()

    def release(self) -> None:
        self.is_released = True
        self.releases += 1

    def _next_is_event(self) -> bool:
        return bool(self.queue) and self.queue[0] is None


class Ping(TaskEvent):
    __slots__ = ()


@dataclass
class Desk:
    """A session with its surroundings: partitions are made at the first request."""

    uses_credit: bool = True
    codec: Deflate | None = None
    views: list[FakeView] = field(default_factory=list)
    missing: bool = False
    broken: Exception | None = None
    wakes: int = 0

    def __post_init__(self) -> None:
        self.outbox = Outbox(1000, 2000)
        self.events = EventDispatcher()
        self.session = SenderSession(
            self,
            self.events,
            self.outbox,
            PEER,
            self._wake,
            uses_credit=self.uses_credit,
            codec=self.codec,
        )

    def create_view(
        self, partition: PartitionId, subpartition: int, on_data: Callable[[], None]
    ) -> FakeView:
        if self.missing:
            raise PartitionNotFound(partition)
        if self.broken is not None:
            raise self.broken
        self.views.append(FakeView(on_data))
        return self.views[-1]

    def ask(self, receiver: ChannelId, credit: int) -> FakeView:
        self.session.message_received(PartitionRequest(receiver, credit, 0, P))
        return self.views[-1]

    def grant(self, receiver: ChannelId, credit: int) -> None:
        self.session.message_received(AddCredit(((receiver, credit),)))

    def credit(self, receiver: ChannelId) -> int:
        return self.session.readers[receiver].credit

    def pump(self, frames: int = 100) -> list[tuple[int, int, int, int, bytes] | Message]:
        """What goes out: (receiver, sequence, backlog, flags, payload) or a message."""
        self.session.pump(frames)
        self.session.check()
        stream = b"".join(self.outbox.gather())
        self.outbox.sent(len(stream))
        return parse(stream)

    def receivers(self, frames: int = 100) -> list[int]:
        return [frame[0] for frame in self.pump(frames) if isinstance(frame, tuple)]

    def _wake(self) -> None:
        self.wakes += 1


# Credit.


def test_every_data_buffer_costs_one_credit_and_stops_at_none() -> None:
    desk = Desk()
    desk.ask(A, 2).put(b"0", b"1", b"2")
    assert desk.pump() == [(A, 0, 2, 0, b"0"), (A, 1, 1, 0, b"1")]
    assert desk.credit(A) == 0
    assert desk.pump() == []


def test_events_are_free_and_go_without_credit() -> None:
    desk = Desk()
    desk.ask(A, 1).put(b"0", None, None, b"1")
    assert [frame[1:4] for frame in desk.pump()] == [(0, 1, 0), (1, 1, 1), (2, 1, 1)]  # type: ignore[index]
    assert desk.credit(A) == 0


def test_empty_buffer_advances_the_sequence_and_costs_nothing() -> None:
    desk = Desk()
    desk.ask(A, 1).put(b"", b"", b"0")
    assert desk.pump() == [(A, 0, 2, 0, b""), (A, 1, 1, 0, b""), (A, 2, 0, 0, b"0")]
    assert desk.credit(A) == 0


def test_message_may_grant_several_receivers() -> None:
    desk = Desk()
    for receiver in (A, B):
        desk.ask(receiver, 1)
    desk.session.message_received(AddCredit(((A, 2), (B, 3))))
    assert (desk.credit(A), desk.credit(B)) == (3, 4)


@pytest.mark.parametrize("credit", [0, MAX_CREDIT])
def test_senseless_credit_breaks_the_protocol(credit: int) -> None:
    desk = Desk()
    desk.ask(A, 1)
    with pytest.raises(PeerBrokeProtocol, match=f"{credit} credits for channel 1"):
        desk.grant(A, credit)


def test_without_credit_control_nothing_is_counted() -> None:
    desk = Desk(uses_credit=False)
    desk.ask(A, 0).put(b"0", b"1", b"2")
    assert desk.receivers() == [A, A, A]
    assert desk.credit(A) == MAX_CREDIT


# Order of readers.


def test_readers_take_turns_buffer_by_buffer() -> None:
    desk = Desk()
    for receiver in (A, B, C):
        desk.ask(receiver, 9).put(b"x", b"x", b"x")
    assert desk.receivers() == [A, B, C, A, B, C, A, B, C]


def test_pump_moves_no_more_frames_than_it_may() -> None:
    desk = Desk()
    desk.ask(A, 9).put(b"x", b"x", b"x")
    assert desk.receivers(2) == [A, A]
    assert desk.session.has_work
    assert desk.receivers(2) == [A]
    assert not desk.session.has_work


def test_nothing_is_written_while_the_connection_is_not_writable() -> None:
    desk = Desk()
    desk.outbox.writable = False
    desk.ask(A, 1).put(b"x")
    desk.session.pump(9)
    assert desk.outbox.pending_bytes == 0 and desk.session.has_work
    desk.outbox.writable = True
    assert desk.receivers() == [A]


def test_data_that_was_there_before_the_request_goes_at_once() -> None:
    desk = Desk()

    class Ready(FakeView):
        def __init__(self, on_data: Callable[[], None]) -> None:
            super().__init__(on_data)
            self.put(b"x")  # the view tells of data while it is being made

    desk.create_view = lambda partition, index, on_data: Ready(on_data)  # type: ignore[method-assign]
    desk.session.message_received(PartitionRequest(A, 1, 0, P))
    assert desk.receivers() == [A]


# Backlog for receivers without exclusive buffers.


def test_backlog_is_announced_once_per_need_when_credit_began_at_zero() -> None:
    desk = Desk()
    view = desk.ask(A, 0)
    view.put(b"0")
    view.put(b"1")
    assert desk.pump() == [Backlog(A, 1)]
    assert desk.pump() == []
    desk.grant(A, 1)
    assert desk.pump() == [(A, 0, 1, 0, b"0")]  # the buffer itself tells that one is left
    desk.grant(A, 1)
    assert desk.pump() == [(A, 1, 0, 0, b"1")]
    view.put(b"2")
    assert desk.pump() == [Backlog(A, 1)]


def test_backlog_is_not_announced_when_credit_began_above_zero() -> None:
    desk = Desk()
    view = desk.ask(A, 1)
    view.put(b"0")
    desk.pump()
    view.put(b"1")
    assert desk.pump() == []


def test_backlog_behind_an_event_is_announced_by_the_event() -> None:
    desk = Desk()
    desk.ask(A, 0).put(None, b"0")
    assert [frame[:4] for frame in desk.pump()] == [(A, 0, 1, 1)]  # type: ignore[index]
    assert desk.pump() == []


# Requests and their ends.


def test_partition_that_is_not_found_is_reported_to_that_receiver() -> None:
    desk = Desk(missing=True)
    desk.session.message_received(PartitionRequest(A, 1, 0, P))
    (report,) = desk.pump()
    assert isinstance(report, ErrorReport)
    assert (report.receiver, report.code) == (A, ErrorCode.PARTITION_NOT_FOUND)
    assert report.partition == P
    assert A not in desk.session.readers


def test_receiver_may_ask_again_after_not_found() -> None:
    desk = Desk(missing=True)
    desk.session.message_received(PartitionRequest(A, 1, 0, P))
    desk.grant(A, 1)  # sent before it knew; forgotten
    desk.pump()
    desk.missing = False
    desk.ask(A, 1).put(b"0", b"1")
    assert desk.receivers() == [A]


def test_partition_that_cannot_be_opened_is_reported_to_that_receiver() -> None:
    desk = Desk(broken=OSError("the disk is gone"))
    desk.session.message_received(PartitionRequest(A, 1, 0, P))
    (report,) = desk.pump()
    assert isinstance(report, ErrorReport)
    assert (report.receiver, report.code) == (A, ErrorCode.INTERNAL)
    assert "the disk is gone" in report.text


def test_receiver_that_asks_twice_breaks_the_protocol() -> None:
    desk = Desk()
    desk.ask(A, 1)
    with pytest.raises(PeerBrokeProtocol, match="channel 1 requested twice"):
        desk.ask(A, 1)


def test_released_view_reports_its_cause() -> None:
    desk = Desk()
    view = desk.ask(A, 1)
    view.fail(ValueError("the task broke"))
    (report,) = desk.pump()
    assert isinstance(report, ErrorReport)
    assert (report.receiver, report.code) == (A, ErrorCode.PRODUCER_FAILED)
    assert "the task broke" in report.text
    assert view.releases == 1


def test_released_view_without_a_cause_is_an_early_end() -> None:
    desk = Desk()
    desk.ask(A, 1).fail(None)
    (report,) = desk.pump()
    assert isinstance(report, ErrorReport) and "before all was read" in report.text


def test_view_released_while_its_reader_stands_in_the_queue_is_reported_once() -> None:
    desk = Desk()
    view = desk.ask(A, 1)
    other = desk.ask(B, 1)
    view.put(b"0")
    other.put(b"1")
    view.fail(None)
    reports = [frame for frame in desk.pump() if isinstance(frame, ErrorReport)]
    assert [report.receiver for report in reports] == [A]


def test_view_released_while_an_event_without_credit_waits_is_reported() -> None:
    desk = Desk()
    view = desk.ask(A, 1)
    view.put(b"0", None)
    desk.pump(1)
    assert desk.credit(A) == 0 and desk.session.has_work
    view.fail(ValueError("the task broke"))
    (report,) = desk.pump()
    assert isinstance(report, ErrorReport) and "the task broke" in report.text


def test_failed_reader_leaves_the_others_alone() -> None:
    desk = Desk()
    failing, fine = desk.ask(A, 1), desk.ask(B, 1)
    failing.fail(None)
    fine.put(b"0")
    assert desk.receivers() == [B]


def test_cancel_releases_the_view_and_sends_no_more() -> None:
    desk = Desk()
    view = desk.ask(A, 9)
    view.put(b"0", b"1")
    desk.receivers(1)
    desk.session.message_received(CancelReceiver(A))
    assert view.releases == 1
    assert desk.pump() == []
    with pytest.raises(UnknownReceiver, match="a cancellation for channel 1"):
        desk.session.message_received(CancelReceiver(A))


def test_credit_for_a_stranger_is_an_error() -> None:
    desk = Desk()
    desk.ask(A, 1)
    with pytest.raises(UnknownReceiver, match="channel 2") as caught:
        desk.grant(B, 1)
    assert caught.value.receiver == B and caught.value.peer == PEER


def test_credit_that_crossed_an_error_is_forgotten() -> None:
    desk = Desk()
    desk.ask(A, 1).fail(None)
    desk.grant(A, 1)


def test_close_releases_every_view_and_answers_nothing_more() -> None:
    desk = Desk()
    views = [desk.ask(A, 1), desk.ask(B, 1)]
    views[0].put(b"0")
    desk.session.close()
    views[1].put(b"1")
    views[1].fail(None)
    assert [view.releases for view in views] == [1, 1]
    assert desk.pump() == []


@pytest.mark.parametrize("message", [Alive(), Backlog(A, 1)])
def test_message_for_the_other_side_breaks_the_protocol(message: Message) -> None:
    with pytest.raises(PeerBrokeProtocol, match="not for the sending side"):
        Desk().session.message_received(message)


def test_error_of_the_consumer_ends_the_connection() -> None:
    with pytest.raises(PeerBrokeProtocol, match="no room"):
        Desk().session.message_received(ErrorReport(A, 4, P, "no room"))


# Task events.


def test_task_event_reaches_its_subscriber() -> None:
    desk, got = Desk(), list[TaskEvent]()
    desk.events.register(P)
    desk.events.subscribe(P, Ping, got.append)
    desk.session.message_received(TaskEventRequest(A, P, encode_event(Ping())))
    assert [type(event) for event in got] == [Ping]
    assert desk.pump() == []


def test_unclaimed_task_event_is_reported_to_its_sender() -> None:
    desk = Desk()
    desk.session.message_received(TaskEventRequest(A, P, encode_event(Ping())))
    (report,) = desk.pump()
    assert isinstance(report, ErrorReport)
    assert (report.receiver, report.code) == (A, ErrorCode.EVENT_UNCLAIMED)


def test_subscriber_that_fails_is_reported_to_the_sender_of_the_event() -> None:
    def fail(event: TaskEvent) -> None:
        raise ValueError("the subscriber broke")

    desk = Desk()
    desk.events.register(P)
    desk.events.subscribe(P, Ping, fail)
    desk.session.message_received(TaskEventRequest(A, P, encode_event(Ping())))
    (report,) = desk.pump()
    assert isinstance(report, ErrorReport)
    assert (report.receiver, report.code) == (A, ErrorCode.INTERNAL)
    assert "the subscriber broke" in report.text


def test_task_event_of_a_class_that_nobody_has_subscribed_for_is_not_even_read() -> None:
    class Mine(TaskEvent):
        @classmethod
        def from_bytes(cls, data: memoryview) -> "Mine":
            raise AssertionError("it was read")

    desk = Desk()
    desk.events.register(P)
    desk.events.subscribe(P, Ping, lambda event: None)
    desk.session.message_received(TaskEventRequest(A, P, encode_event(Mine())))
    (report,) = desk.pump()
    assert isinstance(report, ErrorReport) and report.code == ErrorCode.EVENT_UNCLAIMED
    assert "Mine" in report.text


def test_task_event_behind_a_request_that_found_nothing_waits_for_the_next_request() -> None:
    desk, got = Desk(missing=True), list[TaskEvent]()
    desk.session.message_received(PartitionRequest(A, 1, 0, P))
    desk.events.register(P)  # it comes between the two
    desk.events.subscribe(P, Ping, got.append)
    desk.missing = False
    desk.session.message_received(TaskEventRequest(A, P, encode_event(Ping())))
    codes = [report.code for report in desk.pump() if isinstance(report, ErrorReport)]
    assert codes == [ErrorCode.PARTITION_NOT_FOUND, ErrorCode.EVENT_UNCLAIMED] and not got
    desk.ask(A, 1)
    desk.session.message_received(TaskEventRequest(A, P, encode_event(Ping())))
    assert len(got) == 1 and desk.pump() == []


def test_subscriber_that_asks_for_the_end_of_the_process_ends_its_consumer_only() -> None:
    def leave(event: TaskEvent) -> None:
        raise SystemExit(3)

    desk = Desk()
    desk.events.register(P)
    desk.events.subscribe(P, Ping, leave)
    desk.session.message_received(TaskEventRequest(A, P, encode_event(Ping())))
    (report,) = desk.pump()
    assert isinstance(report, ErrorReport) and "SystemExit" in report.text


def test_a_peer_may_not_request_for_more_channels_than_any_worker_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.core.exchange.sender.MAX_RECEIVERS", 3)
    desk = Desk()
    desk.ask(A, 1)
    desk.missing = True
    for receiver in (10, 11):  # not found, and never cancelled
        desk.session.message_received(PartitionRequest(ChannelId(receiver), 1, 0, P))
    with pytest.raises(TooManyReceivers, match="more than 3 channels"):
        desk.session.message_received(PartitionRequest(ChannelId(12), 1, 0, P))
    desk.session.message_received(CancelReceiver(ChannelId(10)))
    desk.session.message_received(PartitionRequest(ChannelId(12), 1, 0, P))


def test_runtime_event_is_no_task_event() -> None:
    with pytest.raises(PeerBrokeProtocol, match="an event of tag 1 is no task event"):
        Desk().session.message_received(TaskEventRequest(A, P, encode_event(END_OF_PARTITION)))


# Compression.


def test_buffer_is_flagged_compressed_only_when_it_profits() -> None:
    desk = Desk(codec=Deflate())
    desk.ask(A, 9).put(bytes(200), b"short", None)
    first, second, third = desk.pump()
    assert isinstance(first, tuple) and isinstance(second, tuple) and isinstance(third, tuple)
    assert first[3] == 2 and len(first[4]) < 100
    assert second[3:] == (0, b"short")
    assert third[3] == 1


def test_compressed_buffer_lets_the_original_go() -> None:
    released: list[int] = []

    class Counted(Buffer):
        def release(self) -> None:
            released.append(1)

    desk = Desk(codec=Deflate())
    view = desk.ask(A, 1)
    view.poll = lambda: PolledBuffer(Counted(bytes(200)), False, 0, False)  # type: ignore[method-assign]
    view.put(b"stands for it")
    desk.pump()
    assert released == [1]


def test_a_stored_partition_that_cannot_be_read_ends_its_reader_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    broken, sound = desk.ask(A, 1), desk.ask(B, 1)

    def fail() -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(broken, "poll", fail)
    broken.put(b"0")
    sound.put(b"1")
    sent = desk.pump()
    assert any("the disk is gone" in getattr(frame, "text", "") for frame in sent)
    assert list(desk.session.readers) == [B]
    assert len(sent) == 2
