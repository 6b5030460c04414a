"""Single values by the name of their type: what is taken, how it is coerced, how it is written.

Law: ``convert`` gives a value of exactly the Python type that ``wire`` names, or raises; a value
that has this type already and is in range comes back unchanged (a FLOAT has 32 bits).
"""

import datetime
import math
import struct
from array import array
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from operator import index
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

from headgate.base.elements import Record
from headgate.functions.time import Instant


class BasicType(Enum):
    """The names of single values, with those that Java has for them."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


class Basic(NamedTuple):
    """One type of single values."""

    wants: str
    """What is needed, in words."""
    convert: Callable[[Record], Record]
    """Raises TypeError, ValueError or OverflowError if the value will not do."""
    wire: object
    """The type as msgspec checks it."""
    reads: object
    """That type without bounds: what is read was checked before it was written."""


def round_float(value: float) -> float:
    """The nearest number of 32 bits; raises OverflowError above them."""
    return _FLOAT.unpack(_FLOAT.pack(value))[0]  # type: ignore[no-any-return]


def round_floats(values: list[Record]) -> list[Record]:
    """Round each value as ``round_float`` does; None stays."""
    try:
        rounded = array("f", values).tolist()
    except TypeError:
        return [value if value is None else round_float(value) for value in values]
    if math.isfinite(sum(rounded)):
        return rounded
    return list(map(round_float, values))  # one was too large, or is meant to be infinite


def _whole(bits: int) -> Basic:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def convert(value: Record) -> int:
        number = value if type(value) is int else _big_int(value)
        if not low <= number <= high:
            raise OverflowError
        return number

    return Basic(
        f"an int from {low} to {high}", convert, Annotated[int, Meta(ge=low, le=high)], int
    )


def _big_int(value: Record) -> int:
    """An int, or what counts as one: a bool, numpy's numbers."""
    return int(value) if _is_bool(value) else int(index(value))


def _double(value: Record) -> float:
    if type(value) is float:
        return value
    if not hasattr(type(value), "__float__"):
        raise TypeError
    return float(value)


def _float(value: Record) -> float:
    return round_float(_double(value))


def _boolean(value: Record) -> bool:
    if not _is_bool(value):
        raise TypeError
    return bool(value)


def _is_bool(value: Record) -> bool:
    kind = type(value)
    return kind is bool or (kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"))


def _string(value: Record) -> str:
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise TypeError
    return str.__str__(value)


def _char(value: Record) -> str:
    text = _string(value)
    if len(text) != 1:
        raise ValueError
    return text


def _decimal(value: Record) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int):
        return Decimal(int(value))
    raise TypeError


def _instant(value: Record) -> Instant:
    if not isinstance(value, Instant):
        raise TypeError
    return value


def _date(value: Record) -> datetime.date:
    if isinstance(value, datetime.datetime):
        return value.date()
    if not isinstance(value, datetime.date):
        raise TypeError
    return value


def _time(value: Record) -> datetime.time:
    if not isinstance(value, datetime.time):
        raise TypeError
    return _without_zone(value)  # type: ignore[no-any-return]


def _timestamp(value: Record) -> datetime.datetime:
    if not isinstance(value, datetime.datetime):
        raise TypeError
    return _without_zone(value)  # type: ignore[no-any-return]


def _without_zone(value: Record) -> Record:
    """These types know no zone: UTC can be left away, others would be lost."""
    if value.tzinfo is None:
        return value
    if value.utcoffset():
        raise ValueError
    return value.replace(tzinfo=None)


_FLOAT: Final = struct.Struct("<f")
_NAIVE: Final = Meta(tz=False)

BASICS: Final = {
    "STRING": Basic("a str", _string, str, str),
    "BYTE": _whole(8),
    "BOOLEAN": Basic("a bool", _boolean, bool, bool),
    "SHORT": _whole(16),
    "INT": _whole(32),
    "LONG": _whole(64),
    "FLOAT": Basic("a number that fits into 32 bits", _float, float, float),
    "DOUBLE": Basic("a number", _double, float, float),
    "CHAR": Basic(
        "a str of one character", _char, Annotated[str, Meta(min_length=1, max_length=1)], str
    ),
    "BIG_INT": Basic("an int", _big_int, int, int),
    "BIG_DEC": Basic("a decimal.Decimal or an int", _decimal, Decimal, Decimal),
    "INSTANT": Basic("an Instant", _instant, Instant, Instant),
    "SQL_DATE": Basic("a datetime.date", _date, datetime.date, datetime.date),
    "SQL_TIME": Basic(
        "a datetime.time without time zone", _time, Annotated[datetime.time, _NAIVE], datetime.time
    ),
    "SQL_TIMESTAMP": Basic(
        "a datetime.datetime without time zone (or UTC)",
        _timestamp,
        Annotated[datetime.datetime, _NAIVE],
        datetime.datetime,
    ),
}

EXACT: Final[dict[str, tuple[type, tuple[int, int] | None]]] = {
    "STRING": (str, None),
    "BOOLEAN": (bool, None),
    "DOUBLE": (float, None),
    "BIG_INT": (int, None),
    **{
        name: (int, (-(1 << bits - 1), (1 << bits - 1) - 1))
        for name, bits in {"BYTE": 8, "SHORT": 16, "INT": 32, "LONG": 64}.items()
    },
}
"""Kinds of values that fit as they are, within these bounds; others have to be looked at."""

RARE: Final = frozenset({"BIG_DEC", "INSTANT", "SQL_DATE", "SQL_TIME", "SQL_TIMESTAMP"})
"""On the wire they are texts, so that whoever reads them must know the type."""
