"""Values of state as Arrow columns of a given schema, many at a time.

Law: a value that is not of its column's type is refused with the column and the value, and nothing
is rounded or cut to make it fit; only a column of text takes everything, as Python shows it. Rows,
lists and maps become child columns without a dict for each, which would take several times as long.
"""

import datetime
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from headgate.api.row import Row, names_of, values_of
from headgate.base.errors import RecordUnfit
from headgate.connectors.arrow.columns import ValueMismatch, value_fitter
from headgate.functions.time import Instant
from headgate.host.saved_state.loading import SavedRow, shown

_ERRORS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError)
_NONE: Final = type(None)
_PARTS: Final = {
    Row: (attrgetter("_fields"), attrgetter("_values")),
    SavedRow: (attrgetter("names"), attrgetter("values")),
}
"""Names and values of a row, without a call in Python."""
_MS: Final = datetime.timedelta(milliseconds=1)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

MakeArray = Callable[[Sequence[Any]], pa.Array]


class ArrowColumns:
    """Makes batches of one schema; ``table`` names it in errors."""

    def __init__(self, schema: pa.Schema, table: str) -> None:
        self._schema = schema
        self._table = table
        self._makers = [maker(field.type) for field in schema]

    def batch(self, columns: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """Raises RecordUnfit."""
        arrays = []
        for field, make, values in zip(self._schema, self._makers, columns, strict=True):
            try:
                arrays.append(make(values))
            except _ERRORS as error:
                raise self._blame(field, make, values, error) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _blame(
        self, field: pa.Field, make: MakeArray, values: Sequence[Any], error: Exception
    ) -> RecordUnfit:
        advice = "read it as another type, for instance with .schema('… string')"
        for value in values:
            try:
                make([value])
            except _ERRORS as found:
                is_own = isinstance(found, ValueMismatch)
                why = str(found) if is_own else f"is no {field.type} ({found})"
                return RecordUnfit(self._table, field.name, value, f"{why}; {advice}")
        return RecordUnfit(self._table, field.name, None, f"{error}; {advice}")


def maker(kind: pa.DataType) -> MakeArray:
    """What makes an array of this type; it raises one of several errors for a value that is not."""
    types = pa.types
    if types.is_string(kind):
        return _texts
    if types.is_struct(kind):
        return _structs(kind)
    if types.is_list(kind):
        return _lists(kind)
    if types.is_map(kind):
        return _maps(kind)
    fitter = value_fitter(kind, "UTC")
    is_instant = types.is_timestamp(kind) and kind.tz is not None

    def make(values: Sequence[Any]) -> pa.Array:
        if is_instant:
            values = list(map(_moment, values))
        if fitter is not None and not fitter.accepts(values):
            values = list(map(fitter.value, values))
        return pa.array(values, type=kind)

    return make


def _texts(values: Sequence[Any]) -> pa.Array:
    if not set(map(type, values)) <= {str, _NONE}:
        values = [None if value is None else text(value) for value in values]
    try:
        return pa.array(values, type=pa.string())
    except UnicodeError:  # lone surrogates, which UTF-8 cannot say
        held = (value if value is None else _in_utf8(value) for value in values)
        return pa.array(list(held), type=pa.string())


def _in_utf8(value: str) -> str:
    return value.encode("utf-8", "backslashreplace").decode()


def text(value: Any) -> str:
    """A value in a column of text."""
    return value.isoformat() if type(value) is datetime.time else shown(value)


def _moment(value: Any) -> Any:
    if isinstance(value, Instant):
        return _EPOCH + value.to_epoch_milli() * _MS
    return value


def _structs(kind: pa.DataType) -> MakeArray:
    fields = [kind.field(place) for place in range(kind.num_fields)]
    names = [field.name for field in fields]
    makers = [maker(field.type) for field in fields]
    width = len(names)
    empty = [None] * width
    is_nameless = names == [f"f{place}" for place in range(width)]

    def parts(value: Any) -> Sequence[Any]:
        if value is None:
            return empty
        if isinstance(value, SavedRow):
            value = value.row
        if isinstance(value, Row):
            own = names_of(value)
            if own is not None and own != names and not is_nameless:
                if sorted(own) != sorted(names):
                    raise ValueMismatch(f"is no row of {', '.join(names)}")
                return [value[name] for name in names]
            value = values_of(value)
        elif isinstance(value, dict):
            value = [value.get(name) for name in names]
        if not isinstance(value, list | tuple) or len(value) != width:
            raise ValueMismatch(f"is no row of {', '.join(names)}")
        return value

    def rows(values: Sequence[Any], kinds: set[type]) -> Iterable[Sequence[Any]]:
        for kind, (names_in, values_in) in _PARTS.items():
            if kinds == {kind}:  # as the type has made them, mostly: no call of ours for each
                named, held = list(map(names_in, values)), list(map(values_in, values))
                are_whole = {*map(type, held)} <= {list, tuple} and {*map(len, held)} == {width}
                if are_whole and named[0] == names and named.count(named[0]) == len(named):
                    return held
        return map(parts, values)

    def make(values: Sequence[Any]) -> pa.Array:
        kinds = set(map(type, values))
        columns = list(zip(*rows(values, kinds), strict=True)) or [()] * width
        missing = None
        if _NONE in kinds:
            missing = pa.array([value is None for value in values], pa.bool_())
        arrays = [make_one(column) for make_one, column in zip(makers, columns, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=missing)

    return make


def _lists(kind: pa.DataType) -> MakeArray:
    make_items = maker(kind.value_type)

    def make(values: Sequence[Any]) -> pa.Array:
        kinds = set(map(type, values))
        if not kinds <= {list, tuple, _NONE}:
            values = [None if value is None else _listed(value) for value in values]
        items = make_items(list(chain.from_iterable(value or () for value in values)))
        return pa.ListArray.from_arrays(_offsets(values), items).cast(kind)

    return make


def _listed(value: Any) -> list[Any]:
    if isinstance(value, str | bytes | dict) or not hasattr(value, "__iter__"):
        raise ValueMismatch("is no list")
    return list(value)


def _maps(kind: pa.DataType) -> MakeArray:
    make_keys, make_items = maker(kind.key_type), maker(kind.item_type)

    def make(values: Sequence[Any]) -> pa.Array:
        if not set(map(type, values)) <= {dict, _NONE}:
            raise ValueMismatch("is no dict")
        keys = make_keys(list(chain.from_iterable(value or () for value in values)))
        items = make_items([item for value in values if value for item in value.values()])
        return pa.MapArray.from_arrays(_offsets(values), keys, items).cast(kind)

    return make


def _offsets(values: Sequence[Any]) -> pa.Array:
    """Where the parts of each value begin; of what is None there is no beginning."""
    ends = list(accumulate((0 if value is None else len(value) for value in values), initial=0))
    starts = [None if value is None else at for value, at in zip(values, ends, strict=False)]
    return pa.array([*starts, ends[-1]], pa.int32())
