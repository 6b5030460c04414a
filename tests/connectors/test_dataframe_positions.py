"""Rows of a DataFrame after a restore: those that were read are passed over."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import StateBroken
from headgate.connectors.dataframe.bridge import BatchBridge
from headgate.connectors.dataframe.source import DataFrameSource
from tests.connectors.kit import read_some, task_context


def batches(numbers: Sequence[int], sizes: Sequence[int]) -> Iterator[pa.RecordBatch]:
    left = list(numbers)
    for size in [*sizes, len(left)]:
        some, left = left[:size], left[size:]
        yield pa.RecordBatch.from_pydict(
            {"n": pa.array(some, pa.int64()), "t": pa.array([[str(n)] for n in some])}
        )


class Fed:
    """A bridge that has all rows, and a reader of them."""

    def __init__(self, numbers: Sequence[int], sizes: Sequence[int], position: Any = None) -> None:
        self.source = DataFrameSource(None, ["n", "t"])
        self._bridge = BatchBridge([self.source.token], None)
        self._bridge.feed(batches(numbers, sizes), lambda batch: [(0, batch)])
        try:
            self.reader = self.source.open(0, position, task_context())
        except BaseException:
            self._bridge.close()
            raise

    def read(self, limit: int) -> list[int]:
        rows = read_some(self.reader, limit) or []
        for row in rows:
            row["t"].append("changed by the receiver")
        return [row["n"] for row in rows]

    def rest(self) -> list[int]:
        found: list[int] = []
        while some := self.read(1000):
            found += some
        return found

    def close(self) -> None:
        self.reader.close()
        self._bridge.close()


sizes_of = st.lists(st.integers(0, 5), max_size=8)


@given(st.integers(0, 30), st.lists(st.tuples(sizes_of, st.lists(st.integers(1, 7), max_size=3))))
def test_nothing_is_lost_or_repeated_however_the_batches_are_cut(count: int, runs: Any) -> None:
    numbers = list(range(count))
    found: list[int] = []
    position = None
    for sizes, limits in runs:
        fed = Fed(numbers, sizes, position)
        for limit in limits:
            found += fed.read(limit)
        position = fed.reader.position()
        assert position is None or position[0] == len(found)
        fed.close()
    fed = Fed(numbers, [3, 4], position)
    assert found + fed.rest() == numbers
    fed.close()


def position_after(count: int) -> Any:
    fed = Fed(range(10), [4])
    assert fed.read(count) == list(range(count))
    position = fed.reader.position()
    fed.close()
    return position


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([0, 1], "there are only 2 of 3"),
        ([0, 1, 3, 2, 4], "row 3 of them is another one now"),
    ],
)
def test_other_rows_than_before_are_noticed(numbers: list[int], words: str) -> None:
    fed = Fed(numbers, [], position_after(3))
    with pytest.raises(StateBroken, match=f"{words}.*the same rows in the same order"):
        fed.rest()
    fed.close()


def test_another_number_of_tasks_is_refused() -> None:
    position = position_after(3)
    source = DataFrameSource(None, ["n", "t"])
    context = task_context()
    other = replace(context, task=replace(context.task, parallelism=3))
    with pytest.raises(StateBroken, match="read by 1 tasks .* set the parallelism .* to 1"):
        source.open(0, position, other)


def test_rows_that_an_earlier_run_has_read_to_the_end_are_dropped() -> None:
    source = DataFrameSource(None, ["n", "t"])
    with BatchBridge([source.token], None) as bridge:
        source.passed_over(0)
        bridge.feed(batches(range(10), [4]), lambda batch: [(0, batch)])
        bridge.check()
