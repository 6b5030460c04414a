"""Columns of a join: names, types, keys of both sides, and rows without a partner."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.base.errors import BatchUnfit
from headgate.core.columns import joined_columns
from headgate.core.columns.joined_columns import BOUND, JoinedColumns, MatchedRows

LEFT = pa.record_batch({"k": pa.array([1, 2, 2], pa.int32()), "at": [10, 20, 30], "n": ["a"] * 3})
RIGHT = pa.record_batch({"at": [7, 8], "k": pa.array([2, 3], pa.int64())})


def rows(left: pa.RecordBatch = LEFT, right: pa.RecordBatch = RIGHT) -> MatchedRows:
    keys = tuple(np.array(side["k"].to_pylist(), dtype=np.int64) for side in (left, right))
    windows = tuple(np.zeros(len(side), dtype=np.int64) for side in (left, right))
    return MatchedRows(left, right, keys, windows, np.array([0]), np.array([60_000]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [(2, 20, "a", 7), (2, 30, "a", 7)]),
        ("left", [(1, 10, "a", None), (2, 20, "a", 7), (2, 30, "a", 7)]),
        ("right", [(2, 20, "a", 7), (2, 30, "a", 7), (3, None, None, 8)]),
        ("full", [(1, 10, "a", None), (2, 20, "a", 7), (2, 30, "a", 7), (3, None, None, 8)]),
    ],
)
def test_a_key_of_both_sides_is_there_once_and_never_null(how: Any, expected: Any) -> None:
    columns = JoinedColumns(("k",), ("k",), how)
    (found, *more) = columns.batches(rows())
    found = pa.Table.from_batches([found, *more])
    assert found.schema == columns.schema(LEFT.schema, RIGHT.schema)
    assert found.column_names == ["k", "at", "n", "at_right", "window_start", "window_end"]
    assert [tuple(row.values())[:4] for row in found.to_pylist()] == expected
    assert found.schema.field("window_end").type == BOUND
    assert {str(row["window_end"]) for row in found.to_pylist()} == {"1970-01-01 00:01:00+00:00"}
    width = pa.int64() if how in ("right", "full") else pa.int32()
    assert found.schema.field("k").type == width, "that of the side whose values are there"


def test_keys_of_other_names_are_there_twice() -> None:
    columns = JoinedColumns(("k",), ("id",), suffixes=("_l", "_r"))
    schema = columns.schema(LEFT.schema, RIGHT.schema.set(1, pa.field("id", pa.int64())))
    assert schema.names == ["k", "at", "n", "at_r", "id", "window_start", "window_end"]
    crossed = JoinedColumns(("at",), ("k",)).schema(LEFT.schema, RIGHT.schema)
    assert crossed.names == ["k", "at", "n", "at_right", "k_right", "window_start", "window_end"]


def test_columns_that_are_called_as_the_bounds_get_the_suffix_of_their_side() -> None:
    names, others = JoinedColumns(("k",), ("k",)).names(["k", "window_end"], ["k", "window_end"])
    assert names == ["k", "window_end_left"]
    assert others == {"window_end": "window_end_right"}


def test_names_that_are_taken_are_refused() -> None:
    columns = JoinedColumns(("k",), ("k",))
    with pytest.raises(BatchUnfit, match="column 'n_right' more than once; rename"):
        columns.names(["k", "n", "n_right"], ["k", "n"])
    with pytest.raises(BatchUnfit, match="'n' more than once"):
        columns.names(["k", "n", "n"], ["k"])


def test_keys_that_are_never_equal_are_refused() -> None:
    with pytest.raises(BatchUnfit, match="'n' of type string on the left and 'k' of type int64 on"):
        JoinedColumns(("n",), ("k",)).schema(LEFT.schema, RIGHT.schema)


def test_batches_of_the_result_have_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_columns, "BATCH_ROWS", 10)
    many = pa.record_batch({"k": [1] * 7, "at": [5] * 7})
    found = list(JoinedColumns(("k",), ("k",)).batches(rows(many, many)))
    assert [batch.num_rows for batch in found] == [10, 10, 10, 10, 9]


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_a_side_may_be_empty(how: Any) -> None:
    columns = JoinedColumns(("k",), ("k",), how)
    for left, right in ((LEFT, RIGHT[:0]), (LEFT[:0], RIGHT)):
        found = sum(batch.num_rows for batch in columns.batches(rows(left, right)))
        kept = {"left": len(left), "right": len(right), "full": len(left) + len(right)}
        assert found == kept.get(how, 0)


def test_dictionaries_of_keys_stay_dictionaries() -> None:
    kind = pa.dictionary(pa.int32(), pa.string())
    side = pa.record_batch({"k": pa.array(["a", "b"], kind), "x": [1, 2]})
    numbers = np.array([0, 1])
    given = MatchedRows(side, side, (numbers, numbers + 1), (numbers * 0,) * 2, numbers, numbers)
    found = pa.Table.from_batches(JoinedColumns(("k",), ("k",), "full").batches(given))
    assert found.schema.field("k").type == kind
    assert found.column("k").to_pylist() == ["a", "b", "b"]
