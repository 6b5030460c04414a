"""The record writer: what a channel gets is what was emitted for it, in order.

Rows 19-28, 31, 34-36, 149.
"""

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import (
    MIN_WATERMARK_MS,
    PREFIX,
    Bundle,
    Element,
    LatencyMarker,
    StreamStatus,
    Watermark,
)
from headgate.base.errors import FlushFailed, PartitionFinished, SettingsInvalid, TaskCancelled
from headgate.base.events import (
    END_OF_PARTITION,
    CheckpointBarrier,
    EndOfSuperstep,
    Event,
)
from headgate.base.fields import TUPLES, RecordFields, Same
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.checkpoint.restored import reassigned_bundles
from headgate.core.egress.partition import Partition, PartitionKind
from headgate.core.egress.router import (
    Broadcast,
    CustomPartitioner,
    Forward,
    KeyGroupPartitioner,
    RoundRobin,
    Router,
)
from headgate.core.egress.writer import (
    BUNDLE_BYTES,
    BUNDLE_MAX_BYTES,
    BUNDLE_RECORDS,
    PUT_TOGETHER,
    Flusher,
    RecordWriter,
)
from headgate.core.ingress.deserializer import Deserializer
from tests.arena import assert_all_home, plain_pool
from tests.core.egress.chosen import emit_to
from tests.core.egress.kit import ChannelReader, MemoryStore, make_partition, readers_of

MakePool = Callable[..., GlobalPool]


class PlainText:
    """One byte for each character: tests can count them."""

    def __init__(self) -> None:
        self.dumped: list[Sequence[Any]] = []

    def dumps(self, records: Sequence[Any]) -> bytes:
        self.dumped.append(records)
        return "".join(records[0] if isinstance(records, tuple) else records).encode()

    def loads(self, data: memoryview) -> list[str]:
        return list(bytes(data).decode())


def totals(writer: RecordWriter) -> tuple[int, int, int, int]:
    return writer.records_out, writer.bytes_out, writer.buffers_out, writer.watermark_ms


def got_by(partition: Partition, readers: list[ChannelReader]) -> list[list[Element | Event]]:
    """End the reading and say what every channel got."""
    for reader in readers:
        reader.read()
        reader.close()
    assert partition.pool.lent == 0
    return [reader.got for reader in readers]


# Where records go.


@pytest.mark.parametrize("timed", [False, True])
def test_tuples_that_are_taken_apart_stay_so_if_they_are_plain(
    make_pool: MakePool, timed: bool
) -> None:
    partition = make_partition(make_pool(8), 2)
    readers = readers_of(partition)
    writer = RecordWriter(partition, KeyGroupPartitioner(lambda pair: pair[0]))
    assert writer.takes_fields(TUPLES, 2)
    for words in (["a", "b", "c"], ["d"]):
        times: list[int | None] | None = [5] * len(words) if timed else None
        writer.emit_bundle(Bundle.of_fields(RecordFields([words, Same(1)], len(words)), times))
    writer.emit_all([("e", 2)], [6] if timed else None)
    writer.seal()
    writer.emit_bundle(
        Bundle.of_fields(RecordFields([["f"], Same((1,))], 1), [5] if timed else None)
    )
    writer.finish()
    found = [thing for got in got_by(partition, readers) for thing in got]
    records = sorted(
        record for part in found if isinstance(part, Bundle) for record in part.records
    )
    assert records == [*((word, 1) for word in "abcd"), ("e", 2), ("f", (1,))]
    assert writer.records_out == 6


def test_a_writer_no_longer_wants_fields_that_it_had_to_put_together(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8), 1)
    readers = readers_of(partition)
    writer = RecordWriter(partition, KeyGroupPartitioner(lambda pair: pair[0]))
    for number in range(PUT_TOGETHER):
        assert writer.takes_fields(TUPLES, 2)
        writer.emit_bundle(Bundle.of_fields(RecordFields([[number], Same([])], 1)))
        writer.seal()
    assert not writer.takes_fields(TUPLES, 2)
    writer.finish()
    assert len(got_by(partition, readers)[0]) == PUT_TOGETHER + 1


@pytest.mark.parametrize(
    ("router", "serializer"),
    [
        (KeyGroupPartitioner(lambda pair: pair[0]), PlainText()),
        (KeyGroupPartitioner(lambda pair: str(pair)), None),
        (KeyGroupPartitioner(lambda pair: pair.word), None),
        (RoundRobin(), None),
        (Broadcast(), None),
    ],
)
def test_where_tuples_are_put_together_anyway_no_fields_are_wanted(
    make_pool: MakePool, router: Router, serializer: Any
) -> None:
    partition = make_partition(make_pool(8), 2)
    writer = RecordWriter(partition, router, serializer)
    assert not writer.takes_fields(TUPLES, 2)
    writer.close()
    partition.release()


def test_the_caller_may_reuse_its_lists(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8))
    readers = readers_of(partition)
    writer = RecordWriter(partition, Forward())
    records, times = ["a"], [1]
    writer.emit_all(records, times)
    records.append("x")
    times.append(9)
    writer.emit_all(["b"], [2])
    writer.finish()
    assert got_by(partition, readers) == [[Bundle(["a", "b"], [1, 2]), END_OF_PARTITION]]


@pytest.mark.parametrize("router", [Forward(), Broadcast()])
def test_emitting_nothing_writes_nothing(make_pool: MakePool, router: Router) -> None:
    partition = make_partition(make_pool(8))
    readers = readers_of(partition)
    writer = RecordWriter(partition, router)
    writer.emit_all([])
    writer.emit_all([], [])
    writer.seal()
    assert partition.pool.lent == 0
    writer.finish()
    assert got_by(partition, readers) == [[END_OF_PARTITION]]


# Bundles.


def test_records_wait_in_a_list_until_they_are_sealed(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8))
    serializer = PlainText()
    writer = RecordWriter(partition, Forward(), serializer)
    for record in "abc":
        writer.emit(record)
    assert (serializer.dumped, partition.pool.lent) == ([], 0)
    writer.seal()
    assert serializer.dumped == [["a", "b", "c"]]
    writer.seal()
    assert len(serializer.dumped) == 1
    writer.close()
    partition.release()


def test_a_bundle_holds_so_many_records_and_no_more(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8, segment_bytes=8192), 1)
    serializer = PlainText()
    writer = RecordWriter(partition, Forward(), serializer)
    for _ in range(BUNDLE_RECORDS - 1):
        writer.emit("x")
    assert serializer.dumped == []
    writer.emit("x")
    assert [len(bundle) for bundle in serializer.dumped] == [BUNDLE_RECORDS]
    writer.emit_all(["x"] * (2 * BUNDLE_RECORDS + 1))
    assert [len(bundle) for bundle in serializer.dumped[1:]] == [BUNDLE_RECORDS] * 2 + [1]
    writer.close()
    partition.release()


def test_large_records_make_shorter_bundles(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8, segment_bytes=1 << 20))
    serializer = PlainText()
    writer = RecordWriter(partition, Forward(), serializer)
    record = "x" * (BUNDLE_BYTES // 10)
    writer.emit(record)
    writer.seal()
    writer.emit_all([record] * 25, list(range(25)))
    sizes = [len(bundle[0]) for bundle in serializer.dumped[1:]]
    assert sizes == [9, 9, 7]
    assert serializer.dumped[2] == ([record] * 9, list(range(9, 18)))
    writer.close()
    partition.release()


def test_a_record_beyond_every_limit_travels_alone(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8, segment_bytes=1 << 20))
    serializer = PlainText()
    writer = RecordWriter(partition, Forward(), serializer)
    writer.emit("x" * (2 * BUNDLE_BYTES))
    writer.seal()
    writer.emit_all(["y", "z"])
    assert serializer.dumped[1:] == [["y"], ["z"]]
    writer.close()
    partition.release()


def test_many_large_records_never_add_up_to_an_element_that_is_refused(
    make_pool: MakePool,
) -> None:
    partition = make_partition(make_pool(48, segment_bytes=1 << 20))
    (reader,) = readers_of(partition)
    writer = RecordWriter(partition, Forward())
    records = [bytes([n]) * (BUNDLE_MAX_BYTES // 5) for n in range(7)]
    writer.emit_all(records, list(range(7)))
    writer.finish()
    reader.read()
    bundles = [element for element in reader.got if isinstance(element, Bundle)]
    assert [len(bundle.records) for bundle in bundles] == [3, 4]
    assert [record for bundle in bundles for record in bundle.records] == records
    assert [time for bundle in bundles for time in bundle.timestamps or []] == list(range(7))
    reader.close()


# Elements and events among records.


# Broadcast (rows 21, 22).


def test_elements_and_events_keep_their_place_among_records(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(16), 2)
    readers = readers_of(partition)
    writer = RecordWriter(partition, RoundRobin())
    barrier = CheckpointBarrier(1, 0)
    writer.emit_all(["a", "b"])
    writer.emit_element(Watermark(5))
    writer.emit("c")
    writer.emit_element(StreamStatus(False), channel=1)
    writer.broadcast_event(barrier)
    writer.emit("d")
    writer.finish()
    assert got_by(partition, readers) == [
        [Bundle(["a"]), Watermark(5), Bundle(["c"]), barrier, END_OF_PARTITION],
        [
            Bundle(["b"]),
            Watermark(5),
            StreamStatus(False),
            barrier,
            Bundle(["d"]),
            END_OF_PARTITION,
        ],
    ]


def test_a_broadcast_record_is_serialized_once_into_one_shared_buffer(
    make_pool: MakePool,
) -> None:
    partition = make_partition(make_pool(8), 3)
    readers = readers_of(partition)
    serializer = PlainText()
    writer = RecordWriter(partition, Broadcast(), serializer)
    writer.emit_all(["a", "b"])
    writer.seal()
    assert serializer.dumped == [["a", "b"]]
    assert (partition.pool.lent, partition.queued) == (1, 3)
    writer.flush_all()
    polled = [reader.view.poll() for reader in readers]
    assert {bytes(taken.buffer.view) for taken in polled if taken} == {PREFIX.pack(3, 1) + b"ab"}
    leases = [taken.buffer.lease for taken in polled if taken]
    assert leases[0] is leases[1] is leases[2]
    for taken in polled:
        assert taken is not None
        taken.buffer.release()
    writer.finish()
    for reader in readers:
        reader.close()


# Buffers (rows 24, 25).


def test_a_buffer_is_requested_at_the_first_byte_for_a_channel(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8), 3)
    writer = RecordWriter(partition, CustomPartitioner(lambda key, channels: 2))
    assert partition.pool.lent == 0
    writer.emit("a")
    writer.seal()
    assert [s.queued for s in partition.subpartitions] == [0, 0, 1]
    writer.close()
    partition.release()


def test_no_buffer_is_requested_after_a_record_that_exactly_fills_one(
    make_pool: MakePool,
) -> None:
    partition = make_partition(make_pool(8, segment_bytes=16))
    writer = RecordWriter(partition, Forward(), PlainText())
    writer.emit("x" * (16 - PREFIX.size))
    writer.seal()
    assert (partition.pool.lent, partition.queued) == (1, 1)
    assert totals(writer) == (1, 16, 1, MIN_WATERMARK_MS)
    writer.emit("y" * (32 - PREFIX.size))
    writer.seal()
    assert (partition.pool.lent, partition.queued, writer.buffers_out) == (3, 3, 3)
    writer.emit("z")
    writer.seal()
    assert (partition.pool.lent, writer.buffers_out) == (4, 3)
    writer.close()
    partition.release()


def test_bytes_and_buffers_count_when_a_buffer_is_finished(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8, segment_bytes=32), 2)
    writer = RecordWriter(partition, RoundRobin(), PlainText())
    writer.emit_all(["abc", "de"])
    writer.seal()
    assert totals(writer) == (2, 0, 0, MIN_WATERMARK_MS)
    writer.broadcast_event(CheckpointBarrier(1, 0))
    written = 2 * PREFIX.size + 5
    assert totals(writer) == (2, written, 2, MIN_WATERMARK_MS)
    writer.broadcast_event(CheckpointBarrier(2, 0))
    assert totals(writer) == (2, written, 2, MIN_WATERMARK_MS)
    partition.release()


# Flushing (row 31).


def test_without_a_timeout_only_full_buffers_are_told(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8, segment_bytes=16))
    (reader,) = readers_of(partition)
    writer = RecordWriter(partition, Forward(), PlainText(), timeout_ms=-1)
    writer.emit("x")
    writer.seal()
    assert reader.notified == 0
    writer.emit("y" * 16)
    writer.seal()
    assert reader.notified == 1
    writer.close()
    reader.close()


def test_timeout_zero_flushes_the_target_of_every_record(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8), 2)
    readers = readers_of(partition)
    writer = RecordWriter(partition, RoundRobin(), timeout_ms=0)
    calls = []
    for emit in (
        lambda: writer.emit("a"),
        lambda: writer.emit("b"),
        lambda: writer.emit_element(Watermark(1), channel=1),
        lambda: writer.emit_element(Watermark(2)),
        lambda: emit_to(writer, 0, ["c"]),
    ):
        emit()
        calls.append([reader.awake for reader in readers])
        for reader in readers:
            reader.read()
    assert calls == [[True, False], [False, True], [False, True], [True, True], [True, False]]
    writer.finish()
    assert got_by(partition, readers) == [
        [Bundle(["a"]), Watermark(2), Bundle(["c"]), END_OF_PARTITION],
        [Bundle(["b"]), Watermark(1), Watermark(2), END_OF_PARTITION],
    ]


def test_timeout_zero_flushes_every_channel_of_a_broadcast(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8), 2)
    readers = readers_of(partition)
    writer = RecordWriter(partition, Broadcast(), timeout_ms=0)
    writer.emit("a")
    assert [reader.notified for reader in readers] == [1, 1]
    emit_to(writer, 0, ["b"])
    for reader in readers:
        reader.read()
    assert readers[0].got == [Bundle(["a"]), Bundle(["b"])]
    writer.finish()
    got_by(partition, readers)


@pytest.mark.parametrize("timeout_ms", [-2, -100])
def test_a_timeout_below_minus_one_is_refused(make_pool: MakePool, timeout_ms: int) -> None:
    with pytest.raises(SettingsInvalid, match=f"{timeout_ms} is below -1") as caught:
        RecordWriter(make_partition(make_pool(4)), Forward(), timeout_ms=timeout_ms)
    assert caught.value.key == "execution.buffer-timeout.interval"


# Availability and the end (rows 35, 62).


def test_closing_in_the_middle_of_a_record_gives_the_buffers_back(make_pool: MakePool) -> None:
    def wait(condition: Callable[[], bool]) -> None:
        raise TaskCancelled("by the user")

    partition = make_partition(make_pool(4, segment_bytes=16), 1, maximum=2, wait=wait)
    writer = RecordWriter(partition, Forward())
    with pytest.raises(TaskCancelled):
        writer.emit_all(["x" * 500] * BUNDLE_RECORDS)
    writer.emit("waits in a list")
    writer.close()
    writer.close()
    partition.release()
    assert partition.pool.lent == 0


def test_nothing_can_be_written_after_the_end(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(4))
    writer = RecordWriter(partition, Forward())
    writer.finish()
    writer.emit("a")
    with pytest.raises(PartitionFinished):
        writer.seal()
    writer.close()
    with pytest.raises(PartitionFinished):
        writer.finish()
    partition.release()


def test_a_record_that_cannot_be_serialized_leaves_the_writer_usable(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(8))
    readers = readers_of(partition)
    writer = RecordWriter(partition, Forward())
    writer.emit(lambda: None)
    with pytest.raises((AttributeError, pickle.PicklingError)):  # which one depends on Python
        writer.seal()
    writer.emit("a")
    writer.finish()
    assert got_by(partition, readers) == [[Bundle(["a"]), END_OF_PARTITION]]


# Whatever is written, cut and read in whatever order: every channel gets what was meant for it.

INT64 = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.integers(0, 9) | st.text(max_size=8) | st.binary(max_size=80)
ELEMENTS = (
    st.builds(Watermark, INT64)
    | st.builds(StreamStatus, st.booleans())
    | st.builds(LatencyMarker, INT64, INT64, st.integers(0, 99))
)
EVENTS = st.builds(CheckpointBarrier, INT64, INT64) | st.just(EndOfSuperstep())
TIMES = st.none() | st.integers(0, 99)
ACTIONS = st.one_of(
    st.tuples(st.just("emit"), RECORDS, TIMES),
    st.tuples(st.just("emit"), RECORDS, TIMES),
    st.tuples(st.just("emit all"), st.lists(st.tuples(RECORDS, TIMES), max_size=9), st.booleans()),
    st.tuples(st.just("emit to"), st.integers(0, 3), st.lists(RECORDS, max_size=3)),
    st.tuples(st.just("element"), ELEMENTS, st.none() | st.integers(0, 3)),
    st.tuples(st.just("event"), EVENTS),
    st.tuples(st.just("seal")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("tick")),
    st.tuples(st.just("read"), st.integers(0, 3)),
)
ROUTERS: dict[str, Callable[[], Router]] = {
    "round robin": RoundRobin,
    "keyed": lambda: KeyGroupPartitioner(lambda record: record),
    "custom": lambda: CustomPartitioner(lambda record, channels: len(repr(record)) % channels),
    "broadcast": Broadcast,
}
Item = tuple[Any, ...] | Element | Event


class Path:
    """A writer, its readers, and what every channel should have got."""

    def __init__(self, segment_bytes: int, channels: int, router: str, timeout_ms: int) -> None:
        self.channels = channels
        self.expected: list[list[Item]] = [[] for _ in range(channels)]
        self.shelf = plain_pool(channels + 4, segment_bytes)
        partition = make_partition(
            self.shelf, channels, maximum=channels + 1, overdraft=2, wait=self._wait
        )
        self.partition = partition
        self.readers = readers_of(partition)
        self.writer = RecordWriter(partition, ROUTERS[router](), timeout_ms=timeout_ms)
        self.flusher = Flusher("task", self.writer, now_ms=0)
        self.now_ms = 0
        self._model = ROUTERS[router]()
        self._model.set_up(channels)

    def do(self, action: tuple[Any, ...]) -> None:
        match action:
            case ("emit", record, time):
                self._meant(record, time)
                self.writer.emit(record, time)
            case ("emit all", pairs, timed):
                for record, time in pairs:
                    self._meant(record, time if timed else None)
                times = [time for _, time in pairs] if timed else None
                self.writer.emit_all([record for record, _ in pairs], times)
            case ("emit to", channel, records):
                self.expected[channel % self.channels] += [(record, None) for record in records]
                emit_to(self.writer, channel % self.channels, records)
            case ("element", element, None):
                for expected in self.expected:
                    expected.append(element)
                self.writer.emit_element(element)
            case ("element", element, channel):
                self.expected[channel % self.channels].append(element)
                self.writer.emit_element(element, channel % self.channels)
            case ("event", event):
                for expected in self.expected:
                    expected.append(event)
                self.writer.broadcast_event(event)
            case ("seal",):
                self.writer.seal()
            case ("flush",):
                self.writer.flush_all()
            case ("tick",):
                self.now_ms += 60
                self.flusher.tick(self.now_ms)
            case ("read", channel):
                self.readers[channel % self.channels].step()
        self.shelf.check()

    def _meant(self, record: Any, time: int | None) -> None:
        if self._model.is_broadcast:
            for expected in self.expected:
                expected.append((record, time))
        else:
            self.expected[self._model.pick(record)].append((record, time))

    def _wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            awake = [reader for reader in self.readers if reader.awake]
            assert awake, "the writer waits for a buffer and every reader sleeps"
            awake[0].step()


def flat(got: list[Element | Event]) -> list[Item]:
    """Records with their times instead of bundles: how they are bundled is the writer's choice."""
    items: list[Item] = []
    for element in got:
        if isinstance(element, Bundle):
            times = element.timestamps or [None] * len(element.records)
            items += zip(element.records, times, strict=True)
        else:
            items.append(element)
    return items


@given(
    actions=st.lists(ACTIONS, max_size=40),
    segment_bytes=st.integers(1, 200) | st.integers(1, 12),
    channels=st.integers(1, 4),
    router=st.sampled_from([*ROUTERS]),
    timeout_ms=st.sampled_from([-1, 0, 100]),
)
def test_every_channel_gets_what_was_meant_for_it_in_order(
    actions: list[tuple[Any, ...]], segment_bytes: int, channels: int, router: str, timeout_ms: int
) -> None:
    path = Path(segment_bytes, channels, router, timeout_ms)
    for action in actions:
        path.do(action)
    path.writer.seal()
    path.writer.flush_all()
    for reader, expected in zip(path.readers, path.expected, strict=True):
        reader.read()
        assert flat(reader.got) == expected  # all of it, though the buffers are not full
    path.writer.finish()
    for reader in path.readers:
        reader.read()
        assert reader.got[-1] == END_OF_PARTITION
        reader.close()
    assert path.partition.released
    assert_all_home(path.shelf)


@given(actions=st.lists(ACTIONS, max_size=30), segment_bytes=st.integers(1, 200))
def test_a_blocking_partition_gives_every_reader_what_was_meant_for_it(
    actions: list[tuple[Any, ...]], segment_bytes: int
) -> None:
    shelf = plain_pool(4, segment_bytes)
    partition = make_partition(shelf, 1, PartitionKind.BLOCKING, stores=[MemoryStore()])
    writer = RecordWriter(partition, Forward())
    expected: list[Item] = []
    for action in actions:
        match action:
            case ("emit", record, time):
                expected.append((record, time))
                writer.emit(record, time)
            case ("event", event):
                expected.append(event)
                writer.broadcast_event(event)
            case ("flush",):
                writer.seal()
                writer.flush_all()
        partition.pool.check()
    writer.finish()
    assert partition.pool.lent == 0
    for _ in range(2):
        (reader,) = readers_of(partition)
        reader.read()
        assert flat(reader.got) == [*expected, END_OF_PARTITION]
        reader.close()
    partition.release()
    assert_all_home(shelf)


def test_the_watermark_gauge_follows_what_went_to_all_channels(make_pool: MakePool) -> None:
    """Row 174."""
    partition = make_partition(make_pool(8, 64), 2)
    writer = RecordWriter(partition, RoundRobin())
    assert writer.watermark_ms == MIN_WATERMARK_MS
    writer.emit_element(Watermark(7))
    writer.emit_element(Watermark(9), channel=1)  # of one channel alone: not the writer's
    assert writer.watermark_ms == 7
    writer.close()
    partition.release()


def test_a_flush_by_time_that_failed_is_told_at_the_end_too(make_pool: MakePool) -> None:
    """Else a disk that was full for a moment would lose records without a word."""
    store = MemoryStore()
    partition = make_partition(make_pool(8), 1, PartitionKind.BLOCKING, stores=[store])
    writer = RecordWriter(partition, Forward(), timeout_ms=10)
    flusher = Flusher("t", writer, now_ms=0)
    writer.emit("a")
    writer.seal()
    store.broken = OSError("disk full")
    flusher.tick(10)
    store.broken = None
    with pytest.raises(FlushFailed, match="disk full"):
        writer.finish()
    writer.close()
    partition.release()


def test_records_for_one_channel_are_bundled_like_all_others(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(400), 2)
    readers = readers_of(partition)
    writer = RecordWriter(partition, Broadcast())
    emit_to(writer, 1, ["x"] * (BUNDLE_RECORDS + 1))
    writer.finish()
    assert got_by(partition, readers) == [
        [END_OF_PARTITION],
        [Bundle(["x"] * BUNDLE_RECORDS), Bundle(["x"]), END_OF_PARTITION],
    ]


# Barriers.

BARRIER = CheckpointBarrier(1, 0)
OVERTAKING = CheckpointBarrier(1, 0, unaligned=True)


def test_an_aligned_barrier_leaves_at_once_behind_what_was_written(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(4), 2)
    writer = RecordWriter(partition, CustomPartitioner(lambda key, channels: key))
    readers = readers_of(partition)
    writer.emit_all([0, 1, 1])
    writer.send_barrier(BARRIER)
    assert [reader.awake for reader in readers] == [True, True]
    for reader in readers:
        reader.read()
    assert [reader.got for reader in readers] == [[Bundle([0]), BARRIER], [Bundle([1, 1]), BARRIER]]
    writer.close()
    partition.release()


def test_a_barrier_overtakes_where_it_is_told_to_and_answers_with_what_waits(
    make_pool: MakePool,
) -> None:
    partition = make_partition(make_pool(6), 3)
    writer = RecordWriter(partition, CustomPartitioner(lambda key, channels: key))
    readers = readers_of(partition)
    writer.emit_all([0, 1, 2])
    overtaken = writer.overtake(OVERTAKING, [0, 2])
    assert {index: decoded(parts) for index, parts in overtaken.items()} == {
        0: [Bundle([0])],
        2: [Bundle([2])],
    }
    writer.emit_all([0, 1, 2])
    writer.finish()
    for reader in readers:
        reader.read()
    assert readers[0].got == [OVERTAKING, Bundle([0]), Bundle([0]), END_OF_PARTITION]
    assert readers[1].got == [Bundle([1]), Bundle([1]), END_OF_PARTITION]
    assert readers[2].got == [OVERTAKING, Bundle([2]), Bundle([2]), END_OF_PARTITION]
    for reader in readers:
        reader.close()


def test_a_barrier_overtakes_for_each_reader_of_a_broadcast_where_that_reader_stands(
    make_pool: MakePool,
) -> None:
    partition = make_partition(make_pool(6), 2)
    writer = RecordWriter(partition, Broadcast(), timeout_ms=0)
    fast, slow = readers_of(partition)
    writer.emit("a")
    fast.read()
    writer.emit("b")
    emit_to(writer, 1, ["only the second"])
    overtaken = writer.overtake(OVERTAKING)
    assert decoded(overtaken[0]) == [Bundle(["b"])]
    assert decoded(overtaken[1]) == [Bundle(["a"]), Bundle(["b"]), Bundle(["only the second"])]
    writer.emit("c")
    fast.read()
    slow.read()
    a, b, c = (Bundle([name]) for name in "abc")
    assert fast.got == [a, OVERTAKING, b, c]
    assert slow.got == [OVERTAKING, a, b, Bundle(["only the second"]), c]
    writer.finish()
    for reader in (fast, slow):
        reader.read()
        reader.close()


def test_records_by_reference_are_overtaken_as_bytes(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(4), 1)
    writer = RecordWriter(partition, Forward())
    writer.hands_over = True
    (reader,) = readers_of(partition)
    reader.view.take_references()
    record = [1]
    writer.emit_all([record])
    overtaken = writer.overtake(OVERTAKING)
    record.append(2)  # its consumer may change it
    assert decoded(overtaken[0]) == [Bundle([[1]])]
    reader.read()
    assert reader.got == [OVERTAKING, Bundle([[1, 2]])]
    writer.close()
    partition.release()


@pytest.mark.parametrize("router", [RoundRobin(), Broadcast()], ids=["round robin", "broadcast"])
def test_a_restored_subpartition_begins_with_what_was_overtaken(
    make_pool: MakePool, router: Router
) -> None:
    first = make_partition(make_pool(9), 2)
    writer = RecordWriter(first, Broadcast())
    writer.emit_all(["x" * 300, "y"])
    parts = writer.overtake(OVERTAKING)[1]
    writer.close()
    first.release()

    second = make_partition(make_pool(4), 2)
    second.segment_bytes = 64
    writer = RecordWriter(second, router)
    writer.restore(1, parts)
    assert second.pool.lent == 0, "no segment is used for it"
    writer.emit_all(["z"] * 2)
    writer.finish()
    readers = readers_of(second)
    for reader in readers:
        reader.read()
        reader.close()
    own = [Bundle(["z"] * (2 if router.is_broadcast else 1)), END_OF_PARTITION]
    assert readers[0].got == own
    assert readers[1].got == [Bundle(["x" * 300, "y"]), *own]


def test_a_restore_behind_records_is_a_bug(make_pool: MakePool) -> None:
    partition = make_partition(make_pool(3))
    writer = RecordWriter(partition, Forward())
    writer.emit(1)
    with pytest.raises(AssertionError, match="before the first record"):
        writer.restore(0, [b"x"])
    writer.close()
    partition.release()


def decoded(parts: list[bytes]) -> list[Bundle]:
    return list(reassigned_bundles(parts, Deserializer()))
