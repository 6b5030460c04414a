"""A record as text: what ``print`` shows and text files hold, as in PyFlink.

Without a declared type it is ``str(record)``; with one it is what Java writes: ``true``,
``1.0E10``, ``[a, b]``, ``{k=1}``, because PyFlink keeps typed records as Java objects. The two
differ for a Row, as they do in PyFlink: print formats its fields with ``str``, ``+I[a,True]``, a
file with Java, ``+I[a, true]``. Law: a value of a type has one text; an array has that of a list,
as Java writes only its address. Floats have the fewest digits that identify them, as in Java
since 19; older versions write some with a digit more.
"""

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from headgate.api.row import Row
from headgate.api.types.basic_types import round_float
from headgate.api.types.types import (
    BasicTypeInfo,
    ElementsTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from headgate.base.elements import Record
from headgate.functions.time import Instant

Text = Callable[[Record], str]


def java_text(kind: TypeInformation) -> Text:
    """What writes values of a type."""
    match kind:
        case BasicTypeInfo():
            return _BASIC.get(kind.name, str)
        case RowTypeInfo():
            return _row_text([_or_null(field) for field in kind.field_types])
        case TupleTypeInfo():
            return _tuple_text([_or_null(field) for field in kind.field_types])
        case ElementsTypeInfo() if kind.is_bytes:
            return _bytes_text
        case ElementsTypeInfo():
            return _list_text(_or_null(kind.element_type))
        case MapTypeInfo():
            return _map_text(_or_null(kind.key_type), _or_null(kind.value_type))
        case _:
            return str


def _or_null(kind: TypeInformation) -> Text:
    text = java_text(kind)
    return lambda value: "null" if value is None else text(value)


def _row_text(fields: list[Text]) -> Text:
    def text(row: Row) -> str:
        values = [field(value) for field, value in zip(fields, row, strict=True)]
        return f"{row.get_row_kind().short}[{', '.join(values)}]"

    return text


def _tuple_text(fields: list[Text]) -> Text:
    def text(values: tuple[Record, ...]) -> str:
        return f"({','.join([field(value) for field, value in zip(fields, values, strict=True)])})"

    return text


def _list_text(element: Text) -> Text:
    return lambda values: f"[{', '.join([element(value) for value in values])}]"


def _map_text(key: Text, value: Text) -> Text:
    def text(items: dict[Record, Record]) -> str:
        return f"{{{', '.join([f'{key(name)}={value(item)}' for name, item in items.items()])}}}"

    return text


def _bytes_text(value: bytes) -> str:
    """Java's bytes have a sign."""
    return str([byte - 256 if byte > 127 else byte for byte in value])


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def double_text(value: float) -> str:
    """A double as text: plain from a thousandth to ten millions, else with an exponent."""
    if not math.isfinite(value):
        return _not_finite(value)
    if 1e-3 <= abs(value) < 1e7 or value == 0:
        return repr(value)
    _, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    return _laid_out(value, text, exponent + len(text) - 1)


def float_text(value: float) -> str:
    """A float of 32 bits as text, with no more digits than tell it apart."""
    if not math.isfinite(value):
        return _not_finite(value)
    if value == 0:
        return repr(value)
    size, text = abs(value), ""
    # Six digits that tell a number apart are the shortest, but for the smallest numbers.
    for places in range(5 if size >= _LEAST_FLOAT else 0, 9):
        text = f"{size:.{places}e}"
        if round_float(float(text)) == size:
            break
    mantissa, _, exponent = text.partition("e")
    return _laid_out(value, mantissa.replace(".", ""), int(exponent))


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _laid_out(value: float, digits: str, exponent: int) -> str:
    """A number as it is written, given its digits without a point and its power of ten."""
    sign, digits = "-" if value < 0 else "", digits.rstrip("0")
    if 0 <= exponent < 7:
        digits = digits.ljust(exponent + 1, "0")
        return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"
    if -3 <= exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    if len(digits) == 1:  # a second digit is written, and it is the nearest
        mantissa, _, power = f"{abs(value):.1e}".partition("e")
        return f"{sign}{mantissa}E{int(power)}"
    return f"{sign}{digits[0]}.{digits[1:]}E{exponent}"


def _instant(value: Instant) -> str:
    try:
        moment = _EPOCH + datetime.timedelta(seconds=value.seconds)
    except OverflowError:
        return str(value)  # Java's years go on where Python's end
    fraction = f"{value.nanos:09d}"
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    return f"{moment.isoformat()}{'.' if fraction else ''}{fraction}Z"


def _time(value: datetime.time) -> str:
    return value.strftime("%H:%M:%S")  # as java.sql.Time, which has no parts of a second


def _timestamp(value: datetime.datetime) -> str:
    fraction = f"{value.microsecond:06d}".rstrip("0") or "0"
    return f"{value.replace(microsecond=0).isoformat(' ')}.{fraction}"


_LEAST_FLOAT: Final = 2.0**-126
"""Below it numbers of 32 bits have fewer digits."""
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_BASIC: Final[dict[str, Text]] = {
    "BOOLEAN": _boolean,
    "FLOAT": float_text,
    "DOUBLE": double_text,
    "INSTANT": _instant,
    "SQL_TIME": _time,
    "SQL_TIMESTAMP": _timestamp,
}
"""For all other types ``str`` gives what Java writes."""


def printed_text(type_info: TypeInformation | None) -> Text:
    """What ``print`` shows of records of this type."""
    return _printed_row if isinstance(type_info, RowTypeInfo) else written_text(type_info)


def written_text(type_info: TypeInformation | None) -> Text:
    """What a text file holds of records of this type."""
    return str if type_info is None or type_info.takes_anything else java_text(type_info)


def _printed_row(row: Row) -> str:
    return f"{row.get_row_kind().short}[{','.join(map(str, row))}]"
