"""Rows: records whose fields have positions and, mostly, names.

Law: a row without names never equals one with names; rows with names are equal if they hold equal
values under equal names, in any order, and equal rows have equal hashes.
Rows can be changed in place, so Headgate copies them between operators like any other object.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import repeat
from sys import getrefcount
from typing import Any, Final

from headgate.base.elements import Record
from headgate.base.values import ATOMS, SOLE_HOLDER, own


class RowKind(Enum):
    """What a row of a changing table says."""

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

    __slots__ = ("_fields", "_row_kind", "_values")

    _fields: list[str] | None
    _row_kind: RowKind
    _values: list[Record]

    def __init__(self, *args: Record, **kwargs: Record) -> None:
        if args and kwargs:
            raise ValueError("a Row takes values or named values, not both")
        values = list(kwargs.values()) if kwargs else list(args)
        _fill(self, list(kwargs) or None, values, RowKind.INSERT)

    @classmethod
    def of_kind(cls, row_kind: RowKind, *args: Record, **kwargs: Record) -> "Row":
        """A row that says something else than insert."""
        row = cls(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def get_row_kind(self) -> RowKind:
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        object.__setattr__(self, "_row_kind", row_kind)

    def get_field_names(self) -> list[str] | None:
        """None: a row without names."""
        return None if self._fields is None else list(self._fields)

    def set_field_names(self, field_names: Sequence[str]) -> None:
        object.__setattr__(self, "_fields", list(field_names))

    def get_fields_by_names(self, names: Sequence[str]) -> list[Record]:
        """The values under these names, in their order; a row without names gives all it has."""
        if self._fields is None or list(names) == self._fields:
            return self._values
        return [self._values[self._index(name)] for name in names]

    def as_dict(self, recursive: bool = False) -> dict[str, Record]:
        """Values by name; with ``recursive`` rows within rows, lists and dicts too."""
        if self._fields is None:
            raise TypeError("a Row without names is no dict; call set_field_names first")
        values = map(_plain, self._values) if recursive else self._values
        return dict(zip(self._fields, values, strict=False))

    def __call__(self, *values: Record) -> "Row":
        """A new row whose names are the values of this one."""
        if len(values) > len(self):
            raise ValueError(f"{self!r} has {len(self)} names, but got {len(values)} values")
        return make_row([str(name) for name in self._values], values, self._row_kind)

    def __getitem__(self, position: int | slice | str) -> Record:
        return self._values[self._index(position)]

    def __setitem__(self, position: int | slice | str, value: Record) -> None:
        self._values[self._index(position)] = value

    def __getattr__(self, name: str) -> Record:
        # Only names that are no attribute come here; those of Python's own protocols must fail.
        if not name.startswith("_") and self._fields is not None and name in self._fields:
            return self._values[self._fields.index(name)]
        raise AttributeError(f"{self!r} has no field {name!r}")

    def __setattr__(self, name: str, value: Record) -> None:
        if name in Row.__slots__:  # jobs written for PyFlink set them
            object.__setattr__(self, name, value)
            return
        raise AttributeError(f"set a field of a Row by row[{name!r}] = value")

    def __contains__(self, item: object) -> bool:
        return item in (self._values if self._fields is None else self._fields)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row) or self._row_kind is not other._row_kind:
            return False
        if self._fields == other._fields:
            return self._values == other._values
        if self._fields is None or other._fields is None or len(self) != len(other):
            return False
        return len(self) == len(self._fields) and self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        if self._fields is None:
            return tuple(self._values).__hash__()
        return frozenset(self._values).__hash__()  # equal rows may differ in the order of names

    def __reduce__(self) -> tuple[Any, ...]:
        return make_row, (self._fields, tuple(self._values), self._row_kind)

    def __headgate_own__(self) -> "Row":
        """A copy that shares nothing that can be changed, without pickle."""
        return make_row(self._fields, own(self._values), self._row_kind)

    def __headgate_is_new__(self) -> bool:
        """Whether nobody else has its values, and none of them can be changed."""
        is_alone = getrefcount(self._values) == SOLE_HOLDER
        return is_alone and ATOMS.issuperset(map(type, self._values))

    def __headgate_key__(self) -> "Row":
        """What stands for it as a key: the same for equal rows."""
        names = self._fields
        if names is None or len(names) != len(self) or names == sorted(names):
            return self
        values = [self._values[names.index(name)] for name in sorted(names)]
        return make_row(sorted(names), values, self._row_kind)

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        pairs = zip(self._fields, self._values, strict=False)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def _index(self, position: Any) -> Any:
        if isinstance(position, int | slice):
            return position
        if self._fields is None:
            raise KeyError(f"{self!r} has no names; use a position from 0 to {len(self) - 1}")
        if position not in self._fields:
            raise KeyError(f"{self!r} has no field {position!r}")
        return self._fields.index(position)


def named_row(names: Sequence[str], values: Sequence[Record]) -> Row:
    """A row with these names in this order."""
    return make_row(list(names), values, RowKind.INSERT)


def rows_of(names: list[str], columns: Iterable[Sequence[Record]]) -> list[Row]:
    """Rows of columns of equal length. All share ``names``: nobody may change that list."""
    return rows_with(names, list(map(list, zip(*columns, strict=True))))


def rows_with(names: list[str], values: list[list[Record]]) -> list[Row]:
    """Rows that take over these lists of values, and all share ``names``.

    Each part of all rows is set in one sweep: two thirds of the time of a loop over the rows.
    """
    rows = list(map(Row.__new__, repeat(Row, len(values))))
    for setter, parts in (
        (_set_fields, repeat(names)),
        (_set_values, values),
        (_set_kind, repeat(RowKind.INSERT)),
    ):
        deque(map(setter, rows, parts), maxlen=0)
    return rows


def values_of(row: Row) -> list[Record]:
    """The values by position: the row's own list, to look at."""
    return row._values


def names_of(row: Row) -> list[str] | None:
    """The names: the row's own list, to look at."""
    return row._fields


def make_row(names: list[str] | None, values: Sequence[Record], kind: RowKind) -> Row:
    """A row of these parts; it takes over the names."""
    row = Row.__new__(Row)
    _set_fields(row, names)
    _set_values(row, list(values))
    _set_kind(row, kind)
    return row


def _fill(row: Row, names: list[str] | None, values: list[Record], kind: RowKind) -> None:
    _set_fields(row, names)
    _set_values(row, values)
    _set_kind(row, kind)


# The slots themselves: half the time of object.__setattr__, and rows are made by the million.
_set_fields: Final = Row.__dict__["_fields"].__set__
_set_values: Final = Row.__dict__["_values"].__set__
_set_kind: Final = Row.__dict__["_row_kind"].__set__


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
