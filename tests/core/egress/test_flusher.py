"""The flusher: by time, and what it met is raised at the next emit. Rows 31-33."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from headgate.base.elements import Bundle, Watermark
from headgate.base.errors import FlushFailed
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.egress.partition import PartitionKind
from headgate.core.egress.router import RoundRobin
from headgate.core.egress.writer import Flusher, RecordWriter, flush_by_time
from tests.core.egress.chosen import emit_to
from tests.core.egress.kit import MemoryStore, make_partition, readers_of
from tests.core.pair import Timers

MakePool = Callable[..., GlobalPool]


def writer_of(shelf: GlobalPool, timeout_ms: int) -> RecordWriter:
    return RecordWriter(make_partition(shelf, 2), RoundRobin(), timeout_ms=timeout_ms)


def test_half_full_buffers_of_all_channels_become_readable_when_it_is_time(
    make_pool: MakePool,
) -> None:
    writer = writer_of(make_pool(4), 100)
    readers = readers_of(writer.partition)
    flusher = Flusher("map (1/2)", writer, now_ms=1000)
    assert flusher.name == "flusher of map (1/2)"
    assert flusher.next_deadline_ms == 1100
    writer.emit_all(["a", "b"])
    writer.seal()
    flusher.tick(1099)
    assert [reader.notified for reader in readers] == [0, 0]
    flusher.tick(1100)
    for reader in readers:
        reader.read()
    assert [reader.got for reader in readers] == [[Bundle(["a"])], [Bundle(["b"])]]
    assert flusher.next_deadline_ms == 1200
    writer.finish()
    for reader in readers:
        reader.close()


def test_a_late_tick_starts_the_next_period_when_it_comes(make_pool: MakePool) -> None:
    flusher = Flusher("map", writer_of(make_pool(4), 100), now_ms=0)
    flusher.tick(250)
    assert flusher.next_deadline_ms == 350


def test_what_a_resting_task_has_written_does_not_wait(make_pool: MakePool) -> None:
    writer = writer_of(make_pool(4), 100)
    readers = readers_of(writer.partition)
    flusher = Flusher("map", writer, now_ms=0)
    flusher.rest(10)
    assert [reader.notified for reader in readers] == [0, 0], "there is nothing to flush"
    flusher.tick(100)
    writer.emit_all(["a", "b"])
    writer.seal()
    flusher.rest(130)
    assert [reader.notified for reader in readers] == [1, 1]
    assert flusher.next_deadline_ms == 230
    for reader in readers:
        reader.read()
        reader.close()
    writer.close()


def test_a_task_that_rests_often_flushes_twice_in_a_period(make_pool: MakePool) -> None:
    writer = writer_of(make_pool(40), 100)
    readers = readers_of(writer.partition)
    flusher = Flusher("map", writer, now_ms=0)
    flushed = []
    for now_ms in range(0, 1000, 7):
        writer.emit_all(["a", "b"])
        writer.seal()
        flusher.tick(now_ms)
        flusher.rest(now_ms)
        if not writer.unflushed:
            flushed.append(now_ms)
            for reader in readers:
                reader.read()
    pauses = [after - before for before, after in pairwise(flushed)]
    assert len(flushed) > 16 and min(pauses) >= 50 and max(pauses) < 57
    writer.close()
    for reader in readers:
        reader.close()


@pytest.mark.parametrize("timeout_ms", [-1, 0])
def test_without_a_period_nothing_is_flushed_by_time(make_pool: MakePool, timeout_ms: int) -> None:
    writer = writer_of(make_pool(4), timeout_ms)
    readers = readers_of(writer.partition)
    flusher = Flusher("map", writer, now_ms=0)
    assert flusher.next_deadline_ms is None
    writer.emit("a")
    writer.seal()
    before = [reader.notified for reader in readers]
    flusher.tick(10**9)
    flusher.rest(10**9)
    assert [reader.notified for reader in readers] == before
    writer.close()
    for reader in readers:
        reader.close()


def test_what_a_flush_met_is_raised_at_every_emit_that_follows(make_pool: MakePool) -> None:
    store = MemoryStore()
    partition = make_partition(make_pool(4), 1, PartitionKind.BLOCKING, stores=[store])
    writer = RecordWriter(partition, RoundRobin(), timeout_ms=100)
    flusher = Flusher("map (1/2)", writer, now_ms=0)
    writer.emit("a")
    writer.seal()
    store.broken = OSError("disk full")
    flusher.tick(100)
    assert flusher.error is store.broken
    assert flusher.next_deadline_ms is None
    for emit in (
        lambda: writer.emit("b"),
        lambda: writer.emit_all([]),
        lambda: emit_to(writer, 0, ["b"]),
        lambda: writer.emit_element(Watermark(1)),
    ):
        with pytest.raises(
            FlushFailed, match=r"flusher of map \(1/2\) failed: disk full"
        ) as caught:
            emit()
        assert caught.value.__cause__ is store.broken
    writer.close()
    partition.release()


def test_a_flusher_that_met_nothing_lets_emits_pass(make_pool: MakePool) -> None:
    writer = writer_of(make_pool(4), 100)
    flusher = Flusher("map", writer, now_ms=0)
    flusher.tick(100)
    flusher.raise_error()
    writer.emit("a")
    assert writer.records_out == 1


@pytest.mark.parametrize("ends_by", ["finish", "release"])
def test_a_writer_is_flushed_again_and_again_until_its_partition_ends(
    make_pool: MakePool, ends_by: str
) -> None:
    writer = writer_of(make_pool(4), 100)
    readers_of(writer.partition)
    timers = Timers()
    flusher = flush_by_time("map (1/2)", writer, lambda: timers.now_ms, timers.later)
    timers.pass_ms(100)
    timers.pass_ms(100)
    assert timers.pauses == [100, 100, 100]
    assert flusher.next_deadline_ms == 300
    if ends_by == "finish":
        writer.finish()
    else:
        writer.partition.release()
    timers.pass_ms(100)
    timers.pass_ms(100)
    assert len(timers.pauses) == 3
    writer.close()
    writer.partition.release()


def test_nobody_sets_a_timer_for_what_cannot_be_read_before_its_end(make_pool: MakePool) -> None:
    timers = Timers()
    partition = make_partition(make_pool(4), 1, PartitionKind.BLOCKING, stores=[MemoryStore()])
    writer = RecordWriter(partition, RoundRobin(), timeout_ms=100)
    flush_by_time("map (1/2)", writer, lambda: timers.now_ms, timers.later)
    assert timers.pauses == []
    writer.close()
    partition.release()
