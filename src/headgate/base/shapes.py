"""Records of one shape, written as columns: dicts with the same keys, instances of one class.

Pickle writes every record with the names of its fields, and makes it by a call. Columns name the
class and the fields once for a bundle, and its reader may use them as they are. Law: what is read
equals what was written, in classes and in the order of fields too; records that have no common
shape are left to pickle.
"""

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from itertools import chain
from operator import attrgetter
from typing import Any, Final, TypeAlias, cast

from headgate.base.fields import PLAIN_KINDS, FieldShape, Place, RecordFields
from headgate.base.layouts import (
    give_state,
    has_own_state,
    is_code_name,
    is_named_tuple,
    is_plain_struct,
    layout_of,
    member_of,
    takes_over,
)

FEWEST: Final = 8
"""Fewer records than these are pickled: the names would weigh more."""

MISSES: Final = 16
"""After so many more bundles of mixed shapes than of one shape, a writer stops to look."""

Column: TypeAlias = Sequence[Any]
Make: TypeAlias = Callable[[Sequence[Column]], list[Any]]
"""Makes the records of their columns."""


class ShapeWriter:
    """Finds the shape of bundles; belongs to one writer, whose bundles are mostly alike."""

    __slots__ = ("_kinds", "_misses")

    def __init__(self) -> None:
        self._kinds: dict[type, tuple[tuple[str, ...], bytes] | None] = {}
        """The fields of a class, none if each instance has its own, and its name in pickle."""
        self._misses = 0

    def write(self, records: Sequence[Any]) -> list[Any] | None:
        """Class, names and columns, ready for MessagePack; None: they have no common shape."""
        if len(records) < FEWEST or self._misses >= MISSES:
            return None
        kind = type(records[0])
        if kind in _LEFT_TO_PICKLE:
            return None
        try:
            shaped = self._shaped(kind, records)
        except (AttributeError, TypeError):  # a slot is empty, an attribute is not named by a text
            shaped = None
        self._misses += 1 if shaped is None else -(self._misses > 0)
        return shaped

    def _shaped(self, kind: type, records: Sequence[Any]) -> list[Any] | None:
        if len(set(map(type, records))) > 1:
            return None
        if kind is dict:
            return _written(None, records, *_taken_apart(records))
        fields, name = self._known(kind) or (None, b"")
        if fields is None:
            return None
        if not fields:
            return _written(name, records, *_taken_apart(list(map(_DICT_OF, records))))
        rows = records if issubclass(kind, tuple) else map(attrgetter(*fields), records)
        is_single = len(fields) == 1 and not issubclass(kind, tuple)
        columns = [tuple(rows)] if is_single else zip(*rows, strict=True)
        return _written(name, records, fields, list(columns))

    def _known(self, kind: type) -> tuple[tuple[str, ...], bytes] | None:
        if kind not in self._kinds:
            if len(self._kinds) >= MISSES:
                self._kinds.clear()
            self._kinds[kind] = _written_class(kind)
        return self._kinds[kind]


def written_fields(fields: RecordFields) -> list[Any] | None:
    """Columns of records that are taken apart, as of others; the records are never made."""
    shape = fields.shape
    return _written(shape.written_kind, (), shape.names, fields.columns())


def is_row(kind: type) -> bool:
    """Whether instances with a filled ``__dict__`` are what that holds, and nothing more."""
    return "__headgate_maker__" in vars(kind)


def _written_class(kind: type) -> tuple[tuple[str, ...], bytes] | None:
    fields = _constant_fields(kind)
    if fields is None and not is_row(kind):
        layout = layout_of(kind)
        if layout is None or layout.has_dict == bool(layout.slots):
            return None
        fields = layout.slots
    name = _written_kind(kind)
    return None if name is None else (fields or (), name)


def _constant_fields(kind: Any) -> tuple[str, ...] | None:
    """The fields of a named tuple, or of a struct that its class makes of them; None: another."""
    if is_named_tuple(kind):
        return cast("tuple[str, ...]", kind._fields) or None
    if is_plain_struct(kind) and not hasattr(kind, "__post_init__"):
        return cast("tuple[str, ...]", kind.__struct_fields__) or None
    return None


def _written_kind(kind: type) -> bytes | None:
    try:
        return pickle.dumps(kind, 5)
    except Exception:  # its records cannot be pickled either, and say so
        return None


def _taken_apart(dicts: Sequence[dict[Any, Any]]) -> tuple[tuple[str, ...], list[Column]]:
    """Names and columns; no names: the dicts have no common shape."""
    keys = set(map(tuple, map(dict.keys, dicts)))  # in the order of ``dict.values`` for sure
    # A key of another class may equal a text: a member of an enumeration, a text of numpy.
    if len(keys) > 1 or not _TEXTS.issuperset(map(type, chain.from_iterable(dicts))):
        return (), []
    return keys.pop(), list(zip(*map(dict.values, dicts), strict=True))


def _written(
    name: bytes | None, records: Sequence[Any], names: tuple[str, ...], columns: Sequence[Column]
) -> list[Any] | None:
    """Columns of which MessagePack would not give back the same are pickled, all of them at once.

    So an object that several fields hold stays one object.
    """
    are_plain = [PLAIN_KINDS.issuperset(map(type, column)) for column in columns]
    if not names or all(are_plain):
        return [name, names, columns] if names else None
    others = [column for column, plain in zip(columns, are_plain, strict=True) if not plain]
    marks = (type(records[0]).__qualname__,) if records and name is not None else names
    pickled = _pickled(others, records, marks)
    if pickled is None:
        return None
    plain_ones = [
        column if plain else None for column, plain in zip(columns, are_plain, strict=True)
    ]
    return [name, names, [*plain_ones, pickled]]


def _pickled(columns: list[Column], records: Sequence[Any], marks: Sequence[str]) -> bytes | None:
    """None: a record is held by what a record holds, and would be made twice.

    ``marks`` are in the bytes of every record that is pickled; without them no look is needed.
    """
    file = BytesIO()
    pickler = pickle.Pickler(file, 5)
    pickler.dump(columns)
    data = file.getvalue()
    may_hold_records = all(_text_in_pickle(mark) in data for mark in marks)
    if may_hold_records and not pickler.memo.copy().keys().isdisjoint(map(id, records)):
        return None
    return data


def _text_in_pickle(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return pickle.SHORT_BINUNICODE + bytes([len(data)]) + data if len(data) < 256 else data


class ShapeReader:
    """Reads columns; belongs to one channel."""

    __slots__ = ("_loads", "_shapes")

    def __init__(self, loads: Callable[[bytes], Any]) -> None:
        self._loads = loads
        self._shapes: dict[tuple[bytes | None, tuple[str, ...]], FieldShape | Make] = {}

    def read(self, name: object, names: object, columns: object) -> RecordFields | list[Any]:
        """The records that ``ShapeWriter.write`` was given; raises if the parts do not fit.

        It stays apart, unless code of the class says what its attributes are, or the class has
        changed since the records were written.
        """
        if not isinstance(names, list) or not isinstance(columns, list) or not names:
            raise TypeError("a shape is a class, a list of names and a list of columns")
        if not all(type(field) is str for field in names) or len({*names}) != len(names):
            raise TypeError("the names of a shape are texts, each different from the others")
        unpacked = self._unpacked(columns)
        counts = {len(_column(column)) for column in unpacked}
        if len(unpacked) != len(names) or len(counts) != 1:
            raise ValueError(f"{len(names)} fields with columns of {sorted(counts)} items")
        if name is not None and not isinstance(name, bytes):
            raise TypeError("the class of a shape is its pickled name")
        key = name, tuple(names)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= MISSES:
                self._shapes.clear()
            kind = dict if name is None else _class(self._loads(name))
            shape = field_shape(kind, key[1], name)
            if shape is None and is_row(kind):
                raise ValueError(f"{names} are no fields of a {kind.__qualname__}")
            shape = shape or _maker_by_state(kind, names)
            self._shapes[key] = shape
        if not isinstance(shape, FieldShape):
            return shape(unpacked)
        lists: list[Place] = [
            column if type(column) is list else list(column) for column in unpacked
        ]
        return RecordFields(lists, counts.pop(), None, shape)

    def _unpacked(self, columns: list[Any]) -> list[Column]:
        if None not in columns:
            return columns
        others = iter(_column(self._loads(columns[-1])))
        unpacked = [next(others) if column is None else column for column in columns[:-1]]
        if any(True for _ in others):
            raise ValueError("more columns are pickled than have a place")
        return unpacked


def _class(kind: Any) -> Any:
    if not isinstance(kind, type) or kind is dict:
        raise TypeError(f"{kind!r} is no class of records with attributes")
    return kind


def _column(column: object) -> Column:
    if not isinstance(column, list | tuple):
        raise TypeError(f"a {type(column).__name__} is no column")
    return column


def field_shape(
    kind: Any, names: tuple[str, ...], written_kind: bytes | None = None
) -> FieldShape | None:
    """The shape of dicts with these keys, or instances with these attributes.

    None: instances of the class do not consist of such attributes, or code says what they are.
    """
    items = [f"item_{number}" for number in range(len(names))]
    target = f"for {', '.join(items)}, in zip(*columns)"
    if is_row(kind):
        make = kind.__headgate_maker__(names)
        written_kind = written_kind or _written_kind(kind)
        return None if make is None else FieldShape(kind, names, make, written_kind, is_row=True)
    if kind is dict:
        pairs = ", ".join(f"{name!r}: {item}" for name, item in zip(names, items, strict=True))
        code = f"def make(columns):\n return [{{{pairs}}} {target}]"
        return FieldShape(dict, names, _compiled(code, {}))
    constant = _constant_fields(kind)
    if constant is not None:
        written_kind = written_kind or _written_kind(kind)
        if written_kind is None or constant != names:
            return None
        return FieldShape(kind, names, _maker_of_class(kind, names), written_kind)
    layout = layout_of(kind)
    if layout is None or layout.has_dict == bool(layout.slots):
        return None
    if layout.slots and set(names) != set(layout.slots):
        return None
    if not layout.slots and not all(_is_plain(kind, name) for name in names):
        return None
    lines = ["def make(columns):", " made = []", " add = made.append", f" {target}:"]
    lines.append("  record = new(kind)")
    for name, item in zip(names, items, strict=True):
        lines.append(
            f"  record.{name} = {item}"
            if layout.takes_assignments
            else f"  assign(record, {name!r}, {item})"
        )
    lines += ["  add(record)", " return made"]
    given = {"assign": object.__setattr__, "kind": kind, "new": object.__new__}
    written_kind = written_kind or _written_kind(kind)
    if written_kind is None:
        return None
    return FieldShape(kind, names, _compiled("\n".join(lines), given), written_kind)


def _maker_of_class(kind: Any, names: Sequence[str]) -> Make:
    """What makes named tuples or structs of columns.

    These are all fields of the class, unless it has changed since the records were written: then
    fields are taken by position, as pickle does, and what is missing has its default.
    """
    if is_named_tuple(kind) and kind._fields == tuple(names):
        new = partial(tuple.__new__, kind)
        return lambda columns: list(map(new, zip(*columns)))  # noqa: B905 - some have no end
    try:
        kind(*names)
    except TypeError:  # some are taken by their names alone
        return lambda columns: [
            kind(**dict(zip(names, items, strict=True)))
            for items in zip(*columns)  # noqa: B905 - what is repeated has no end
        ]
    return lambda columns: list(map(kind, *columns))


def _maker_by_state(kind: Any, names: list[str]) -> Make:
    """Make records as pickle would, of a class whose attributes cannot simply be assigned."""
    if _constant_fields(kind) is not None:
        return _maker_of_class(kind, names)
    layout = layout_of(kind)
    is_its_dict = layout is not None and layout.has_dict and not layout.slots
    takes_state, has_dict = has_own_state(kind), kind.__dictoffset__ != 0

    def make(columns: Sequence[Column]) -> list[Any]:
        made = []
        for items in zip(*columns, strict=True):
            record = kind.__new__(kind)
            state = dict(zip(names, items, strict=True))
            if is_its_dict:
                object.__setattr__(record, "__dict__", state)
            elif takes_state:
                give_state(record, state if has_dict else (None, state))
            else:
                for name, item in state.items():
                    object.__setattr__(record, name, item)
            made.append(record)
        return made

    return make


def _is_plain(kind: type, name: str) -> bool:
    """Whether an assignment puts the attribute into ``__dict__`` and runs no code."""
    return is_code_name(name) and not takes_over(member_of(kind, name))


def _compiled(code: str, given: dict[str, Any]) -> Make:
    exec(code, given)
    make: Make = given["make"]
    return make


_DICT_OF: Final = attrgetter("__dict__")
_TEXTS: Final = frozenset({str})
_LEFT_TO_PICKLE: Final = PLAIN_KINDS | {tuple, list, set, frozenset}
