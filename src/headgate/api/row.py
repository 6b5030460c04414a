"""Rows: records whose fields have positions and, mostly, names.

Law: a row without names never equals one with names; rows with names are equal if they hold equal
values under equal names, in any order, and equal rows have equal hashes.
Rows can be changed in place, so Headgate copies them between operators like any other object.

Nearly all rows have names and say insert. Such a row is what its ``__dict__`` holds, so that the
interpreter reads its fields without code of ours. Other rows have an empty ``__dict__``.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from sys import getrefcount
from typing import Any, Final, TypeAlias

from headgate.base.elements import Record
from headgate.base.values import ATOMS, SOLE_HOLDER, holds_own_items, holds_own_values, own


class RowKind(Enum):
    """The kind of change that a row stands for in a changing table."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def short(self) -> str:
        """``+I``, ``-U``, ``+U`` or ``-D``: what stands before a printed row."""
        return ("+I", "-U", "+U", "-D")[self.value]

    def __str__(self) -> str:
        return self.short

    def __setstate__(self, state: object) -> None:
        raise TypeError("a pickle cannot change what a RowKind is")


GONE: Final = frozenset({RowKind.UPDATE_BEFORE, RowKind.DELETE})
"""Kinds of rows that are no longer in the table: of such a row only the key is sure to be known."""


class Row:
    """Values by position, and by name if it was made with names.

    Names given as keywords keep the order in which they are written. A row of names makes rows::

        >>> Row(name="Ada", age=36)
        Row(name='Ada', age=36)
        >>> Person = Row("name", "age")
        >>> Person("Ada", 36).name
        'Ada'
        >>> Row("Ada", 36)
        <Row('Ada', 36)>
    """

    __slots__ = ("__dict__", "_about", "_list")

    _list: list[Record]
    """The values of a row whose ``__dict__`` is empty."""
    _about: tuple[list[str] | None, RowKind]
    """Its names and its kind."""

    def __init__(self, *args: Record, **kwargs: Record) -> None:
        if kwargs and not args and _ARE_NO_MEMBERS(kwargs):
            _set_fields(self, kwargs)
            return
        if args and kwargs:
            raise ValueError("a Row takes values or named values, not both")
        _set_list(self, list(args or kwargs.values()))
        _set_about(self, (list(kwargs), RowKind.INSERT) if kwargs else _NOTHING_SAID)

    @classmethod
    def of_kind(cls, row_kind: RowKind, *args: Record, **kwargs: Record) -> "Row":
        """A row of this kind."""
        row = cls(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def get_row_kind(self) -> RowKind:
        return RowKind.INSERT if self.__dict__ else self._about[1]

    def set_row_kind(self, row_kind: RowKind) -> None:
        if not self.__dict__ or row_kind is not RowKind.INSERT:
            _as_list(self)
            _set_about(self, (self._about[0], row_kind))

    def get_field_names(self) -> list[str] | None:
        """None: a row without names."""
        names = names_of(self)
        return None if names is None else list(names)

    def set_field_names(self, field_names: Sequence[str]) -> None:
        _fill(self, list(field_names), _as_list(self), self._about[1])

    def get_fields_by_names(self, names: Sequence[str]) -> list[Record]:
        """The values under these names, in their order; a row without names gives all it has."""
        own_names = names_of(self)
        if own_names is None or list(names) == own_names:
            return values_of(self)
        return [self[name] for name in names]

    def as_dict(self, recursive: bool = False) -> dict[str, Record]:
        """Values by name; with ``recursive`` rows within rows, lists and dicts too."""
        names = names_of(self)
        if names is None:
            raise TypeError("a Row without names is no dict; call set_field_names first")
        values = map(_plain, self) if recursive else self
        return dict(zip(names, values, strict=False))

    def __call__(self, *values: Record) -> "Row":
        """A new row whose names are the values of this one."""
        if len(values) > len(self):
            raise ValueError(f"{self!r} has {len(self)} names, but got {len(values)} values")
        return make_row([str(name) for name in self], values, self.get_row_kind())

    def __getitem__(self, position: int | slice | str) -> Record:
        fields = self.__dict__
        if not fields:
            return self._list[self._index(position)]
        if type(position) is str and position in fields:
            return fields[position]
        if isinstance(position, int | slice):
            return [*fields.values()][position]
        return fields[self._name(position)]

    def __setitem__(self, position: int | slice | str, value: Record) -> None:
        fields = self.__dict__
        if not fields or isinstance(position, slice):
            _as_list(self)[self._index(position)] = value
            return
        names = [*fields]
        fields[names[position] if isinstance(position, int) else self._name(position)] = value

    def __getattr__(self, name: str) -> Record:
        # Only names that are no attribute come here; those of Python's own protocols must fail.
        if not self.__dict__ and not name.startswith("__") and name not in Row.__slots__:
            names = self._about[0]
            if names is not None and name in names:
                return self._list[names.index(name)]
        raise AttributeError(f"{self!r} has no field {name!r}")

    def __setattr__(self, name: str, value: Record) -> None:
        if name in ("_fields", "_row_kind", "_values"):  # jobs written for PyFlink set them
            object.__setattr__(self, name, value)
            return
        raise AttributeError(f"set a field of a Row by row[{name!r}] = value")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Row keeps its fields; make another one without the field")

    def __contains__(self, item: object) -> bool:
        names = names_of(self)
        return item in (self._list if names is None else names)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.__dict__.values() or self._list)

    def __len__(self) -> int:
        return len(self.__dict__ or self._list)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return False
        fields, others = self.__dict__, other.__dict__
        if fields and others:
            return fields == others
        if self.get_row_kind() is not other.get_row_kind() or len(self) != len(other):
            return False
        names, other_names = names_of(self), names_of(other)
        if names == other_names:
            return values_of(self) == values_of(other)
        if names is None or other_names is None:
            return False
        return len(self) == len(names) and self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        values = self.__dict__.values() or self._list
        if self.__dict__ or self._about[0] is not None:  # equal rows may differ in order
            return frozenset(values).__hash__()
        return tuple(values).__hash__()

    def __reduce__(self) -> tuple[Any, ...]:
        fields = self.__dict__
        if fields:  # a pickle of many rows has their names once
            return make_row, (_shared(tuple(fields)), tuple(fields.values()), RowKind.INSERT)
        names, kind = self._about
        return make_row, (names, tuple(self._list), kind)

    def __headgate_own__(self) -> "Row":
        """A copy that shares nothing that can be changed, without pickle."""
        fields = self.__dict__
        if fields:
            for value in fields.values():
                if type(value) not in ATOMS:
                    fields = own(fields)
                    break
            else:
                fields = fields.copy()
            row = _new(Row)
            _set_fields(row, fields)
            return row
        names, kind = self._about
        return make_row(names, own(self._list), kind)

    def __headgate_is_new__(self) -> bool:
        """Whether nobody else has its values, nor a part of them that can be changed."""
        fields = self.__dict__
        if fields:
            return getrefcount(fields) == _HOLDERS_OF_FIELDS and holds_own_values(fields)
        return getrefcount(self._list) == SOLE_HOLDER and holds_own_items(self._list)

    @staticmethod
    def __headgate_maker__(
        names: tuple[str, ...],
    ) -> "Callable[[Sequence[Sequence[Record]]], list[Row]] | None":
        """Returns a maker of rows from columns with these names; None: such rows have no fields."""
        to_fields = _fields_maker(names)
        if to_fields is None:
            return None

        def make(columns: Sequence[Sequence[Record]]) -> list[Row]:
            return _with_fields(to_fields(zip(*columns)))  # noqa: B905 - repeated items do not end

        return make

    @staticmethod
    def __headgate_of_fields__(fields: "_Fields") -> "Row":
        """Make a row of the dictionary of its fields, which is its own from now on."""
        row = _new(Row)
        _set_fields(row, fields)
        return row

    def __headgate_key__(self) -> "Row":
        """The key that the row stands for: the same for equal rows."""
        names = names_of(self)
        if names is None or len(names) != len(self) or names == sorted(names):
            return self
        values = [self[name] for name in sorted(names)]
        return make_row(sorted(names), values, self.get_row_kind())

    def __repr__(self) -> str:
        names = names_of(self)
        if names is None:
            return f"<Row({', '.join(map(repr, self))})>"
        pairs = zip(names, self, strict=False)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    @property
    def _values(self) -> list[Record]:
        """The values, as jobs written for PyFlink look for them: the row changes with the list."""
        return _as_list(self)

    @_values.setter
    def _values(self, values: list[Record]) -> None:
        _as_list(self)
        _set_list(self, values)

    @property
    def _fields(self) -> list[str] | None:
        return names_of(self)

    @_fields.setter
    def _fields(self, names: Sequence[str]) -> None:
        self.set_field_names(names)

    @property
    def _row_kind(self) -> RowKind:
        return self.get_row_kind()

    @_row_kind.setter
    def _row_kind(self, row_kind: RowKind) -> None:
        self.set_row_kind(row_kind)

    def _index(self, position: Any) -> Any:
        """Where a row with a list has a value."""
        names = self._about[0]
        if isinstance(position, int | slice):
            return position
        if names is None:
            raise KeyError(f"{self!r} has no names; use a position from 0 to {len(self) - 1}")
        return names.index(self._name(position))

    def _name(self, name: str) -> str:
        """The name, if the row has it; raises KeyError otherwise."""
        if name not in self:
            raise KeyError(f"{self!r} has no field {name!r}")
        return name


_Fields: TypeAlias = dict[str, Record]


def named_row(names: Sequence[str], values: Sequence[Record]) -> Row:
    """A row with these names in this order."""
    return make_row(list(names), values, RowKind.INSERT)


def rows_of(names: list[str], columns: Iterable[Sequence[Record]]) -> list[Row]:
    """Rows of columns of equal length."""
    return rows_with(names, list(zip(*columns, strict=True)))


def rows_with(names: list[str], values: Sequence[Sequence[Record]]) -> list[Row]:
    """A row of each of these sequences of values."""
    to_fields = _fields_maker(tuple(names))
    if to_fields is None:
        return [make_row(names, items, RowKind.INSERT) for items in values]
    try:
        fields = to_fields(values)
    except ValueError:  # of other lengths
        return [make_row(names, items, RowKind.INSERT) for items in values]
    return _with_fields(fields)


def _with_fields(fields: list[_Fields]) -> list[Row]:
    rows = list(map(_new, repeat(Row, len(fields))))
    deque(map(_set_fields, rows, fields), maxlen=0)  # in one sweep: half the time of a loop
    return rows


def values_of(row: Row) -> list[Record]:
    """The values by position, to look at."""
    fields = row.__dict__
    return [*fields.values()] if fields else row._list


def unnamed_values(rows: Sequence[Row]) -> list[list[Record]] | None:
    """The values of rows without fields, to look at; None: some have names or another kind."""
    values = [row._list for row in rows if row._about == _NOTHING_SAID]
    return values if len(values) == len(rows) else None


def names_of(row: Row) -> list[str] | None:
    """The names, to look at."""
    fields = row.__dict__
    return [*fields] if fields else row._about[0]


def make_row(names: list[str] | None, values: Sequence[Record], kind: RowKind) -> Row:
    """A row of these parts; it may take over the names."""
    row = _new(Row)
    _fill(row, names, list(values), kind)
    return row


def _fill(row: Row, names: list[str] | None, values: list[Record], kind: RowKind) -> None:
    """Give a row without fields what it consists of."""
    if names is not None and kind is RowKind.INSERT and len(names) == len(values):
        try:
            is_plain = are_field_names(tuple(names))
        except TypeError:  # a name that is not hashable is no text
            is_plain = False
        if is_plain:
            _set_fields(row, dict(zip(names, values, strict=True)))
            return
    _set_list(row, values)
    _set_about(row, (names, kind))


def _as_list(row: Row) -> list[Record]:
    """The values of the row, which has a list of them from now on."""
    fields = row.__dict__
    if fields:
        _set_about(row, ([*fields], RowKind.INSERT))
        _set_list(row, [*fields.values()])
        _set_fields(row, {})
    return row._list


@lru_cache(maxsize=1024)
def are_field_names(names: tuple[str, ...]) -> bool:
    """Whether a row with these names has its values in its ``__dict__``."""
    are_texts = all(isinstance(name, str) for name in names)
    return are_texts and 0 < len(names) == len({*names}) and _ARE_NO_MEMBERS(names)


@lru_cache(maxsize=1024)
def _fields_maker(
    names: tuple[str, ...],
) -> Callable[[Iterable[Sequence[Record]]], list[_Fields]] | None:
    """Makes the fields of rows with these names, out of as many values; None: they have a list."""
    if not are_field_names(names):
        return None
    items = [f"item_{number}" for number in range(len(names))]
    pairs = ", ".join(f"names[{number}]: {item}" for number, item in enumerate(items))
    if all(type(name) is str for name in names):  # constants are quicker
        pairs = ", ".join(f"{name!r}: {item}" for name, item in zip(names, items, strict=True))
    given: dict[str, Any] = {"names": names}
    exec(f"def make(rows):\n return [{{{pairs}}} for {', '.join(items)}, in rows]", given)
    make: Callable[[Iterable[Sequence[Record]]], list[_Fields]] = given["make"]
    return make


@lru_cache(maxsize=1024)
def _shared(names: tuple[str, ...]) -> list[str]:
    """One list for equal names: to look at."""
    return list(names)


FIELDS_OF: Final = attrgetter("__dict__")
"""The fields of a row, to look at; none: its values are no fields."""

_new: Final = Row.__new__
# The slots themselves: half the time of object.__setattr__, and rows are made by the million.
_set_fields: Final = Row.__dict__["__dict__"].__set__
_set_list: Final = Row.__dict__["_list"].__set__
_set_about: Final = Row.__dict__["_about"].__set__

_ARE_NO_MEMBERS: Final = frozenset(dir(Row)).isdisjoint
"""A field with the name of a method would hide the method."""

_NOTHING_SAID: Final = (None, RowKind.INSERT)
_HOLDERS_OF_FIELDS: Final = SOLE_HOLDER + 1 if SOLE_HOLDER > 0 else -1
"""The row and a variable."""


def _plain(value: Record) -> Record:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def are_inserts(records: Sequence[Record]) -> bool:
    """Whether none of them is a row of another kind."""
    if Row not in set(map(type, records)):
        return True
    kinds = {record.get_row_kind() for record in records if isinstance(record, Row)}
    return kinds == {RowKind.INSERT}
