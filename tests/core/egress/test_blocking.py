"""The blocking subpartition: written whole, then read by anybody, any time. Rows 81, 83, 84."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import PartitionError
from headgate.base.events import END_OF_PARTITION, encode_event
from headgate.core.buffers.buffer import Buffer, BufferBuilder, BufferConsumer
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.buffers.local_pool import LocalPool
from headgate.core.egress.blocking import BlockingSubpartition
from headgate.core.exchange.view import View
from tests.arena import assert_all_home, plain_pool
from tests.core.egress.kit import ORDERS, MemoryStore

MakePool = Callable[..., GlobalPool]
END = (encode_event(END_OF_PARTITION), True)


def ignore() -> None: ...


class Desk:
    """A blocking subpartition, its store and its producer."""

    def __init__(self, shelf: GlobalPool) -> None:
        self.pool: LocalPool = shelf.create_pool("p", 0)
        self.store = MemoryStore()
        self.subpartition = BlockingSubpartition(ORDERS, 3, self.store)

    def builder(self) -> BufferBuilder:
        lease = self.pool.try_request()
        assert lease is not None
        builder = BufferBuilder(lease)
        self.subpartition.add(builder.consumer())
        return builder

    def write(self, *chunks: bytes) -> None:
        for chunk in chunks:
            builder = self.builder()
            builder.append(memoryview(chunk))
            builder.finish()

    def event(self, data: bytes) -> None:
        self.subpartition.add(BufferConsumer.of(Buffer(data, is_event=True)))


@pytest.fixture
def desk(make_pool: MakePool) -> Desk:
    return Desk(make_pool(4))


def read(view: View) -> list[tuple[bytes, bool]]:
    got = []
    while (polled := view.poll()) is not None:
        got.append((bytes(polled.buffer.view), polled.buffer.is_event))
        polled.buffer.release()
    return got


def test_there_is_no_reader_before_the_end(desk: Desk) -> None:
    desk.write(b"a")
    with pytest.raises(PartitionError, match="subpartition 3 is blocking and not finished"):
        desk.subpartition.create_view(ignore)
    desk.subpartition.finish()
    desk.subpartition.create_view(ignore)


def test_a_poll_tells_what_follows(desk: Desk) -> None:
    desk.write(b"a", b"b")
    desk.event(b"event")
    desk.subpartition.finish()
    calls: list[str] = []
    view = desk.subpartition.create_view(lambda: calls.append("told"))
    assert calls == ["told"]
    assert (view.backlog, view.available(True), view.available(False)) == (2, True, False)
    polled = [view.poll() for _ in range(5)]
    assert [(p.more, p.backlog, p.next_is_event) for p in polled if p] == [
        (True, 1, False),
        (True, 0, True),
        (True, 0, True),
        (False, 0, False),
    ]
    assert polled[4] is None
    assert (view.available(True), view.available(False)) == (False, False)


def test_an_event_needs_no_credit(desk: Desk) -> None:
    desk.event(b"event")
    desk.subpartition.finish()
    assert desk.subpartition.create_view(ignore).available(False)


def test_finished_buffers_hold_no_pooled_memory(desk: Desk) -> None:
    desk.write(b"a")
    desk.write(b"b")
    assert desk.pool.lent == 1  # the last one is kept until it is known to be finished
    desk.subpartition.flush()
    assert desk.pool.lent == 0
    assert desk.store.entries == [(b"a", False), (b"b", False)]


def test_an_unfinished_buffer_with_another_behind_it_is_a_bug(desk: Desk) -> None:
    first = desk.builder()
    second = desk.pool.try_request()
    assert second is not None
    with pytest.raises(AssertionError, match="others after it"):
        desk.subpartition.add(BufferBuilder(second).consumer())
    second.release()
    second.release()
    first.finish()
    desk.subpartition.release()


def test_empty_buffers_are_not_stored(desk: Desk) -> None:
    desk.write(b"", b"a", b"")
    desk.subpartition.finish()
    assert desk.store.entries == [(b"a", False), END]


def test_the_end_is_written_once(desk: Desk) -> None:
    desk.subpartition.finish()
    desk.subpartition.finish()
    assert desk.store.entries == [END]
    assert desk.store.log == ["finished"]


@pytest.mark.parametrize("end", ["finish", "release"])
def test_what_comes_after_the_end_is_closed_and_refused(desk: Desk, end: str) -> None:
    getattr(desk.subpartition, end)()
    lease = desk.pool.try_request()
    assert lease is not None
    builder = BufferBuilder(lease)
    assert not desk.subpartition.add(builder.consumer())
    builder.finish()
    assert desk.pool.lent == 0


def test_the_store_goes_when_it_is_released_and_nobody_reads(desk: Desk) -> None:
    desk.write(b"a")
    desk.subpartition.finish()
    first, second = (desk.subpartition.create_view(ignore) for _ in range(2))
    desk.subpartition.release()
    desk.subpartition.release()
    assert read(first) == [(b"a", False), END]  # who reads may read on
    first.release()
    first.release()
    assert desk.store.log == ["finished", "reader closed"]
    second.release()
    assert desk.store.log == ["finished", "reader closed", "reader closed", "deleted"]
    with pytest.raises(PartitionError, match="subpartition 3 is released"):
        desk.subpartition.create_view(ignore)


def test_the_store_stays_as_long_as_it_is_not_released(desk: Desk) -> None:
    desk.subpartition.finish()
    desk.subpartition.create_view(ignore).release()
    assert "deleted" not in desk.store.log
    desk.subpartition.release()
    assert desk.store.log[-1] == "deleted"


def test_releasing_in_the_middle_of_writing_lets_go_of_everything(desk: Desk) -> None:
    failure = RuntimeError("boom")
    builder = desk.builder()
    builder.append(memoryview(b"a"))
    desk.subpartition.release(failure)
    assert desk.store.log == ["deleted"]
    assert desk.subpartition.failure is failure
    builder.finish()
    desk.subpartition.finish()
    assert (desk.pool.lent, desk.subpartition.finished) == (0, False)


def test_a_released_view_gives_nothing(desk: Desk) -> None:
    desk.write(b"a")
    desk.subpartition.finish()
    view = desk.subpartition.create_view(ignore)
    view.release()
    assert view.is_released
    assert view.poll() is None
    assert not view.available(True)


def test_a_store_that_fails_loses_no_segment(desk: Desk) -> None:
    desk.store.broken = OSError("disk full")
    builder = desk.builder()
    builder.append(memoryview(b"a"))
    with pytest.raises(OSError, match="disk full"):
        desk.subpartition.flush()
    builder.append(memoryview(b"b"))
    builder.finish()
    desk.store.broken = None  # the disk has room again, but a part is missing for good
    with pytest.raises(PartitionError, match="could not be stored: disk full"):
        desk.subpartition.finish()
    desk.subpartition.release()
    assert desk.pool.lent == 0


def test_only_the_last_buffer_is_queued_and_nothing_is_backlog(desk: Desk) -> None:
    desk.write(b"abc", b"de")
    assert (desk.subpartition.queued, desk.subpartition.backlog) == (1, 0)
    desk.subpartition.finish()
    assert (desk.subpartition.queued, desk.subpartition.backlog) == (0, 0)


@given(
    st.lists(st.tuples(st.lists(st.binary(max_size=6), max_size=4), st.booleans()), max_size=12),
    st.lists(st.integers(0, 2), max_size=60),
)
def test_every_reader_sees_what_was_written(
    buffers: list[tuple[list[bytes], bool]], turns: list[int]
) -> None:
    shelf = plain_pool(4, 24)
    desk = Desk(shelf)
    for chunks, is_event in buffers:
        if is_event:
            desk.event(b"event")
            continue
        builder = desk.builder()
        for chunk in chunks:
            builder.append(memoryview(chunk))
            desk.subpartition.flush()
        builder.finish()
    desk.subpartition.finish()
    views = [desk.subpartition.create_view(ignore) for _ in range(3)]
    seen: list[list[tuple[bytes, bool]]] = [[], [], []]
    for turn in turns:
        polled = views[turn].poll()
        if polled is not None:
            seen[turn].append((bytes(polled.buffer.view), polled.buffer.is_event))
    for got, view in zip(seen, views, strict=True):
        got += read(view)
        assert got == desk.store.entries
        view.release()
    data = b"".join(entry for entry, is_event in seen[0] if not is_event)
    assert data == b"".join(b"".join(chunks) for chunks, is_event in buffers if not is_event)
    assert sum(is_event for _, is_event in seen[0]) == 1 + sum(event for _, event in buffers)
    assert_all_home(shelf)
