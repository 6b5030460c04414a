"""A peer that refuses, dies, resets or lies: its channels get a typed error that names it."""

import contextlib
import socket
import time
from collections.abc import Callable

import pytest

from headgate.base.elements import Bundle, PickleSerializer, encode_element
from headgate.base.errors import (
    BeforeHandshake,
    ConnectFailed,
    CreditOverdrawn,
    ElementBroken,
    EventsOverdrawn,
    FrameMalformed,
    FrameTooLong,
    HeadgateError,
    PartitionNotFound,
    PeerBrokeProtocol,
    PeerLost,
    PeerReported,
    PeerUnproven,
    ProducerFailed,
    SequenceGap,
    TransportError,
    UnknownReceiver,
    WrongVersion,
)
from headgate.base.events import CheckpointBarrier, encode_event
from headgate.base.ids import ChannelId, PartitionId
from headgate.base.settings import Compression, FlowControl, TransportKind
from headgate.core.exchange.frames import (
    FLAG_COMPRESSED,
    FLAG_EVENT,
    MAGIC,
    PREFIX,
    VERSION,
    ErrorCode,
    ErrorReport,
    LinkChallenge,
    LinkWelcome,
    PartitionRequest,
)
from headgate.core.exchange.link import Address
from headgate.core.task.environment import RemoteProducer
from headgate.host.net.exchange import Exchange
from tests.host.conftest import MakeExchange
from tests.host.raw import RawPeer, buffer_frame, raw_server
from tests.host.rig import (
    Consumer,
    all_home,
    at,
    blobs,
    consume,
    count_polls,
    eventually,
    from_there,
    produce,
    quick,
)

Act = Callable[[RawPeer], None]


@pytest.fixture
def exchange(make_exchange: MakeExchange, transport: TransportKind) -> Exchange:
    return make_exchange(quick(transport=transport))


def request_of(peer: RawPeer) -> ChannelId:
    """Wait for a channel to ask; says which it was."""
    request = peer.receive()
    assert isinstance(request, PartitionRequest)
    return request.receiver


def meet(
    exchange: Exchange, act: Act, *, channels: int = 1, held: bool = False
) -> tuple[HeadgateError, str, Consumer]:
    """Let a consumer connect to a raw peer; gives the error that it got and the peer's name."""
    with raw_server() as (listening, address):
        inputs = [at(RemoteProducer(address), "p", lane) for lane in range(channels)]
        consumer = consume(exchange, inputs, held=held)
        sock, _ = listening.accept()
        with sock:
            act(RawPeer(sock, exchange.settings))
            if held:
                eventually(lambda: has_failed(consumer), "the error reaches the channel")
                consumer.let_go(exchange)
            with pytest.raises(HeadgateError) as caught:
                consumer.join()
        eventually(lambda: all_home(exchange), "all segments home")
    return caught.value, "{}:{}".format(*address), consumer


def has_failed(consumer: Consumer) -> bool:
    return consumer.gate.channels[0]._error is not None  # type: ignore[attr-defined]


def test_a_refused_connection_is_an_error_of_the_channel(exchange: Exchange) -> None:
    with raw_server() as (_, address):
        pass  # nobody listens there any more
    consumer = consume(exchange, [at(RemoteProducer(address), "p")])
    with pytest.raises(ConnectFailed, match="refused") as caught:
        consumer.join()
    assert caught.value.peer == "{}:{}".format(*address)


@pytest.mark.parametrize(
    "address",
    [("no such host", 1), ("x" * 70 + ".invalid", 1), ("", 1), ("a\0b", 1), ("127.0.0.1", 70_000)],
)
def test_a_host_that_cannot_be_found_is_an_error_of_the_channel(
    exchange: Exchange, address: Address
) -> None:
    consumer = consume(exchange, [at(RemoteProducer(address), "p")])
    with pytest.raises(ConnectFailed):
        consumer.join()


def test_a_peer_that_never_answers_is_given_up(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(quick(connect_timeout_ms=200))
    error, name, _ = meet(exchange, lambda peer: None)
    assert isinstance(error, ConnectFailed)
    assert name in str(error)


def frame(length: int, magic: int = MAGIC, version: int = VERSION, kind: int = 2) -> bytes:
    return PREFIX.pack(length, magic, version, kind)


EARLY: dict[str, tuple[Act, type[HeadgateError]]] = {
    "closes": (lambda peer: peer.sock.close(), TransportError),
    "resets": (lambda peer: peer.reset(), TransportError),
    "sends garbage": (lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"), FrameMalformed),
    "speaks another version": (lambda peer: peer.send(frame(48, version=7)), WrongVersion),
    "sends too much": (lambda peer: peer.send(frame(1 << 30)), FrameTooLong),
    "sends a buffer first": (lambda peer: peer.send(buffer_frame(0, 0, b"x")), BeforeHandshake),
    "welcomes at once": (lambda peer: peer.send(LinkWelcome()), BeforeHandshake),
    "guesses": (lambda peer: peer.send(LinkChallenge(b"n" * 16, b"p" * 32)), PeerUnproven),
    "reports": (
        lambda peer: peer.send(ErrorReport(None, ErrorCode.INTERNAL, PartitionId(""), "no room")),
        PeerReported,
    ),
}


@pytest.mark.parametrize("name", EARLY)
def test_a_peer_that_fails_the_handshake_is_named_at_every_channel(
    exchange: Exchange, name: str
) -> None:
    act, expected = EARLY[name]
    error, peer, _ = meet(exchange, act, channels=3)
    assert isinstance(error, expected)
    assert isinstance(error, TransportError)
    assert error.peer == peer
    assert peer in str(error)


def test_a_frame_cut_in_the_middle_is_a_lost_peer_and_says_so(exchange: Exchange) -> None:
    def act(peer: RawPeer) -> None:
        peer.greet_as_server()
        peer.send(buffer_frame(request_of(peer), 0, bytes(1000))[:-500])
        peer.sock.close()

    error, _, _ = meet(exchange, act)
    assert isinstance(error, PeerLost)
    assert "middle of a frame" in str(error)


def late(*words: Callable[[ChannelId], bytes | ErrorReport]) -> Act:
    """Greet, wait for the request, then say these words."""

    def act(peer: RawPeer) -> None:
        peer.greet_as_server()
        receiver = request_of(peer)
        for word in words:
            peer.send(word(receiver))

    return act


LATE: dict[str, tuple[Act, type[HeadgateError]]] = {
    "skips a number": (
        late(lambda r: buffer_frame(r, 0, b""), lambda r: buffer_frame(r, 2, bytes(9))),
        SequenceGap,
    ),
    "writes to a stranger": (late(lambda r: buffer_frame(r + 7, 0, bytes(9))), UnknownReceiver),
    "sends a buffer too large": (late(lambda r: buffer_frame(r, 0, bytes(5000))), FrameTooLong),
    "sends an unknown flag": (
        late(lambda r: buffer_frame(r, 0, bytes(9), flags=64)),
        FrameMalformed,
    ),
    "sends garbage": (late(lambda r: b"\xff" * 64), PeerBrokeProtocol),
    "sends a broken element": (late(lambda r: buffer_frame(r, 0, b"\3\0\0\0abc")), ElementBroken),
    "sends a broken event": (
        late(lambda r: buffer_frame(r, 0, b"\77", flags=FLAG_EVENT)),
        ElementBroken,
    ),
    "sends a compressed event": (
        late(lambda r: buffer_frame(r, 0, b"\1", flags=FLAG_EVENT | FLAG_COMPRESSED)),
        FrameMalformed,
    ),
    "sends a task event": (
        late(lambda r: buffer_frame(r, 0, b"\5\3\0m:E\x80", flags=FLAG_EVENT)),
        ElementBroken,
    ),
    "lacks the partition": (
        late(
            *[lambda r: ErrorReport(r, ErrorCode.PARTITION_NOT_FOUND, PartitionId("p"), "not here")]
            * 20
        ),
        PartitionNotFound,
    ),
    "failed": (
        late(lambda r: ErrorReport(r, ErrorCode.PRODUCER_FAILED, PartitionId("p"), "a bug")),
        ProducerFailed,
    ),
}


@pytest.mark.parametrize("name", LATE)
def test_a_proven_peer_that_lies_is_found_out(exchange: Exchange, name: str) -> None:
    act, expected = LATE[name]
    error, peer, _ = meet(exchange, act)
    assert isinstance(error, expected), repr(error)
    if isinstance(error, TransportError):
        assert error.peer == peer


def test_more_buffers_than_credit_are_an_error_behind_what_was_allowed(exchange: Exchange) -> None:
    element = b"".join(encode_element(Bundle([1]), PickleSerializer()))
    act = late(lambda r: b"".join(buffer_frame(r, n, element) for n in range(50)))
    error, peer, consumer = meet(exchange, act, held=True)
    assert isinstance(error, CreditOverdrawn)
    assert error.peer == peer
    assert consumer.records == [1] * exchange.settings.buffers_per_channel


def test_more_events_than_a_channel_keeps_are_an_error_behind_those_that_it_kept(
    exchange: Exchange,
) -> None:
    event = encode_event(CheckpointBarrier(1, 2, directory="x" * 4000))
    frames = 20 * (1 << 20) // len(event)

    def act(peer: RawPeer) -> None:
        peer.greet_as_server()
        receiver = request_of(peer)
        peer.send(*(buffer_frame(receiver, n, event, flags=FLAG_EVENT) for n in range(frames)))

    error, peer, consumer = meet(exchange, act, held=True)
    assert isinstance(error, EventsOverdrawn)
    assert error.peer == peer
    assert len(consumer.events) * len(event) < 300_000


REFUSALS: dict[str, Act] = {
    "it is busy": lambda peer: peer.send(
        ErrorReport(None, ErrorCode.BUSY, PartitionId(""), "many wait here")
    ),
    "it closes": lambda peer: None,
    "it resets": lambda peer: peer.reset(),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_consumer_that_is_sent_away_comes_back(make_exchange: MakeExchange, name: str) -> None:
    exchange = make_exchange(quick(connect_retry_ms=10_000))
    record = b"".join(encode_element(Bundle([name]), PickleSerializer()))
    with raw_server() as (listening, address):
        consumer = consume(exchange, [at(RemoteProducer(address), "p", lane) for lane in range(2)])
        for _ in range(3):
            with listening.accept()[0] as sock:
                REFUSALS[name](RawPeer(sock, exchange.settings))
        sock, _ = listening.accept()
        with sock:
            peer = RawPeer(sock, exchange.settings)
            peer.greet_as_server()
            for receiver in (request_of(peer), request_of(peer)):
                peer.send(buffer_frame(receiver, 0, record))
                peer.send(buffer_frame(receiver, 1, b"\1", flags=FLAG_EVENT))
            consumer.join()
    assert consumer.records == [name, name]


def test_a_consumer_that_is_always_sent_away_says_who_could_not_reach_whom(
    make_exchange: MakeExchange,
) -> None:
    exchange = make_exchange(quick(connect_retry_ms=300))
    with raw_server() as (listening, address):
        consumer = consume(exchange, [at(RemoteProducer(address), "p", 7)])
        listening.settimeout(0.05)
        attempts = 0
        while consumer.runner.is_alive:
            with contextlib.suppress(TimeoutError), listening.accept()[0]:
                attempts += 1
        with pytest.raises(ConnectFailed, match="subpartition 7 of 'p' could not reach") as caught:
            consumer.join()
    assert caught.value.peer == "{}:{}".format(*address)
    assert 2 <= attempts <= 6


def test_a_buffer_that_cannot_be_expanded_is_a_broken_element(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(quick(compression=Compression.LZ4))
    payload = (200).to_bytes(4, "little") + b"no block of lz4"
    act = late(lambda r: buffer_frame(r, 0, payload, flags=FLAG_COMPRESSED))
    error, _, _ = meet(exchange, act)
    assert isinstance(error, ElementBroken)


@pytest.mark.parametrize("mode", list(FlowControl))
def test_a_reset_in_the_middle_of_the_data_loses_no_segment_and_harms_no_other(
    make_exchange: MakeExchange, mode: FlowControl
) -> None:
    settings = quick(flow_control=mode)
    exchange, other = make_exchange(settings), make_exchange(settings)
    living = produce(other, "living", blobs(3000))
    reader = consume(exchange, [from_there(other, "living")])

    def act(peer: RawPeer) -> None:
        peer.greet_as_server()
        receiver = request_of(peer)
        peer.send(*(buffer_frame(receiver, n, bytes(4096)) for n in range(2)))
        peer.send(buffer_frame(receiver, 2, bytes(4096))[:2000])
        peer.reset()

    with raw_server() as (listening, address):
        consumer = consume(exchange, [at(RemoteProducer(address), "p")], held=True)
        sock, _ = listening.accept()
        with sock:
            act(RawPeer(sock, settings))
        consumer.let_go(exchange)
        with pytest.raises(HeadgateError):
            consumer.join()
    living.join()
    reader.join()
    assert reader.records == blobs(3000)


def test_a_reset_while_reading_has_stopped_burns_no_time(make_exchange: MakeExchange) -> None:
    """In TCP mode a full receiver does not watch its socket, not even for the peer's end."""
    exchange = make_exchange(quick(flow_control=FlowControl.TCP))
    with raw_server() as (listening, address):
        consumer = consume(exchange, [at(RemoteProducer(address), "p")], held=True)
        sock, _ = listening.accept()
        peer = RawPeer(sock, exchange.settings)
        peer.greet_as_server()
        receiver = request_of(peer)
        peer.send(*(buffer_frame(receiver, n, bytes(4096)) for n in range(40)))
        eventually(
            lambda: any(c.link.decoder.paused for c in exchange._connections), "reading stops"
        )
        peer.reset()
        polls = count_polls(exchange.loop)
        time.sleep(0.2)  # that nothing happens meanwhile is the subject
        assert polls() < 100
        consumer.let_go(exchange)
        with pytest.raises(HeadgateError):
            consumer.join()


def test_a_peer_that_does_not_read_gets_no_more_than_its_socket_holds(
    make_exchange: MakeExchange,
) -> None:
    """A consumer whose requests are not taken waits; it neither spins nor grows."""
    exchange = make_exchange()
    with raw_server() as (listening, address):
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        consumer = consume(exchange, [at(RemoteProducer(address), "p")])
        sock, _ = listening.accept()
        polls = count_polls(exchange.loop)
        time.sleep(0.2)  # that nothing happens meanwhile is the subject
        assert polls() < 100
        sock.close()
        with pytest.raises(TransportError):
            consumer.join()
