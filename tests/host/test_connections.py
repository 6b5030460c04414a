"""One connection for all channels between two task managers: made, shared, closed, made again."""

import errno
import logging
import socket
import time
from contextlib import ExitStack

import pytest

from headgate.base.errors import (
    InsufficientBuffers,
    PartitionNotFound,
    PartitionTaken,
    PeerLost,
    PeerReported,
    ProducerFailed,
)
from headgate.base.settings import FlowControl
from headgate.core.exchange.frames import NONCE_BYTES, LinkHello
from headgate.core.task.environment import Here, RemoteProducer, UnplacedProducer
from headgate.host.net.connection import Server
from headgate.host.net.exchange import Exchange
from tests.host.conftest import MakeExchange
from tests.host.raw import raw_client
from tests.host.rig import (
    at,
    blobs,
    consume,
    eventually,
    from_here,
    from_there,
    produce,
    quick,
)


def connections(exchange: Exchange) -> int:
    with exchange.inside():
        return len(exchange._connections)


def test_many_gates_and_partitions_share_one_connection(pair: tuple[Exchange, Exchange]) -> None:
    a, b = pair
    accepted: list[int] = []
    greet = a._greet
    a._server._on_connection = lambda *made: (accepted.append(1), greet(*made))  # type: ignore[union-attr]
    consumers = [
        consume(b, [from_there(a, f"p{n}", 0), from_there(a, f"p{n}", 1)], held=True)
        for n in range(5)
    ]
    producers = [produce(a, f"p{n}", range(n, 3000), subpartitions=2) for n in range(5)]
    for consumer in consumers:
        consumer.let_go(b)
    for task in (*producers, *consumers):
        task.join()
    for n, consumer in enumerate(consumers):
        assert sorted(consumer.records) == list(range(n, 3000))
    assert accepted == [1]


def test_the_connection_is_closed_after_its_last_user_and_made_again_later(
    pair: tuple[Exchange, Exchange],
) -> None:
    a, b = pair
    for round_number in range(3):
        for number in range(2):
            name = f"p{round_number}/{number}"
            producer = produce(a, name, range(100))
            consumer = consume(b, [from_there(a, name)])
            producer.join()
            consumer.join()
            assert consumer.records == list(range(100))
        eventually(lambda: connections(a) == connections(b) == 0, "the connection is closed")


def test_a_connection_that_nobody_wants_before_it_is_made_is_closed_in_peace(
    pair: tuple[Exchange, Exchange], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = pair
    with b.inside() as environment:
        gate = environment.create_gate("hasty", [from_there(a, "p")])
        gate.request_partitions()
        gate.close()
    eventually(lambda: connections(a) == connections(b) == 0, "the connection is closed")
    assert not caplog.records


def test_a_connection_with_one_user_left_stays(pair: tuple[Exchange, Exchange]) -> None:
    a, b = pair
    for name in ("first", "second"):
        produce(a, name, blobs(500))
    stays = consume(b, [from_there(a, "second")], held=True)
    consume(b, [from_there(a, "first")]).join()
    assert connections(a) == connections(b) == 1
    stays.let_go(b)
    stays.join()


@pytest.mark.parametrize("remote", [False, True])
def test_a_consumer_may_start_before_its_producer(
    pair: tuple[Exchange, Exchange], remote: bool
) -> None:
    a, b = pair if remote else (pair[0], pair[0])
    place = RemoteProducer(a.address) if remote else Here()
    consumer = consume(b, [at(place, "late", 0), at(place, "late", 1)])
    time.sleep(0.03)  # a few requests find nothing
    producer = produce(a, "late", range(1000), subpartitions=2)
    producer.join()
    consumer.join()
    assert sorted(consumer.records) == list(range(1000))


@pytest.mark.parametrize("remote", [False, True])
def test_a_producer_that_never_comes_is_an_error_after_the_last_pause(
    make_exchange: MakeExchange, remote: bool
) -> None:
    settings = quick(backoff_initial_ms=2, backoff_max_ms=10)
    a = make_exchange(settings)
    b = make_exchange(settings) if remote else a
    consumer = consume(b, [at(RemoteProducer(a.address) if remote else Here(), "never")])
    with pytest.raises(PartitionNotFound, match="never"):
        consumer.join()


def test_unknown_channels_are_placed_while_others_flow(pair: tuple[Exchange, Exchange]) -> None:
    a, b = pair
    first = produce(a, "known", range(1000))
    consumer = consume(
        b, [from_there(a, "known"), at(UnplacedProducer(), "there"), at(UnplacedProducer(), "here")]
    )
    first.join()
    eventually(lambda: len(consumer.received[0]) == 1000, "the known channel flows")
    for exchange, name, index, place in (
        (a, "there", 1, RemoteProducer(a.address)),
        (b, "here", 2, Here()),
    ):
        produce(exchange, name, range(500))
        with b.inside() as environment:
            environment.place(consumer.gate, index, place)  # type: ignore[arg-type]
    consumer.join()
    assert consumer.received[1:] == [list(range(500))] * 2


def test_a_union_reads_local_and_remote_gates_as_one(pair: tuple[Exchange, Exchange]) -> None:
    a, b = pair
    producers = [
        produce(a, "x", range(2000), subpartitions=2),
        produce(b, "y", range(1000)),
    ]
    consumer = consume(b, [from_there(a, "x", 0), from_there(a, "x", 1)], [from_here("y")])
    for task in (*producers, consumer):
        task.join()
    evens, odds, others = consumer.received
    assert (evens, odds) == (list(range(0, 2000, 2)), list(range(1, 2000, 2)))
    assert others == list(range(1000))


def test_a_subpartition_that_is_read_twice_is_an_error_at_the_second_reader(
    pair: tuple[Exchange, Exchange],
) -> None:
    a, b = pair
    producer = produce(a, "p", blobs(1000))
    first = consume(b, [from_there(a, "p")], held=True)
    eventually(lambda: first.gate.available(), "the first reads")
    second = consume(b, [from_there(a, "p")])
    with pytest.raises(PeerReported, match="already read"):
        second.join()
    third = consume(a, [from_here("p")])
    with pytest.raises(PartitionTaken):
        third.join()
    first.let_go(b)
    first.join()
    producer.join()


def test_hundreds_of_requests_before_the_handshake_all_arrive(make_exchange: MakeExchange) -> None:
    """More messages than fit into a few system calls go without anybody's help."""
    settings = quick(buffers_per_channel=0, floating_per_gate=8)
    a, b = make_exchange(settings, segments=1000), make_exchange(settings)
    count = 700
    consumer = consume(b, [from_there(a, "p", n) for n in range(count)])
    producer = produce(a, "p", range(10 * count), subpartitions=count)
    producer.join()
    consumer.join()
    assert consumer.received == [list(range(n, 10 * count, count)) for n in range(count)]


@pytest.mark.parametrize("timeout_ms", [-1, 0, 50])
def test_the_buffer_timeout_says_when_a_record_leaves(
    pair: tuple[Exchange, Exchange], timeout_ms: int
) -> None:
    a, b = pair
    consumer = consume(b, [from_there(a, "p")])
    producer = produce(a, "p", range(65), timeout_ms=timeout_ms, hold_after=64)
    if timeout_ms == -1:
        eventually(lambda: producer.written == 64, "the records are written")
        time.sleep(0.1)  # that nothing comes meanwhile is the subject
        assert consumer.records == []
    else:
        eventually(lambda: len(consumer.records) == 64, "the records come before the end")
    producer.let_go(a)
    producer.join()
    consumer.join()
    assert consumer.records == list(range(65))


def test_a_gate_without_room_for_its_connection_is_refused_and_gives_back_what_it_had(
    make_exchange: MakeExchange,
) -> None:
    a, b = make_exchange(), make_exchange(quick(landing_buffers=16), segments=12)
    with pytest.raises(InsufficientBuffers, match="connection"):
        consume(b, [from_there(a, "p")])
    with b.inside() as environment:
        environment.close()


def test_a_server_without_descriptors_pauses_and_accepts_again(
    make_exchange: MakeExchange,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    a, b = make_exchange(), make_exchange()
    server = a._server
    assert isinstance(server, Server)
    listening = server._sock

    class Exhausted:
        """A listening socket in a process that has no descriptor left for what it accepts."""

        refused = 0

        def accept(self) -> tuple[socket.socket, object]:
            if time.monotonic() < until:
                self.refused += 1
                raise OSError(errno.EMFILE, "Too many open files")
            return listening.accept()

        def __getattr__(self, name: str) -> object:
            return getattr(listening, name)

    until = time.monotonic() + 0.3
    exhausted = Exhausted()
    with a.inside():
        monkeypatch.setattr(server, "_sock", exhausted)
    with caplog.at_level(logging.WARNING):
        producer = produce(a, "p", range(100))
        consumer = consume(b, [from_there(a, "p")])
        producer.join()
        consumer.join()
    assert consumer.records == list(range(100))
    assert 1 <= exhausted.refused <= 3
    assert caplog.text.count("Too many open files") == exhausted.refused


@pytest.mark.parametrize("mode", list(FlowControl))
def test_connections_die_and_channels_of_others_live(
    make_exchange: MakeExchange, mode: FlowControl
) -> None:
    """A task manager that closes in the middle is lost for its readers, and only for them."""
    settings = quick(flow_control=mode)
    a, b, c = (make_exchange(settings) for _ in range(3))
    produce(a, "lost", blobs(50_000))
    living = produce(b, "living", range(20_000))
    lost = consume(c, [from_there(a, "lost")])
    reader = consume(c, [from_there(b, "living")])
    eventually(lambda: len(lost.records) > 100, "data flows")
    a.close()
    with pytest.raises((ProducerFailed, PeerLost)):
        lost.join()
    living.join()
    reader.join()
    assert reader.records == list(range(20_000))


def test_more_task_managers_than_may_wait_do_not_push_each_other_out(
    make_exchange: MakeExchange, caplog: pytest.LogCaptureFixture
) -> None:
    """All of them connect at the same moment from one address, while the producer is busy."""
    settings = quick(accept_backlog=2, connect_retry_ms=10_000)
    producing = make_exchange(settings)
    readers = 8
    producer = produce(producing, "p", range(800), subpartitions=readers)
    others = [make_exchange(settings, segments=40) for _ in range(readers)]
    with producing.inside():
        consumers = [
            consume(other, [from_there(producing, "p", lane)]) for lane, other in enumerate(others)
        ]
        time.sleep(0.1)  # all have spoken, nobody was heard
    for task in (producer, *consumers):
        task.join()
    assert sum(len(consumer.records) for consumer in consumers) == 800
    assert "wait to be proven" not in caplog.text


def test_a_true_peer_that_strangers_push_out_comes_back(
    make_exchange: MakeExchange, caplog: pytest.LogCaptureFixture
) -> None:
    settings = quick(accept_backlog=2, connect_retry_ms=20_000)
    producing, consuming = make_exchange(settings), make_exchange(settings)
    producer = produce(producing, "p", range(100))
    with ExitStack() as strangers, ExitStack() as busy:
        with producing.inside():
            consumer = consume(consuming, [from_there(producing, "p")])
            busy.enter_context(consuming.inside())  # it has connected, and cannot answer now
        eventually(lambda: len(producing._connections) == 1, "the true peer is there, unproven")
        for _ in range(4):
            peer = strangers.enter_context(raw_client(producing.address, settings))
            peer.send(LinkHello(0, settings.segment_bytes, b"n" * NONCE_BYTES))
            peer.receive()  # the challenge
        assert "wait to be proven" in caplog.text  # the oldest, which is the true one, went
        busy.close()
        consumer.join()
    producer.join()
    assert consumer.records == list(range(100))
