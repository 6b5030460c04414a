"""Blocking partitions: stored, then read by many, local and remote, then gone from the disk."""

import pytest

from headgate.base.errors import HeadgateError, PartitionError
from headgate.base.settings import Compression, FlowControl, Storage
from headgate.core.egress.partition import PartitionKind
from headgate.host.net.exchange import Exchange
from tests.host.conftest import MakeExchange
from tests.host.rig import (
    Producer,
    all_home,
    blobs,
    consume,
    eventually,
    from_here,
    from_there,
    produce,
    quick,
)


def store(exchange: Exchange, records: list[object], subpartitions: int = 1) -> Producer:
    producer = produce(
        exchange, "b", records, kind=PartitionKind.BLOCKING, subpartitions=subpartitions
    )
    producer.join()
    return producer


def release(exchange: Exchange, producer: Producer) -> None:
    with exchange.inside():
        producer.partition.release()


@pytest.mark.parametrize("storage", list(Storage))
@pytest.mark.parametrize("mode", list(FlowControl))
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_many_read_the_same_at_once_and_nothing_is_left(
    make_exchange: MakeExchange, storage: Storage, mode: FlowControl, compression: Compression
) -> None:
    settings = quick(storage=storage, flow_control=mode, compression=compression)
    a, b = make_exchange(settings), make_exchange(settings)
    count = 5000
    producer = store(a, list(range(count)), subpartitions=2)
    readers = []
    for _ in range(2):
        readers.append(consume(a, [from_here("b", 0), from_here("b", 1)]))
        readers.append(consume(b, [from_there(a, "b", 0), from_there(a, "b", 1)]))
    for reader in readers:
        reader.join()
        assert reader.received == [list(range(0, count, 2)), list(range(1, count, 2))]
    assert len(list(a.files.path.iterdir())) == 2
    again = consume(b, [from_there(a, "b", 1)])
    again.join()
    assert again.records == list(range(1, count, 2))
    release(a, producer)
    eventually(lambda: not list(a.files.path.iterdir()), "the files are gone")


def test_more_than_all_memory_is_written_without_a_reader(make_exchange: MakeExchange) -> None:
    settings = quick(storage=Storage.FILE)
    a, b = make_exchange(settings, segments=30), make_exchange(settings, segments=30)
    records = blobs(2000)  # 2 MB through 120 KB of buffers
    producer = store(a, list(records))
    reader = consume(b, [from_there(a, "b")])
    reader.join()
    assert reader.records == records
    release(a, producer)


def test_the_files_stay_until_the_last_reader_is_through(make_exchange: MakeExchange) -> None:
    a, b = make_exchange(), make_exchange()
    records = blobs(3000)
    producer = store(a, list(records))
    slow = consume(b, [from_there(a, "b")], held=True)
    eventually(slow.gate.available, "the reader has begun")
    release(a, producer)
    assert list(a.files.path.iterdir())
    slow.let_go(b)
    slow.join()
    assert slow.records == records
    eventually(lambda: not list(a.files.path.iterdir()), "the files are gone")


def test_readers_have_to_wait_for_the_end(make_exchange: MakeExchange) -> None:
    a, b = make_exchange(), make_exchange()
    producer = produce(a, "b", range(1000), kind=PartitionKind.BLOCKING, hold_after=64)
    for reader in (consume(a, [from_here("b")]), consume(b, [from_there(a, "b")])):
        with pytest.raises((PartitionError, HeadgateError), match="not finished"):
            reader.join()
    producer.let_go(a)
    producer.join()
    release(a, producer)


def test_a_producer_that_fails_leaves_no_file(make_exchange: MakeExchange) -> None:
    a = make_exchange(local_only=True)

    def records():  # type: ignore[no-untyped-def]
        yield from blobs(1000)
        raise ValueError("half-way")

    producer = produce(a, "b", records(), kind=PartitionKind.BLOCKING)
    with pytest.raises(ValueError, match="half-way"):
        producer.join()
    assert list(a.files.path.iterdir()) == []
    eventually(lambda: all_home(a), "all segments home")
