"""Coercion: every record that an operator emits conforms to its declared type.

msgspec's ``convert`` checks a bundle at once, some tens of nanoseconds per record; only if it
refuses the bundle (a numpy number, a bool as INT, a Row within a tuple) is each record converted
alone. Law: both ways give equal values of the same types, or the second raises TypeError.
"""

import reprlib
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import convert, defstruct

from headgate.api.row import Row, RowKind, names_of, rows_with, values_of
from headgate.api.types.wires import AS_THEY_ARE, Coercer, WireType
from headgate.base.elements import Record


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
        """The same mismatch with an outer place in front."""
        return Mismatch(self.problem, self.value, f"{place}, {self.place}" if self.place else place)

    def message(self, record: Record, kind: object) -> str:
        """What users read."""
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


def rows_coerced(names: Sequence[str], check: Coercer, keeps: bool, careful: Coercer) -> Coercer:
    """Rows out of rows, tuples, lists or dicts; ``check`` takes their values.

    ``keeps``: a row with the right names that passes the check is the result itself.
    """
    own_names = list(names)

    def coerce(records: list[Record]) -> list[Record]:
        try:
            values, fit = _values_of(records, own_names)
            checked = check(values)
        except Exception:
            return careful(records)
        return records if fit and keeps else rows_with(own_names, checked)

    return coerce


def bulk_check(wire: WireType | None) -> Coercer | None:
    """What checks records all at once, and raises if it cannot; None: nothing does."""
    if wire is None or not wire.checks:
        return None
    # msgspec remembers what it has found out about a struct, but not about a bare list.
    box = defstruct("Box", [("records", list[wire.type])], array_like=True)  # type: ignore[name-defined]
    kept, finish = None if wire.is_plain else AS_THEY_ARE, wire.finish

    def check(records: list[Record]) -> list[Record]:
        checked: list[Record] = convert((records,), box, builtin_types=kept).records  # type: ignore[attr-defined]
        return checked if finish is None else finish(checked)

    return check


def _values_of(records: list[Record], names: list[str]) -> tuple[list[Record], bool]:
    """The values by position, and whether the records are rows with these names already.

    Raises TypeError if the records are not all of one kind.
    """
    kinds = set(map(type, records))
    if kinds <= {tuple, list}:
        return records, False
    fit = False
    if kinds == {Row}:
        fit = names_of(records[0]) is not None
        wanted = names if fit else None
        values = [
            values_of(row)
            for row in records
            if names_of(row) == wanted and row.get_row_kind() is RowKind.INSERT
        ]
    else:
        values = [
            [record.get(name) for name in names] for record in records if type(record) is dict
        ]
    if len(values) < len(records):
        raise TypeError
    return values, fit


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiouAEIO" else f"a {noun}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
