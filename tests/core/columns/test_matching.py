"""Pairs of rows with equal keys are those of two loops, for all kinds of joins and keys."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import BatchUnfit
from headgate.core.columns.joined_columns import (
    JOIN_KINDS,
    NO_ROW,
    Matches,
    common_type,
    dense,
    key_numbers,
    taken,
)
from tests.core.columns.kit import KEY_COLUMNS

NUMBERS = st.lists(st.integers(0, 5), max_size=12)


def looped(left: list[int], right: list[int], how: str) -> list[tuple[int, int]]:
    found = []
    for place, number in enumerate(left):
        partners = [other for other, same in enumerate(right) if same == number]
        if not partners and how in ("left", "full"):
            partners = [NO_ROW]
        found += [(place, other) for other in partners]
    if how in ("right", "full"):
        found += [(NO_ROW, other) for other, number in enumerate(right) if number not in left]
    return found


@given(left=NUMBERS, right=NUMBERS, how=st.sampled_from(JOIN_KINDS), rows=st.integers(1, 7))
def test_pairs_are_those_of_two_loops_in_their_order(
    left: list[int], right: list[int], how: Any, rows: int
) -> None:
    matches = Matches(np.array(left, dtype=np.int64), np.array(right, dtype=np.int64), how)
    pieces = list(matches.pieces(rows))
    assert all(0 < len(places) == len(others) <= rows for places, others in pieces)
    found = [pair for piece in pieces for pair in zip(*map(list, piece), strict=True)]
    assert found == looped(left, right, how)
    assert len(matches) == len(found)


@pytest.mark.parametrize("kind", KEY_COLUMNS)
@given(data=st.data())
def test_equal_keys_have_equal_numbers_on_both_sides(kind: str, data: st.DataObject) -> None:
    arrow_type, values = KEY_COLUMNS[kind]
    lists = [data.draw(st.lists(values, max_size=10)) for _ in range(2)]
    others = [data.draw(st.lists(st.booleans(), min_size=len(x), max_size=len(x))) for x in lists]
    plain = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    numbers = key_numbers(
        [[pa.array(x, plain), pa.array(y, pa.bool_())] for x, y in zip(lists, others, strict=True)]
    )
    keys = [*zip(lists[0], others[0], strict=True), *zip(lists[1], others[1], strict=True)]
    found = [*map(int, numbers[0]), *map(int, numbers[1])]
    assert len(numbers[0]) == len(lists[0])
    for key, number in zip(keys, found, strict=True):
        assert [other == number for other in found] == [other == key for other in keys]
    assert set(found) == set(range(len(set(keys))))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.uint64(), pa.int32(), pa.decimal128(20, 0)),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
        (pa.date32(), pa.date64(), pa.date64()),
        (pa.decimal128(9, 2), pa.decimal128(20, 2), pa.decimal128(38, 2)),
        (pa.decimal128(9, 2), pa.decimal128(9, 3), None),
        (pa.int64(), pa.string(), None),
        (pa.bool_(), pa.int64(), None),
    ],
)
def test_keys_are_compared_in_a_type_that_holds_both(left: Any, right: Any, expected: Any) -> None:
    assert common_type(left, right) == expected


def test_widths_of_numbers_do_not_matter_and_other_types_are_refused() -> None:
    left, right = pa.array([1, 2**63], pa.uint64()), pa.array([-1, 1], pa.int8())
    assert [list(side) for side in key_numbers([[left], [right]])] == [[0, 1], [2, 0]]
    with pytest.raises(BatchUnfit, match=r"int8 on the left.*string on the right.*cast one"):
        key_numbers([[right], [pa.array(["a"])]])


def test_a_place_without_a_row_is_null() -> None:
    column = pa.array(["a", "b"])
    assert taken(column, np.array([1, NO_ROW])).to_pylist() == ["b", None]
    assert taken(column, np.array([1, 1])).to_pylist() == ["b", "b"]
    assert taken(pa.array([], pa.int8()), np.array([NO_ROW])).to_pylist() == [None]
    assert list(dense(np.array([7, 3, 7]))) == [0, 1, 0]
