"""Numbers from start to end, each once, however they are split, polled and reopened."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import PlanInvalid
from headgate.connectors.generator import NumberSequenceSource
from headgate.functions.source import SplitLag
from tests.connectors.kit import read_some, read_to_end, task_context


def test_both_ends_belong_to_the_sequence() -> None:
    source = NumberSequenceSource(3, 6)
    [split] = source.splits(1)
    assert read_to_end(source.open(split, None, task_context())) == [3, 4, 5, 6]
    assert source.bounded


def test_splits_are_contiguous_and_balanced() -> None:
    splits = NumberSequenceSource(1, 10).splits(4)
    assert [number for split in splits for number in split] == list(range(1, 11))
    assert {len(split) for split in splits} == {2, 3}


def test_there_is_no_empty_split() -> None:
    assert [len(split) for split in NumberSequenceSource(1, 2).splits(8)] == [1, 1]


def test_a_start_after_the_end_is_refused() -> None:
    with pytest.raises(PlanInvalid, match="start 5 is greater than end 3"):
        NumberSequenceSource(5, 3)


def test_the_description_travels() -> None:
    source = NumberSequenceSource(1, 9)
    assert pickle.loads(pickle.dumps((source, source.splits(2)))) == (source, source.splits(2))


@given(
    start=st.integers(-50, 50),
    length=st.integers(1, 60),
    parallelism=st.integers(1, 9),
    limits=st.lists(st.integers(1, 7), min_size=1),
)
def test_nothing_is_lost_or_repeated(
    start: int, length: int, parallelism: int, limits: list[int]
) -> None:
    source = NumberSequenceSource(start, start + length - 1)
    numbers: list[int] = []
    for split in source.splits(parallelism):
        reader = source.open(split, None, task_context())
        for limit in limits:
            numbers += read_some(reader, limit) or []
            reader = source.open(split, reader.position(), task_context())
        numbers += read_to_end(reader)
    assert numbers == list(range(start, start + length))


def test_the_lag_is_the_numbers_that_are_left() -> None:
    source = NumberSequenceSource(3, 6)
    reader = source.open(source.splits(1)[0], 4, task_context())
    assert reader.lag() == SplitLag(records=3)
    read_to_end(reader)
    assert reader.lag() == SplitLag(records=0)
