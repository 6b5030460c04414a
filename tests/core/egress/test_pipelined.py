"""The pipelined subpartition: who is told when, what a poll gives, and the end.

Rows 36, 43, 45, 68-80, 84, 146, 149.
"""

from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.base.elements import PickleSerializer
from headgate.base.errors import PartitionTaken
from headgate.base.events import (
    END_OF_PARTITION,
    END_OF_SUPERSTEP,
    CancelMarker,
    CheckpointBarrier,
    Event,
    encode_event,
)
from headgate.core.buffers.buffer import Buffer, BufferBuilder, BufferConsumer
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.egress.partition import PipelinedSubpartition
from headgate.core.exchange.view import View
from tests.arena import assert_all_home, plain_pool
from tests.core.egress.kit import ORDERS

MakePool = Callable[..., GlobalPool]
END = encode_event(END_OF_PARTITION)


class Desk:
    """A subpartition, its producer and its reader, one call each."""

    def __init__(self, shelf: GlobalPool, *, view: bool = True) -> None:
        self.consumed = 0
        self.notified = 0
        self.subpartition = PipelinedSubpartition(ORDERS, 0, self._on_consumed)
        self.view: View | None = None
        self._pool = shelf.create_pool("p", 0)
        self._builder: BufferBuilder | None = None
        if view:
            self.create_view()

    def create_view(self) -> View:
        self.view = self.subpartition.create_view(self._on_data)
        return self.view

    def write(self, data: bytes = b"", *, finish: bool = False) -> None:
        """Append to the current buffer; a new one is added if there is none."""
        if self._builder is None:
            lease = self._pool.try_request()
            assert lease is not None
            self._builder = BufferBuilder(lease)
            self.subpartition.add(self._builder.consumer())
        self._builder.append(memoryview(data))
        if finish:
            self.finish_buffer()

    def finish_buffer(self) -> None:
        if self._builder is not None:
            self._builder.finish()
            self._builder = None

    def event(self, data: bytes = b"event") -> bool:
        self.finish_buffer()
        return self.subpartition.add(BufferConsumer.of(Buffer(data, is_event=True)))

    def poll(self) -> tuple[bytes, bool, int, bool] | None:
        """The bytes of a buffer, whether more is available, the backlog, whether an event is next.

        What the view says of itself must agree.
        """
        assert self.view is not None
        polled = self.view.poll()
        if polled is None:
            return None
        data = bytes(polled.buffer.view)
        polled.buffer.release()
        assert self.view.available(True) == polled.more
        assert self.view.available(False) == polled.next_is_event
        assert self.view.backlog == self.subpartition.backlog == polled.backlog
        return data, polled.more, polled.backlog, polled.next_is_event

    def close(self) -> None:
        self.finish_buffer()
        self.subpartition.release()

    def _on_data(self) -> None:
        self.notified += 1

    def _on_consumed(self) -> None:
        self.consumed += 1


@pytest.fixture
def desk(make_pool: MakePool) -> Desk:
    return Desk(make_pool(8))


# Who is told (rows 69-71).


def test_an_unfinished_buffer_is_nobodys_business(desk: Desk) -> None:
    desk.write(b"abc")
    assert desk.notified == 0
    assert desk.view and not desk.view.available(True)
    desk.close()


def test_the_reader_is_told_of_the_first_finished_buffer_only(desk: Desk) -> None:
    calls = []
    for data in (b"a", b"b", b"c", b"d"):
        desk.finish_buffer()
        desk.write(data)
        calls.append(desk.notified)
    assert calls == [0, 1, 1, 1]
    desk.close()


def test_empty_finished_buffers_are_nothing_to_read(desk: Desk) -> None:
    for data in (b"", b"", b"", b"full"):
        lease = desk._pool.try_request()
        assert lease is not None
        builder = BufferBuilder(lease)
        consumer = builder.consumer()
        builder.append(memoryview(data))
        builder.finish()
        assert desk.subpartition.add(consumer)
        desk.subpartition.check()
    assert (desk.notified, desk.subpartition.queued, desk.subpartition.backlog) == (1, 1, 1)
    assert desk.poll() == (b"full", False, 0, False)
    desk.close()


def test_an_event_alone_is_told(desk: Desk) -> None:
    assert desk.event()
    assert desk.notified == 1
    assert desk.poll() == (b"event", False, 0, False)


def test_a_pending_flush_has_told_already(desk: Desk) -> None:
    desk.write(b"a")
    desk.subpartition.flush()
    assert desk.notified == 1
    desk.finish_buffer()
    desk.write(b"b")
    assert desk.notified == 1
    assert desk.poll() == (b"a", True, 1, False)
    assert desk.poll() == (b"b", False, 0, False)
    desk.close()


def test_flushing_nothing_tells_nobody(desk: Desk) -> None:
    desk.subpartition.flush()
    assert (desk.notified, desk.subpartition.flush_requested) == (0, False)
    desk.write()
    desk.subpartition.flush()
    assert (desk.notified, desk.subpartition.flush_requested) == (0, False)
    desk.close()


def test_flushing_one_buffer_with_data_tells_once(desk: Desk) -> None:
    desk.write(b"a")
    desk.subpartition.flush()
    desk.subpartition.flush()
    assert (desk.notified, desk.subpartition.flush_requested) == (1, True)
    desk.close()


def test_flushing_more_than_one_buffer_only_sets_the_flag(desk: Desk) -> None:
    desk.write(b"a", finish=True)
    desk.write(b"b")
    assert desk.notified == 1
    desk.subpartition.flush()
    assert (desk.notified, desk.subpartition.flush_requested) == (1, True)
    desk.close()


# What a poll gives (rows 72-75).


def test_an_unfinished_buffer_with_others_behind_it_is_a_bug(make_pool: MakePool) -> None:
    pool = make_pool(2).create_pool("p", 0)
    subpartition = PipelinedSubpartition(ORDERS, 0)
    builders = []
    for _ in range(2):
        lease = pool.try_request()
        assert lease is not None
        builders.append(BufferBuilder(lease))
        subpartition.add(builders[-1].consumer())
    with pytest.raises(AssertionError, match="others after it"):
        subpartition.poll()
    for builder in builders:
        builder.finish()
    subpartition.release()


def test_without_credit_only_an_event_is_available(desk: Desk) -> None:
    assert desk.view
    desk.event()
    assert desk.view.available(False)
    desk.poll()
    desk.write(b"a")
    desk.event()
    assert not desk.view.available(False)
    assert desk.view.available(True)
    desk.close()


# Finish and release (rows 76, 77).


def test_finishing_adds_the_end_and_always_tells(desk: Desk) -> None:
    desk.write(b"a", finish=True)
    desk.write(b"b")
    desk.subpartition.flush()
    assert desk.notified == 1
    desk.finish_buffer()
    desk.subpartition.finish()
    assert (desk.notified, desk.subpartition.finished) == (2, True)
    assert [desk.poll() for _ in range(4)] == [
        (b"a", True, 1, False),
        (b"b", True, 0, True),
        (END, False, 0, False),
        None,
    ]


def test_releasing_drops_what_is_queued_and_tells_the_reader_why(desk: Desk) -> None:
    failure = RuntimeError("boom")
    desk.write(b"a", finish=True)
    desk.write(b"b")
    desk.subpartition.flush()
    before = desk.notified
    desk.subpartition.release(failure)
    desk.subpartition.release(RuntimeError("later"))
    assert desk.view and desk.view.is_released
    assert desk.view.failure is failure
    assert desk.notified == before + 1
    assert desk.poll() is None
    assert not desk.view.available(True) and not desk.view.available(False)
    assert (desk.subpartition.queued, desk.subpartition.backlog) == (0, 0)
    desk.finish_buffer()


def test_a_reader_that_goes_after_the_release_counts_as_well(desk: Desk) -> None:
    desk.subpartition.release()
    assert desk.view and desk.consumed == 0
    desk.view.release()
    assert desk.consumed == 1


# Views (rows 78, 79).


def test_there_is_one_view_and_no_second(desk: Desk) -> None:
    with pytest.raises(PartitionTaken, match="subpartition 0 was already read"):
        desk.create_view()


def test_a_released_subpartition_gives_no_view(make_pool: MakePool) -> None:
    desk = Desk(make_pool(4), view=False)
    desk.subpartition.release()
    with pytest.raises(PartitionTaken):
        desk.create_view()


class Queued:
    """A buffer as the model sees it."""

    def __init__(self, data: bytes = b"", is_event: bool = False, overtook: bool = False) -> None:
        self.overtook = overtook
        self.unread = bytearray(data)
        self.written = len(data)
        self.is_event = is_event
        self.finished = is_event


class PipelinedTwin(RuleBasedStateMachine):
    """The queue against a model of bytes, with a reader that polls only if it has reason to."""

    def __init__(self) -> None:
        super().__init__()
        self.shelf = plain_pool(40, 16)
        self.pool = self.shelf.create_pool("p", 0)
        self.model: list[Queued] = []
        self.builder: BufferBuilder | None = None
        self.slices: list[Buffer] = []
        self.view: View | None = None
        self.awake = self.flushed = self.ended = self.released = False
        self.consumed = self.checkpoints = 0
        self.written = bytearray()
        self.read = bytearray()

    @initialize()
    def start(self) -> None:
        self.subpartition = PipelinedSubpartition(ORDERS, 0, self._on_consumed)

    def _on_consumed(self) -> None:
        self.consumed += 1

    def _on_data(self) -> None:
        self.awake = True

    @property
    def takes_data(self) -> bool:
        return not self.ended and not self.released

    @precondition(lambda self: self.builder is None)
    @rule()
    def buffer_is_added(self) -> None:
        lease = self.pool.try_request()
        if lease is None:
            return
        builder = BufferBuilder(lease)
        assert self.subpartition.add(builder.consumer()) == self.takes_data
        if self.takes_data:
            self.builder = builder
            self._drop_spent()
            self.model.append(Queued())
        else:
            builder.finish()

    @precondition(lambda self: self.builder is not None)
    @rule(data=st.binary(min_size=1, max_size=10))
    def bytes_are_appended(self, data: bytes) -> None:
        assert self.builder is not None
        count = self.builder.append(memoryview(data))
        if self.takes_data:
            self.model[-1].unread += data[:count]
            self.model[-1].written += count
            self.written += data[:count]

    @precondition(lambda self: self.builder is not None)
    @rule()
    def buffer_is_finished(self) -> None:
        assert self.builder is not None
        self.builder.finish()
        self.builder = None
        if self.model:
            self.model[-1].finished = True

    @precondition(lambda self: self.builder is None)
    @rule(event=st.sampled_from([END_OF_SUPERSTEP, CancelMarker(3)]))
    def event_is_added(self, event: Event) -> None:
        data = encode_event(event)
        added = self.subpartition.add(BufferConsumer.of(Buffer(data, is_event=True)))
        assert added == self.takes_data
        if added:
            self._drop_spent()
            self.model.append(Queued(data, is_event=True))
            self.written += data

    @precondition(lambda self: self.builder is None)
    @rule()
    def barrier_overtakes(self) -> None:
        self.checkpoints += 1
        barrier = CheckpointBarrier(self.checkpoints, 0, unaligned=True)
        was_awake, self.awake = self.awake, False
        overtaken = self.subpartition.overtake(barrier, PickleSerializer())
        if not self.takes_data:
            assert overtaken == []
            self.awake = was_awake
            return
        assert self.awake == (self.view is not None), "the reader is told in any case"
        self._drop_spent()
        assert overtaken == [
            bytes(entry.unread) for entry in self.model if not entry.is_event and entry.unread
        ]
        at = next((n for n, entry in enumerate(self.model) if not entry.overtook), len(self.model))
        first = len(self.read) + sum(len(entry.unread) for entry in self.model[:at])
        data = encode_event(barrier)
        self.model.insert(at, Queued(data, is_event=True, overtook=True))
        self.written[first:first] = data

    @rule()
    def flush_comes(self) -> None:
        self.subpartition.flush()
        if len(self.model) > 1 or (self.model and self.model[0].unread):
            self.flushed = True

    @precondition(lambda self: self.builder is None)
    @rule()
    def producer_ends(self) -> None:
        self.subpartition.finish()
        if self.takes_data:
            self._drop_spent()
            self.model.append(Queued(END, is_event=True))
            self.written += END
            self.ended = True

    @precondition(lambda self: self.view is None and not self.released)
    @rule()
    def reader_comes(self) -> None:
        self.view = self.subpartition.create_view(self._on_data)
        assert self.awake == bool(self.model)

    @precondition(lambda self: self.view is not None and self.awake)
    @rule()
    def reader_polls(self) -> None:
        assert self.view is not None
        self.awake = False
        polled = self.view.poll()
        expected = self._expected()
        assert (polled is None) == (expected is None)
        if polled is not None:
            assert bytes(polled.buffer.view) == expected
            self.read += polled.buffer.view
            self.slices.append(polled.buffer)
            assert polled.more == self._available()
            assert polled.backlog == self._backlog()
            assert polled.next_is_event == (bool(self.model) and self.model[0].is_event)
            self.awake = self.awake or polled.more

    @precondition(lambda self: self.view is not None)
    @rule()
    def reader_follows_until_it_sleeps(self) -> None:
        while self.awake:
            self.reader_polls()

    @precondition(lambda self: self.slices)
    @rule(data=st.data())
    def slice_is_released(self, data: st.DataObject) -> None:
        self.slices.pop(data.draw(st.integers(0, len(self.slices) - 1))).release()

    @rule(by_reader=st.booleans(), sure=st.integers(0, 9))
    def it_is_released(self, by_reader: bool, sure: int) -> None:
        if sure:
            return  # seldom, or nothing else would be seen
        if by_reader and self.view is not None:
            self.view.release()
            assert self.consumed == 1
        else:
            self.subpartition.release()
        self.released = True
        self.model.clear()

    def _expected(self) -> bytes | None:
        while self.model:
            head = self.model[0]
            if len(self.model) == 1:
                self.flushed = False
            data, head.unread = bytes(head.unread), bytearray()
            if head.finished:
                self.model.pop(0)
            if data:
                return data
            if not head.finished:
                return None
        return None

    def _drop_spent(self) -> None:
        if len(self.model) == 1 and self.model[0].finished and not self.model[0].unread:
            self.model.pop()

    def _available(self) -> bool:
        return bool(self.model) and (self.flushed or len(self.model) > 1 or self.model[0].finished)

    def _backlog(self) -> int:
        data = sum(not buffer.is_event for buffer in self.model)
        hidden = self.model and not self.model[-1].finished and not self.flushed
        return data - 1 if hidden and not self.ended else data

    @invariant()
    def it_agrees_with_the_model(self) -> None:
        self.subpartition.check()
        assert self.subpartition.queued == len(self.model)
        assert self.subpartition.is_available == self._available()
        assert self.subpartition.backlog == self._backlog()

    @invariant()
    def each_byte_comes_once_and_in_order(self) -> None:
        waiting = b"".join(bytes(buffer.unread) for buffer in self.model)
        if not self.released:
            assert self.read + waiting == self.written
        assert self.written.startswith(self.read)

    @invariant()
    def no_reader_sleeps_over_what_it_should_read(self) -> None:
        if self.view is None or self.released:
            return
        if self.flushed or self.ended or len(self.model) > 1:
            unread = any(buffer.unread for buffer in self.model)
            assert self.awake or not unread

    @invariant()
    def an_event_is_never_hidden_by_what_is_read_up(self) -> None:
        if len(self.model) > 1:
            head = self.model[0]
            assert head.unread or not head.written, "what follows waits for a credit it needs not"
        if self.view is not None and self.model and self.model[0].is_event:
            assert self.view.available(False)

    def teardown(self) -> None:
        if self.builder is not None:
            self.builder.finish()
        for buffer in self.slices:
            buffer.release()
        self.subpartition.release()
        assert_all_home(self.shelf)


TestPipelinedTwin = PipelinedTwin.TestCase


def test_a_barrier_behind_a_spent_buffer_needs_no_credit(make_pool: MakePool) -> None:
    """Row 139: the buffer was read to its end before its producer finished it."""
    pool = make_pool(2).create_pool("p", 1)
    subpartition = PipelinedSubpartition(ORDERS, 0)
    lease = pool.try_request()
    assert lease is not None
    builder = BufferBuilder(lease)
    subpartition.add(builder.consumer())
    builder.append(memoryview(b"abc"))
    view = subpartition.create_view(lambda: None)
    subpartition.flush()
    polled = view.poll()
    assert polled is not None
    polled.buffer.release()
    builder.finish()
    barrier = Buffer(encode_event(CheckpointBarrier(1, 2)), is_event=True)
    subpartition.add(BufferConsumer.of(barrier))
    assert view.available(has_credit=False)
    assert view.backlog == 0
    view.release()
    pool.destroy()


# Barriers.

OVERTAKING = CheckpointBarrier(1, 0, unaligned=True)


def restore(subpartition: PipelinedSubpartition, *parts: bytes) -> bool:
    return subpartition.restore(BufferConsumer.of(Buffer(part)) for part in parts)


def test_the_reader_comes_to_the_end_of_what_was_restored_once() -> None:
    gone: list[int] = []
    subpartition = PipelinedSubpartition(ORDERS, 0, on_restored_gone=lambda: gone.append(1))
    assert not restore(subpartition)
    assert restore(subpartition, b"a") and restore(subpartition, b"b")
    subpartition.add(BufferConsumer.of(Buffer(b"c")))
    with pytest.raises(AssertionError, match="before the first record"):
        restore(subpartition, b"d")
    subpartition.overtake(OVERTAKING, PickleSerializer())
    view = subpartition.create_view(lambda: None)
    seen = []
    while view.poll() is not None:
        subpartition.check()
        seen.append(len(gone))
    assert seen == [0, 0, 1, 1], "the barrier, a, b, c"
    view.release()
    assert gone == [1]


@pytest.mark.parametrize("by_reader", [True, False])
def test_a_release_ends_what_was_restored(by_reader: bool) -> None:
    gone: list[int] = []
    subpartition = PipelinedSubpartition(ORDERS, 0, on_restored_gone=lambda: gone.append(1))
    restore(subpartition, b"a", b"b")
    view = subpartition.create_view(lambda: None)
    (view if by_reader else subpartition).release()
    subpartition.check()
    assert gone == [1] and not restore(subpartition, b"c")


def test_barriers_that_the_reader_has_taken_are_told() -> None:
    left: list[CheckpointBarrier] = []
    subpartition = PipelinedSubpartition(ORDERS, 0, on_barrier_left=left.append)
    view = subpartition.create_view(lambda: None)
    aligned = CheckpointBarrier(2, 0)
    for event in (CancelMarker(1), aligned):
        subpartition.add(BufferConsumer.of(Buffer(encode_event(event), is_event=True)))
    subpartition.overtake(OVERTAKING, PickleSerializer())
    assert left == []
    seen = []
    while view.poll() is not None:
        seen.append(list(left))
    assert seen == [[OVERTAKING], [OVERTAKING], [OVERTAKING, aligned]]
    subpartition.release()


def test_a_reader_that_wants_to_know_is_told_of_barriers_that_stand_first(desk: Desk) -> None:
    announced: list[int] = []
    assert desk.view is not None
    desk.event(encode_event(CheckpointBarrier(1, 0)))
    desk.view.tell_barriers(lambda barrier: announced.append(barrier.checkpoint))
    assert announced == [1], "it was there already"
    desk.event(encode_event(CheckpointBarrier(2, 0)))
    assert announced == [1], "another one stands first"
    while desk.poll() is not None:
        pass
    desk.event(encode_event(CheckpointBarrier(3, 0)))
    desk.write(b"ab", finish=True)
    desk.subpartition.overtake(CheckpointBarrier(4, 0, unaligned=True), PickleSerializer())
    assert announced == [1, 3, 4]
    desk.view.release()
    desk.event(encode_event(CheckpointBarrier(5, 0)))
    assert announced == [1, 3, 4]
    desk.close()
