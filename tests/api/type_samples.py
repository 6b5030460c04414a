"""Types with the values that fit them, for tests of coercion and of serializers."""

import datetime
import struct
from typing import Any

from hypothesis import strategies as st

from headgate.api.types.types import TypeInformation
from headgate.common import Instant, Row, Types

NAIVE = st.datetimes()
FLOAT32 = st.floats(width=32)

BASIC: list[tuple[TypeInformation, st.SearchStrategy[Any]]] = [
    (Types.STRING(), st.text(st.characters())),
    (Types.BYTE(), st.integers(-(2**7), 2**7 - 1)),
    (Types.BOOLEAN(), st.booleans()),
    (Types.SHORT(), st.integers(-(2**15), 2**15 - 1)),
    (Types.INT(), st.integers(-(2**31), 2**31 - 1)),
    (Types.LONG(), st.integers(-(2**63), 2**63 - 1)),
    (Types.FLOAT(), FLOAT32),
    (Types.DOUBLE(), st.floats()),
    (Types.CHAR(), st.text(st.characters(), min_size=1, max_size=1)),
    (Types.BIG_INT(), st.integers()),
    (Types.BIG_DEC(), st.decimals()),
    (Types.INSTANT(), st.builds(Instant, st.integers(-(2**40), 2**40), st.integers(0, 10**9 - 1))),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), NAIVE),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary()),
]


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[TypeInformation, st.SearchStrategy[Any]]:
    """A type, perhaps of types, with what its values are drawn from."""
    return draw(st.recursive(st.sampled_from(BASIC), _around, max_leaves=4))


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, max_size=3)
    return (
        several.map(_tuples)
        | several.map(_rows)
        | inner.map(_lists)
        | st.tuples(inner, inner).map(_maps)
    )


def _tuples(parts: list[Any]) -> tuple[TypeInformation, st.SearchStrategy[Any]]:
    kinds, values = [kind for kind, _ in parts], [st.none() | value for _, value in parts]
    return Types.TUPLE(kinds), st.tuples(*values)


def _rows(parts: list[Any]) -> tuple[TypeInformation, st.SearchStrategy[Any]]:
    kinds, values = [kind for kind, _ in parts], [st.none() | value for _, value in parts]
    names = [f"n{at}" for at in range(len(parts))]
    return Types.ROW_NAMED(names, kinds), st.tuples(*values).map(
        lambda items: Row(**dict(zip(names, items, strict=True))) if names else _no_fields()
    )


@st.composite
def records_with_fields(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """A type of rows or tuples, and records of it, at least one."""
    parts = draw(st.lists(typed_values(), min_size=1, max_size=3))
    kind, values = draw(st.sampled_from([_tuples, _rows]))(parts)
    return kind, draw(st.lists(values, min_size=1, max_size=5))


def _no_fields() -> Row:
    row = Row()
    row.set_field_names([])
    return row


def _lists(part: Any) -> tuple[TypeInformation, st.SearchStrategy[Any]]:
    return Types.LIST(part[0]), st.lists(st.none() | part[1], max_size=3)


def _maps(parts: Any) -> tuple[TypeInformation, st.SearchStrategy[Any]]:
    (_, _), (kind, values) = parts
    return Types.MAP(Types.STRING(), kind), st.dictionaries(
        st.text(), st.none() | values, max_size=3
    )


def alike(value: Any) -> Any:
    """Equal for values that nobody can tell apart: types count, and bits of floats."""
    if isinstance(value, Row):
        return "Row", value.get_field_names(), value.get_row_kind(), [alike(item) for item in value]
    if isinstance(value, list | tuple):
        return type(value), [alike(item) for item in value]
    if isinstance(value, dict):
        return dict, [(alike(key), alike(item)) for key, item in value.items()]
    if isinstance(value, float):
        return float, struct.pack("d", value) if value == value else "nan"
    if isinstance(value, datetime.datetime | datetime.time):
        return type(value), value.replace(fold=0)
    return type(value), str(value) if type(value).__name__ == "Decimal" else value
