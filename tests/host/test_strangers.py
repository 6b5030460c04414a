"""Strangers at the data port harm nobody: they get a typed answer, and all else goes on."""

import contextlib
import gc
import logging
import os
import pickle
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.base.errors import PeerSilent
from headgate.base.ids import ChannelId, PartitionId
from headgate.base.settings import ExchangeSettings, TransportKind
from headgate.core.exchange.frames import (
    MAGIC,
    PREFIX,
    VERSION,
    AddCredit,
    CancelReceiver,
    ErrorCode,
    ErrorReport,
    Kind,
    LinkChallenge,
    LinkHello,
    LinkProof,
    PartitionRequest,
    TaskEventRequest,
    encode,
)
from headgate.core.exchange.outbox import CLOG_BYTES
from headgate.host.net.exchange import Exchange
from tests.host.conftest import MakeExchange
from tests.host.raw import RawPeer, buffer_frame, raw_client
from tests.host.rig import (
    PATIENCE_S,
    Consumer,
    all_home,
    blobs,
    consume,
    ends_in_memory,
    eventually,
    from_there,
    produce,
    quick,
)

REQUEST = PartitionRequest(ChannelId(1), 2, 0, PartitionId("p"))


class Bomb:
    """Leaves a mark on the disk when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def busy(make_exchange: MakeExchange, transport: TransportKind) -> Iterator[Exchange]:
    """An exchange that delivers to another one before and after the test's stranger comes."""
    settings = quick(transport=transport, connect_timeout_ms=300)
    exchange, other = make_exchange(settings), make_exchange(settings)
    records = blobs(2000)
    producer = produce(exchange, "busy", records, hold_after=64)
    consumer: Consumer = consume(other, [from_there(exchange, "busy")])
    eventually(lambda: len(consumer.records) > 0, "data flows before")
    yield exchange
    eventually(lambda: len(exchange._connections) == 1, "the stranger's connection is closed")
    producer.let_go(exchange)
    producer.join()
    consumer.join()
    assert consumer.records == records


def frame(length: int, magic: int = MAGIC, version: int = VERSION, kind: int = 1) -> bytes:
    return PREFIX.pack(length, magic, version, kind)


STRANGE: dict[str, tuple[Callable[[RawPeer], None], str]] = {
    "garbage": (lambda peer: peer.send(b"GET / HTTP/1.1\r\nHost: headgate\r\n\r\n"), "magic"),
    "zeros": (lambda peer: peer.send(bytes(100)), "magic"),
    "another version": (lambda peer: peer.send(frame(21, version=9)), "version 9"),
    "an unknown message": (lambda peer: peer.send(frame(4, kind=200)), "type 200"),
    "a frame too long": (lambda peer: peer.send(frame(1 << 31)), "the limit is"),
    "a request first": (lambda peer: peer.send(REQUEST), "before the handshake"),
    "credit first": (
        lambda peer: peer.send(AddCredit(((ChannelId(1), 5),))),
        "before the handshake",
    ),
    "a buffer first": (lambda peer: peer.send(buffer_frame(1, 0, bytes(50))), "before"),
    "proof before hello": (lambda peer: peer.send(LinkProof(bytes(32))), "while the server"),
    "other settings": (lambda peer: peer.send(LinkHello(0, 77, bytes(16))), "settings differ"),
    "a short hello": (lambda peer: peer.send(frame(3) + b"abc"), "HELLO"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_stranger_is_told_why_and_shown_out(
    busy: Exchange, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    speak, reason = STRANGE[name]
    with caplog.at_level(logging.WARNING), raw_client(busy.address, busy.settings) as peer:
        speak(peer)
        report = peer.receive()
        assert isinstance(report, ErrorReport)
        assert reason in report.text
        assert peer.read_to_the_end() == b""
        own_name = "{}:{}".format(*peer.sock.getsockname())
    eventually(lambda: own_name in caplog.text, "the log names the stranger")


def test_a_stranger_without_the_secret_is_refused(busy: Exchange) -> None:
    with raw_client(busy.address, busy.settings) as peer:
        peer.send(LinkHello(0, busy.settings.segment_bytes, b"n" * 16))
        peer.receive()  # the challenge
        peer.send(LinkProof(b"a guess of 32 bytes, and no more"))
        report = peer.receive()
        assert isinstance(report, ErrorReport)
        assert "secret" in report.text


def test_nothing_is_unpickled_for_who_is_not_proven(busy: Exchange, tmp_path: Path) -> None:
    mark = tmp_path / "exploded"
    event = b"\5" + pickle.dumps(Bomb(mark))
    bomb = encode(TaskEventRequest(ChannelId(0), PartitionId("busy"), event))
    hello = encode(LinkHello(0, busy.settings.segment_bytes, b"n" * 16))
    for words in (bomb, hello + bomb, hello + encode(LinkProof(bytes(32))) + bomb):
        with raw_client(busy.address, busy.settings) as peer:
            peer.send(words)
            peer.read_to_the_end()
    assert not mark.exists()
    pickle.loads(event[1:])  # it would have
    assert mark.exists()


@pytest.mark.parametrize("words", [b"", encode(LinkHello(0, 4096, b"n" * 16))[:-3]])
def test_a_stranger_who_stays_silent_is_shown_out_in_time(busy: Exchange, words: bytes) -> None:
    with raw_client(busy.address, busy.settings) as peer:
        peer.send(words)
        assert peer.read_to_the_end() == b""


@pytest.mark.parametrize("words", [b"", b"\x15\0\0\0", encode(LinkHello(0, 4096, b"n" * 16))])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_stranger_who_goes_at_any_time_is_forgotten(
    busy: Exchange, words: bytes, how: str
) -> None:
    for _ in range(5):
        with raw_client(busy.address, busy.settings) as peer:
            peer.send(words)
            if how == "reset":
                peer.reset()


def test_a_proven_peer_that_breaks_the_protocol_is_shown_out(busy: Exchange) -> None:
    for words, reason in (
        ([AddCredit(((ChannelId(9), 1),))], "never requested"),
        ([buffer_frame(0, 0, b"not this way")], "not for this side"),
        ([frame(100, kind=int(Kind.TASK_EVENT)) + bytes([255] * 100)], "TASK_EVENT"),
        ([TaskEventRequest(ChannelId(0), PartitionId("busy"), b"\1")], "no task event"),
    ):
        with raw_client(busy.address, busy.settings) as peer:
            peer.greet_as_client()
            peer.send(*words)
            answers = peer.read_to_the_end()
            assert reason.encode() in answers, (words, answers)


def test_a_task_event_of_a_proven_peer_runs_nobodys_code(busy: Exchange, tmp_path: Path) -> None:
    """Whoever has the secret may ask for data, and still not have its pickles loaded."""
    mark = tmp_path / "exploded"
    bomb = pickle.dumps(Bomb(mark))
    name = b"os:mkdir"
    named = b"\5" + len(name).to_bytes(2, "little") + name + bomb
    for event in (b"\5" + bomb, named):
        with raw_client(busy.address, busy.settings) as peer:
            peer.greet_as_client()
            peer.send(TaskEventRequest(ChannelId(3), PartitionId("busy"), event))
            peer.send(PartitionRequest(ChannelId(4), 2, 0, PartitionId("nowhere")))
            while b"not found" not in peer.sock.recv(10_000):
                pass
    assert not mark.exists()


def test_an_event_of_a_class_that_is_unknown_here_ends_nobody_else(busy: Exchange) -> None:
    with raw_client(busy.address, busy.settings) as peer:
        peer.greet_as_client()
        peer.send(TaskEventRequest(ChannelId(3), PartitionId("busy"), b"\5\4\0m:Ejunk"))
        peer.send(PartitionRequest(ChannelId(4), 2, 0, PartitionId("nowhere")))
        answers = b""
        while b"not found" not in answers:  # the connection goes on
            answers += peer.sock.recv(10_000)
        assert b"nobody receives task event m:Ej" in answers


def test_a_reader_that_takes_and_never_reads_is_given_up_at_the_end(
    make_exchange: MakeExchange,
) -> None:
    """Its socket fills up; who wrote for it is freed when it resets."""
    exchange = make_exchange(quick(socket_buffer_bytes=8192))
    producer = produce(exchange, "p", blobs(5000))
    with raw_client(exchange.address, exchange.settings) as peer:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.greet_as_client()
        peer.send(PartitionRequest(ChannelId(1), 10_000, 0, PartitionId("p")))
        eventually(lambda: any(c._blocked for c in exchange._connections), "the socket is full")
        assert producer.runner.is_alive
        peer.reset()
    assert producer.runner.ends_within(PATIENCE_S)
    eventually(lambda: all_home(exchange), "all segments home")


def test_an_exchange_that_ends_over_a_full_socket_has_every_segment_back(
    make_exchange: MakeExchange,
) -> None:
    exchange = make_exchange(quick(socket_buffer_bytes=8192))
    produce(exchange, "p", blobs(5000))
    with raw_client(exchange.address, exchange.settings) as peer:
        peer.greet_as_client()
        peer.send(PartitionRequest(ChannelId(1), 10_000, 0, PartitionId("p")))
        eventually(lambda: any(c._blocked for c in exchange._connections), "the socket is full")
        exchange.close()
    pool = exchange.environment.pool
    assert len(pool.free) == pool.total


def test_strangers_hold_only_so_many_connections(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(quick(accept_backlog=3))
    with contextlib.ExitStack() as stack:
        socks = [
            stack.enter_context(socket.create_connection(exchange.address, PATIENCE_S))
            for _ in range(5)
        ]
        for sock in socks[:2]:  # the oldest made room for the newest
            assert sock.recv(1000)[7] == Kind.ERROR
            assert sock.recv(1000) == b""
        for sock in socks[2:]:
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.recv(1)


def stranger(stack: contextlib.ExitStack, exchange: Exchange, host: str = "127.0.0.1") -> RawPeer:
    """One that connects from an address of this machine and says nothing yet."""
    sock = socket.create_connection(exchange.address, PATIENCE_S, (host, 0))
    return RawPeer(stack.enter_context(sock), exchange.settings)


def is_connected(peer: RawPeer) -> bool:
    peer.sock.setblocking(False)
    try:
        return bool(peer.sock.recv(1))
    except BlockingIOError:
        return True
    finally:
        peer.sock.settimeout(PATIENCE_S)


def say_hello(peer: RawPeer) -> None:
    peer.send(LinkHello(0, peer.settings.segment_bytes, b"n" * 16))
    peer.receive()  # the challenge


def test_strangers_that_say_nothing_go_before_those_that_greet(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(quick(accept_backlog=3))
    with contextlib.ExitStack() as stack:
        greeting = [stranger(stack, exchange) for _ in range(2)]
        for peer in greeting:
            say_hello(peer)
        silent = [stranger(stack, exchange) for _ in range(4)]
        for peer in silent[:-1]:
            report = peer.receive()
            assert isinstance(report, ErrorReport) and report.code == ErrorCode.BUSY
        assert all(map(is_connected, [*greeting, silent[-1]]))
        eventually(lambda: len(exchange._unproven) == 3, "the newest is there")


def test_a_crowd_from_one_address_pushes_out_its_own(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(quick(accept_backlog=4))
    with contextlib.ExitStack() as stack:
        alone = stranger(stack, exchange, "127.0.0.2")  # silent, and older than all the others
        crowd = [stranger(stack, exchange, "127.0.0.3") for _ in range(8)]
        for peer in crowd:
            peer.sock.settimeout(0.2)
            with contextlib.suppress(OSError, AssertionError):
                say_hello(peer)
        assert is_connected(alone)
        eventually(lambda: len(exchange._unproven) == 4, "only so many are left")


def test_strangers_leave_nothing_behind_even_without_garbage_collection(
    make_exchange: MakeExchange,
) -> None:
    exchange = make_exchange()
    goodbyes: list[Callable[[RawPeer], None]] = [
        lambda peer: peer.send(b"GET / HTTP/1.1\r\n\r\n"),
        lambda peer: peer.send(frame(3) + b"abc"),
        lambda peer: peer.send(LinkHello(0, 77, bytes(16))),
        say_hello,
        lambda peer: peer.reset(),
        lambda peer: None,
    ]
    gc.collect()
    gc.disable()
    try:
        before = ends_in_memory()
        for _ in range(5):
            for goodbye in goodbyes:
                with raw_client(exchange.address, exchange.settings) as peer:
                    goodbye(peer)
        eventually(lambda: not exchange._connections, "all have gone")
        with exchange.inside():
            assert ends_in_memory() == before
    finally:
        gc.enable()


def test_many_strangers_leave_few_lines_in_the_log(
    make_exchange: MakeExchange, caplog: pytest.LogCaptureFixture
) -> None:
    exchange = make_exchange()
    with caplog.at_level(logging.WARNING):
        for _ in range(60):
            with raw_client(exchange.address, exchange.settings) as peer:
                peer.send(bytes(100))
                peer.read_to_the_end()
        eventually(lambda: not exchange._connections, "all have gone")
        exchange.close()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 11
    assert lines[-1].startswith("50 more such lines") and "magic" in lines[-1]


def test_a_proven_peer_that_never_reads_its_answers_takes_little_memory(
    make_exchange: MakeExchange,
) -> None:
    exchange = make_exchange(quick(heartbeat_interval_ms=100, heartbeat_timeout_ms=1000))
    with raw_client(exchange.address, exchange.settings) as peer:
        peer.greet_as_client()
        asked = b"".join(
            encode(PartitionRequest(ChannelId(n), 1, 0, PartitionId("x" * 1000)))
            for n in range(1000)
        )
        asked += b"".join(encode(CancelReceiver(ChannelId(n))) for n in range(1000))
        peer.sock.settimeout(0.3)
        (connection,) = exchange._connections
        most = 0
        with contextlib.suppress(OSError):
            for _ in range(100):  # 100 MB
                peer.sock.sendall(asked)
                most = max(most, connection.link.outbox.pending_bytes)
            pytest.fail("it was heard all the time")
        assert most < 2 * CLOG_BYTES
        eventually(lambda: not exchange._connections, "it is given up")
        assert isinstance(connection.link.error, PeerSilent)


def test_two_hundred_task_managers_may_greet_at_the_same_moment(
    make_exchange: MakeExchange, caplog: pytest.LogCaptureFixture
) -> None:
    """Before its partitions are there, with the default settings, all from one address."""
    exchange = make_exchange(ExchangeSettings(connect_timeout_ms=60_000))
    with contextlib.ExitStack() as stack:
        with exchange.inside():  # it is busy while they connect
            peers = [stranger(stack, exchange) for _ in range(200)]
            for peer in peers:
                peer.send(LinkHello(0, peer.settings.segment_bytes, b"n" * 16))
        challenges = [peer.receive() for peer in peers]
        assert all(type(challenge) is LinkChallenge for challenge in challenges)
        assert "wait to be proven" not in caplog.text
