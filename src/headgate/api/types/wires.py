"""Declared types in msgspec's terms: to check a bundle at once, and to write it as MessagePack.

Each type of ``types`` has a wire type, made of those of its parts. Law: a value that was coerced to
the type can be written by msgspec and comes back equal, with equal Python types, when it is read as
``reads`` and then revived. A bundle that msgspec cannot write (a lone surrogate, an int beyond 64
bits, a row of kind DELETE) is pickled as if nothing were declared; truncated or corrupted
bytes raise.
"""

import datetime
import pickle
from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Optional, TypeAlias

from msgspec.msgpack import Decoder, Encoder

from headgate.api.row import FIELDS_OF, Row, RowKind, unnamed_values, values_of
from headgate.base.elements import Record, Times
from headgate.base.fields import FieldShape, Place, RecordFields, Same
from headgate.base.moved import loads

if TYPE_CHECKING:
    from headgate.api.types.types import TypeInformation


Coercer: TypeAlias = Callable[[list[Record]], list[Record]]
"""From the records of a bundle to those of the declared type; never changes what it is given."""


class WireType(NamedTuple):
    """How msgspec sees one type."""

    type: object
    """The type that values are converted to when they are checked."""
    reads: object
    """The type that they are read as when they come from the wire."""
    checks: bool = True
    """Converting to ``type`` is all that coercion asks for, but for ``finish``."""
    keeps: bool = False
    """A value that passes the check is the result itself, so that it need not be replaced."""
    is_plain: bool = False
    """It comes back as it went even if nobody says which type is read."""
    finish: Coercer | None = None
    """A step after the check: FLOAT loses bits."""
    revive: Coercer | None = None
    """A step after reading: lists become rows."""


class FieldsWire(NamedTuple):
    """How msgspec sees the records of a type that travel apart."""

    shape: FieldShape
    places: tuple[WireType, ...]
    """One for each field."""
    is_plain: bool
    """What is read is of plain kinds, see ``RecordFields.are_plain``."""


AS_THEY_ARE: Final = (datetime.date, datetime.datetime, datetime.time, Decimal, bytes)
"""Kinds that a check never makes out of texts or numbers."""


def tuple_wire(fields: "Sequence[WireType | None]") -> WireType | None:
    """The wire type of tuples whose fields may be None."""
    known = [field for field in fields if field is not None]
    if len(known) < len(fields):
        return None
    return WireType(
        tuple[tuple(or_none(field.type) for field in known)],  # type: ignore[misc]
        tuple[tuple(or_none(field.reads) for field in known)],  # type: ignore[misc]
        all(field.checks for field in known),
        finish=_where_any([field.finish for field in known]),
        revive=_where_any([field.revive for field in known]),
    )


def list_wire(element: WireType | None, holds_none: bool) -> WireType | None:
    """The wire type of lists."""
    if element is None:
        return None
    around = or_none if holds_none else _itself
    return WireType(
        list[around(element.type)],  # type: ignore[misc]
        list[around(element.reads)],  # type: ignore[misc]
        element.checks,
        is_plain=element.is_plain,
        finish=None if element.finish is None else in_lists(element.finish),
        revive=None if element.revive is None else in_lists(element.revive),
    )


def dict_wire(key: WireType | None, value: WireType | None) -> WireType | None:
    """The wire type of dicts; values may be None."""
    if key is None or value is None:
        return None
    return WireType(
        dict[key.type, or_none(value.type)],  # type: ignore[name-defined,misc]
        dict[key.reads, or_none(value.reads)],  # type: ignore[name-defined,misc]
        key.checks and value.checks,
        is_plain=key.is_plain and value.is_plain,
        finish=_in_dicts(key.finish, value.finish),
        revive=_in_dicts(key.revive, value.revive),
    )


def or_none(kind: object) -> object:
    """A type that is known at run time only, or None."""
    return Optional[kind]  # noqa: UP045


def where_there(change: Coercer) -> Coercer:
    """Like ``change``, for values of which some may be None."""

    def changed(values: list[Record]) -> list[Record]:
        if type(None) not in set(map(type, values)):
            return change(values)
        rest = iter(change([value for value in values if value is not None]))
        return [None if value is None else next(rest) for value in values]

    return changed


def by_column(changes: "Sequence[Coercer | None]") -> Coercer:
    """Coerces tuples, given what is to be done with each of their fields."""

    def changed(values: list[Record]) -> list[Record]:
        if not values:
            return []
        columns: list[Sequence[Record]] = list(zip(*values, strict=True))
        if len(columns) != len(changes):
            raise TypeError
        for at, change in enumerate(changes):
            if change is not None:
                columns[at] = change(list(columns[at]))
        return list(zip(*columns, strict=True))

    return changed


def in_lists(change: Coercer) -> Coercer:
    """Coerces lists or None, given what is to be done with their elements."""

    def changed(values: list[Record]) -> list[Record]:
        return [None if value is None else change(value) for value in values]

    return changed


def _where_any(changes: "Sequence[Coercer | None]") -> Coercer | None:
    return where_there(by_column(changes)) if any(changes) else None


def _in_dicts(of_keys: Coercer | None, of_values: Coercer | None) -> Coercer | None:
    if of_keys is None and of_values is None:
        return None
    change_keys, change_values = of_keys or _same, of_values or _same

    def changed(values: list[Record]) -> list[Record]:
        return [
            None
            if value is None
            else dict(
                zip(change_keys(list(value)), change_values(list(value.values())), strict=True)
            )
            for value in values
        ]

    return changed


def _same(values: list[Record]) -> list[Record]:
    return values


def _list_or_none(kind: object) -> object:
    return or_none(list[kind])  # type: ignore[valid-type]


def _itself(kind: object) -> object:
    return kind


PLAIN, TIMED, PICKLED, FIELDS, TIMED_FIELDS = (bytes([number]) for number in range(5))
"""How a body is to be read: its first byte."""


class TypedSerializer:
    """Writes records of one type. It has no state and travels as the type that it is for.

    Rows, and other records that come taken apart, are written as their fields and read as such.
    """

    def __init__(self, kind: "TypeInformation") -> None:
        wire = kind.wire()
        assert wire is not None, f"{kind!r} has no form on the wire"
        record = or_none(wire.reads)  # None may pass key_by
        records = list[record]  # type: ignore[valid-type]
        self.kind = kind
        self._revive = wire.revive
        self._plain: Decoder[list[Record]] = Decoder(records)
        self._timed: Decoder[tuple[list[Record], list[int | None]]] = Decoder(
            tuple[records, list[Optional[int]]]  # noqa: UP045
        )
        self._fields = fields = kind.fields_wire()
        if fields is not None:
            reads = [or_none(place.reads) for place in fields.places]
            lists, same = tuple[tuple(map(_list_or_none, reads))], tuple[tuple(reads)]  # type: ignore[misc]
            self._of_fields: Decoder[tuple[Any, Any]] = Decoder(tuple[lists, same])  # type: ignore[valid-type]
            self._of_timed_fields: Decoder[tuple[Any, Any, list[int | None]]] = Decoder(
                tuple[lists, same, list[Optional[int]]]  # type: ignore[valid-type]  # noqa: UP045
            )
            self._revivers = [
                None if place.revive is None else where_there(place.revive)
                for place in fields.places
            ]

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        """Whether it writes records of this shape as they are taken apart."""
        own = self._fields
        return own is not None and shape == own.shape and count == len(own.places)

    def dumps_fields(self, fields: RecordFields, times: Times) -> bytes | None:
        """None: MessagePack does not have all that they hold."""
        lists = [place if type(place) is list else None for place in fields.places]
        same = [None if type(place) is list else place[0] for place in fields.places]
        try:
            if times is None:
                return FIELDS + _ENCODER.encode((lists, same))
            return TIMED_FIELDS + _ENCODER.encode((lists, same, times))
        except (TypeError, ValueError, OverflowError, AttributeError):
            return None

    def dumps(self, records: Sequence[Record]) -> bytes:
        """A bundle's records, or (as a tuple) its records and timestamps."""
        rows, times = records if type(records) is tuple else (records, None)
        own = self._fields
        if own is not None and own.shape.is_row:
            columns = taken_apart(rows, own.shape)
            if columns is not None:
                fields = RecordFields(columns, len(rows), None, own.shape)
                data = self.dumps_fields(fields, times)
                if data is not None:
                    return data
        try:
            if type(records) is tuple:
                return TIMED + _ENCODER.encode((_values(records[0]), records[1]))
            return PLAIN + _ENCODER.encode(_values(records))
        except (TypeError, ValueError, OverflowError, AttributeError):  # the last: None among rows
            return PICKLED + pickle.dumps(records, 5)

    def loads(self, data: memoryview) -> Record:
        how, revive = bytes(data[:1]), self._revive
        with data[1:] as body:
            if how == PLAIN:
                records = self._plain.decode(body)
                return records if revive is None else _revived(records, revive)
            if how == TIMED:
                records, times = self._timed.decode(body)
                return records if revive is None else _revived(records, revive), times
            if how == FIELDS and self._fields is not None:
                return self._read(self._fields, *self._of_fields.decode(body))
            if how == TIMED_FIELDS and self._fields is not None:
                lists, same, times = self._of_timed_fields.decode(body)
                return self._read(self._fields, lists, same), times
            if how == PICKLED:
                return loads(body)
        raise ValueError(f"a body begins with {how!r}")

    def _read(
        self, wire: FieldsWire, lists: Sequence[list[Record] | None], same: Sequence[Record]
    ) -> RecordFields:
        counts = {len(items) for items in lists if items is not None}
        if len(counts) != 1:
            raise ValueError(f"{len(lists)} fields with lists of {sorted(counts)} items")
        places: list[Place] = []
        for items, value, revive in zip(lists, same, self._revivers, strict=True):
            found = [value] if items is None else items
            found = found if revive is None else revive(found)
            places.append(Same(found[0]) if items is None else found)
        return RecordFields(places, counts.pop(), wire.is_plain or None, wire.shape)

    def __reduce__(self) -> "tuple[type[TypedSerializer], tuple[TypeInformation]]":
        return TypedSerializer, (self.kind,)


def _revived(records: list[Record], revive: Coercer) -> list[Record]:
    try:
        return revive(records)
    except TypeError:  # None is among them, or they are broken
        return where_there(revive)(records)


def taken_apart(records: Sequence[Record], shape: FieldShape) -> list[Place] | None:
    """A list for each field of records that all have this shape, or rows in another order."""
    if {*map(type, records)} != {shape.kind}:
        return None
    if not shape.is_row:
        return [list(column) for column in zip(*records, strict=True)]
    fields = list(map(FIELDS_OF, records))
    counts = {*map(len, fields)}
    if counts == {0}:
        values = unnamed_values(records)
        if values is None or {*map(len, values)} != {len(shape.names)}:
            return None
        return [list(column) for column in zip(*values, strict=True)]
    if counts != {len(shape.names)}:
        return None
    try:
        return [list(map(itemgetter(name), fields)) for name in shape.names]
    except KeyError:
        return None


def _values(records: Sequence[Record]) -> Sequence[Record]:
    """Rows as their values: many at once are quicker than by the hook."""
    if records and type(records[0]) is Row:
        return list(map(_row_values, records))
    return records


def _row_values(row: Record) -> list[Record]:
    if type(row) is not Row or row.get_row_kind() is not RowKind.INSERT:
        raise TypeError(f"{row!r} has no form on the wire")
    return values_of(row)


_ENCODER: Final = Encoder(enc_hook=_row_values)
