"""Readers that want shorter buffers: the writer obeys from then on, what arrives is the same."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, Record, Watermark
from headgate.base.settings import KIB
from headgate.core.buffers.buffer import Buffer
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.egress.partition import Partition, PartitionKind
from headgate.core.egress.router import Broadcast, CustomPartitioner, Router
from headgate.core.egress.writer import BUNDLE_BYTES, BUNDLE_RECORDS, RecordWriter
from headgate.core.exchange.view import NO_LIMIT, View
from tests.arena import assert_all_home, plain_segments
from tests.core.egress.chosen import emit_to
from tests.core.egress.kit import MemoryStore, make_partition, readers_of

SEGMENT = 4 * KIB


class Path:
    """A writer, its partition, and the views of its readers."""

    def __init__(self, channels: int = 1, router: Router | None = None) -> None:
        self.shelf = GlobalPool(plain_segments(300, SEGMENT))
        self.partition: Partition = make_partition(self.shelf, channels, maximum=300)
        self.writer = RecordWriter(self.partition, router or by_number())
        self.views: list[View] = [
            self.partition.create_view(index, lambda: None) for index in range(channels)
        ]

    def sizes(self, channel: int = 0) -> list[int]:
        """Bytes of all buffers that wait, but for the last, which may be short."""
        found = [len(buffer.view) for buffer in self.buffers(channel)]
        return found[:-1]

    def buffers(self, channel: int = 0) -> list[Buffer]:
        found = []
        while (polled := self.views[channel].poll()) is not None:
            found.append(polled.buffer)
            polled.buffer.release()
        return found

    def emit(self, count: int = 200, size: int = 50) -> None:
        self.writer.emit_all([(number, "x" * size) for number in range(count)])
        self.writer.seal()
        self.writer.flush_all()

    def end(self) -> None:
        self.writer.close()
        self.partition.release()
        assert_all_home(self.shelf)


def by_number() -> Router:
    return CustomPartitioner(lambda key, channels: key % channels, lambda record: record[0])


def test_buffers_are_as_long_as_their_reader_wants_from_then_on() -> None:
    path = Path()
    path.emit()
    assert set(path.sizes()) == {SEGMENT}
    path.views[0].resize(300)
    path.emit()
    path.emit()
    assert set(path.sizes()) == {300}
    path.views[0].resize(NO_LIMIT)
    path.emit()
    path.emit()
    assert set(path.sizes()[1:]) == {SEGMENT}
    path.end()


def test_what_waits_stays_as_it_is() -> None:
    path = Path()
    path.emit()
    path.views[0].resize(300)
    assert SEGMENT in path.sizes()
    path.end()


def test_a_buffer_in_the_making_is_cut_where_it_stands() -> None:
    path = Path()
    path.emit(count=10)
    written = path.writer._builders[0]
    assert written is not None and written.committed > 300
    path.views[0].resize(300)
    path.emit(count=10)
    first = path.buffers()[0]
    assert len(first.view) == written.committed < SEGMENT
    path.end()


def test_one_that_is_not_so_far_yet_is_filled_to_the_new_size() -> None:
    path = Path()
    path.emit(count=2)
    written = path.writer._builders[0]
    assert written is not None and written.committed < 300
    path.views[0].resize(300)
    path.emit(count=10)
    assert set(path.sizes()) == {300}
    path.end()


def test_bundles_become_short_with_the_buffers() -> None:
    """A bundle can be read when all of it is there: long ones would wait for their own end."""
    path = Path()
    path.emit(count=1)  # it knows now how long records are
    path.buffers()
    path.views[0].resize(600)
    assert path.writer._limit_of(0) * path.writer._record_bytes <= 600
    path.emit(count=200)
    path.views[0].resize(NO_LIMIT)
    in_bytes = BUNDLE_BYTES // path.writer._record_bytes
    assert path.writer._limit_of(0) == min(BUNDLE_RECORDS, in_bytes)
    path.end()


def test_a_record_that_is_longer_than_a_buffer_still_goes() -> None:
    path = Path()
    path.views[0].resize(10)
    path.emit(count=2, size=100)
    assert set(path.sizes()) == {10}
    path.end()


def test_each_channel_has_a_size_of_its_own() -> None:
    path = Path(channels=2)
    path.views[1].resize(300)
    path.emit(count=400)
    assert set(path.sizes(0)) == {SEGMENT}
    assert set(path.sizes(1)) == {300}
    path.end()


def test_what_goes_to_all_suits_who_wants_the_shortest() -> None:
    path = Path(channels=3, router=Broadcast())
    path.views[1].resize(300)
    path.views[2].resize(700)
    path.emit()
    assert [set(path.sizes(channel)) for channel in range(3)] == [{300}] * 3
    path.views[1].resize(NO_LIMIT)
    path.emit()
    path.emit()
    assert [set(path.sizes(channel)[1:]) for channel in range(3)] == [{700}] * 3
    emit_to(path.writer, 1, [(0, "x" * 2000)])
    assert max(len(buffer.view) for buffer in path.buffers(1)) <= 700
    path.end()


def test_records_by_reference_come_in_short_bundles_too() -> None:
    path = Path()
    path.writer.hands_over = True
    path.views[0].take_references()
    path.emit(count=200)
    whole = path.buffers()
    assert [len(buffer.bundle.records) for buffer in whole if buffer.bundle] == [200]
    weight = whole[0].weight // 200
    assert 50 < weight < 100, "about what they would be as bytes"
    path.views[0].resize(10 * weight)
    path.emit(count=200)
    bundles = [buffer for buffer in path.buffers() if buffer.bundle is not None]
    assert [len(buffer.bundle.records) for buffer in bundles if buffer.bundle] == [10] * 20
    assert all(buffer.weight == 10 * weight for buffer in bundles)
    path.end()


def test_a_writer_that_comes_late_asks_what_readers_have_wanted() -> None:
    shelf = GlobalPool(plain_segments(20, SEGMENT))
    partition = make_partition(shelf)
    view = partition.create_view(0, lambda: None)
    view.resize(300)
    writer = RecordWriter(partition, by_number())
    assert (writer.sizes, writer.resizes) == ([300], 1)
    view.resize(300)
    assert writer.resizes == 1, "the same again is no news"
    writer.close()
    partition.release()
    view.resize(200)
    assert writer.resizes == 1, "nobody writes any more"


def test_a_stored_partition_is_as_it_is() -> None:
    shelf = GlobalPool(plain_segments(20, SEGMENT))
    partition = make_partition(shelf, 1, PartitionKind.BLOCKING, stores=[MemoryStore()])
    writer = RecordWriter(partition, by_number())
    writer.emit_all([(0, "x")])
    writer.finish()
    view = partition.create_view(0, lambda: None)
    view.resize(1)
    polled = view.poll()
    assert polled is not None and len(polled.buffer.view) > 1
    view.release()
    partition.release()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("emit"), st.integers(1, 30), st.integers(0, 200)),
            st.tuples(st.just("resize"), st.integers(0, 2), st.sampled_from((1, 7, 60, NO_LIMIT))),
            st.tuples(st.just("mark"), st.integers(0, 9), st.just(0)),
        ),
        max_size=25,
    ),
    st.booleans(),
)
def test_whatever_readers_want_they_get_all_records_in_order(
    doings: list[tuple[str, int, int]], broadcasts: bool
) -> None:
    def read(ready: Callable[[], bool] = lambda: False) -> None:
        for reader in readers:
            reader.read()

    shelf = GlobalPool(plain_segments(20, 64))
    partition = make_partition(shelf, 3, wait=read)
    writer = RecordWriter(partition, Broadcast() if broadcasts else by_number())
    readers = readers_of(partition)
    sent: list[list[Any]] = [[], [], []]
    number = 0
    for what, count, size in doings:
        if what == "resize":
            readers[count].view.resize(size)
        elif what == "mark":
            writer.emit_element(Watermark(count))
            for lane in sent:
                lane.append(Watermark(count))
        else:
            records = [(number + at, "x" * size) for at in range(count)]
            number += count
            writer.emit_all(list(records))
            for record in records:
                for lane in sent if broadcasts else [sent[record[0] % 3]]:
                    lane.append(record)
            writer.seal()
        writer.flush_all()
        read()
    assert [flat(reader.got) for reader in readers] == sent
    writer.close()
    for reader in readers:
        reader.close()
    partition.release()
    assert_all_home(shelf)


def flat(got: list[Any]) -> list[Record | Watermark]:
    return [
        record
        for element in got
        for record in (element.records if isinstance(element, Bundle) else [element])
    ]


@pytest.mark.parametrize("size", [0, 300, 5 * SEGMENT])
def test_a_builder_knows_its_end(size: int) -> None:
    path = Path()
    builder = path.partition.request_builder()
    assert builder.capacity == SEGMENT
    builder.append(memoryview(bytes(100)))
    builder.trim(size)
    assert builder.capacity == max(100, min(SEGMENT, size))
    builder.trim(SEGMENT)
    assert builder.capacity == max(100, min(SEGMENT, size)), "it never grows"
    assert builder.append(memoryview(bytes(SEGMENT))) == builder.capacity - 100
    assert builder.is_full
    builder.finish()
    path.end()
