"""Records in asynchronous calls, written and shared out."""

from collections import deque
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import StreamStatus, Watermark
from headgate.base.errors import StateBroken
from headgate.core.operators.async_state import read_calls, write_calls

notes = st.one_of(st.integers(0, 9).map(Watermark), st.booleans().map(StreamStatus))
pairs = st.tuples(st.tuples(st.integers(), st.integers()), st.none() | st.integers())
rows = st.lists(st.one_of(pairs, notes))


@given(rows)
def test_with_the_same_tasks_each_gets_back_its_own_in_order(row: list[Any]) -> None:
    other = write_calls([([1], [None], [])], deque())
    for subtask in range(2):
        left = [other, other]
        left[subtask] = write_calls([], deque(row))
        assert list(read_calls(left, subtask, 2)) == row


@given(st.lists(st.none() | rows, min_size=1, max_size=4), st.integers(1, 5))
def test_with_other_tasks_each_record_goes_to_one(tasks: list[Any], parallelism: int) -> None:
    if len(tasks) == parallelism:
        return
    left = [None if one is None else write_calls([], deque(one)) for one in tasks]
    shares = [read_calls(left, subtask, parallelism) for subtask in range(parallelism)]
    records = [row for one in tasks for row in one or () if isinstance(row, tuple)]
    assert list(chain.from_iterable(shares)) == records


def test_what_waits_stands_behind_what_is_under_way() -> None:
    held = [([1, 2], [5, None], [Watermark(9)]), ([3], [None], [])]
    data = write_calls(held, deque([(4, 7), Watermark(20)]))
    assert list(read_calls([data], 0, 1)) == [
        (1, 5),
        (2, None),
        Watermark(9),
        (3, None),
        (4, 7),
        Watermark(20),
    ]


def test_a_record_that_cannot_be_written_is_named_as_the_culprit() -> None:
    with pytest.raises(StateBroken, match="must be picklable, and async_invoke"):
        write_calls([([lambda: 0], [None], [])], deque())


def test_bytes_that_are_no_records_are_refused() -> None:
    with pytest.raises(StateBroken, match="cannot be read"):
        read_calls([b"nonsense"], 0, 1)
