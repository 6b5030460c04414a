"""What is to be written of one operator: rows for its states, timers, lists and broadcast maps.

Made by ``operator("counts").put(descriptor, rows)`` and so on. Law: a key and a value fit the
declared types, in the form in which a job would keep them, or StateUnfit says which row is wrong;
a key may be None, as in jobs. Rows are read once, when the savepoint is written.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from headgate.api.row import Row, named_row, names_of
from headgate.api.types.basic_types import BASICS
from headgate.api.types.types import (
    BasicTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from headgate.base.checkpoints import LISTS, MAP, PRIMITIVE_ARRAY, ROW, TUPLE, TypeShape
from headgate.base.elements import Key, Record
from headgate.base.errors import StateUnfit
from headgate.core.state.migration import has_ttl
from headgate.core.state.opening import check_for
from headgate.core.state.operator_state import BROADCAST, SPLIT, UNION
from headgate.core.state.snapshot import (
    EVENT_TIMER,
    LIST,
    PROCESSING_TIMER,
    TTL,
    VALUE,
    Entry,
)
from headgate.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
)
from headgate.host.net.loop import wall_ms

DOMAINS: Final = {"event": EVENT_TIMER, "processing": PROCESSING_TIMER}


class Mode(Enum):
    """What becomes of what is there."""

    PUT = "rows replace what their keys have, other keys stay"
    REPLACE = "nothing stays of the state but the rows"
    REMOVE = "these keys are removed"
    REMOVE_ALL = "the state is removed"


@dataclass(frozen=True, slots=True)
class StateChange:
    """One call for one keyed state, or for the timers (no descriptor)."""

    mode: Mode
    state: str
    descriptor: StateDescriptor | None = None
    rows: Any = ()

    @property
    def clears(self) -> bool:
        """Whether nothing stays of what was there."""
        return self.mode in (Mode.REPLACE, Mode.REMOVE_ALL)


@dataclass(frozen=True, slots=True)
class PlainChange:
    """One list or broadcast map without keys; it replaces what is there."""

    kind: str
    descriptor: StateDescriptor
    rows: Any


class OperatorChanges:
    """Changes of one operator's state; ``headgate.state.operator`` makes them."""

    def __init__(
        self,
        uid: str,
        key_type: TypeInformation | None = None,
        name: str = "",
        max_parallelism: int | None = None,
    ) -> None:
        if not uid or type(uid) is not str:
            raise ValueError(f"an operator is named by its uid, a text, and not by {uid!r}")
        self.uid = uid
        self.key_type = key_type
        self.name = name
        self.max_parallelism = max_parallelism
        self.keyed: list[StateChange] = []
        self.plain: list[PlainChange] = []

    def put(self, descriptor: StateDescriptor, rows: Any) -> "OperatorChanges":
        """Set the state for the keys of the rows; other keys keep what they have.

        Rows are pairs of key and value; of a list state the value is a list; of a map state they
        are key, key in the map, value. A value of None removes. A DataFrame has these as columns
        ``key``, ``map_key`` and ``value``.
        """
        return self._change(Mode.PUT, descriptor, rows)

    def replace(self, descriptor: StateDescriptor, rows: Any) -> "OperatorChanges":
        """As ``put``, and all other keys lose what they have; kind and type may be new."""
        return self._change(Mode.REPLACE, descriptor, rows)

    def remove(self, state: str, keys: Iterable[Key] | None = None) -> "OperatorChanges":
        """Remove a keyed state, of these keys or as a whole; it must be there."""
        if isinstance(keys, str | bytes):
            raise TypeError(f"keys is {keys!r:.100}, whose letters are no keys; give [key]")
        if keys is None:
            self.keyed.append(StateChange(Mode.REMOVE_ALL, state))
        else:
            self.keyed.append(StateChange(Mode.REMOVE, state, rows=((key, None) for key in keys)))
        return self

    def put_timers(self, rows: Any) -> "OperatorChanges":
        """Add timers: ``("event" or "processing", milliseconds, key)``.

        A DataFrame has the columns ``domain``, ``time_ms`` and ``key``.
        """
        self.keyed.append(StateChange(Mode.PUT, "", rows=rows))
        return self

    def remove_timers(self) -> "OperatorChanges":
        """Remove all timers that belong to no window."""
        self.keyed.append(StateChange(Mode.REMOVE_ALL, ""))
        return self

    def put_list(
        self, descriptor: ListStateDescriptor, elements: Any, *, union: bool = False
    ) -> "OperatorChanges":
        """Set a list without keys, which the tasks share, or (``union``) all have."""
        _expect(descriptor, ListStateDescriptor)
        self.plain.append(PlainChange(UNION if union else SPLIT, descriptor, elements))
        return self

    def put_broadcast(self, descriptor: MapStateDescriptor, items: Any) -> "OperatorChanges":
        """Set a broadcast map; pairs of key and value, or a dict."""
        _expect(descriptor, MapStateDescriptor)
        self.plain.append(PlainChange(BROADCAST, descriptor, items))
        return self

    def _change(self, mode: Mode, descriptor: StateDescriptor, rows: Any) -> "OperatorChanges":
        _expect(descriptor, StateDescriptor)
        if isinstance(rows, dict):
            rows = rows.items()
        self.keyed.append(StateChange(mode, descriptor.name, descriptor, rows))
        return self


def _expect(descriptor: object, kind: type) -> None:
    if not isinstance(descriptor, kind):
        raise TypeError(f"{descriptor!r} was given for a state; give a {kind.__name__}")


class ChangedRows:
    """Turns the rows of one operator's changes into entries of key groups."""

    def __init__(self, uid: str, key_type: object) -> None:
        self._uid = uid
        self._key_type = key_type
        self._coerce_key = getattr(key_type, "coerced", None)
        self._is_nameless = isinstance(key_type, RowTypeInfo) and not key_type.has_own_names
        self._now_ms = wall_ms()

    def entries(self, change: StateChange) -> Iterator[Entry]:
        """A content of None removes; raises StateUnfit."""
        if not change.state:
            return self._timers(change)
        if change.mode is Mode.REMOVE:
            return (
                (VALUE, change.state, None, self._key(key, change.state), None)
                for key, _ in change.rows
            )
        return self._states(change)

    def plain(self, change: PlainChange) -> Record:
        """The list or the dict; raises StateUnfit."""
        descriptor, name = change.descriptor, change.descriptor.name
        check = _checked(descriptor, descriptor.type_info)
        try:
            if change.kind != BROADCAST:
                return [check(value) for value in change.rows]
            assert isinstance(descriptor, MapStateDescriptor)
            check_key = _checked(descriptor, descriptor.key_type_info, is_key=True)
            rows = change.rows.items() if isinstance(change.rows, dict) else change.rows
            return {check_key(key): None if value is None else check(value) for key, value in rows}
        except (TypeError, ValueError) as error:
            raise StateUnfit(self._uid, name, str(error)) from error

    def _states(self, change: StateChange) -> Iterator[Entry]:
        descriptor = change.descriptor
        assert descriptor is not None
        name, stored = descriptor.name, stored_as(descriptor)
        is_map = isinstance(descriptor, MapStateDescriptor)
        make = self._content(descriptor)
        columns = ("key", "map_key", "value") if is_map else ("key", "value")
        is_frame = _is_frame(change.rows)
        for row in rows_of(change.rows, columns, self._uid, name):
            try:
                content = make(row)
            except TypeError as error:
                raise StateUnfit(self._uid, name, f"the key {row[0]!r}: {error}") from error
            yield stored, name, None, self._key(row[0], name, is_frame), content

    def _content(self, descriptor: StateDescriptor) -> Callable[[tuple[Any, ...]], Record]:
        check, timed = _checked(descriptor, descriptor.type_info), self._timed(descriptor)
        if isinstance(descriptor, MapStateDescriptor):
            check_key = _checked(descriptor, descriptor.key_type_info, is_key=True)
            return lambda row: {check_key(row[1]): None if row[2] is None else timed(check(row[2]))}
        if descriptor.kind == LIST:
            return lambda row: [timed(check(value)) for value in _list(row[1])] or None
        return lambda row: None if row[1] is None else timed(check(row[1]))

    def _timed(self, descriptor: StateDescriptor) -> Callable[[Record], Record]:
        if not has_ttl(descriptor):
            return lambda value: value
        return lambda value: (value, self._now_ms)

    def _timers(self, change: StateChange) -> Iterator[Entry]:
        for row in rows_of(change.rows, ("domain", "time_ms", "key"), self._uid, ""):
            domain, time_ms, key = row
            if domain not in DOMAINS or type(time_ms) is not int:
                problem = f"{row!r} is no timer; give ('event' or 'processing', milliseconds, key)"
                raise StateUnfit(self._uid, "", problem)
            yield DOMAINS[domain], "", None, self._key(key, "", _is_frame(change.rows)), time_ms

    def _key(self, key: Key, state: str, is_frame: bool = False) -> Key:
        """As the job looks it up: ``key_by`` neither rounds a key nor gives names to a row.

        ``is_frame``: it comes from a DataFrame, whose structs have names in any case.
        """
        if self._coerce_key is None or key is None:
            return key
        try:
            coerced = self._coerce_key(key)
        except TypeError as error:
            raise StateUnfit(self._uid, state, f"a key is wrong: {error}") from error
        if self._is_nameless and (is_frame or not isinstance(key, Row)):
            return Row(*coerced)
        has_names = isinstance(key, Row) and names_of(key) is not None
        return key if type(key) is type(coerced) and not has_names else coerced


def rows_of(
    rows: Any, columns: tuple[str, ...], operator: str, state: str
) -> Iterator[tuple[Any, ...]]:
    """Rows with a value for each column, of an iterable or a DataFrame; raises StateUnfit."""
    if _is_frame(rows):
        missing = [name for name in columns if name not in rows.columns]
        if missing:
            there = ", ".join(rows.columns)
            problem = f"the DataFrame has no column {missing[0]!r}; it has {there}"
            raise StateUnfit(operator, state, problem)
        rows = (tuple(map(_plain, row)) for row in rows.select(*columns).toLocalIterator())
    for row in rows:
        if not isinstance(row, tuple | list) or len(row) != len(columns):
            raise StateUnfit(operator, state, f"{row!r:.200} is no row of {', '.join(columns)}")
        yield tuple(row)


def _is_frame(rows: Any) -> bool:
    """Whether it is a DataFrame; its module is not loaded for that."""
    return hasattr(rows, "toLocalIterator")


def _plain(value: Any) -> Any:
    """A value of a DataFrame without Spark's classes: a struct becomes a Row."""
    if isinstance(value, tuple) and hasattr(value, "__fields__"):
        return named_row(value.__fields__, [_plain(part) for part in value])
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value


def stored_as(descriptor: StateDescriptor) -> str:
    """How a backend stores such a state."""
    kind = descriptor.kind if descriptor.kind in ("list", "map") else VALUE
    return kind + TTL if has_ttl(descriptor) else kind


def declared_type(shape: TypeShape | None) -> TypeInformation | None:
    """The type that a checkpoint notes; None: it notes none, or one that is not ours."""
    match shape:
        case TypeShape(name=name) if name in BASICS:
            return BasicTypeInfo(name)
        case TypeShape(name=name, parts=parts, fields=fields) if name in (ROW, TUPLE):
            types = [declared_type(part) for part in parts]
            known = [kind for kind in types if kind is not None]
            if len(known) < len(types):
                return None
            return RowTypeInfo(known, fields) if name == ROW else TupleTypeInfo(known)
        case TypeShape(name=name, parts=(part,)) if name in (*LISTS, PRIMITIVE_ARRAY):
            element = declared_type(part)
            return None if element is None else getattr(Types, name)(element)
        case TypeShape(name=name, parts=(key, value)) if name == MAP:
            key_type, value_type = declared_type(key), declared_type(value)
            if key_type is None or value_type is None:
                return None
            return MapTypeInfo(key_type, value_type)
        case _:
            return None


def _checked(
    descriptor: StateDescriptor, type_info: object, is_key: bool = False
) -> Callable[[Record], Record]:
    return check_for(descriptor.name, type_info, is_key=is_key) or (lambda value: value)


def _list(value: Any) -> Iterable[Any]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise TypeError(f"the value of a list state is a list, not {value!r:.200}")
    return value
