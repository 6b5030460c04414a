"""What users rely on, whoever drives the machines."""

from collections.abc import Iterator

import pytest

from headgate.base.errors import ProducerFailed
from headgate.base.events import END_OF_PARTITION, CheckpointBarrier
from tests.drivers.driver import Driver

PLACES = pytest.mark.parametrize("reader", [0, 1], ids=["local", "remote"])


def blobs(count: int) -> list[bytes]:
    return [number.to_bytes(1000, "little") for number in range(count)]


@PLACES
def test_records_arrive_once_and_in_order(driver: Driver, reader: int) -> None:
    writing = driver.write(0, "p", range(5000), lanes=2)
    reading = driver.read(reader, "p", [0, 1], source=0)
    assert driver.outcome(writing) is None
    assert driver.outcome(reading) is None
    assert reading.received == [list(range(0, 5000, 2)), list(range(1, 5000, 2))]


@PLACES
def test_a_partition_ends_for_every_channel_once(driver: Driver, reader: int) -> None:
    driver.write(0, "p", [], lanes=3)
    reading = driver.read(reader, "p", [0, 1, 2], source=0)
    assert driver.outcome(reading) is None
    assert reading.received == [[], [], []]
    assert reading.events == [END_OF_PARTITION] * 3


@PLACES
def test_events_keep_their_place(driver: Driver, reader: int) -> None:
    barrier = CheckpointBarrier(1, 2)
    driver.write(0, "p", [1, 2, barrier, 3])
    reading = driver.read(reader, "p", [0], source=0)
    assert driver.outcome(reading) is None
    assert reading.received == [[1, 2, 3]]
    assert reading.events == [barrier, END_OF_PARTITION]


@PLACES
def test_a_reader_that_waits_holds_its_writer_back(driver: Driver, reader: int) -> None:
    records = blobs(4000)
    writing = driver.write(0, "p", records)
    reading = driver.read(reader, "p", [0], source=0, held=True)
    driver.run_until(lambda: writing.written > 0, "the writer begins")
    driver.run_until_still(lambda: writing.written)
    held = writing.written * len(records[0])
    assert held < 4 * driver.total_segments * driver.segment_bytes
    driver.let_go(reading)
    assert driver.outcome(reading) is None
    assert driver.outcome(writing) is None
    assert reading.received == [records]


@PLACES
def test_a_producer_that_fails_is_told_to_its_reader(driver: Driver, reader: int) -> None:
    def records() -> Iterator[bytes]:
        yield from blobs(2000)  # more than fits: it cannot fail before it is read
        raise ValueError("the user's mistake")

    writing = driver.write(0, "p", records())
    reading = driver.read(reader, "p", [0], source=0)
    assert isinstance(driver.outcome(writing), ValueError)
    error = driver.outcome(reading)
    assert isinstance(error, ProducerFailed)
    assert "the user's mistake" in str(error)
    got = reading.received[0]
    assert got == blobs(2000)[: len(got)]
