"""Adversaries at all ports of a job that runs: each meets its limit, and the job goes on."""

import contextlib
import gc
import os
import pickle
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from headgate.base.errors import ElementBroken, HeadgateError, PeerUnproven, TransportError
from headgate.base.ids import ChannelId, PartitionId, PeerName
from headgate.base.messages import NONCE_BYTES, Challenge, Proof, Welcome
from headgate.base.settings import Compression
from headgate.control.frames import GREETINGS, FrameReader, FrameWriter, encode
from headgate.control.proof import WorkerProof
from headgate.core.exchange import frames
from headgate.core.exchange.compression import decompress
from headgate.core.exchange.frames import (
    FLAG_COMPRESSED,
    AddCredit,
    Backlog,
    BufferSize,
    CancelReceiver,
    ErrorCode,
    ErrorReport,
    Message,
    PartitionRequest,
)
from headgate.core.task.environment import RemoteProducer
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.results import ResultAddress, ResultServer, ResultWriter
from headgate.host.net import listener
from headgate.host.net.control_client import receive_by
from headgate.host.net.exchange import Exchange, make_codec
from tests.adversaries.floods import MOST, drip, open_flood
from tests.adversaries.sessions import Recorded, damaged, exchange_frames, record_exchange
from tests.host.conftest import MakeExchange
from tests.host.control_rig import TIMES, is_hung_up, replace_times
from tests.host.raw import RawPeer, buffer_frame, raw_client, raw_server
from tests.host.rig import (
    PATIENCE_S,
    all_home,
    at,
    blobs,
    consume,
    eventually,
    from_there,
    produce,
    quick,
)

SPARE = PartitionId("spare")


@pytest.fixture
def busy(make_exchange: MakeExchange) -> Iterator[Exchange]:
    """An exchange that delivers to another one, before and after the adversary, and has a spare."""
    settings = quick(connect_timeout_ms=500, accept_backlog=16)
    exchange, other = make_exchange(settings), make_exchange(settings)
    records = blobs(1500)
    producer = produce(exchange, "busy", records, hold_after=64)
    spare = produce(exchange, SPARE, blobs(4))
    consumer = consume(other, [from_there(exchange, "busy")])
    eventually(lambda: len(consumer.records) > 0, "data flows before")
    yield exchange
    eventually(lambda: len(exchange._connections) == 1, "the adversary is gone")
    producer.let_go(exchange)
    for task in (producer, consumer, spare):
        task.join()
    assert consumer.records == records
    with exchange.inside():
        spare.partition.release()


def request(receiver: int, credit: int = 0, subpartition: int = 0, partition: str = SPARE) -> bytes:
    asked = PartitionRequest(ChannelId(receiver), credit, subpartition, PartitionId(partition))
    return frames.encode(asked)


def grants(receiver: int, *credits: int) -> AddCredit:
    return AddCredit(tuple((ChannelId(receiver), credit) for credit in credits))


BREACHES: dict[str, tuple[list[Message | bytes], str]] = {
    "more credit than can be counted": ([request(1, MOST), grants(1, MOST)], "credits for channel"),
    "credit in many grants": ([request(1, MOST), grants(1, 1, 1, MOST)], "credits for channel"),
    "no credit at all": ([request(1, 1), grants(1, 0)], "0 credits"),
    "credit for nobody": ([grants(9, 1)], "never requested"),
    "a second request": ([request(1), request(1)], "requested twice"),
    "a cancellation of another's channel": ([CancelReceiver(ChannelId(9))], "a cancellation"),
    "a second cancellation": (
        [request(1), CancelReceiver(ChannelId(1)), CancelReceiver(ChannelId(1))],
        "a cancellation",
    ),
    "buffers of no size": ([request(1), BufferSize(ChannelId(1), 0)], "buffers of 0 bytes"),
    "a size for nobody": ([BufferSize(ChannelId(9), 5)], "never requested"),
    "a backlog": ([Backlog(ChannelId(1), 5)], "not for this side"),
    "an event as data": ([buffer_frame(1, 0, b"\1", flags=1)], "not for this side"),
    "another's error": (
        [request(1), ErrorReport(ChannelId(1), ErrorCode.INTERNAL, SPARE, "x")],
        "reports",
    ),
}


@pytest.mark.parametrize("name", BREACHES)
def test_a_proven_peer_that_breaks_a_rule_loses_its_connection_alone(
    busy: Exchange, name: str
) -> None:
    words, reason = BREACHES[name]
    with raw_client(busy.address, busy.settings) as peer:
        peer.greet_as_client()
        peer.send(*words)
        assert reason.encode() in peer.read_to_the_end()


def test_a_request_that_cannot_be_served_fails_its_channel_alone(busy: Exchange) -> None:
    with raw_client(busy.address, busy.settings) as peer:
        peer.greet_as_client()
        for receiver, (partition, subpartition, reason) in enumerate(
            [
                ("nowhere", 0, "not found"),
                ("", 0, "not found"),
                (SPARE, 1, "none with index 1"),
                (SPARE, MOST, "none with index"),
                ("busy", 0, "already read"),
            ]
        ):
            peer.send(request(receiver, 1, subpartition, partition))
            report = peer.receive()
            assert isinstance(report, ErrorReport)
            assert report.receiver == receiver and reason in report.text
        peer.send(request(99, 1))
        assert len(peer._exactly(100)) == 100, "the connection goes on"


def test_a_peer_that_never_grants_credit_holds_up_nobody(busy: Exchange) -> None:
    with raw_client(busy.address, busy.settings) as peer:
        peer.greet_as_client()
        peer.send(request(1))
        answer = peer.receive()
        assert isinstance(answer, Backlog) and answer.backlog > 0
        peer.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            peer.sock.recv(1)  # nothing comes without credit


@pytest.mark.parametrize("size", [1, MOST])
def test_absurd_sizes_of_buffers_change_no_record(make_exchange: MakeExchange, size: int) -> None:
    exchange, other = make_exchange(), make_exchange()
    consumer = consume(other, [from_there(exchange, "p")], held=True)
    with other.inside():
        consumer.gate.resize(size)
    consumer.let_go(other)
    records = blobs(20)
    producer = produce(exchange, "p", records)
    producer.join()
    consumer.join()
    assert consumer.records == records


def test_a_producer_that_lies_about_its_backlog_starves_no_other(
    make_exchange: MakeExchange,
) -> None:
    exchange, honest = make_exchange(), make_exchange()
    records = blobs(500)
    with raw_server() as (listening, address):
        producer = produce(honest, "p", records)
        consumer = consume(exchange, [at(RemoteProducer(address), "liar"), from_there(honest, "p")])
        sock, _ = listening.accept()
        with sock:
            peer = RawPeer(sock, exchange.settings)
            peer.greet_as_server()
            asked = peer.receive()
            assert isinstance(asked, PartitionRequest)
            peer.send(
                Backlog(asked.receiver, MOST), buffer_frame(asked.receiver, 0, b"", backlog=MOST)
            )
            eventually(lambda: consumer.received[1] == records, "the other producer is read")
            floating = exchange.settings.floating_per_gate
            granted = 0
            sock.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                while isinstance(message := peer.receive(), AddCredit):
                    granted += sum(credit for _, credit in message.grants)
            assert granted <= floating, "no more is promised than there is"
        with pytest.raises(TransportError):
            consumer.join()
        producer.join()


def test_damaged_sessions_reach_a_data_port_and_leave_nothing(busy: Exchange) -> None:
    """Right handshakes of their own, then recorded requests with damage."""
    up, down = record_exchange()
    body = Recorded(up.frames[up.greetings :], 0)
    for seed in range(40):
        chance = Random(seed)
        with raw_client(busy.address, busy.settings) as peer:
            peer.greet_as_client()
            peer.send(damaged(chance, body, down.frames))
            peer.sock.shutdown(socket.SHUT_WR)
            exchange_frames(peer.read_to_the_end())  # what it answers is whole frames


# Handshakes at the result port; those of the control port are the same code.


class Caller:
    """A worker by hand that keeps what it has sent."""

    def __init__(self, address: ResultAddress, secret: bytes) -> None:
        self.sock = socket.create_connection(address.address, PATIENCE_S)
        self.sent = b""
        self._reader = FrameReader(PeerName("driver"))
        nonce = os.urandom(NONCE_BYTES)
        self.proof = WorkerProof(address.stream, secret, nonce, PeerName("driver"))

    def send(self, data: bytes) -> None:
        self.sent += data
        self.sock.sendall(data)

    def receive(self) -> Any:
        return receive_by(self.sock, self._reader, GREETINGS, time.monotonic() + PATIENCE_S)

    def prove(self) -> FrameWriter:
        self.send(encode(self.proof.first_word()))
        answer = self.proof.received(self.receive())
        assert answer is not None
        self.send(encode(answer))
        self.proof.received(self.receive())
        return FrameWriter(self.proof.keys.sending)


@pytest.fixture
def results() -> Iterator[tuple[ResultAddress, list[Any]]]:
    server, taken = ResultServer(), []
    yield server.open(taken.extend), taken
    server.close()


def test_a_session_of_results_that_is_sent_again_is_refused(
    results: tuple[ResultAddress, list[Any]],
) -> None:
    address, taken = results
    caller = Caller(address, address.secret)
    with caller.sock:
        writer, records = caller.prove(), pickle.dumps([1])
        caller.send(writer.head(records) + records)
        eventually(lambda: taken == [1], "the records are taken")
        with socket.create_connection(address.address, PATIENCE_S) as again:
            again.sendall(caller.sent)
            again.recv(200)  # a challenge with another nonce
            assert is_hung_up(again)
    assert taken == [1]


@pytest.mark.parametrize("proof", ["wrong", "reflected"])
def test_a_wrong_or_reflected_proof_at_the_result_port_is_refused(
    results: tuple[ResultAddress, list[Any]], proof: str
) -> None:
    address, taken = results
    caller = Caller(address, b"x" * 32)
    with caller.sock:
        caller.send(encode(caller.proof.first_word()))
        challenge = caller.receive()
        assert isinstance(challenge, Challenge)
        with pytest.raises(PeerUnproven):
            caller.proof.received(challenge)
        caller.send(encode(Proof(challenge.proof if proof == "reflected" else bytes(32))))
        assert is_hung_up(caller.sock)
    assert taken == []


@pytest.mark.parametrize("reply", ["its own nonce", "an old challenge", "only a welcome"])
def test_a_driver_that_reflects_or_repeats_is_refused_by_its_worker(
    results: tuple[ResultAddress, list[Any]], reply: str
) -> None:
    address, _ = results
    overheard = Caller(address, address.secret)
    with overheard.sock, socket.create_server(("127.0.0.1", 0)) as false_driver:
        overheard.send(encode(overheard.proof.first_word()))
        old = overheard.receive()
        port = false_driver.getsockname()[1]

        def answer() -> None:
            sock, _ = false_driver.accept()
            with sock:
                reader = FrameReader(PeerName("worker"))
                hello = receive_by(sock, reader, GREETINGS, time.monotonic() + PATIENCE_S)
                words = {
                    "its own nonce": Challenge(hello.nonce, old.proof),  # type: ignore[union-attr]
                    "an old challenge": old,
                    "only a welcome": Welcome(),
                }
                sock.sendall(encode(words[reply]))
                sock.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        there = ResultAddress(("127.0.0.1", port), address.stream, address.secret)
        with pytest.raises(TransportError):
            ResultWriter(there)
        thread.join()


# Floods.


def test_floods_of_slow_and_giant_connections_are_bounded_and_a_job_goes_on(
    busy: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_STRANGERS", 12)
    monkeypatch.setattr(listener, "YOUNG_S", 0.0)
    taken: list[Any] = []
    count = 60
    with contextlib.ExitStack() as stack:
        control = stack.enter_context(ControlServer(times=replace_times(TIMES, prove_ms=300)))
        results = ResultServer()
        results._times = replace_times(TIMES, prove_ms=300)
        stack.callback(results.close)
        address = results.open(taken.extend)
        threads = threading.active_count()
        gc.collect()
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        chance, socks = Random(61), []
        for port in (busy.address, control.address, results.address):
            socks += open_flood(stack, port, count, chance)
            drip(socks)
        assert threading.active_count() <= threads + 2 * (12 + 1)
        assert len(busy._unproven) <= busy.settings.accept_backlog
        drip(socks)
        writer = ResultWriter(address)  # in the middle of it
        writer.write([1, 2])
        writer.flush()
        writer.close()
        assert taken == [1, 2]
        _, peak = tracemalloc.get_traced_memory()
        assert peak < 32 << 20, f"{peak} bytes for {len(socks)} strangers"
        for sock in socks:
            with contextlib.suppress(OSError):  # a byte in time is no proof: all are shown out
                sock.settimeout(PATIENCE_S)
                while sock.recv(4096):
                    pass
        eventually(lambda: threading.active_count() <= threads, "the strangers' threads end")


# Bombs.


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_a_buffer_that_expands_without_end_takes_no_more_than_it_claims(
    compression: Compression,
) -> None:
    codec = make_codec(compression)
    assert codec is not None
    bomb = bytes(codec.compress(bytes(50 << 20)))
    tracemalloc.start()
    try:
        for claimed in (0, 1, 4096):
            with pytest.raises(ElementBroken):
                decompress(codec, claimed.to_bytes(4, "little") + bomb, 4096)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_a_buffer_that_claims_more_than_it_holds_shows_no_memory_of_this_process(
    make_exchange: MakeExchange, compression: Compression
) -> None:
    codec = make_codec(compression)
    assert codec is not None
    short = bytes(codec.compress(b"word " * 100))
    for claimed in (501, 600, 4096):
        with pytest.raises(ElementBroken):
            decompress(codec, claimed.to_bytes(4, "little") + short, 4096)
    exchange = make_exchange(quick(compression=compression))
    with raw_server() as (listening, address):
        consumer = consume(exchange, [at(RemoteProducer(address), "p")])
        sock, _ = listening.accept()
        with sock:
            peer = RawPeer(sock, exchange.settings)
            peer.greet_as_server()
            asked = peer.receive()
            assert isinstance(asked, PartitionRequest)
            payload = (4096).to_bytes(4, "little") + short
            peer.send(buffer_frame(asked.receiver, 0, payload, flags=FLAG_COMPRESSED))
            with pytest.raises(HeadgateError) as caught:
                consumer.join()
        assert isinstance(caught.value, ElementBroken)
        eventually(lambda: all_home(exchange), "all segments home")
