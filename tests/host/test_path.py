"""The whole path, from one exchange's writer through real sockets to another's reader."""

import random
import time

import pytest

from headgate.base.errors import ElementTooLarge, EventUnclaimed
from headgate.base.events import END_OF_PARTITION, CheckpointBarrier, TaskEvent
from headgate.base.ids import PartitionId
from headgate.base.settings import GIB, Compression, FlowControl, TransportKind
from headgate.core.egress.router import Broadcast
from headgate.core.task.environment import Here, RemoteProducer
from headgate.host.net.connection import Connection
from headgate.host.net.exchange import Exchange
from tests.host.conftest import MakeExchange
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

MODES = list(FlowControl)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("segment_bytes", [37, 4096, 32768])
def test_every_record_arrives_once_and_in_order(
    make_exchange: MakeExchange, transport: TransportKind, mode: FlowControl, segment_bytes: int
) -> None:
    settings = quick(transport=transport, flow_control=mode, segment_bytes=segment_bytes)
    a, b = make_exchange(settings), make_exchange(settings)
    count = 30_000 if segment_bytes > 100 else 1500
    producer = produce(a, "p", [(f"word {n}", n) for n in range(count)], subpartitions=4)
    remote = consume(b, [from_there(a, "p", n) for n in range(2)])
    local = consume(a, [from_here("p", n) for n in (2, 3)])
    for task in (producer, remote, local):
        task.join()
    for lane, records in enumerate(remote.received + local.received):
        assert [number for _, number in records] == list(range(lane, count, 4))
    assert remote.events == [END_OF_PARTITION] * 2


@pytest.mark.parametrize("mode", MODES)
def test_data_flows_both_ways_at_once(make_exchange: MakeExchange, mode: FlowControl) -> None:
    settings = quick(flow_control=mode)
    a, b = make_exchange(settings), make_exchange(settings)
    tasks = [
        produce(a, "from a", range(20_000), subpartitions=2),
        produce(b, "from b", range(20_000), subpartitions=2),
    ]
    readers = [
        consume(x, [from_there(y, name, n) for n in range(2)])
        for x, y, name in ((b, a, "from a"), (a, b, "from b"))
    ]
    for task in (*tasks, *readers):
        task.join()
    for reader in readers:
        assert sorted(reader.records) == list(range(20_000))


def test_a_broadcast_reaches_every_channel(pair: tuple[Exchange, Exchange]) -> None:
    a, b = pair
    producer = produce(a, "p", range(5000), subpartitions=3, router=Broadcast())
    remote = consume(b, [from_there(a, "p", 0), from_there(a, "p", 1)])
    local = consume(a, [from_here("p", 2)])
    for task in (producer, remote, local):
        task.join()
    assert remote.received + local.received == [list(range(5000))] * 3


@pytest.mark.parametrize("mode", MODES)
def test_a_slow_reader_holds_its_writer_back(
    make_exchange: MakeExchange, mode: FlowControl
) -> None:
    settings = quick(flow_control=mode, socket_buffer_bytes=16 * 1024)
    a, b = make_exchange(settings, segments=30), make_exchange(settings, segments=40)
    records = blobs(20_000)
    producer = produce(a, "p", records)
    consumer = consume(b, [from_there(a, "p")], held=True)
    eventually(lambda: producer.written > 0 and a.baton.asleep, "the writer waits")
    written = -1
    while written != producer.written:
        written = producer.written
        time.sleep(0.05)  # that it stands still for a while is the subject
    assert written < 1000  # what all buffers and sockets of both sides can hold
    consumer.let_go(b)
    consumer.join()
    producer.join()
    assert consumer.records == records


def test_a_slow_channel_does_not_hold_up_another_of_its_connection(
    pair: tuple[Exchange, Exchange],
) -> None:
    a, b = pair
    stuck = produce(a, "stuck", blobs(5000))
    held = consume(b, [from_there(a, "stuck")], held=True)
    flowing = produce(a, "flowing", range(20_000))
    reader = consume(b, [from_there(a, "flowing")])
    flowing.join()
    reader.join()
    assert reader.records == list(range(20_000))
    assert stuck.runner.is_alive
    held.let_go(b)
    held.join()
    stuck.join()


@pytest.mark.parametrize("exclusive", [0, 1])
def test_channels_without_exclusive_buffers_live_on_floating_ones(
    make_exchange: MakeExchange, exclusive: int
) -> None:
    settings = quick(buffers_per_channel=exclusive, floating_per_gate=2)
    a, b = make_exchange(settings), make_exchange(settings)
    producer = produce(a, "p", range(40_000), subpartitions=5)
    consumer = consume(b, [from_there(a, "p", n) for n in range(5)])
    producer.join()
    consumer.join()
    assert sorted(consumer.records) == list(range(40_000))


@pytest.mark.parametrize("mode", MODES)
def test_an_element_larger_than_all_buffers_arrives(
    make_exchange: MakeExchange, mode: FlowControl
) -> None:
    settings = quick(segment_bytes=16 * 1024, flow_control=mode, landing_buffers=4)
    a, b = make_exchange(settings, segments=20), make_exchange(settings, segments=20)
    large = random.Random(1).randbytes(20_000_000)
    producer = produce(a, "p", [b"before", large, b"after"])
    consumer = consume(b, [from_there(a, "p")], spill=True)
    producer.join()
    consumer.join()
    assert consumer.records == [b"before", large, b"after"]
    assert list(b.files.path.iterdir()) == []


def test_one_element_of_a_gibibyte_passes_through_few_buffers(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(quick(segment_bytes=32 * 1024), segments=50, local_only=True)
    size = GIB - 64
    producer = produce(exchange, "p", [bytes(size)])
    consumer = consume(exchange, [from_here("p")], spill=True, keep=len)
    producer.join(60)
    consumer.join(60)
    assert consumer.records == [size]


def test_an_element_above_the_limit_fails_the_reader_alone(
    pair: tuple[Exchange, Exchange],
) -> None:
    a, b = pair
    bad = produce(a, "bad", [bytes(100_000)])
    good = produce(a, "good", range(10_000))
    reader = consume(b, [from_there(a, "bad")], held=True)
    for deserializer in reader._deserializers:
        deserializer._max_element_bytes = 50_000
    other = consume(b, [from_there(a, "good")])
    reader.let_go(b)
    with pytest.raises(ElementTooLarge):
        reader.join()
    other.join()
    good.join()
    bad.runner.ends_within(5)
    assert other.records == list(range(10_000))


class Wire:
    """Counts the bytes that connections send."""

    def __init__(self, exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent = 0
        write = Connection._write

        def counted(connection: Connection, parts: list[bytes | bytearray | memoryview]) -> None:
            before = connection.link.outbox.pending_bytes
            write(connection, parts)
            if connection._loop is exchange.loop:
                self.sent += before - connection.link.outbox.pending_bytes

        monkeypatch.setattr(Connection, "_write", counted)


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
@pytest.mark.parametrize("mode", MODES)
def test_compressible_data_takes_fewer_bytes_on_the_wire(
    make_exchange: MakeExchange,
    monkeypatch: pytest.MonkeyPatch,
    compression: Compression,
    mode: FlowControl,
) -> None:
    settings = quick(compression=compression, flow_control=mode)
    a, b = make_exchange(settings), make_exchange(settings)
    wire = Wire(a, monkeypatch)
    words = [f"the same words again {n % 7}" for n in range(30_000)]
    chance = random.Random(2)
    noise = [chance.randbytes(500) for _ in range(1000)]
    for name, records, low, high in (("w", words, 0.0, 0.3), ("n", noise, 0.9, 1.2)):
        before = wire.sent
        producer = produce(a, name, records)
        consumer = consume(b, [from_there(a, name)])
        producer.join()
        consumer.join()
        assert consumer.records == records
        share = (wire.sent - before) / producer.writer.bytes_out
        assert low < share < high, f"{name}: {share:.2f} of the bytes were sent"


def test_compression_leaves_local_channels_alone(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(quick(compression=Compression.LZ4), local_only=True)
    producer = produce(exchange, "p", ["word"] * 10_000)
    consumer = consume(exchange, [from_here("p")])
    producer.join()
    consumer.join()
    assert consumer.records == ["word"] * 10_000


class Question(TaskEvent):
    """What a consumer asks its producers."""

    def __init__(self, text: str) -> None:
        self.text = text


@pytest.mark.parametrize("remote", [False, True])
def test_task_events_travel_back_to_the_producer(
    pair: tuple[Exchange, Exchange], remote: bool
) -> None:
    a, b = pair if remote else (pair[0], pair[0])
    asked: list[str] = []
    producer = produce(a, "p", blobs(20_000, 100))
    with a.inside() as environment:
        environment.events.subscribe(
            PartitionId("p"), Question, lambda event: asked.append(event.text)
        )
    place = RemoteProducer(a.address) if remote else Here()
    consumer = consume(b, [at(place, "p")], held=True)
    with b.inside():
        consumer.gate.send_event(Question("how much is it?"))
    eventually(lambda: asked == ["how much is it?"], "the question arrives")
    consumer.let_go(b)
    consumer.join()
    producer.join()


def test_an_event_that_nobody_receives_is_an_error_at_its_channel(
    pair: tuple[Exchange, Exchange],
) -> None:
    a, b = pair
    producer = produce(a, "p", blobs(20_000, 100))
    consumer = consume(b, [from_there(a, "p")], held=True)
    with b.inside():
        consumer.gate.send_event(Question("anybody?"))
    consumer.let_go(b)
    with pytest.raises(EventUnclaimed, match="'p'"):
        consumer.join()
    assert producer.runner.ends_within(5)


def test_runtime_events_keep_their_place_among_the_records(
    pair: tuple[Exchange, Exchange],
) -> None:
    a, b = pair
    barrier = CheckpointBarrier(7, 1000)
    seen: list[tuple[int, int]] = []
    consumer = consume(b, [from_there(a, "p")], held=True)
    consumer._keep = lambda record: seen.append((record, len(consumer.events)))
    producer = produce(a, "p", [1, 2, 3, barrier, 4, 5])
    consumer.let_go(b)
    producer.join()
    consumer.join()
    assert seen == [(1, 0), (2, 0), (3, 0), (4, 1), (5, 1)]
    assert consumer.events == [barrier, END_OF_PARTITION]
