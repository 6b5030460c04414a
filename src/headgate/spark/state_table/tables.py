"""Which columns a state has as a table, and how entries of a checkpoint become Arrow columns.

A table is one keyed state of an operator, all its keyed states, its timers, or what it keeps
without keys. Law: a column has the type that the program has declared, and is text where it has
declared none; the columns depend on what the checkpoint notes, never on the values. A list is an
array, a map has a row for each of its entries. A value that is not of its column's type is refused
with the column and the value, and nothing is rounded or cut to make it fit; only a column of text
takes everything, as Python shows it.
"""

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, compress, repeat
from operator import attrgetter, itemgetter
from typing import Any, Final

import pyarrow as pa

from headgate.api.row import Row, names_of, values_of
from headgate.base.checkpoints import (
    FUNCTION,
    LISTS,
    MAP,
    OPERATOR,
    PRIMITIVE_ARRAY,
    ROW,
    TUPLE,
    WINDOWED,
    TypeShape,
)
from headgate.base.errors import RecordUnfit, StateBroken, StateUnknown
from headgate.connectors.arrow.columns import ValueMismatch, value_fitter
from headgate.core.state.operator_state import BROADCAST
from headgate.core.state.snapshot import LIST, NONE, TTL, VALUE, Entry, Folded
from headgate.core.window.restored import NAME as WINDOW_CONTENTS
from headgate.core.window.spec import FIRED, FOLDED, LISTED, OPEN
from headgate.functions.time import Instant
from headgate.functions.window import TimeWindow
from headgate.host.saved_state.loading import SavedRow, shown
from headgate.host.saved_state.pieces import TIMERS, OperatorRow, keyed_row, timer_row
from headgate.host.saved_state.reader import SavedOperator

KEYED_TABLE: Final = "keyed"
TIMERS_TABLE: Final = "timers"
OPERATOR_TABLE: Final = "operator"
KINDS: Final = (KEYED_TABLE, TIMERS_TABLE, OPERATOR_TABLE)

_TEXT: Final = "string"
_EMPTY: Final[tuple[tuple[Any, ...], ...]] = ((),) * 5
_first: Final = itemgetter(0)
_WINDOW: Final = (("window_start", "bigint"), ("window_end", "bigint"), ("namespace", _TEXT))
_BASIC: Final = {
    "STRING": _TEXT,
    "CHAR": _TEXT,
    "BOOLEAN": "boolean",
    "BYTE": "tinyint",
    "SHORT": "smallint",
    "INT": "int",
    "LONG": "bigint",
    "BIG_INT": "decimal(38,0)",
    "BIG_DEC": "decimal(38,18)",
    "DOUBLE": "double",
    "INSTANT": "timestamp",
    "SQL_DATE": "date",
    "SQL_TIMESTAMP": "timestamp_ntz",
}
"""Spark's names; a type that is not here has none, and is text."""
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


@dataclass(frozen=True, slots=True)
class StateTable:
    """One table of an operator; can be sent to the processes that read it."""

    kind: str
    columns: tuple[tuple[str, str], ...]
    """Names and types in Spark's words."""
    state: str = ""
    """Empty: all of them."""
    stored: str = VALUE
    """How the state is stored: value, list or map."""

    @property
    def ddl(self) -> str:
        return ", ".join(f"{_quoted(name)} {kind}" for name, kind in self.columns)

    def values(self, entries: Sequence[Entry]) -> list[Sequence[Any]]:
        """What the entries of a checkpoint hold, column by column, in the table's order."""
        if self.kind == TIMERS_TABLE:
            timers = [timer_row(entry) for entry in entries if entry[0] in TIMERS]
            return _columns(
                (
                    (timer.domain, timer.time_ms, timer.key, *_window(timer.namespace))
                    for timer in timers
                ),
                len(self.columns),
            )
        if not self.state:
            return _columns(_all_rows(entries), len(self.columns))
        return self._own_values(entries)

    def _own_values(self, entries: Sequence[Entry]) -> list[Sequence[Any]]:
        """The values of one state; no Python step per entry, except for windows and timed lists."""
        kinds, names, namespaces, keys, held = zip(*entries, strict=True) if entries else _EMPTY
        if {*names} - {self.state}:
            is_own = list(map(self.state.__eq__, names))
            parts = (kinds, namespaces, keys, held)
            kinds, namespaces, keys, held = (tuple(compress(part, is_own)) for part in parts)
        if len({*kinds}) > 1:
            raise StateBroken(
                f"the state {self.state!r} is stored as {' and as '.join(sorted({*kinds}))}; leave "
                f"out the option state, and read all states of the operator"
            )
        places: list[Sequence[Any]] = [keys]
        if _WINDOW[0] in self.columns:
            places += zip(*map(_window, namespaces), strict=True) if keys else _EMPTY[:3]
        kind = kinds[0] if kinds else self.stored
        if self.stored == "map":
            counts = list(map(len, held))
            places = [_repeated(place, counts) for place in places]
            places.append(list(chain.from_iterable(held)))
            held = tuple(chain.from_iterable(map(dict.values, held)))
        if kind == LIST + TTL:
            return [*places, [list(map(_first, pairs)) for pairs in held]]
        values = list(map(_first, held)) if kind.endswith(TTL) else held
        if Folded in {*map(type, values)}:
            values = [None if value is NONE else value for value in values]
        return [*places, values]

    def operator_values(self, rows: Sequence[OperatorRow]) -> list[Sequence[Any]]:
        """What an operator keeps without keys, column by column, in the table's order."""
        own = (row for row in rows if self.state in ("", row.state))
        found = ((row.state, row.kind, row.subtask, row.map_key, row.value) for row in own)
        return _columns(found, len(self.columns))


def find_table(operator: SavedOperator, kind: str, state: str = "") -> StateTable:
    """The table that a user asks for; raises StateUnknown."""
    key = spark_type(operator.key_type, "double")  # no key is rounded when a job takes it
    match kind:
        case "timers":
            columns = (("domain", _TEXT), ("time_ms", "bigint"), ("key", key), *_WINDOW)
            return StateTable(kind, columns)
        case "operator":
            return _operator_table(operator, state)
        case "keyed" if state:
            return _keyed_table(operator, state, key)
        case "keyed":
            columns = (("state", _TEXT), ("kind", _TEXT), ("key", key), *_WINDOW)
            return StateTable(kind, (*columns, ("map_key", _TEXT), ("value", _TEXT)))
        case _:
            problem = f"there are no tables of the kind {kind!r}"
            raise StateUnknown(operator.uid, problem, f"the kinds are {', '.join(KINDS)}")


def spark_type(shape: TypeShape | None, of_float: str = "float") -> str:
    """A declared type in Spark's words; text, where it has none or nothing is declared."""
    match shape:
        case None:
            return _TEXT
        case TypeShape(name="FLOAT"):
            return of_float
        case TypeShape(name=name) if name in _BASIC:
            return _BASIC[name]
        case TypeShape(name=name, parts=(TypeShape(name="BYTE"),)) if name == PRIMITIVE_ARRAY:
            return "binary"
        case TypeShape(name=name, parts=(element,)) if name in (*LISTS, PRIMITIVE_ARRAY):
            return f"array<{spark_type(element, of_float)}>"
        case TypeShape(name=name, parts=(key, value)) if name == MAP:
            return f"map<{spark_type(key, of_float)}, {spark_type(value, of_float)}>"
        case TypeShape(name=name, parts=parts, fields=fields) if name in (ROW, TUPLE) and parts:
            names = fields or [f"f{place}" for place in range(len(parts))]
            pairs = zip(names, parts, strict=True)
            inner = (f"{_quoted(name)}: {spark_type(part, of_float)}" for name, part in pairs)
            return f"struct<{', '.join(inner)}>"
        case _:
            return _TEXT


def _keyed_table(operator: SavedOperator, state: str, key: str) -> StateTable:
    shape = operator.shape(state)
    if shape is None:
        stored, is_windowed, types = _stored_state(operator, state)
    else:
        stored = shape.kind if shape.kind in ("list", "map") else VALUE
        types = tuple(shape.types)
        is_windowed = any(each.scope == WINDOWED and each.name == state for each in operator.shapes)
    value = spark_type(types[-1] if types else None)
    columns = (("key", key), *(_WINDOW if is_windowed else ()))
    if stored == "map":
        map_key = spark_type(types[0]) if len(types) > 1 else _TEXT
        columns = (*columns, ("map_key", map_key), ("value", value))
    else:
        columns = (*columns, ("value", f"array<{value}>" if stored == LIST else value))
    return StateTable(KEYED_TABLE, columns, state, stored)


def _stored_state(
    operator: SavedOperator, state: str
) -> tuple[str, bool, tuple[TypeShape | None, ...]]:
    """For states that the checkpoint does not note: those of windows, and of older versions."""
    others: dict[str, None] = dict.fromkeys(operator.state_names())
    for _, _, entries in operator.entries():
        for kind, name, namespace, _, _ in entries:
            if name == state and kind not in TIMERS:
                return kind.removesuffix(TTL), namespace is not None, _contents(operator, state)
            if kind not in TIMERS:
                others[name] = None
    raise operator.unknown_state(state, [*others])


def _contents(operator: SavedOperator, state: str) -> tuple[TypeShape | None, ...]:
    """The declared type of what windows hold."""
    for shape in operator.shapes:
        if (shape.name, shape.scope) == (WINDOW_CONTENTS, OPERATOR):
            is_listed = shape.kind.startswith("all records")
            if state in (OPEN.name, FIRED.name) and is_listed and shape.types[0] is not None:
                return (TypeShape("LIST", (shape.types[0],)),)
            timed = shape.kind.startswith("all records with their times")
            if state in (FOLDED.name, LISTED.name, OPEN.name, FIRED.name) and not timed:
                return shape.types
    return ()


def _operator_table(operator: SavedOperator, state: str) -> StateTable:
    scoped = [shape for shape in operator.shapes if shape.scope.startswith(FUNCTION)]
    shape = next((shape for shape in scoped if shape.name == state), None)
    map_key = value = _TEXT
    if shape is not None:
        value = spark_type(shape.types[-1] if shape.types else None)
        map_key = spark_type(shape.types[0]) if shape.kind == BROADCAST else _TEXT
    elif state and not any(row.state == state for row in operator.operator_state()):
        names = dict.fromkeys(row.state for row in operator.operator_state())
        there = ", ".join(map(repr, names)) or "none"
        problem = f"operator {operator.uid!r} has no state {state!r} without keys; it has {there}"
        raise StateUnknown(operator.path, problem, "name one of them")
    columns = (("state", _TEXT), ("kind", _TEXT), ("subtask", "int"))
    return StateTable(OPERATOR_TABLE, (*columns, ("map_key", map_key), ("value", value)), state)


def _all_rows(entries: Sequence[Entry]) -> Iterator[tuple[Any, ...]]:
    for entry in entries:
        if entry[0] in TIMERS:
            continue
        row, kind = keyed_row(entry), entry[0].removesuffix(TTL)
        place = (entry[1], kind, row.key, *_window(row.namespace))
        if kind == "map":
            for map_key, value in row.value.items():
                yield (*place, map_key, value)
        else:
            yield (*place, None, row.value)


def _columns(rows: Iterator[tuple[Any, ...]], width: int) -> list[Sequence[Any]]:
    found = list(rows)
    return [list(column) for column in zip(*found, strict=True)] if found else [[]] * width


def _repeated(values: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    return list(chain.from_iterable(map(repeat, values, counts)))


def _window(namespace: Any) -> tuple[int | None, int | None, Any]:
    if isinstance(namespace, TimeWindow):
        return namespace.start, namespace.end, namespace
    return None, None, namespace


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


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
