"""Strangers at the data port harm nobody: they get a typed answer, and all else goes on."""

import contextlib
import logging
import os
import pickle
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.base.ids import ChannelId, PartitionId
from headgate.base.settings import TransportKind
from headgate.core.exchange.frames import (
    MAGIC,
    PREFIX,
    VERSION,
    AddCredit,
    ErrorReport,
    Hello,
    Kind,
    PartitionRequest,
    Proof,
    TaskEventRequest,
    encode,
)
from headgate.host.exchange import Exchange
from tests.host.conftest import MakeExchange
from tests.host.raw import RawPeer, buffer_frame, raw_client
from tests.host.rig import (
    PATIENCE_S,
    Consumer,
    all_home,
    blobs,
    consume,
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
    "proof before hello": (lambda peer: peer.send(Proof(bytes(32))), "while the server"),
    "other settings": (lambda peer: peer.send(Hello(0, 77, bytes(16))), "settings differ"),
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
        peer.send(Hello(0, busy.settings.segment_bytes, b"n" * 16))
        peer.receive()  # the challenge
        peer.send(Proof(b"a guess of 32 bytes, and no more"))
        report = peer.receive()
        assert isinstance(report, ErrorReport)
        assert "secret" in report.text


def test_nothing_is_unpickled_for_who_is_not_proven(busy: Exchange, tmp_path: Path) -> None:
    mark = tmp_path / "exploded"
    event = b"\5" + pickle.dumps(Bomb(mark))
    bomb = encode(TaskEventRequest(ChannelId(0), PartitionId("busy"), event))
    hello = encode(Hello(0, busy.settings.segment_bytes, b"n" * 16))
    for words in (bomb, hello + bomb, hello + encode(Proof(bytes(32))) + bomb):
        with raw_client(busy.address, busy.settings) as peer:
            peer.send(words)
            peer.read_to_the_end()
    assert not mark.exists()
    pickle.loads(event[1:])  # it would have
    assert mark.exists()


@pytest.mark.parametrize("words", [b"", encode(Hello(0, 4096, b"n" * 16))[:-3]])
def test_a_stranger_who_stays_silent_is_shown_out_in_time(busy: Exchange, words: bytes) -> None:
    with raw_client(busy.address, busy.settings) as peer:
        peer.send(words)
        assert peer.read_to_the_end() == b""


@pytest.mark.parametrize("words", [b"", b"\x15\0\0\0", encode(Hello(0, 4096, b"n" * 16))])
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
