"""Which columns a state has as a table, and how entries of a checkpoint become their values.

A table is one keyed state of an operator, all its keyed states, its timers, or what it keeps
without keys. Law: a column has the type that the program has declared, and is text where it has
declared none; the columns depend on what the checkpoint notes, never on the values. A list is an
array, a map has a row for each of its entries.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from operator import itemgetter
from typing import Any, Final

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
from headgate.base.errors import StateBroken, StateUnknown
from headgate.core.state.operator_state import BROADCAST
from headgate.core.state.snapshot import LIST, NONE, TTL, VALUE, Entry, Folded
from headgate.core.window.restored import NAME as WINDOW_CONTENTS
from headgate.core.window.spec import FIRED, FOLDED, LISTED, OPEN
from headgate.functions.window import TimeWindow
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


@dataclass(frozen=True, slots=True)
class StateTable:
    """One table of an operator; can be sent to the processes that read it."""

    kind: str
    columns: tuple[tuple[str, str], ...]
    """Names and types in Spark's words."""
    state: str = ""
    """Empty: all of them."""
    stored: str = field(default=VALUE)
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
        """Of the state; no step of Python's for each entry, but for windows and timed lists."""
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
        """The same of what an operator keeps without keys."""
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
        stored, is_windowed, types = _look(operator, state)
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


def _look(operator: SavedOperator, state: str) -> tuple[str, bool, tuple[TypeShape | None, ...]]:
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
