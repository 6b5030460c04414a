"""Leases, buffers, builders and consumers: every byte once, every segment home once. Rows 38-45."""

import gc
import weakref
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core.buffers.buffer import Buffer, BufferBuilder, BufferConsumer, Lease, Segment
from tests.arena import plain_pool, plain_segments


class Shelf:
    """A home that remembers what came back."""

    def __init__(self) -> None:
        self.returned: list[Segment] = []

    def segment_returned(self, segment: Segment) -> None:
        self.returned.append(segment)


def lease_of(size: int = 8) -> tuple[Lease, Shelf]:
    shelf = Shelf()
    return Lease(plain_segments(1, size)[0], shelf), shelf


def builder_of(size: int = 8) -> tuple[BufferBuilder, Shelf]:
    lease, shelf = lease_of(size)
    return BufferBuilder(lease), shelf


def append(builder: BufferBuilder, data: bytes) -> int:
    return builder.append(memoryview(data))


def built(consumer: BufferConsumer) -> bytes | None:
    """What a build gives, as bytes; its count is given back."""
    buffer = consumer.build()
    if buffer is None:
        return None
    data = bytes(buffer.view)
    buffer.release()
    return data


# Leases.


def test_a_lease_that_is_released_once_too_often_is_a_bug() -> None:
    lease, shelf = lease_of()
    lease.release()
    with pytest.raises(AssertionError, match="released twice"):
        lease.release()
    assert len(shelf.returned) == 1


def test_a_lease_that_has_gone_home_cannot_be_retained() -> None:
    lease, _ = lease_of()
    lease.release()
    with pytest.raises(AssertionError, match="retained after it had gone home"):
        lease.retain()


# Buffers.


def test_an_unpooled_buffer_needs_no_home() -> None:
    event = Buffer(b"event", is_event=True)
    event.release()
    event.release()
    assert (event.size, event.lease) == (5, None)


# Builders.


def test_a_builder_takes_what_fits_and_says_how_much() -> None:
    builder, _ = builder_of(8)
    assert append(builder, b"12345") == 5
    assert not builder.is_full
    assert append(builder, b"6789a") == 3
    assert builder.is_full
    assert append(builder, b"b") == 0
    assert bytes(builder.memory) == b"12345678"
    assert builder.finish() == 8


@pytest.mark.parametrize(("room", "fits"), [(0, False), (1, False), (5, False), (6, True)])
def test_prefix_and_body_are_taken_whole_with_room_to_spare_or_not_at_all(
    room: int, fits: bool
) -> None:
    builder, _ = builder_of(10)
    append(builder, b"x" * (10 - room))
    assert builder.try_append_whole(b"pre", b"ab") == fits
    assert builder.committed == (15 - room if fits else 10 - room)
    if fits:
        assert bytes(builder.memory[10 - room : 15 - room]) == b"preab"


def test_what_is_written_in_place_is_readable_after_its_commit() -> None:
    builder, _ = builder_of(8)
    consumer = builder.consumer()
    builder.memory[:3] = b"abc"
    assert not consumer.has_data
    builder.commit(2)
    assert built(consumer) == b"ab"
    builder.commit(1)
    assert built(consumer) == b"c"


def test_a_commit_beyond_the_end_or_after_finish_is_a_bug() -> None:
    builder, _ = builder_of(8)
    with pytest.raises(AssertionError):
        builder.commit(9)
    builder.finish()
    with pytest.raises(AssertionError):
        builder.commit(1)


def test_a_builder_that_is_finished_twice_is_a_bug() -> None:
    builder, shelf = builder_of()
    assert builder.finish() == 0
    with pytest.raises(AssertionError, match="finished twice"):
        builder.finish()
    assert len(shelf.returned) == 1


# Consumers.


def test_building_a_closed_consumer_is_a_bug() -> None:
    builder, _ = builder_of()
    consumer = builder.consumer()
    append(builder, b"ab")
    consumer.close()
    with pytest.raises(AssertionError, match="closed consumer"):
        consumer.build()


def test_an_event_travels_as_a_finished_consumer_of_one_buffer() -> None:
    event = Buffer(b"event", is_event=True)
    consumer = BufferConsumer.of(event)
    assert consumer.is_event and consumer.is_finished and consumer.has_data
    assert consumer.build() is event
    assert not consumer.has_data
    assert consumer.build() is None


def test_a_copied_event_is_a_buffer_of_its_own_over_the_same_bytes() -> None:
    event = Buffer(b"event", is_event=True)
    consumer = BufferConsumer.of(event)
    twin = consumer.copy().build()
    assert consumer.has_data
    assert twin is not None and twin is not event
    assert (twin.view, twin.is_event) == (b"event", True)


def test_a_copy_of_a_complete_pooled_buffer_counts_as_a_reader() -> None:
    lease, shelf = lease_of()
    consumer = BufferConsumer.of(Buffer(lease.segment.memory, lease, compressed=True))
    assert not consumer.is_event
    twin = consumer.copy()
    consumer.close()
    assert shelf.returned == []
    buffer = twin.build()
    assert buffer is not None and buffer.compressed
    twin.close()
    assert shelf.returned == []
    buffer.release()
    assert shelf.returned == [lease.segment]


class BuilderTwin(RuleBasedStateMachine):
    """One builder, any number of consumers and slices; the model is a byte string."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[tuple[BufferConsumer, int]] = []
        self.slices: list[tuple[Buffer, bytes]] = []
        self.next_builder()

    @precondition(lambda self: self.finished and not self.readers and not self.slices)
    @rule()
    def next_builder(self) -> None:
        self.builder, self.shelf = builder_of(40)
        self.written = b""
        self.finished = False

    @precondition(lambda self: not self.finished)
    @rule(data=st.binary(max_size=12))
    def producer_appends(self, data: bytes) -> None:
        count = append(self.builder, data)
        assert count == min(len(data), 40 - len(self.written))
        self.written += data[:count]

    @precondition(lambda self: not self.finished)
    @rule()
    def producer_finishes(self) -> None:
        assert self.builder.finish() == len(self.written)
        self.finished = True

    @precondition(lambda self: not self.finished)
    @rule()
    def consumer_is_made(self) -> None:
        self.readers.append((self.builder.consumer(), len(self.written)))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def consumer_is_copied(self, data: st.DataObject) -> None:
        consumer, at = data.draw(st.sampled_from(self.readers))
        self.readers.append((consumer.copy(), at))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def consumer_builds(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.readers) - 1))
        consumer, at = self.readers[index]
        assert consumer.has_data == (at < len(self.written))
        buffer = consumer.build()
        if at == len(self.written):
            assert buffer is None
        else:
            assert buffer is not None
            self.slices.append((buffer, self.written[at:]))
        self.readers[index] = (consumer, len(self.written))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def consumer_closes(self, data: st.DataObject) -> None:
        consumer, _ = self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1)))
        consumer.close()

    @precondition(lambda self: self.slices)
    @rule(data=st.data())
    def slice_is_released(self, data: st.DataObject) -> None:
        buffer, _ = self.slices.pop(data.draw(st.integers(0, len(self.slices) - 1)))
        buffer.release()

    @invariant()
    def slices_hold_what_was_written(self) -> None:
        assert all(bytes(buffer.view) == data for buffer, data in self.slices)

    @invariant()
    def segment_is_home_exactly_when_nobody_needs_it(self) -> None:
        holding = [consumer for consumer, _ in self.readers if consumer.lease is not None]
        needed = not self.finished or self.slices or holding
        assert len(self.shelf.returned) == (0 if needed else 1)

    def teardown(self) -> None:
        if not self.finished:
            self.builder.finish()
        for consumer, _ in self.readers:
            consumer.close()
        for buffer, _ in self.slices:
            buffer.release()
        assert len(self.shelf.returned) == 1


TestBuilderTwin = BuilderTwin.TestCase


def test_a_pool_that_is_dropped_with_a_buffer_out_is_collected() -> None:
    """Every kind of handle is seen by the collector, so that a failed task leaves no arena."""
    pool = plain_pool(1).create_pool("p", 1)
    lease = pool.try_request()
    assert lease is not None
    pool.owner = partial(print, BufferBuilder(lease).consumer())  # a circle through every handle
    gone = weakref.ref(pool)
    del pool, lease
    gc.collect()
    assert gone() is None
