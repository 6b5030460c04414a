"""A link from the first byte to the last: greeting, signs of life, last words, ends.

Rows 110, 115, 119, 122, 123, 132, 135.
"""

import gc
import weakref

import pytest

from headgate.base.errors import (
    BeforeHandshake,
    ConnectFailed,
    EventTooLarge,
    FrameMalformed,
    FrameTooLong,
    PeerBrokeProtocol,
    PeerBusy,
    PeerLost,
    PeerReported,
    PeerSilent,
    PeerUnproven,
    TransportError,
    UnknownMessage,
    UnknownReceiver,
    WrongVersion,
)
from headgate.base.events import TaskEvent, encode_event
from headgate.base.ids import ChannelId, PartitionId, PeerName
from headgate.base.settings import FlowControl
from headgate.core.exchange.frames import (
    PREFIX,
    VERSION,
    AddCredit,
    Alive,
    Backlog,
    CancelReceiver,
    Close,
    ErrorCode,
    ErrorReport,
    Kind,
    LinkHello,
    LinkWelcome,
    Message,
    PartitionRequest,
    TaskEventRequest,
    encode,
    encode_buffer_head,
)
from headgate.core.exchange.link import Link, LinkState
from headgate.core.exchange.outbox import CLOG_BYTES
from headgate.core.ingress.gate import Gate
from tests.core.pair import PARTITION, SMALL, Pair, read_all, scatter, with_settings, write


def feed(link: Link, data: bytes) -> None:
    while data and link.is_alive:
        count = scatter(link, data)
        assert count
        link.received(count, 0.0)
        data = data[count:]


def poll_error(gate: Gate) -> Exception:
    with pytest.raises(TransportError) as caught:
        read_all(gate)
    return caught.value


# Greeting.


def test_both_sides_open_after_the_handshake() -> None:
    with Pair() as pair:
        pair.gate().request_partitions()
        wire = pair.wire
        assert wire.consumer.state is LinkState.GREETING
        pair.settle()
        assert wire.consumer.is_open and wire.producer.is_open


def test_handshake_survives_any_cut() -> None:
    with Pair() as pair:
        pair.gate().request_partitions()
        pair.settle(chunk=1)
        assert pair.wire.consumer.is_open and pair.wire.producer.is_open


def test_wrong_secret_is_seen_by_the_client_and_told_to_the_server() -> None:
    with Pair(consumer_secret=b"of another job") as pair:
        gate = pair.gate()
        gate.request_partitions()
        pair.settle()
        assert isinstance(poll_error(gate), PeerUnproven)
        assert isinstance(pair.wire.producer.error, PeerReported)
        assert pair.wire.producer.state is LinkState.CLOSED


def test_differing_settings_are_told_to_the_client() -> None:
    with Pair(consumer_settings=with_settings(segment_bytes=128)) as pair:
        gate = pair.gate()
        gate.request_partitions()
        pair.settle()
        error = poll_error(gate)
        assert isinstance(error, PeerReported) and "segments of 128 bytes" in str(error)
        assert isinstance(pair.wire.producer.error, PeerBrokeProtocol)


def test_handshake_that_takes_too_long_is_given_up_on_both_sides() -> None:
    with Pair() as pair:
        gate = pair.gate()
        gate.request_partitions()
        pair.tick(SMALL.connect_timeout_ms - 1)
        assert pair.wire.consumer.is_alive and pair.wire.producer.is_alive
        pair.tick(1)
        assert isinstance(poll_error(gate), ConnectFailed)
        assert isinstance(pair.wire.producer.error, ConnectFailed)


EARLY: list[Message] = [
    PartitionRequest(ChannelId(1), 1, 0, PARTITION),
    AddCredit(((ChannelId(1), 1),)),
    CancelReceiver(ChannelId(1)),
    Close(),
    TaskEventRequest(ChannelId(1), PARTITION, b"\x05"),
    Alive(),
]


@pytest.mark.parametrize("message", EARLY, ids=lambda message: type(message).__name__)
def test_message_before_the_handshake_is_refused_unread(message: Message) -> None:
    with Pair() as pair:
        pair.gate().request_partitions()
        producer = pair.wire.producer
        feed(producer, encode(message)[: PREFIX.size])  # its body need not even come
        assert isinstance(producer.error, BeforeHandshake)
        assert producer.session.readers == {}


def test_buffer_before_the_handshake_is_refused() -> None:
    with Pair() as pair:
        pair.gate().request_partitions()
        feed(pair.wire.consumer, encode_buffer_head(ChannelId(0), 0, 0, 0, 4) + b"data")
        assert isinstance(pair.wire.consumer.error, BeforeHandshake)


def test_error_for_one_receiver_is_no_greeting() -> None:
    with Pair() as pair:
        pair.gate().request_partitions()
        feed(pair.wire.consumer, encode(ErrorReport(ChannelId(0), 1, PARTITION, "x")))
        assert isinstance(pair.wire.consumer.error, BeforeHandshake)


# Messages that are not for this side, or not at all.

TO_PRODUCER = [LinkWelcome(), Backlog(ChannelId(0), 1)]
TO_CONSUMER = [LinkHello(0, 64, bytes(16)), *EARLY[:5]]


@pytest.mark.parametrize("message", TO_PRODUCER, ids=lambda message: type(message).__name__)
def test_producers_side_refuses_what_only_consumers_get(message: Message) -> None:
    with Pair() as pair:
        pair.open()
        feed(pair.wire.producer, encode(message))
        assert isinstance(pair.wire.producer.error, UnknownMessage)


def test_producers_side_refuses_buffers() -> None:
    with Pair() as pair:
        pair.open()
        feed(pair.wire.producer, encode_buffer_head(ChannelId(0), 0, 0, 0, 1) + b"x")
        assert isinstance(pair.wire.producer.error, UnknownMessage)


@pytest.mark.parametrize("message", TO_CONSUMER, ids=lambda message: type(message).__name__)
def test_consumers_side_refuses_what_only_producers_get(message: Message) -> None:
    with Pair() as pair:
        pair.open()
        feed(pair.wire.consumer, encode(message))
        assert isinstance(pair.wire.consumer.error, UnknownMessage)


def test_second_hello_on_an_open_link_breaks_the_protocol() -> None:
    with Pair() as pair:
        pair.open()
        feed(pair.wire.producer, encode(LinkHello(0, 64, bytes(16))))
        assert isinstance(pair.wire.producer.error, PeerBrokeProtocol)


WRONG = [
    (PREFIX.pack(0, 0x1234, VERSION, Kind.ALIVE), FrameMalformed),
    (PREFIX.pack(0, 0x4847, 7, Kind.ALIVE), WrongVersion),
    (PREFIX.pack(0, 0x4847, VERSION, 99), UnknownMessage),
    (PREFIX.pack(1, 0x4847, VERSION, Kind.ALIVE), FrameTooLong),
    (PREFIX.pack(2**31, 0x4847, VERSION, Kind.ERROR), FrameTooLong),
    (encode(ErrorReport(None, 1, PARTITION, "x"))[:-3] + b"\xff\xff?", FrameMalformed),
]


@pytest.mark.parametrize(("data", "kind"), WRONG)
def test_wrong_bytes_end_the_link_with_last_words(data: bytes, kind: type[TransportError]) -> None:
    with Pair() as pair:
        _, gate = pair.open()
        feed(pair.wire.consumer, data)
        assert pair.wire.consumer.state is LinkState.CLOSING
        assert isinstance(poll_error(gate), kind)
        pair.settle()
        assert pair.wire.consumer.state is LinkState.CLOSED
        assert isinstance(pair.wire.producer.error, PeerReported)


def test_task_event_above_the_limit_is_refused() -> None:
    with Pair() as pair:
        pair.open()
        event = TaskEventRequest(ChannelId(0), PartitionId("p" * 1024), bytes(65))
        feed(pair.wire.producer, encode(event))
        assert isinstance(pair.wire.producer.error, FrameTooLong)


def test_task_event_that_cannot_be_read_ends_its_channel_and_no_other() -> None:
    with Pair() as pair:
        _, gate = pair.open(2)
        pair.producer.events.subscribe(PARTITION, Ping, lambda event: None)
        junk = encode_event(Ping())[:-1] + b"\xc1"
        feed(pair.wire.producer, encode(TaskEventRequest(ChannelId(0), PARTITION, junk)))
        pair.settle()
        assert pair.wire.producer.is_open
        assert list(pair.wire.producer.session.readers) == [1]
        with pytest.raises(PeerReported, match="task event Ping cannot be read"):
            gate.poll()


def test_credit_for_a_stranger_ends_this_link_and_no_other() -> None:
    with Pair() as pair:
        partition, gate = pair.open(1)
        first = pair.wire
        pair.consumer.directory._links.clear()  # the next gate dials anew
        partition2 = pair.partition(1, PartitionId("q"))
        gate2 = pair.gate(1, PartitionId("q"), "h")
        gate2.request_partitions()
        pair.settle()
        feed(first.producer, encode(AddCredit(((ChannelId(77), 1),))))
        assert isinstance(first.producer.error, UnknownReceiver)
        write(partition2, b"still here")
        pair.settle()
        assert read_all(gate2) == [(0, b"still here")]
        assert isinstance(poll_error(gate), PeerReported)
        assert partition.subpartitions[0].released  # its only reader has gone


def test_error_for_the_whole_connection_reaches_every_channel() -> None:
    with Pair() as pair:
        _, gate = pair.open(2)
        feed(pair.wire.consumer, encode(ErrorReport(None, ErrorCode.INTERNAL, PARTITION, "why")))
        assert isinstance(poll_error(gate), PeerReported)
        assert isinstance(poll_error(gate), PeerReported)
        assert pair.wire.consumer.state is LinkState.CLOSED  # a report gets no report back


# Signs of life.


def test_quiet_link_shows_life_in_time() -> None:
    with Pair() as pair:
        pair.open()
        pair.tick(SMALL.heartbeat_interval_ms - 1)
        assert pair.wire.up.take() == 0
        pair.tick(1)
        assert pair.wire.up.take() == len(encode(Alive())) == pair.wire.down.take()


def test_link_that_speaks_sends_no_signs_of_life() -> None:
    with Pair() as pair:
        partition, gate = pair.open()
        pair.tick(SMALL.heartbeat_interval_ms - 1)
        write(partition, b"x")
        pair.settle()
        pair.tick(1)
        assert pair.wire.down.take() == 0
        read_all(gate)


def test_bytes_that_do_not_go_out_are_not_followed_by_signs_of_life() -> None:
    with Pair() as pair:
        pair.open()
        producer = pair.wire.producer
        for _ in range(5):
            pair.timers.pass_ms(SMALL.heartbeat_interval_ms)
            producer.tick(pair.timers.now_ms)
        assert producer.outbox.pending_bytes == len(encode(Alive()))


def test_peer_that_shows_life_is_kept_for_ever() -> None:
    with Pair() as pair:
        pair.open()
        for _ in range(30):
            pair.tick(SMALL.heartbeat_interval_ms)
            pair.settle()
        assert pair.wire.consumer.is_open and pair.wire.producer.is_open


def test_silent_peer_is_given_up_by_both_sides() -> None:
    with Pair() as pair:
        partition, gate = pair.open()
        pair.tick(SMALL.heartbeat_timeout_ms - 1)
        assert pair.wire.consumer.is_open
        pair.tick(1)
        assert isinstance(poll_error(gate), PeerSilent)
        assert isinstance(pair.wire.producer.error, PeerSilent)
        assert partition.subpartitions[0].released


def test_peer_that_takes_all_and_says_nothing_is_given_up() -> None:
    with Pair() as pair:
        _, gate = pair.open()
        for passed_ms in (SMALL.heartbeat_timeout_ms - 1, 1):
            pair.timers.pass_ms(passed_ms)
            pair.wire.up.take()
            assert not pair.wire.consumer.outbox.pending_bytes
            pair.wire.consumer.tick(pair.timers.now_ms)
        assert isinstance(poll_error(gate), PeerSilent)


def paused_pair() -> tuple[Pair, Gate]:
    """TCP mode: the gate has two buffers, the link waits with a third."""
    pair = Pair(with_settings(flow_control=FlowControl.TCP, floating_per_gate=0))
    partition, gate = pair.open()
    for i in range(3):
        write(partition, bytes([i]) * 64)
        pair.settle()
    assert pair.wire.consumer.decoder.paused
    return pair, gate


def test_side_that_does_not_read_does_not_call_its_peer_silent() -> None:
    pair, gate = paused_pair()
    for _ in range(20):
        pair.timers.pass_ms(SMALL.heartbeat_timeout_ms / 2)
        pair.wire.consumer.tick(pair.timers.now_ms)
    assert pair.wire.consumer.is_open
    assert len(read_all(gate)) == 3  # reading on frees buffers, and the third is placed
    pair.wire.consumer.tick(pair.timers.now_ms + 1)
    assert pair.wire.consumer.is_open
    pair.close()


def test_link_that_is_lost_while_it_waits_for_a_buffer_forgets_that() -> None:
    pair, gate = paused_pair()
    pair.wire.consumer.ended("reset")
    assert not pair.wire.consumer.decoder.paused
    with pytest.raises(PeerLost):
        read_all(gate)  # returns buffers, which were promised to the lost link
    pair.close()


# Ends.


def test_connection_that_never_came_about_is_told_to_the_channels() -> None:
    with Pair() as pair:
        gate = pair.gate()
        gate.request_partitions()
        pair.wire.consumer.state = LinkState.CONNECTING
        pair.wire.consumer.ended("refused")
        error = poll_error(gate)
        assert isinstance(error, ConnectFailed) and error.problem == "refused"


def test_lost_peer_is_told_to_every_channel_after_what_had_arrived() -> None:
    with Pair() as pair:
        partition, gate = pair.open(2)
        write(partition, b"first")
        pair.settle()
        pair.wire.consumer.ended("reset")
        arrival = gate.poll()
        assert arrival is not None and arrival.buffer is not None
        arrival.buffer.release()
        for _ in range(2):
            error = poll_error(gate)
            assert isinstance(error, PeerLost) and error.problem == "reset"


def test_loss_in_the_middle_of_a_frame_says_so() -> None:
    with Pair() as pair:
        partition, gate = pair.open()
        write(partition, b"never whole")
        pair.wire.down.take()
        pair.wire.down.deliver(40)
        pair.wire.consumer.ended("reset")
        assert "middle of a frame" in str(poll_error(gate))


def test_loss_releases_the_views_of_the_lost_consumer() -> None:
    with Pair() as pair:
        partition, _ = pair.open()
        write(partition, b"never read")
        pair.wire.producer.ended("reset")
        assert partition.subpartitions[0].released
        assert pair.wire.producer.session.readers == {}


def test_close_request_ends_the_connection_in_peace() -> None:
    with Pair() as pair:
        _, gate = pair.open()
        gate.close()
        assert pair.wire.consumer.state is LinkState.CLOSING
        pair.settle()
        assert pair.wire.consumer.state is LinkState.CLOSED
        assert pair.wire.producer.state is LinkState.CLOSED
        assert pair.wire.producer.error is None


def test_unsent_data_goes_home_when_a_closing_link_runs_out_of_time() -> None:
    with Pair() as pair:
        partition, _ = pair.open()
        write(partition, b"pending")
        producer = pair.wire.producer
        producer.outgoing()
        producer.close()
        assert producer.state is LinkState.CLOSING
        producer.tick(1.0)
        assert producer.state is LinkState.CLOSED and producer.outbox.pending_bytes == 0


def test_unsent_data_goes_home_when_a_closing_link_is_reset() -> None:
    with Pair() as pair:
        partition, _ = pair.open()
        write(partition, b"pending")
        producer = pair.wire.producer
        producer.outgoing()
        producer.close()
        producer.ended("reset")
        assert producer.state is LinkState.CLOSED and producer.outbox.pending_bytes == 0


def test_link_that_has_ended_wants_no_bytes_and_does_not_end_again() -> None:
    with Pair() as pair:
        _, gate = pair.open()
        link = pair.wire.consumer
        link.ended("first")
        link.ended("second")
        link.fail(PeerLost(link.peer, "third"))
        link.tick(1e9)
        assert link.targets() == []
        error = link.error
        assert isinstance(error, PeerLost) and error.problem == "first"
        assert poll_error(gate) is error


def test_gate_that_closes_while_its_buffer_is_delivered_ends_the_link_cleanly() -> None:
    with Pair() as pair:
        partition, gate = pair.open()
        for _ in range(2):
            write(partition, bytes(64))
        pair.wire.down.take()
        pair.wire.down.deliver(50)  # half of the first
        gate.notify = gate.close  # a task that ends as soon as it is woken
        pair.wire.down.deliver()
        assert gate.closed and not pair.wire.consumer.is_alive


def test_link_tells_its_driver_once_until_it_looks() -> None:
    with Pair() as pair:
        partition, gate = pair.open()
        calls: list[Link] = []
        producer = pair.wire.producer
        producer.outgoing()
        producer.on_dirty = calls.append
        write(partition, b"1")
        write(partition, b"2")
        assert calls == [producer]
        pair.settle()
        read_all(gate)


class Ping(TaskEvent):
    """Sent back to a producer."""


class Long(TaskEvent):
    """Larger than some limit."""

    def __init__(self) -> None:
        self.text = "x" * 200


def test_last_words_never_follow_half_a_frame() -> None:
    pair = Pair()
    partition, gate = pair.open()
    write(partition, b"A" * 60)
    pair.wire.down.take(32 + 50)  # all but ten bytes of the payload are out
    pair.wire.down.deliver()
    again = encode(LinkHello(0, 64, bytes(16)))  # not allowed after the handshake
    pair.wire.producer.received(scatter(pair.wire.producer, again), 0)
    assert pair.wire.producer.state is LinkState.CLOSED
    pair.wire.down.take()
    pair.wire.down.deliver()
    assert gate.poll() is None  # the cut buffer is not completed by foreign bytes
    pair.wire.consumer.ended("closed")
    with pytest.raises(PeerLost):
        gate.poll()


def test_a_subscriber_that_raises_ends_its_reader_at_both_sides() -> None:
    def refuse(event: TaskEvent) -> None:
        raise RuntimeError("the subscriber's own trouble")

    pair = Pair()
    _, gate = pair.open(2)
    pair.producer.events.subscribe(PARTITION, Ping, refuse)
    gate.channels[0].send_event(Ping())
    pair.settle()
    with pytest.raises(PeerReported, match="own trouble"):
        gate.poll()
    gate.channels[0].release()
    pair.settle()
    assert list(pair.wire.producer.session.readers) == [1]


def test_an_event_above_the_limit_is_refused_where_it_is_sent() -> None:
    with Pair(with_settings(max_event_bytes=100)) as pair:
        partition, gate = pair.open()
        with pytest.raises(EventTooLarge, match="Long has .* the limit is 100"):
            gate.send_event(Long())
        with pytest.raises(EventTooLarge):
            partition.broadcast_event(Long())
        pair.settle()
        assert pair.wire.consumer.is_open


def test_a_peer_that_does_not_read_its_answers_is_not_heard_until_it_does() -> None:
    with Pair() as pair:
        pair.open()
        producer = pair.wire.producer
        ask = [PartitionRequest(ChannelId(n), 1, 0, PartitionId("x" * 1000)) for n in range(9, 999)]
        stream = b"".join(map(encode, ask))
        heard = 0
        while heard < len(stream) and (count := scatter(producer, stream[heard : heard + 4096])):
            heard += count
            producer.received(count, 0.0)
        assert producer.outbox.is_clogged and producer.is_deaf and heard < len(stream)
        assert producer.outbox.pending_bytes < CLOG_BYTES + 64 * 1024
        pair.tick(SMALL.heartbeat_timeout_ms - 1)
        assert producer.is_open
        producer.outgoing()
        producer.sent(producer.outbox.pending_bytes - CLOG_BYTES, pair.timers.now_ms)
        assert not producer.is_deaf and producer.targets()
        producer.close()
        pair.wire.consumer.close()


def test_a_peer_that_never_reads_its_answers_is_given_up() -> None:
    with Pair() as pair:
        pair.open()
        producer = pair.wire.producer
        producer.outbox.add(bytes(CLOG_BYTES + 1))
        producer.tick(SMALL.heartbeat_timeout_ms - 1.0)
        assert producer.is_open
        producer.tick(SMALL.heartbeat_timeout_ms + 0.0)
        assert isinstance(producer.error, PeerSilent)
        assert "has taken none of" in str(producer.error)


def test_a_link_that_ends_before_it_is_open_gives_its_channels_another_one() -> None:
    with Pair(with_settings(connect_retry_ms=1000)) as pair:
        partition, gate = pair.partition(2), pair.gate(2)
        gate.request_partitions()
        gate.send_event(Ping())
        pair.producer.events.subscribe(PARTITION, Ping, lambda event: got.append(event))
        got: list[TaskEvent] = []
        pair.wire.producer.fail(PeerBusy(PeerName("consumer"), "many wait"), "many wait")
        pair.wire.settle()
        assert isinstance(pair.wire.consumer.error, PeerBusy)
        assert gate.poll() is None
        pair.timers.pass_ms(50)
        assert len(pair.wires) == 2  # one for both channels
        pair.settle()
        write(partition, b"it comes", 1)
        pair.settle()
        assert read_all(gate) == [(1, b"it comes")]
        assert len(got) == 2  # one from each channel, once
        pair.timers.pass_ms(1000)
        assert gate.poll() is None


def test_a_link_that_was_open_is_not_tried_again() -> None:
    with Pair(with_settings(connect_retry_ms=1000)) as pair:
        _, gate = pair.open()
        pair.wire.consumer.ended("reset")
        assert isinstance(poll_error(gate), PeerLost)
        pair.timers.pass_ms(1000)
        assert len(pair.wires) == 1


@pytest.mark.parametrize("problem", [FrameMalformed, PeerUnproven, PeerReported])
def test_what_will_not_be_better_next_time_is_not_tried_again(problem: type[Exception]) -> None:
    with Pair(with_settings(connect_retry_ms=1000)) as pair:
        gate = pair.gate()
        gate.request_partitions()
        pair.wire.consumer.fail(problem(PeerName("p"), "no"))  # type: ignore[arg-type]
        assert isinstance(poll_error(gate), problem)


def test_a_link_that_has_ended_needs_no_garbage_collection() -> None:
    enabled = gc.isenabled()
    gc.disable()
    try:
        with Pair() as pair:
            pair.gate().request_partitions()
            wire = pair.wires.pop()
            pair.consumer.directory._links.clear()
            links = [weakref.ref(wire.consumer), weakref.ref(wire.producer)]
            feed(wire.producer, b"\xff" * 64)
            feed(wire.consumer, b"\xff" * 64)
            wire.settle()
            wire.producer.ended("closed")
            wire.consumer.ended("closed")
            pair.consumer.close()
            del wire
            assert [link() for link in links] == [None, None]
    finally:
        if enabled:
            gc.enable()


def test_a_retry_after_the_end_of_the_link_says_nothing_more() -> None:
    with Pair() as pair:
        gate = pair.gate()
        gate.request_partitions()
        pair.settle()  # not found: the channel waits to ask again
        link = pair.wire.consumer
        link.ended("reset")
        pair.timers.pass_ms(1000)
        assert not link.outbox.pending_bytes
        assert not link.session.channels
        with pytest.raises(PeerLost):
            gate.poll()


def test_what_a_stranger_reports_is_one_short_line() -> None:
    with Pair() as pair:
        gate = pair.gate()
        gate.request_partitions()
        text = "no\n2026-01-01 INFO all is well\x1b[2J" + "x" * 10_000
        feed(pair.wire.consumer, encode(ErrorReport(None, ErrorCode.INTERNAL, PARTITION, text)))
        shown = str(poll_error(gate))
        assert "no�2026-01-01 INFO all is well�[2Jxxx" in shown
        assert len(shown) < 400
