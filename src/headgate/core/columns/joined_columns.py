"""Joins of columns: which rows of two tables have equal keys, and what columns the result has.

Keys are numbered together, so that equal keys of both sides have the same number; the rows of the
right are sorted by number, and each row on the left finds its partners as a stretch of them. Law:
every pair comes once, ordered by its place on the left, then by that on the right; an outer join
adds each row without a partner once. What is made at a time has a bounded size, however many pairs
there are.

The result has the columns of the left, those of the right, and the bounds of the window. A key that
has the same name on both sides is there once. Another column of the right whose name is taken gets
a suffix, and so does one of either side that is called as the bounds are. Law: names of the result
are unique; where that cannot be, the join is refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from pyarrow import compute

from headgate.base.errors import BatchUnfit
from headgate.core.columns.keys import Numbers

JoinKind: TypeAlias = Literal["inner", "left", "right", "full"]
JOIN_KINDS: Final = get_args(JoinKind)
NO_ROW: Final = -1
"""In the place of a row that has no partner."""
_FAMILIES: Final = (
    ((pa.types.is_integer,), pa.decimal128(20, 0)),
    ((pa.types.is_string, pa.types.is_large_string), pa.large_string()),
    ((pa.types.is_binary, pa.types.is_large_binary), pa.large_binary()),
    ((pa.types.is_boolean,), pa.bool_()),
    ((pa.types.is_date,), pa.date64()),
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
    for checks, widest in _FAMILIES:
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


WINDOW_START, WINDOW_END = "window_start", "window_end"
BOUNDS: Final = (WINDOW_START, WINDOW_END)
BOUND: Final = pa.timestamp("us", tz="UTC")
BATCH_ROWS: Final = 65_536
"""Rows of the result in a batch at most."""


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """Rows of both sides, with a number for each by which they meet, and that of its window."""

    left: pa.RecordBatch
    right: pa.RecordBatch
    keys: tuple[Numbers, Numbers]
    windows: tuple[Numbers, Numbers]
    starts: Numbers
    ends: Numbers
    """In milliseconds, by the number of the window."""


@dataclass(frozen=True, slots=True)
class JoinedColumns:
    """What a join makes of the columns of both sides."""

    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    how: JoinKind = "inner"
    suffixes: tuple[str, str] = ("_left", "_right")

    @property
    def keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Keys of the left and of the right."""
        return self.left_keys, self.right_keys

    @property
    def shared_keys(self) -> tuple[str, ...]:
        """Keys that have the same name on both sides."""
        pairs = zip(self.left_keys, self.right_keys, strict=True)
        return tuple(left for left, right in pairs if left == right)

    def names(self, left: Sequence[str], right: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Names for the columns of the left, and by name for those of the right that are there.

        Raises BatchUnfit.
        """
        of_left, of_right = self.suffixes
        first = [f"{name}{of_left}" if name in BOUNDS else name for name in left]
        used = {*left, *BOUNDS}
        second = {
            name: f"{name}{of_right}" if name in used else name
            for name in right
            if name not in self.shared_keys
        }
        names = [*first, *second.values(), *BOUNDS]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise BatchUnfit(
                f"its result would have the column {twice[0]!r} more than once; rename the column "
                f"with select() before the join, or give apply() other suffixes than "
                f"{self.suffixes!r}"
            )
        return first, second

    def schema(self, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        """Schema of the result; raises BatchUnfit if names or types of keys do not fit."""
        first, second = self.names(left.names, right.names)
        self.check_keys(left, right)
        fields = []
        for name, new in zip(left.names, first, strict=True):
            kind = left.field(name).type
            if name in self.shared_keys:
                kind = self._key_type(kind, right.field(name).type)
            fields.append(pa.field(new, kind))
        fields += [pa.field(new, right.field(name).type) for name, new in second.items()]
        return pa.schema([*fields, *(pa.field(name, BOUND) for name in BOUNDS)])

    def check_keys(self, left: pa.Schema, right: pa.Schema) -> None:
        """Raises BatchUnfit if keys of both sides can never be equal."""
        for first, second in zip(self.left_keys, self.right_keys, strict=True):
            kinds = left.field(first).type, right.field(second).type
            if common_type(*kinds) is None:
                raise BatchUnfit(
                    f"its keys {first!r} of type {kinds[0]} on the left and {second!r} of type "
                    f"{kinds[1]} on the right are never equal; cast one of them with "
                    f"with_column() before the join"
                )

    def batches(self, rows: MatchedRows) -> Iterator[pa.RecordBatch]:
        """The result, in batches of a bounded size."""
        schema = self.schema(rows.left.schema, rows.right.schema)
        _, second = self.names(rows.left.schema.names, rows.right.schema.names)
        matches = Matches(*rows.keys, self.how)
        for left, right in matches.pieces(BATCH_ROWS):
            arrays = []
            for name, column in zip(rows.left.schema.names, rows.left.columns, strict=True):
                if name in self.shared_keys:
                    other = rows.right.column(name)
                    arrays.append(self._key(column, other, left, right))
                else:
                    arrays.append(taken(column, left))
            arrays += [taken(rows.right.column(name), right) for name in second]
            window = _window_of(rows, left, right)
            for bounds in (rows.starts, rows.ends):
                arrays.append(pa.array(bounds[window] * 1_000).cast(BOUND))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _key_type(self, left: pa.DataType, right: pa.DataType) -> pa.DataType:
        if left == right or self.how in ("inner", "left"):
            return left
        return right if self.how == "right" else common_type(left, right)

    def _key(self, column: pa.Array, other: pa.Array, left: Numbers, right: Numbers) -> pa.Array:
        """A column of keys that both sides have."""
        if self.how in ("inner", "left"):
            return taken(column, left)
        if self.how == "right":
            return taken(other, right)
        kind = self._key_type(column.type, other.type)
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        both = [taken(column, left).cast(plain), taken(other, right).cast(plain)]
        found = compute.coalesce(*both)
        return found if found.type == kind else found.cast(kind)


def _window_of(rows: MatchedRows, left: Numbers, right: Numbers) -> Numbers:
    """The number of the window of each pair."""
    of_left, of_right = rows.windows
    if not (left == NO_ROW).any():
        return of_left[left]
    if not len(of_left):
        return of_right[right]
    return np.where(left == NO_ROW, of_right[right], of_left[left])
