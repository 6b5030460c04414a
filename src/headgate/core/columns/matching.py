"""Which rows of two tables have equal keys, found for whole columns at a time.

Keys are numbered together, so that equal keys of both sides have the same number; the rows of the
right are sorted by number, and each row on the left finds its partners as a stretch of them. Law:
every pair comes once, ordered by its place on the left, then by that on the right; an outer join
adds each row without a partner once. What is made at a time has a bounded size, however many pairs
there are.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from headgate.base.errors import BatchUnfit
from headgate.core.columns.keys import Numbers

JoinKind: TypeAlias = Literal["inner", "left", "right", "full"]
JOIN_KINDS: Final = get_args(JoinKind)
NO_ROW: Final = -1
"""In the place of a row that has no partner."""
_FAMILIES: Final = (
    ("whole numbers", (pa.types.is_integer,), pa.decimal128(20, 0)),
    ("texts", (pa.types.is_string, pa.types.is_large_string), pa.large_string()),
    ("bytes", (pa.types.is_binary, pa.types.is_large_binary), pa.large_binary()),
    ("booleans", (pa.types.is_boolean,), pa.bool_()),
    ("dates", (pa.types.is_date,), pa.date64()),
)
"""Types of which equal values are equal keys, and one that holds the values of all of them."""


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """A type in which keys of both columns can be compared; None: they are never equal."""
    left, right = (
        kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (left, right)
    )
    if left == right:
        return left
    signed = pa.types.is_signed_integer
    if signed(left) and signed(right):
        return pa.int64()
    for _, checks, widest in _FAMILIES:
        if all(any(check(kind) for check in checks) for kind in (left, right)):
            return widest
    if pa.types.is_decimal(left) and pa.types.is_decimal(right) and left.scale == right.scale:
        return pa.decimal128(38, left.scale)
    return None


def key_numbers(sides: Sequence[Sequence[pa.Array]]) -> list[Numbers]:
    """For each side, which has an array for each column of keys: a number for each row.

    Numbers are equal where all columns are equal, and lie densely from 0. Raises BatchUnfit.
    """
    ends = np.cumsum([len(side[0]) for side in sides])
    numbers: Numbers = None
    for columns in zip(*sides, strict=True):
        column = pa.concat_arrays(_alike(columns))
        encoded = column.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        if numbers is not None:
            codes = dense(numbers * max(1, len(encoded.dictionary)) + codes)
        numbers = codes
    return np.split(numbers, ends[:-1])


def dense(numbers: Numbers) -> Numbers:
    """These distinctions by numbers that lie densely from 0."""
    return pa.array(numbers).dictionary_encode().indices.to_numpy().astype(np.int64, copy=False)


def _alike(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Columns of one type."""
    kinds = {column.type for column in columns}
    if len(kinds) == 1:
        return list(columns)
    common = columns[0].type
    for column in columns[1:]:
        kind = common_type(common, column.type)
        if kind is None:
            raise BatchUnfit(
                f"a key of type {columns[0].type} on the left and one of type {column.type} on the "
                f"right are never equal; cast one of them with with_column() before the join"
            )
        common = kind
    return [column if column.type == common else column.cast(common) for column in columns]


class Matches:
    """Pairs of rows with equal numbers, as places of rows on both sides."""

    def __init__(self, left: Numbers, right: Numbers, how: JoinKind = "inner") -> None:
        size = 1 + max(left.max(initial=-1), right.max(initial=-1))
        counts = np.bincount(right, minlength=size)
        self._order = np.argsort(right, kind="stable")
        """Places on the right, by number."""
        self._first = (counts.cumsum() - counts)[left]
        self._is_alone = counts[left] == 0
        partners: Numbers = counts[left]
        if how in ("left", "full"):
            partners = np.maximum(partners, 1)
        self._partners = partners
        """How many pairs each row on the left is in."""
        self._ends = partners.cumsum()
        self._rest: Numbers = np.empty(0, dtype=np.int64)
        """Rows on the right that are alone, if they are wanted."""
        if how in ("right", "full"):
            self._rest = np.flatnonzero(np.bincount(left, minlength=size)[right] == 0)

    def __len__(self) -> int:
        return (int(self._ends[-1]) if len(self._ends) else 0) + len(self._rest)

    def pieces(self, rows: int) -> Iterator[tuple[Numbers, Numbers]]:
        """Places on the left and on the right, so many pairs at a time; see ``NO_ROW``."""
        pairs = int(self._ends[-1]) if len(self._ends) else 0
        for begin in range(0, pairs, rows):
            pair = np.arange(begin, min(begin + rows, pairs))
            left = np.searchsorted(self._ends, pair, side="right")
            place = self._first[left] + pair - (self._ends[left] - self._partners[left])
            alone = self._is_alone[left]
            if alone.any():
                right: Numbers = np.full(len(pair), NO_ROW)
                right[~alone] = self._order[place[~alone]]
            else:
                right = self._order[place]
            yield left, right
        for begin in range(0, len(self._rest), rows):
            alone_on_right = self._rest[begin : begin + rows]
            yield np.full(len(alone_on_right), NO_ROW), alone_on_right


def taken(column: pa.Array, places: Numbers) -> pa.Array:
    """The values at these places; null where there is no row."""
    missing = places == NO_ROW
    if missing.any():
        return column.take(pa.array(places, mask=missing))
    return column.take(pa.array(places))
