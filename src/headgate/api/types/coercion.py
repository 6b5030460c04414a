"""Coercion: every record that an operator emits conforms to its declared type.

msgspec's ``convert`` checks a bundle at once, some tens of nanoseconds per record; only if it
refuses the bundle (a numpy number, a bool as INT, a Row within a tuple) is each record converted
alone. Law: both ways give equal values of the same types, or the second raises TypeError.
"""

import reprlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter

from msgspec import convert, defstruct

from headgate.api.row import FIELDS_OF, Row, rows_with, unnamed_values
from headgate.api.types.wires import (
    AS_THEY_ARE,
    Coercer,
    FieldsWire,
    WireType,
    or_none,
    taken_apart,
    where_there,
)
from headgate.base.elements import Record
from headgate.base.fields import FieldShape, Place, RecordFields, Same


class Mismatch(Exception):
    """A value that does not fit its type; ``place`` says where in the record it was found."""

    def __init__(self, problem: str, value: Record, place: str = "") -> None:
        super().__init__(problem, value, place)
        self.problem, self.value, self.place = problem, value, place

    @staticmethod
    def of(wants: str, value: Record) -> "Mismatch":
        """Something else is needed."""
        found = "None" if value is None else _a(type(value).__name__)
        return Mismatch(f"{wants} is needed, this is {found}", value)

    def within(self, place: str) -> "Mismatch":
        """This mismatch with an outer place in front."""
        return Mismatch(self.problem, self.value, f"{place}, {self.place}" if self.place else place)

    def message(self, record: Record, kind: object) -> str:
        """The message of the error that a user gets."""
        where = f"{self.place} is {short(self.value)}, but " if self.place else ""
        return (
            f"{short(record)} does not fit the declared type {kind!r}: {where}{self.problem}; "
            f"give such a value, or declare another type"
        )


def short(value: Record) -> str:
    """A value in a message: its repr, or the beginning of it."""
    try:
        return _SHORT.repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def each_coerced(coerced: Callable[[Record], Record]) -> Coercer:
    """One record after the other: the way for types that know no other."""

    def coerce(records: list[Record]) -> list[Record]:
        return [coerced(record) for record in records]

    return coerce


def all_coerced(wire: WireType | None, careful: Coercer) -> Coercer:
    """A bundle at once if the type can be checked so; else, and after a refusal, ``careful``."""
    check = bulk_check(wire)
    if check is None:
        return careful

    def coerce(records: list[Record]) -> list[Record]:
        try:
            return check(records)
        except Exception:  # the careful way finds the record at fault, or that there is none
            return careful(records)

    return coerce


def parts_coerced(kinds: set[type], check: Coercer, careful: Coercer) -> Coercer:
    """For containers of these kinds whose parts have ``check``; it may be given only such."""

    def coerce(records: list[Record]) -> list[Record]:
        if kinds.issuperset(map(type, records)):
            with suppress(Exception):
                return check(records)
        return careful(records)

    return coerce


def rows_coerced(names: Sequence[str], check: Coercer, careful: Coercer) -> Coercer:
    """Rows out of rows, tuples, lists or dicts; ``check`` takes their values."""
    own_names = list(names)

    def coerce(records: list[Record]) -> list[Record]:
        try:
            return rows_with(own_names, check(_values_of(records, own_names)))
        except Exception:
            return careful(records)

    return coerce


class ColumnsCoercer:
    """Coerces records of a type with fields by columns, and leaves them taken apart.

    Law: it gives the fields of what ``coercer`` gives, or None, and then that one has to be asked.
    """

    def __init__(self, wire: FieldsWire, columns: Sequence[Coercer]) -> None:
        self.shape, self.count = wire.shape, len(columns)
        self._columns = columns
        self._kept = [
            place._replace(type=or_none(place.type)) if place.keeps else None
            for place in wire.places
        ]
        """The fields in which a value that passes the check is the result itself."""

    def keeping(self, careful: Coercer) -> Coercer:
        """Lets rows that are as declared pass as they are; ``careful`` coerces all others."""
        checks = [None if wire is None else bulk_check(wire) for wire in self._kept]
        names = self.shape.names
        if not self.shape.is_row or None in checks:
            return careful

        def coerce(records: list[Record]) -> list[Record]:
            if {*map(type, records)} != {Row}:
                return careful(records)
            fields = list(map(FIELDS_OF, records))
            if {*map(tuple, fields)} != {names}:
                return careful(records)
            try:
                for name, check in zip(names, checks, strict=True):
                    check(list(map(itemgetter(name), fields)))  # type: ignore[misc]
            except Exception:
                return careful(records)
            return records

        return coerce

    def takes(self, shape: FieldShape, count: int) -> bool:
        """Whether records of this shape may fit."""
        return self._order(shape, count) is not None

    def of_records(self, records: list[Record]) -> RecordFields | None:
        """They are only looked at."""
        try:
            columns = taken_apart(records, self.shape)
            return None if columns is None else self._coerced(columns, len(records))
        except Exception:  # the coercer of records tells which one does not fit
            return None

    def of_fields(self, fields: RecordFields) -> RecordFields | None:
        """It may take over the lists."""
        order = self._order(fields.shape, len(fields.places))
        if order is None:
            return None
        try:
            return self._coerced([fields.places[at] for at in order], fields.count)
        except Exception:
            return None

    def _coerced(self, places: Sequence[Place], count: int) -> RecordFields:
        coerced: list[Place] = [
            coerce(place) if type(place) is list else Same(coerce([place[0]])[0])
            for coerce, place in zip(self._columns, places, strict=True)
        ]
        return RecordFields(coerced, count, None, self.shape)

    def _order(self, shape: FieldShape, count: int) -> Sequence[int] | None:
        """The place of each field of the type; None: it has to be found otherwise."""
        own = self.shape
        if count != self.count:
            return None
        if shape.kind is tuple:  # fits rows as well
            return range(count)
        if not own.is_row or not (shape.is_row or shape.kind is dict):
            return None
        names = shape.names
        return list(map(names.index, own.names)) if {*names} == {*own.names} else None


def column_coerced(wire: WireType | None, careful: Coercer) -> Coercer:
    """For a field, which may be None in some of the records; ``careful``: if it is not."""
    careful = where_there(careful)
    if wire is None or not wire.checks:
        return careful
    finish = None if wire.finish is None else where_there(wire.finish)
    return all_coerced(wire._replace(type=or_none(wire.type), finish=finish), careful)


def bulk_check(wire: WireType | None) -> Coercer | None:
    """A function that checks records all at once and raises if it cannot; None: there is none."""
    if wire is None or not wire.checks:
        return None
    # msgspec remembers what it has found out about a struct, but not about a bare list.
    box = defstruct("Box", [("records", list[wire.type])], array_like=True)  # type: ignore[name-defined]
    kept, finish = None if wire.is_plain else AS_THEY_ARE, wire.finish

    def check(records: list[Record]) -> list[Record]:
        checked: list[Record] = convert((records,), box, builtin_types=kept).records  # type: ignore[attr-defined]
        return checked if finish is None else finish(checked)

    return check


def _values_of(records: list[Record], names: list[str]) -> list[Record]:
    """The values by position; raises TypeError if the records are not all of one kind."""
    kinds = set(map(type, records))
    if kinds <= {tuple, list}:
        return records
    if kinds == {dict}:
        return [[record.get(name) for name in names] for record in records]
    if kinds != {Row}:
        raise TypeError
    fields = list(map(FIELDS_OF, records))
    values = unnamed_values(records)
    if values is None and {*map(len, fields)} == {len(names)}:  # perhaps in another order
        values = [[row[name] for name in names] for row in fields]
    if values is None:
        raise TypeError
    return values


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiouAEIO" else f"a {noun}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
