"""From records to Arrow batches of a declared schema, and from batches to rows.

A record is a Row, tuple, list, dict or dataclass with a value for each column; with a single column
it may be the value itself. Law: a record that does not fit is refused with the column and the
value, and nothing is rounded, cut or reinterpreted to make it fit. Values are converted first where
pyarrow would change them silently: it has no rows, takes datetimes without a time zone for UTC and
numbers for dates, cuts 3.5 to 3, and makes infinity of what is too large for a float. In rows,
structs become rows, maps dicts, and different moments are different datetimes.
"""

import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import timezone
from numbers import Integral
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from headgate.api.row import Row, named_row, names_of, rows_of, values_of
from headgate.base.errors import RecordUnfit
from headgate.connectors.not_sent import NOT_SENT, SEND_ALL


class ValueMismatch(ValueError):
    """A value that would have to be changed to fit its column."""


def value_fitter(kind: pa.DataType, time_zone: str) -> "Fitter | None":
    """None: pyarrow alone does the right thing."""
    types = pa.types
    if types.is_integer(kind):
        return Fitter(_whole, {int})
    if types.is_float32(kind):
        return Fitter(_single, {int, float})
    if types.is_timestamp(kind):
        return Fitter(_local if kind.tz is None else _instant(time_zone))
    if types.is_date(kind):
        return Fitter(_date, {datetime.date})
    if types.is_duration(kind):
        return Fitter(_only(datetime.timedelta, "a timedelta"), {datetime.timedelta})
    if types.is_time(kind):
        return Fitter(_only(datetime.time, "a time"), {datetime.time})
    if types.is_struct(kind):
        return Fitter(_struct(kind, time_zone))
    if types.is_map(kind):
        return Fitter(_map(kind, time_zone))
    if types.is_list(kind) or types.is_large_list(kind):
        return Fitter(_list(kind, time_zone))
    return None


class Fitter:
    """``fit`` for values that are not None; those of ``plain`` types need no fitting."""

    def __init__(self, fit: Callable[[Any], Any], plain: set[type] | None = None) -> None:
        self._fit = fit
        self._plain = (plain or set()) | {_NONE}

    def accepts(self, values: Sequence[Any]) -> bool:
        """Whether pyarrow may get all of them as they are; quick."""
        return set(map(type, values)) <= self._plain

    def value(self, value: Any) -> Any:
        """The value for pyarrow; raises ValueMismatch."""
        return None if value is None else self._fit(value)


_NONE: Final = type(None)


def _whole(value: Any) -> Any:
    if isinstance(value, Integral):  # numpy's too
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise ValueMismatch("is no whole number")


def _single(value: Any) -> Any:
    if isinstance(value, int | float) and _LARGEST_SINGLE < abs(value) < math.inf:
        raise ValueMismatch("is too large for a float")
    return value


_LARGEST_SINGLE: Final = (2 - 2**-23) * 2.0**127


def _date(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        raise ValueMismatch("has a time of day, and a date has none; use .date()")
    if isinstance(value, datetime.date):
        return value
    raise ValueMismatch("is no date")


def _local(value: Any) -> Any:
    if not isinstance(value, datetime.datetime):
        raise ValueMismatch("is no datetime")
    if value.tzinfo is not None:
        raise ValueMismatch(
            "has a time zone, and a timestamp_ntz has none; use .replace(tzinfo=None)"
        )
    return value


def _instant(time_zone: str) -> Callable[[Any], Any]:
    zone = _zone(time_zone)

    def fit(value: Any) -> Any:
        if not isinstance(value, datetime.datetime):
            raise ValueMismatch("is no datetime")
        return value if value.tzinfo is not None else value.replace(tzinfo=zone)

    return fit


def _zone(name: str) -> datetime.tzinfo:
    """Spark also knows offsets such as +01:00 and words such as Z."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        text = name.removeprefix("UTC").removeprefix("GMT") or "Z"
        offset = datetime.datetime.strptime(text.replace("Z", "+00:00"), "%z").tzinfo
        assert offset is not None
        return offset


def _only(kind: type, word: str) -> Callable[[Any], Any]:
    def fit(value: Any) -> Any:
        if not isinstance(value, kind):
            raise ValueMismatch(f"is not {word}")
        return value

    return fit


def _struct(kind: pa.DataType, time_zone: str) -> Callable[[Any], Any]:
    names = [field.name for field in kind]
    fitters = [_inner(field, time_zone) for field in kind]

    def fit(value: Any) -> dict[str, Any]:
        values = _fields(value, names)
        return {name: turn(item) for name, turn, item in zip(names, fitters, values, strict=True)}

    return fit


def _fields(value: Any, names: list[str]) -> Sequence[Any]:
    words = f"a struct of {', '.join(names)}"
    if isinstance(value, Row):
        own = names_of(value)
        if own is not None and sorted(own) == sorted(names):
            return [value[name] for name in names]
        value = values_of(value) if own is None else value.as_dict()
    if isinstance(value, Mapping):
        if any(key not in names for key in value):
            raise ValueMismatch(f"has other names than {words}")
        return [value.get(name) for name in names]
    if isinstance(value, tuple | list):
        if len(value) != len(names):
            raise ValueMismatch(f"has {len(value)} values and is to be {words}")
        return value
    raise ValueMismatch(f"is to be {words}; give a Row, tuple or dict")


def _map(kind: pa.DataType, time_zone: str) -> Callable[[Any], Any]:
    turn_key = _inner(kind.key_field, time_zone)
    turn_item = _inner(kind.item_field, time_zone)

    def fit(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, Mapping):
            raise ValueMismatch("is no dict")
        return [(turn_key(key), turn_item(item)) for key, item in value.items()]

    return fit


def _list(kind: pa.DataType, time_zone: str) -> Callable[[Any], Any]:
    turn = _inner(kind.value_field, time_zone)

    def fit(value: Any) -> Any:
        if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
            raise ValueMismatch("is no list")
        return list(map(turn, value))

    return fit


def _inner(field: pa.Field, time_zone: str) -> Callable[[Any], Any]:
    """For a value within another one; pyarrow does not look whether those may be null."""
    fitter = value_fitter(field.type, time_zone)

    def fit(value: Any) -> Any:
        if value is None:
            if not field.nullable:
                raise ValueMismatch(
                    f"has no value for {field.name!r}, which the schema calls not null"
                )
            return None
        return value if fitter is None else fitter.value(value)

    return fit


_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError)


@dataclass(frozen=True, slots=True)
class RowShape:
    """What the rows of a DataFrame look like; travels with the sink."""

    schema: pa.Schema
    types: tuple[str, ...]
    """The columns' types in Spark's words, for errors."""
    time_zone: str
    """The time zone of datetimes without one, where the column is an instant."""

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
        return zip(*map(self.values, records), strict=True)

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
            if pa.types.is_float32(field.type) and pc.any(pc.is_inf(array)).as_py():
                list(map(_single, values))  # pyarrow makes infinity of what is too large
        except _ERRORS as error:
            raise self._blame(number, field, values, fit, error) from error
        if array.null_count and not field.nullable:
            problem = "stands in a column that the schema calls not null"
            raise RecordUnfit(self._operator, field.name, None, problem)
        return array

    def _blame(
        self, number: int, field: pa.Field, values: Sequence[Any], fit: "Fitter | None", error: Any
    ) -> RecordUnfit:
        """Which value it was."""
        kind = self._shape.types[number]
        for value in values:
            try:
                pa.array([value if fit is None else fit.value(value)], type=field.type)
            except _ERRORS as found:
                why = str(found) if isinstance(found, ValueMismatch) else f"is no {kind} ({found})"
                if value is NOT_SENT:
                    why = f"stands for what the source's server did not send; {SEND_ALL}"
                return RecordUnfit(self._operator, field.name, value, why)
        return RecordUnfit(self._operator, field.name, None, f"and others are no {kind} ({error})")

    # One record that is not like most.

    def values(self, record: Any) -> Sequence[Any]:
        """Its values in the order of the columns; raises RecordUnfit."""
        match record:
            case Row():
                return self._of_row(record)
            case Mapping() if self._width > 1 or list(record) == self._names:
                return self._of_mapping(record)
            case tuple() if self._width > 1 or len(record) == 1:
                return self._of_sequence(record)
            case list() if self._width > 1:
                return self._of_sequence(record)
        if is_dataclass(record) and (self._width > 1 or _field_names(record) == self._names):
            return self._of_mapping({name: getattr(record, name) for name in _field_names(record)})
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


@dataclass(frozen=True, slots=True)
class BatchMaker:
    """Given the name of an operator, makes a batch of this schema of its records."""

    schema: pa.Schema

    def __call__(self, operator: str) -> Callable[[list[Any]], pa.RecordBatch]:
        types = tuple(str(field.type) for field in self.schema)
        maker = ColumnMaker(RowShape(self.schema, types, "UTC"), operator)
        return lambda records: maker.batch(list(maker.columns(records)))


def _field_names(record: Any) -> list[str]:
    return [field.name for field in fields(record)]


Convert = Callable[[Any], Any]


class RowMaker:
    """Makes rows of batches that have as many columns as there are names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._schema: pa.Schema | None = None
        self._converts: list[Convert | None] = []

    def rows(self, batch: pa.RecordBatch) -> list[Row]:
        if batch.schema is not self._schema:
            self._schema = batch.schema
            self._converts = [value_converter(field.type) for field in batch.schema]
        columns = [
            column.to_pylist() if convert is None else list(map(convert, column.to_pylist()))
            for column, convert in zip(batch.columns, self._converts, strict=True)
        ]
        return rows_of(self._names, columns)


def value_converter(kind: pa.DataType) -> Convert | None:
    """Turns what pyarrow makes of a value into what a row holds; None: it is that already."""
    if pa.types.is_struct(kind):
        return _struct_converter(kind)
    if pa.types.is_map(kind):
        turns = value_converter(kind.key_type), value_converter(kind.item_type)
        return _to_dict if turns == (None, None) else _map_converter(*turns)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = value_converter(kind.value_type)
        return None if item is None else _list_converter(item)
    if pa.types.is_timestamp(kind) and kind.tz not in {None, "UTC"}:
        return _to_moment
    return None


def _to_moment(value: Any) -> Any:
    """With an offset, if the clock of its zone shows it a second time.

    Two datetimes of one zone are equal if its clock shows the same, however far they are apart.
    """
    if value is None or not value.fold:
        return value
    return value.replace(tzinfo=timezone(value.utcoffset()), fold=0)


def _struct_converter(kind: pa.DataType) -> Convert:
    fields = [(field.name, value_converter(field.type)) for field in kind]
    names = [name for name, _ in fields]

    def to_row(value: Any) -> Row | None:
        if value is None:
            return None
        return named_row(
            names,
            [value[name] if turn is None else turn(value[name]) for name, turn in fields],
        )

    return to_row


def _to_dict(value: Any) -> Any:
    return None if value is None else dict(value)


def _map_converter(key_turn: Convert | None, item_turn: Convert | None) -> Convert:
    turn_key, turn_item = key_turn or _same, item_turn or _same

    def to_dict(value: Any) -> Any:
        if value is None:
            return None
        return {turn_key(key): turn_item(item) for key, item in value}

    return to_dict


def _same(value: Any) -> Any:
    return value


def _list_converter(item: Convert) -> Convert:
    return lambda value: None if value is None else list(map(item, value))
