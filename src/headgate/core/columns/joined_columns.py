"""The columns of a join: those of the left, those of the right, and the bounds of the window.

A key that has the same name on both sides is there once. Another column of the right whose name is
taken gets a suffix, and so does one of either side that is called as the bounds are. Law: names of
the result are unique; where that cannot be, the join is refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import compute

from headgate.base.errors import BatchUnfit
from headgate.core.columns.keys import Numbers
from headgate.core.columns.matching import NO_ROW, JoinKind, Matches, common_type, taken

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
        """Those that have the same name on both sides."""
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
