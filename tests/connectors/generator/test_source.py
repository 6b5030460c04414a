"""Every index once, and never more records than the rate allows."""

import pickle
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import PlanInvalid
from headgate.connectors.generator import (
    BURST_S,
    DataGeneratorReader,
    DataGeneratorSource,
)
from headgate.functions.context import RuntimeContext
from headgate.functions.source import SplitLag
from tests.connectors.kit import read_some, read_to_end, task_context


def square(index: int) -> int:
    return index * index


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def open_only(source: DataGeneratorSource, position: int | None = None) -> DataGeneratorReader:
    [split] = source.splits(1)
    return source.open(split, position, task_context())


def test_records_are_made_from_their_index() -> None:
    assert read_to_end(open_only(DataGeneratorSource(square, 5))) == [0, 1, 4, 9, 16]


def test_a_list_that_the_function_keeps_is_sent_as_it_was() -> None:
    kept: list[int] = []

    def growing(index: int) -> list[int]:
        kept.append(index)
        return kept

    assert read_to_end(open_only(DataGeneratorSource(growing, 3))) == [[0], [0, 1], [0, 1, 2]]


def test_a_stop_iteration_of_the_users_does_not_lose_records() -> None:
    def stopping(index: int) -> int:
        raise StopIteration

    with pytest.raises((StopIteration, RuntimeError)):
        read_to_end(open_only(DataGeneratorSource(stopping, 3)))


def test_tasks_take_turns_so_that_all_move_on_together() -> None:
    source = DataGeneratorSource(str, 7)
    splits = source.splits(3)
    read = [read_to_end(source.open(split, None, task_context())) for split in splits]
    assert read == [["0", "3", "6"], ["1", "4"], ["2", "5"]]


def test_without_a_count_it_does_not_end() -> None:
    source = DataGeneratorSource(square)
    assert not source.bounded
    assert DataGeneratorSource(square, 1).bounded
    assert read_some(open_only(source, 10**12), 1) == [10**24]


def test_no_records_need_no_split() -> None:
    assert DataGeneratorSource(square, 0).splits(4) == []


def test_a_function_object_is_opened_and_closed_in_its_task() -> None:
    class Tagged:
        def __init__(self) -> None:
            self.log: list[str] = []

        def open(self, runtime_context: RuntimeContext) -> None:
            self.log.append(runtime_context.get_task_name_with_subtasks())

        def map(self, index: int) -> str:
            return f"r{index}"

        def close(self) -> None:
            self.log.append("closed")

    tagged = Tagged()
    reader = open_only(DataGeneratorSource(tagged, 2))  # type: ignore[arg-type]
    assert read_to_end(reader) == ["r0", "r1"]
    reader.close()
    reader.close()
    assert tagged.log == ["source (1/1)", "closed"]


def test_a_function_that_cannot_open_is_closed() -> None:
    class Broken:
        closed = False

        def open(self, runtime_context: RuntimeContext) -> None:
            raise ValueError("no")

        def __call__(self, index: int) -> int:
            return index

        def close(self) -> None:
            self.closed = True

    broken = Broken()
    with pytest.raises(ValueError, match="no"):
        open_only(DataGeneratorSource(broken, 2))
    assert broken.closed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"count": -1}, "count is -1"),
        ({"records_per_second": 0.0}, "records_per_second is 0.0"),
        ({"records_per_second": float("nan")}, "records_per_second is nan"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, float], words: str) -> None:
    with pytest.raises(PlanInvalid, match=words):
        DataGeneratorSource(square, **changes)  # type: ignore[arg-type]


def test_the_description_travels() -> None:
    source = DataGeneratorSource(square, 9, 2.5)
    assert pickle.loads(pickle.dumps((source, source.splits(2)))) == (source, source.splits(2))


def test_a_slow_rate_hands_out_one_record_when_it_is_due() -> None:
    clock = Clock()
    reader = open_only(DataGeneratorSource(square, records_per_second=2.0, clock=clock))
    assert read_some(reader) == [0]
    assert read_some(reader) == []
    assert reader.wait_ms() == pytest.approx(500)
    clock.now += 0.25
    assert read_some(reader) == []
    assert reader.wait_ms() == pytest.approx(250)
    clock.now += 0.25
    assert read_some(reader) == [1]


def test_tasks_share_the_rate() -> None:
    clock = Clock()
    source = DataGeneratorSource(square, records_per_second=10.0, clock=clock)
    readers = [source.open(split, None, task_context()) for split in source.splits(5)]
    for reader in readers:
        assert len(read_some(reader) or []) == 1
        assert read_some(reader) == []
        assert reader.wait_ms() == pytest.approx(500)


def test_what_a_blocked_task_missed_does_not_come_at_once() -> None:
    clock = Clock()
    reader = open_only(DataGeneratorSource(square, records_per_second=1000.0, clock=clock))
    read_some(reader)
    clock.now += 60.0
    assert len(read_some(reader, 10**6) or []) == 1000 * BURST_S


def test_a_high_rate_comes_in_portions_not_in_single_records() -> None:
    clock = Clock()
    reader = open_only(DataGeneratorSource(square, records_per_second=1e6, clock=clock))
    read_some(reader, 10**6)
    clock.now += 0.0001
    assert read_some(reader, 10**6) == []
    clock.now += 0.001
    assert len(read_some(reader, 10**6) or []) >= 1000


def test_the_last_records_do_not_wait_for_a_whole_portion() -> None:
    clock = Clock()
    reader = open_only(DataGeneratorSource(square, 1001, records_per_second=1e6, clock=clock))
    assert len(read_some(reader, 10**6) or []) == 1000
    clock.now += 0.0001
    assert read_some(reader, 10**6) == [1000**2]
    assert read_some(reader) is None


@given(
    rate=st.floats(0.5, 1e5),
    steps=st.lists(st.tuples(st.floats(0, 2), st.integers(1, 500)), min_size=1, max_size=60),
)
def test_no_stretch_of_time_sees_more_than_its_rate_and_a_burst(
    rate: float, steps: list[tuple[float, int]]
) -> None:
    clock = Clock()
    reader = open_only(DataGeneratorSource(square, records_per_second=rate, clock=clock))
    made: list[tuple[float, int]] = []
    for pause, limit in steps:
        clock.now += pause
        made.append((clock.now, len(read_some(reader, limit) or [])))
    burst = max(1.0, rate * BURST_S)
    for first, (begin, _) in enumerate(made):
        count = 0
        for moment, records in made[first:]:
            count += records
            assert count <= rate * (moment - begin) + burst + 1e-6 * rate


@given(rate=st.floats(0.5, 1e5), seconds=st.integers(1, 5))
def test_a_reader_that_waits_as_it_says_reaches_its_rate(rate: float, seconds: int) -> None:
    clock = Clock()
    reader = open_only(DataGeneratorSource(int, records_per_second=rate, clock=clock))
    end = clock.now + seconds
    count = polls = 0
    while clock.now < end:
        polls += 1
        if found := len(read_some(reader, 1024) or []):
            count += found
        else:
            clock.now += reader.wait_ms() / 1000
    assert count >= rate * seconds * 0.999 - 1
    assert polls < 3 * min(count, seconds * 1100) + 100


@given(
    count=st.integers(0, 60),
    parallelism=st.integers(1, 7),
    limits=st.lists(st.integers(1, 7), min_size=1),
)
def test_nothing_is_lost_or_repeated(count: int, parallelism: int, limits: list[int]) -> None:
    source = DataGeneratorSource(int, count)
    made: list[int] = []
    for split in source.splits(parallelism):
        reader = source.open(split, None, task_context())
        for limit in limits:
            made += read_some(reader, limit) or []
            reader = source.open(split, reader.position(), task_context())
        made += read_to_end(reader)
    assert sorted(made) == list(range(count))


def test_the_lag_is_what_is_left_up_to_the_count() -> None:
    source = DataGeneratorSource(square, 7)
    reader = source.open(source.splits(2)[1], None, task_context())
    assert reader.lag() == SplitLag(records=3)
    assert reader.poll(2) == [1, 9]
    assert reader.lag() == SplitLag(records=1)
    assert read_to_end(reader) == [25]
    assert reader.lag() == SplitLag(records=0)
    assert open_only(DataGeneratorSource(square)).lag() is None
