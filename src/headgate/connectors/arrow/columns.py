"""From records to Arrow batches of a declared schema.

A record is a Row, tuple, list or dict with a value for each column; with a single column it may be
the value itself. Law: a record that does not fit is refused with the column and the value, and
nothing is rounded, cut or reinterpreted to make it fit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headgate.api.row import Row, names_of, values_of
from headgate.base.errors import RecordUnfit
from headgate.connectors.arrow.values import Convert, Unfit, value_fitter

_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError)


@dataclass(frozen=True, slots=True)
class RowShape:
    """What the rows of a DataFrame look like; travels with the sink."""

    schema: pa.Schema
    types: tuple[str, ...]
    """The columns' types in Spark's words, for errors."""
    time_zone: str
    """Of datetimes that know none, where the column is an instant."""

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)


class ColumnMaker:
    """Turns records into columns of Python values, and those into batches."""

    def __init__(self, shape: RowShape, operator: str) -> None:
        self._shape = shape
        self._operator = operator
        self._names = shape.names
        self._width = len(shape.names)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._fitters = [value_fitter(field.type, shape.time_zone) for field in shape.schema]

    def columns(self, records: Sequence[Any]) -> Iterable[Sequence[Any]]:
        """The values of each column; the records all fit as far as their width and names go."""
        kinds = set(map(type, records))
        if kinds == {tuple} and set(map(len, records)) == {self._width}:
            return zip(*records, strict=True)
        if kinds == {Row}:
            in_order = (None, self._names)
            if all(names_of(row) in in_order and len(row) == self._width for row in records):
                return zip(*map(values_of, records), strict=True)
        return zip(*map(self._values, records), strict=True)

    def batch(self, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """Raises RecordUnfit."""
        arrays = [
            self._array(number, field, values)
            for number, (field, values) in enumerate(zip(self._shape.schema, columns, strict=True))
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._shape.schema)

    def _array(self, number: int, field: pa.Field, values: Sequence[Any]) -> pa.Array:
        fit = self._fitters[number]
        try:
            fitted = values if fit is None or fit.accepts(values) else list(map(fit.value, values))
            array = pa.array(fitted, type=field.type)
        except _ERRORS as error:
            raise self._blame(number, field, values, fit, error) from error
        if array.null_count and not field.nullable:
            problem = "stands in a column that the schema calls not null"
            raise RecordUnfit(self._operator, field.name, None, problem)
        return array

    def _blame(
        self, number: int, field: pa.Field, values: Sequence[Any], fit: Convert | None, error: Any
    ) -> RecordUnfit:
        """Which value it was."""
        kind = self._shape.types[number]
        for value in values:
            try:
                pa.array([value if fit is None else fit.value(value)], type=field.type)
            except _ERRORS as found:
                why = str(found) if isinstance(found, Unfit) else f"is no {kind} ({found})"
                return RecordUnfit(self._operator, field.name, value, why)
        return RecordUnfit(self._operator, field.name, None, f"and others are no {kind} ({error})")

    # One record that is not like most.

    def _values(self, record: Any) -> Sequence[Any]:
        match record:
            case Row():
                return self._of_row(record)
            case Mapping() if self._width > 1 or list(record) == self._names:
                return self._of_mapping(record)
            case tuple() if self._width > 1 or len(record) == 1:
                return self._of_sequence(record)
            case list() if self._width > 1:
                return self._of_sequence(record)
        if self._width == 1:
            return (record,)
        raise self._unfit(record, f"is no row; give a Row, tuple or dict with {self._wanted()}")

    def _of_row(self, row: Row) -> Sequence[Any]:
        names = names_of(row)
        if names is None or names == [f"f{place}" for place in range(len(names))]:
            return self._of_sequence(values_of(row), row)
        if sorted(names) != sorted(self._names):
            raise self._unfit(row, f"has other names than the schema, which has {self._wanted()}")
        return [row[name] for name in self._names]

    def _of_sequence(self, values: Sequence[Any], record: Any = None) -> Sequence[Any]:
        if len(values) != self._width:
            record = values if record is None else record
            raise self._unfit(record, f"has {len(values)} values; the schema has {self._wanted()}")
        return values

    def _of_mapping(self, record: Mapping[Any, Any]) -> Sequence[Any]:
        unknown = [key for key in record if key not in self._places]
        if unknown:
            raise self._unfit(record, f"has {unknown[0]!r}; the schema has {self._wanted()}")
        return [record.get(name) for name in self._names]  # what a dict leaves out is null

    def _unfit(self, record: Any, problem: str) -> RecordUnfit:
        return RecordUnfit(self._operator, "", record, problem)

    def _wanted(self) -> str:
        return f"{self._width} column{'s'[: self._width != 1]}: {', '.join(self._names)}"
