"""Aggregates by key on columns: folded within a batch first, then merged key by key.

A batch becomes one *partial* row for each key (and each slice of time), computed by pyarrow before
the rows travel. A partial row is merged with what the operator holds for its key like any record.
Law: merging partials in any order gives the aggregate of all rows; nulls are left out, and an
aggregate of nothing but nulls is null. Only floating point sums may differ, in their last digits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from pyarrow import compute

from headgate.base.elements import Record
from headgate.base.errors import BatchUnfit
from headgate.base.state_shapes import TypeShape
from headgate.core.columns.batches import column_of
from headgate.core.columns.keys import Numbers, encode, key_column
from headgate.core.columns.matching import key_numbers
from headgate.core.columns.times import EventTime, session_numbers, slice_starts

AggregateKind: TypeAlias = Literal["sum", "count", "min", "max", "mean"]
KINDS: Final = get_args(AggregateKind)
ROWS: Final = "count_all"
"""What pyarrow calls the number of rows, nulls or not."""


@dataclass(frozen=True, slots=True)
class ColumnAggregate:
    """One column of the result; without a ``column`` it counts rows."""

    name: str
    kind: AggregateKind
    column: str | None = None

    @property
    def parts(self) -> tuple[tuple[str | None, str], ...]:
        """What has to be known of a batch."""
        if self.kind == "mean":
            return ((self.column, "sum"), (self.column, "count"))
        return ((self.column, ROWS if self.column is None else self.kind),)


@dataclass(frozen=True, slots=True)
class Slices:
    """How rows are cut by event time before they are folded."""

    time: EventTime
    slice_ms: int = 0
    offset_ms: int = 0
    gap_ms: int = 0
    """Above 0: sessions instead of slices of equal length."""


@dataclass(frozen=True)
class PartialAggregation:
    """From a batch to its partial rows: keys, times if there are any, parts; rows behind times.

    How many rows a partial one stands for is only of use if they come too late, so that it is no
    part of what is merged.
    """

    keys: tuple[str, ...]
    aggregates: tuple[ColumnAggregate, ...]
    slices: Slices | None = None
    parts: tuple[tuple[str | None, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        found = dict.fromkeys(part for each in self.aggregates for part in each.parts)
        # Sorted, so that state does not depend on the order in which a program names them.
        object.__setattr__(self, "parts", tuple(sorted(found, key=repr)))

    @property
    def times(self) -> tuple[str, ...]:
        """Names of the columns of time in a partial batch."""
        if self.slices is None:
            return ()
        return ("first", "last") if self.slices.gap_ms else ("start",)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Of the key columns in a partial batch: whatever the user's are called."""
        return tuple(f"key{number}" for number in range(len(self.keys)))

    def partial(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One row for each key (and slice) of the batch; raises BatchUnfit."""
        keys = [key_column(batch, name) for name in self.keys]
        columns = dict(zip(self.key_names, keys, strict=True))
        values: dict[str, str] = {}
        wanted: list[tuple[Record, str]] = []
        for name, kind in self.parts:
            if name is not None and name not in values:
                values[name] = f"value{len(values)}"
                columns[values[name]] = column_of(batch, name)
            if kind == "sum" and name is not None:
                columns[values[name]] = _summable(columns[values[name]])
            wanted.append(([], kind) if name is None else (values[name], kind))
        groups = [*self.key_names, *self._add_slices(batch, keys, columns, wanted)]
        if self._counted:
            wanted.append((self.key_names[0], "count"))
        try:
            grouped = pa.table(columns).group_by(groups, use_threads=False).aggregate(wanted)
        except pa.ArrowException as error:
            raise self._refusal(batch, error) from None
        names = [*self.key_names, *self.times, *map(str, range(len(self.parts))), *self._counted]
        found = [grouped.column(name) for name in self.key_names]
        if self.times == ("start",):
            found.append(grouped.column("start"))
        parts, times = len(self.parts), len(wanted) - len(self._counted)
        in_order = (*wanted[parts:times], *wanted[:parts], *wanted[times:])
        found += [grouped.column(_result_name(*each)) for each in in_order]
        arrays = [column.combine_chunks() for column in found]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def folded(self, partials: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Partial batches as one; those of sessions, which may touch each other, stay as they are.

        So do some whose types differ, as those of decimals may.
        """
        if self.times == ("first", "last"):
            return partials
        groups = [*self.key_names, *self.times]
        wanted = [(str(at), _FOLDS.get(kind, "sum")) for at, (_, kind) in enumerate(self.parts)]
        wanted += [(name, "sum") for name in self._counted]
        try:
            table = pa.Table.from_batches(partials)
            for at, kind in wanted:
                if kind == "sum":
                    place = table.column_names.index(at)
                    table = table.set_column(place, at, _summable(table.column(at)))
            grouped = table.group_by(groups, use_threads=False).aggregate(wanted)
        except pa.ArrowException:
            return partials
        names = [*groups, *(f"{at}_{kind}" for at, kind in wanted)]
        arrays = [grouped.column(name).combine_chunks() for name in names]
        return [pa.RecordBatch.from_arrays(arrays, names=table.column_names)]

    def numbered(self, batch: pa.RecordBatch, partial: pa.RecordBatch) -> tuple[Numbers, Numbers]:
        """A number for each row of a batch and for each of its partial rows: the same if it is in.

        Only with slices.
        """
        assert self.slices is not None
        keys = [key_column(batch, name) for name in self.keys]
        times = self.slices.time.of(batch)
        if self.slices.gap_ms:
            codes, _ = encode(keys)
            sessions = session_numbers(codes, times, self.slices.gap_ms)
            firsts = np.full(1 + sessions.max(initial=0), np.iinfo(np.int64).max)
            np.minimum.at(firsts, sessions, times)
            starts = firsts[sessions]
        else:
            starts = slice_starts(times, self.slices.slice_ms, self.slices.offset_ms)
        own = partial.columns[: len(keys) + 1]
        of_rows, of_partials = key_numbers([[*keys, pa.array(starts)], own])
        return of_rows, of_partials

    @property
    def _counted(self) -> tuple[str, ...]:
        return ("rows",) if self.slices is not None else ()

    def _add_slices(
        self,
        batch: pa.RecordBatch,
        keys: list[pa.Array],
        columns: dict[str, Record],
        wanted: Record,
    ) -> list[str]:
        """Columns to group by besides the keys; adds what they need."""
        slices = self.slices
        if slices is None:
            return []
        times = slices.time.of(batch)
        if not slices.gap_ms:
            columns["start"] = pa.array(slice_starts(times, slices.slice_ms, slices.offset_ms))
            return ["start"]
        codes, _ = encode(keys)
        columns["session"] = pa.array(session_numbers(codes, times, slices.gap_ms))
        columns["time"] = pa.array(times)
        wanted += [("time", "min"), ("time", "max")]
        return ["session"]

    def _refusal(self, batch: pa.RecordBatch, error: Exception) -> BatchUnfit:
        kinds = ", ".join(
            f"{each.kind} of {each.column!r} ({column_of(batch, each.column).type})"
            for each in self.aggregates
            if each.column is not None
        )
        problem = str(error).partition("\n")[0]
        return BatchUnfit(f"its aggregates cannot be computed: {kinds}; pyarrow says: {problem}")


def _summable(column: pa.Array) -> pa.Array:
    """A column whose sum does not wrap around: wider, if it might need to be."""
    kind = column.type
    if not pa.types.is_integer(kind) or not len(column):
        return column
    bounds = compute.min_max(column)
    values = [abs(bound.as_py() or 0) for bound in bounds.values()]
    bits = 64 if pa.types.is_unsigned_integer(kind) else 63
    return column.cast(WIDE) if max(values) * len(column) >= 1 << bits else column


WIDE: Final = pa.decimal128(38, 0)
"""For sums of whole numbers that 64 bits may not hold."""


def _result_name(column: Record, kind: str) -> str:
    return kind if not column else f"{column}_{kind}"


class PartialRecords:
    """Partial rows as records ``(key, *times, *parts)``, merged, and the rows of the result."""

    def __init__(self, aggregation: PartialAggregation) -> None:
        self._aggregation = aggregation
        self._behind = 1 + len(aggregation.times)
        """Where the parts begin in a record."""
        self._all = (
            *(_TIMES[name] for name in aggregation.times),
            *(_MERGES[kind] for _, kind in aggregation.parts),
        )
        """For all that stands behind the key."""
        self._is_count = not aggregation.times and aggregation.parts == ((None, ROWS),)

    def records(self, batch: pa.RecordBatch) -> list[Record]:
        """A partial batch as records."""
        count = batch.num_columns - len(self._aggregation._counted)
        columns = [_to_python(column) for column in batch.columns[:count]]
        width = len(self._aggregation.keys)
        keys = columns[0] if width == 1 else list(zip(*columns[:width], strict=True))
        return list(zip(keys, *columns[width:], strict=True))

    @property
    def aggregation(self) -> PartialAggregation:
        """What makes partial rows."""
        return self._aggregation

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the columns that hold the key."""
        return self._aggregation.keys

    def shape(self) -> TypeShape:
        """What records hold, for checkpoints: a program with other aggregates cannot go on."""
        parts = [f"{kind} of {name!r}" if name else kind for name, kind in self._aggregation.parts]
        times = self._aggregation.times
        return TypeShape(f"headgate.columns: {', '.join([*times, *parts])}")

    def types(self, schema: pa.Schema) -> list[pa.DataType | None]:
        """Of the columns of a result, given those of a partial batch."""
        width = len(self.keys)
        places = {part: at for at, part in enumerate(self._aggregation.parts)}
        first = width + len(self._aggregation.times)
        found: list[pa.DataType | None] = [schema.field(at).type for at in range(width)]
        for each in self._aggregation.aggregates:
            kind = schema.field(first + places[each.parts[0]]).type
            if each.kind in ("count", "mean"):
                kind = result_type(each, None)
            found.append(None if kind == WIDE else kind)
        return found

    def key_of(self, record: Record) -> Record:
        return record[0]

    def merge(self, left: Record, right: Record) -> Record:
        """Two records of one key as one."""
        if self._is_count:  # most are
            return left[0], left[1] + right[1]
        rest = zip(self._all, left[1:], right[1:], strict=True)
        return (left[0], *[merge(a, b) for merge, a, b in rest])

    def results(self, records: Sequence[Record]) -> tuple[list[list[Record]], list[list[Record]]]:
        """Columns of the keys, and columns of the aggregates, for the result."""
        keys: list[list[Record]] = [[record[0] for record in records]]
        if len(self._aggregation.keys) > 1:
            keys = [list(column) for column in zip(*keys[0], strict=True)]
        places = {part: self._behind + at for at, part in enumerate(self._aggregation.parts)}
        return keys, [
            self._result(each, [places[part] for part in each.parts], records)
            for each in self._aggregation.aggregates
        ]

    @staticmethod
    def _result(
        each: ColumnAggregate, places: list[int], records: Sequence[Record]
    ) -> list[Record]:
        if each.kind != "mean":
            (place,) = places
            return [record[place] for record in records]
        total, count = places
        return [
            float(record[total]) / record[count] if record[count] else None for record in records
        ]


def _first(left: Record, right: Record) -> Record:
    return left


def _add(left: Record, right: Record) -> Record:
    if left is None or right is None:
        return right if left is None else left
    return left + right


def _least(left: Record, right: Record) -> Record:
    if left is None or left != left:  # NaN counts only if there is nothing else
        return left if right is None else right
    return left if right is None or not right < left else right


def _greatest(left: Record, right: Record) -> Record:
    if left is None or left != left:
        return left if right is None else right
    return left if right is None or not right > left else right


def _to_python(column: pa.Array) -> list[Record]:
    """Values that Python compares and adds as pyarrow does."""
    if pa.types.is_timestamp(column.type):  # of datetimes Python compares the clocks on the wall
        return list(column.cast(pa.int64()).to_pylist())
    if column.type == WIDE:
        return [None if value is None else int(value) for value in column.to_pylist()]
    return list(column.to_pylist())


def from_python(values: list[Record], kind: pa.DataType | None) -> pa.Array:
    """Such values as a column."""
    if kind is not None and pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, type=kind)


_FOLDS: Final = {"min": "min", "max": "max"}
"""How pyarrow folds parts once more; all others are added."""
_TIMES: Final[dict[str, Callable[[Record, Record], Record]]] = {
    "start": _first,
    "first": min,
    "last": max,
}
_MERGES: Final = {
    "sum": _add,
    "count": _add,
    ROWS: _add,
    "min": _least,
    "max": _greatest,
}


def result_type(each: ColumnAggregate, schema: pa.Schema | None) -> pa.DataType | None:
    """Of an aggregate's column, given the schema of the rows; None: not known."""
    if each.kind == "count":
        return pa.int64()
    if each.kind == "mean":
        return pa.float64()
    if schema is None or each.column is None:
        return None
    kind = schema.field(each.column).type
    if each.kind != "sum":
        return kind
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_unsigned_integer(kind) or pa.types.is_boolean(kind):
        return pa.uint64()
    return pa.int64() if pa.types.is_integer(kind) else None
