"""The whole path between real processes, and what is left when one of them dies or hangs."""

import signal
import time
import zlib

import pytest

from headgate.base.errors import ConnectFailed, PeerLost, PeerSilent, TransportError
from headgate.base.settings import Compression, FlowControl
from headgate.host.net.exchange import Exchange
from tests.host.child import checksum, records
from tests.host.conftest import MakeExchange
from tests.host.processes import child, reading, writing
from tests.host.rig import all_home, blobs, consume, eventually, from_there, produce, quick


@pytest.mark.parametrize("mode", list(FlowControl))
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_two_processes_exchange_in_both_directions(
    make_exchange: MakeExchange, mode: FlowControl, compression: Compression
) -> None:
    settings = quick(flow_control=mode, compression=compression, segment_bytes=32768)
    here = make_exchange(settings, segments=200)
    count = 20_000
    producer = produce(here, "mine", records(count, 100), subpartitions=2)
    read = [reading(here.address, "mine", lanes=2)]
    write = [writing("theirs", count, lanes=2)]
    with child(settings, write=write, read=read) as there:
        consumer = consume(here, [there.channel("theirs", lane) for lane in (0, 1)])
        consumer.join()
        producer.join()
        expected = list(records(count, 100))
        assert consumer.received == [expected[0::2], expected[1::2]]
        assert there.answer("read") == [[count, checksum(consumer.received)]]
        there.finish()


def test_a_blocking_partition_is_read_from_another_process(make_exchange: MakeExchange) -> None:
    settings = quick()
    here = make_exchange(settings)
    with child(settings, write=[writing("b", 3000, kind="BLOCKING")]) as there:
        assert there.answer("read") == []
        eventually(lambda: is_stored(here, there.channel("b")), "the partition is finished")
        for _ in range(2):
            reader = consume(here, [there.channel("b")])
            reader.join()
            assert zlib.crc32(b"".join(reader.records)) == checksum([list(records(3000, 100))])[0]
        there.finish()


def is_stored(exchange: Exchange, channel) -> bool:  # type: ignore[no-untyped-def]
    probe = consume(exchange, [channel])
    probe.runner.ends_within(20)
    return probe.runner.error is None


@pytest.mark.parametrize("mode", list(FlowControl))
def test_a_producer_that_is_killed_is_lost_to_its_readers_alone(
    make_exchange: MakeExchange, mode: FlowControl
) -> None:
    settings = quick(flow_control=mode)
    here, other = make_exchange(settings), make_exchange(settings)
    living = produce(other, "living", range(20_000), hold_after=64)
    with child(settings, write=[writing("endless", None)], complete=False) as there:
        lost = consume(here, [there.channel("endless")], keep=len)
        reader = consume(here, [from_there(other, "living")])
        eventually(lambda: len(lost.records) > 1000 and len(reader.records) > 0, "data flows")
        there.signal(signal.SIGKILL)
        with pytest.raises(PeerLost) as caught:
            lost.join()
        host, port = there.address
        assert caught.value.peer == f"{host}:{port}"
    living.let_go(other)
    living.join()
    reader.join()
    assert reader.records == list(range(20_000))


def test_a_consumer_that_is_killed_gives_its_producer_free(make_exchange: MakeExchange) -> None:
    settings = quick()
    here = make_exchange(settings)
    producer = produce(here, "p", blobs(50_000, 100))
    other = produce(here, "q", range(20_000))
    with child(settings, read=[reading(here.address, "p")], complete=False) as there:
        eventually(lambda: producer.written > 5000, "data flows")
        there.signal(signal.SIGKILL)
    reader = consume(here, [from_there(here, "q")])
    reader.join()
    other.join()
    assert reader.records == list(range(20_000))
    assert producer.runner.ends_within(20), "it waits for a reader that has gone"
    eventually(lambda: all_home(here), "all segments home")


def test_a_process_that_hangs_is_given_up_and_named(make_exchange: MakeExchange) -> None:
    settings = quick(heartbeat_interval_ms=100, heartbeat_timeout_ms=600)
    here, other = make_exchange(settings), make_exchange(settings)
    quiet = produce(other, "quiet", range(100), hold_after=64)
    reader = consume(here, [from_there(other, "quiet")])
    with child(settings, write=[writing("endless", None)], complete=False) as there:
        lost = consume(here, [there.channel("endless")], keep=len)
        eventually(lambda: len(lost.records) > 100, "data flows")
        there.signal(signal.SIGSTOP)
        with pytest.raises(PeerSilent, match="hangs") as caught:
            lost.join()
        host, port = there.address
        assert caught.value.peer == f"{host}:{port}"
        there.signal(signal.SIGKILL)
    quiet.let_go(other)  # it was silent for longer, but alive
    quiet.join()
    reader.join()
    assert reader.records == list(range(100))


def test_a_hanging_process_that_does_not_even_answer_is_given_up(
    make_exchange: MakeExchange,
) -> None:
    settings = quick(connect_timeout_ms=300)
    here = make_exchange(settings)
    with child(settings, write=[writing("p", 10)], complete=False) as there:
        there.answer("read")
        there.signal(signal.SIGSTOP)  # its kernel still accepts
        with pytest.raises(ConnectFailed, match="no handshake within 300 ms"):
            consume(here, [there.channel("p")]).join()
        there.signal(signal.SIGCONT)


def test_a_process_that_was_stopped_itself_does_not_blame_its_peers(
    make_exchange: MakeExchange,
) -> None:
    """After a long stop the signs of life lie in the socket; they are read before the verdict."""
    settings = quick(heartbeat_interval_ms=100, heartbeat_timeout_ms=600)
    here = make_exchange(settings)
    producer = produce(here, "p", blobs(200), hold_after=64)
    with child(settings, read=[reading(here.address, "p")]) as there:
        eventually(lambda: producer.written == 64, "data flows")
        with here.inside():
            (connection,) = here._connections
            connection.link._settings = quick(heartbeat_timeout_ms=60_000, heartbeat_interval_ms=50)
        there.signal(signal.SIGSTOP)
        time.sleep(1.0)  # longer than its heartbeat timeout: the stop is the subject
        there.signal(signal.SIGCONT)
        time.sleep(0.3)  # it had time to judge
        producer.let_go(here)
        producer.join()
        assert there.answer("read")[0][0] == 200
        there.finish()


def test_a_process_of_another_job_is_refused(make_exchange: MakeExchange) -> None:
    settings = quick()
    stranger = make_exchange(settings, secret=b"another job's secret")
    with (
        child(settings, write=[writing("p", 10)], complete=False) as there,
        pytest.raises(TransportError, match="secret"),
    ):
        consume(stranger, [there.channel("p")]).join()
