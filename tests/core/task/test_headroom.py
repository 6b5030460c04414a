"""Room in the outputs: a step takes what its free buffers hold, so that it need not wait."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Record
from headgate.base.settings import ExchangeSettings
from headgate.core.buffers.global_pool import GlobalPool
from headgate.core.egress.partition import PartitionKind
from headgate.core.egress.router import RoundRobin
from headgate.core.egress.writer import RecordWriter
from headgate.core.task.processors import OutputHeadroom
from tests.arena import assert_all_home, plain_segments
from tests.core.egress.kit import MemoryStore, make_partition
from tests.core.pair import SMALL
from tests.core.task.kit import Lab

SETTINGS: ExchangeSettings = replace(
    SMALL, segment_bytes=1024, buffers_per_channel=2, floating_per_gate=6, overdraft_buffers=2
)
POOL = 8


def waits(condition: object) -> None:
    raise AssertionError("the step waits in its middle")


def records(count: int, size: int) -> list[Record]:
    """All of them different, or a pickle would hold one."""
    return [number.to_bytes(size, "little") for number in range(count)]


def fill(writer: RecordWriter, room: OutputHeadroom, count: int) -> None:
    """A step with so many records."""
    writer.emit_all(records(count, 90))
    writer.seal()
    room.step_took(count)


def test_nobody_knows_before_the_first_buffer_is_full() -> None:
    with Lab(settings=SETTINGS) as lab:
        writer = lab.writer("p")
        room = OutputHeadroom([writer])
        assert room.fit(4096) == 4096
        writer.timeout_ms = -1
        fill(writer, room, 2)
        assert room.fit(4096) == 4096


def test_a_task_without_outputs_has_all_the_room_it_wants() -> None:
    assert OutputHeadroom([]).fit(4096) == 4096


def test_a_step_takes_what_the_free_buffers_hold() -> None:
    with Lab(settings=SETTINGS) as lab:
        writer = lab.writer("p")
        writer.timeout_ms = -1
        room = OutputHeadroom([writer])
        fill(writer, room, 24)  # ten or so in a buffer
        used = writer.partition.pool.lent
        fits = room.fit(4096)
        assert 6 * (POOL + 2 - used) <= fits <= 11 * (POOL + 2 - used)
        assert room.fit(5) == 5


def test_at_least_one_record_fits_always() -> None:
    with Lab(settings=SETTINGS) as lab:
        writer = lab.writer("p")
        writer.timeout_ms = -1
        room = OutputHeadroom([writer])
        for _ in range(POOL):
            fill(writer, room, 12)
        assert writer.partition.pool.lent >= POOL
        assert 1 <= room.fit(4096) <= 24


def test_shorter_buffers_are_known_before_the_first_one_is_written() -> None:
    with Lab(settings=SETTINGS) as lab:
        writer = lab.writer("p")
        writer.timeout_ms = -1
        room = OutputHeadroom([writer])
        fill(writer, room, 24)
        before = room.fit(4096)
        view = writer.partition.create_view(0, lambda: None)
        view.resize(128)
        assert before / 9 <= room.fit(4096) <= before / 7
        view.resize(2**32 - 1)
        assert before * 0.9 <= room.fit(4096) <= before * 1.1


@given(st.lists(st.integers(1, 4096), min_size=1, max_size=8), st.integers(20, 200))
def test_steps_of_even_records_never_wait_in_their_middle(limits: list[int], size: int) -> None:
    """A reader takes what is there whenever nothing is free; steps are cut to the room."""
    shelf = GlobalPool(plain_segments(40, 1024))
    partition = make_partition(shelf, 1, maximum=10, overdraft=5, wait=waits)
    writer = RecordWriter(partition, RoundRobin())
    view = partition.create_view(0, lambda: None)
    room = OutputHeadroom([writer])
    for limit in (1, 2, 4, 8, 16, 32, *limits):  # small steps come first, as the pace has it
        while not writer.available():
            polled = view.poll()
            assert polled is not None
            polled.buffer.release()
        count = room.fit(limit)
        writer.emit_all(records(count, size))
        writer.seal()
        room.step_took(count)
    writer.close()
    view.release()
    partition.release()
    assert_all_home(shelf)


def test_what_is_stored_needs_no_room() -> None:
    shelf = GlobalPool(plain_segments(10, 1024))
    partition = make_partition(shelf, 1, PartitionKind.BLOCKING, stores=[MemoryStore()])
    writer = RecordWriter(partition, RoundRobin())
    room = OutputHeadroom([writer])
    fill(writer, room, 1000)
    assert room.fit(4096) == 4096
    writer.close()
    partition.release()
