"""Aggregates by key on columns: folded within a batch first, then merged key by key.

A batch becomes one *partial* row for each key (and each slice of time), computed by pyarrow before
the rows travel. A partial row is merged with what the operator holds for its key like any record.
Law: merging partials in any order gives the aggregate of all rows; nulls are left out, and an
aggregate of nothing but nulls is null. Only floating point sums may differ, in their last digits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from pyarrow import compute

from headgate.base.checkpoints import TypeShape
from headgate.base.elements import Record
from headgate.base.errors import BatchUnfit
from headgate.core.columns.batches import column_of
from headgate.core.columns.joined_columns import key_numbers
from headgate.core.columns.keys import Numbers, encode, key_column
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
    """From a batch to its partial rows: keys, times if there are any, parts; rows after times.

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
        """Names of the key columns in a partial batch, whatever the user's are called."""
        return tuple(f"key{number}" for number in range(len(self.keys)))

    def partial(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One row for each key (and slice) of the batch; raises BatchUnfit."""
        keys = [key_column(batch, name) for name in self.keys]
        columns = dict(zip(self.key_names, keys, strict=True))
        wanted: list[Wanted] = []
        for at, (name, kind) in enumerate(self.parts):
            if name is not None:
                columns[str(at)] = column_of(batch, name)
            wanted.append((str(at), [] if name is None else str(at), kind))
        groups = [*self.key_names, *self._add_slices(batch, keys, columns, wanted)]
        wanted += [(name, self.key_names[0], "count") for name in self._counted]
        try:
            found = _aggregated(pa.table(columns), groups, wanted)
        except pa.ArrowException as error:
            raise self._refusal(batch, error) from None
        parts, times = len(self.parts), len(wanted) - len(self._counted)
        width = len(self.key_names) + (self.times == ("start",))
        own, rest = found[:width], found[len(groups) :]
        return _batch([*own, *rest[parts:times], *rest[:parts], *rest[times:]])

    def folded(self, partials: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Partial batches as one; those of sessions, which may touch each other, stay as they are.

        So do some whose types differ, as those of decimals may.
        """
        if self.times == ("first", "last"):
            return partials
        groups = [*self.key_names, *self.times]
        kinds = [
            *(_FOLDS.get(kind, "sum") for _, kind in self.parts),
            *("sum" for _ in self._counted),
        ]
        try:
            table = pa.Table.from_batches(partials)
            names = table.column_names[len(groups) :]
            wanted = list(zip(names, names, kinds, strict=True))
            return [_batch(_aggregated(table, groups, wanted))]
        except pa.ArrowException:
            return partials

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
        wanted: "list[Wanted]",
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
        wanted += [("first", "time", "min"), ("last", "time", "max")]
        return ["session"]

    def _refusal(self, batch: pa.RecordBatch, error: Exception) -> BatchUnfit:
        kinds = ", ".join(
            f"{each.kind} of {each.column!r} ({column_of(batch, each.column).type})"
            for each in self.aggregates
            if each.column is not None
        )
        problem = str(error).partition("\n")[0]
        advice = "; cast the column that is aggregated to a wider type first"
        return BatchUnfit(
            f"its aggregates cannot be computed: {kinds}; pyarrow says: {problem}"
            f"{advice if 'precision' in problem else ''}"
        )


Wanted: TypeAlias = tuple[str, Record, str]
"""The name of a part, the column that it is computed from (none: the rows), and how."""

_WIDE: Final = " wide"
"""Ends the name of a part with sums of whole numbers that 64 bits do not hold: decimals that stand
for ints. A decimal that the user has keeps its type.
"""


def _aggregated(
    table: pa.Table, groups: list[str], wanted: list[Wanted]
) -> list[tuple[str, pa.ChunkedArray]]:
    """Columns with their names: those of the groups, then what is wanted of each.

    Sums do not wrap around. Raises pa.ArrowException, also for a sum that its type cannot hold.
    """
    columns, names = dict(zip(table.column_names, table.columns, strict=True)), {}
    asked: list[tuple[Record, str]] = []
    for name, column, kind in wanted:
        names[name] = name
        if kind == "sum":  # others may want the column as it is
            columns[f"sum {column}"] = wider = _summable(columns[column])
            is_wide = pa.types.is_integer(columns[column].type) and wider is not columns[column]
            names[name] = f"{name}{_WIDE}" if is_wide else name
            column = f"sum {column}"
        asked.append((column, kind))
    grouped = pa.table(columns).group_by(groups, use_threads=False).aggregate(asked)
    found = [(name, grouped.column(name)) for name in groups]
    for (name, column, kind), (at, _) in zip(wanted, asked, strict=True):
        values = grouped.column(f"{at}_{kind}" if at else kind)
        if kind == "sum" and pa.types.is_decimal(columns[column].type):
            values = values.cast(_sum_type(columns[column].type))
        found.append((names[name], values))
    return found


def _batch(columns: list[tuple[str, pa.ChunkedArray]]) -> pa.RecordBatch:
    names, values = zip(*columns, strict=True)
    return pa.RecordBatch.from_arrays([each.combine_chunks() for each in values], names=names)


def _summable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column whose sum does not wrap around: wider, if it might need to be."""
    kind = column.type
    is_decimal = pa.types.is_decimal(kind) and not pa.types.is_decimal256(kind)
    if not (is_decimal or pa.types.is_integer(kind)) or not len(column):
        return column
    bounds = compute.min_max(column)
    most = max(abs(bound.as_py() or 0) for bound in bounds.values()) * len(column)
    if is_decimal:
        fits = most < 10 ** (38 - kind.scale)
        return column if fits else column.cast(pa.decimal256(76, kind.scale))
    bits = 64 if pa.types.is_unsigned_integer(kind) else 63
    return column if most < 1 << bits else column.cast(pa.decimal128(38, 0))


def _sum_type(kind: pa.DataType) -> pa.DataType:
    """Type of a sum of decimals."""
    is_wide = pa.types.is_decimal256(kind)
    return pa.decimal256(76, kind.scale) if is_wide else pa.decimal128(38, kind.scale)


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
        """For all columns after the key."""
        self._is_count = not aggregation.times and aggregation.parts == ((None, ROWS),)

    def records(self, batch: pa.RecordBatch) -> list[Record]:
        """A partial batch as records."""
        count = batch.num_columns - len(self._aggregation._counted)
        columns = [
            _to_python(column, name.endswith(_WIDE))
            for name, column in zip(batch.schema.names[:count], batch.columns[:count], strict=True)
        ]
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
        """Types of the columns of a result, given those of a partial batch."""
        width = len(self.keys)
        places = {part: at for at, part in enumerate(self._aggregation.parts)}
        first = width + len(self._aggregation.times)
        found: list[pa.DataType | None] = [schema.field(at).type for at in range(width)]
        for each in self._aggregation.aggregates:
            part = schema.field(first + places[each.parts[0]])
            if each.kind in ("count", "mean"):
                found.append(result_type(each, None))
            else:
                found.append(None if part.name.endswith(_WIDE) else part.type)
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
    return _EXACT.add(left, right) if type(left) is type(right) is Decimal else left + right


_EXACT: Final = Context(prec=2 * 76)
"""Python's own would round to 28 digits."""


def _least(left: Record, right: Record) -> Record:
    if left is None or left != left:  # NaN counts only if there is nothing else
        return left if right is None else right
    return left if right is None or not right < left else right


def _greatest(left: Record, right: Record) -> Record:
    if left is None or left != left:
        return left if right is None else right
    return left if right is None or not right > left else right


def _to_python(column: pa.Array, as_int: bool) -> list[Record]:
    """Values that Python compares and adds as pyarrow does."""
    if pa.types.is_timestamp(column.type):  # of datetimes Python compares the clocks on the wall
        return list(column.cast(pa.int64()).to_pylist())
    if as_int:
        return [None if value is None else int(value) for value in column.to_pylist()]
    return list(column.to_pylist())


def from_python(values: list[Record], kind: pa.DataType | None) -> pa.Array:
    """Makes a column of values that ``_to_python`` has taken out of one."""
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
    """Type of an aggregate's column, given the schema of the rows; None: not known."""
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
        return _sum_type(kind)
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_unsigned_integer(kind) or pa.types.is_boolean(kind):
        return pa.uint64()
    return pa.int64() if pa.types.is_integer(kind) else None
