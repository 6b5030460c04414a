"""Declared types of records in Arrow's words, for sinks that write columns.

Law: nothing that the type allows is cut or rounded on its way: a type without a fixed width in
Arrow is refused when the program is written.
"""

from typing import Final

import pyarrow as pa

from headgate.api.types.types import (
    BasicTypeInfo,
    ElementsTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from headgate.base.errors import PlanInvalid

_BASIC: Final = {
    "STRING": pa.string(),
    "CHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "BYTE": pa.int8(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "SQL_DATE": pa.date32(),
    "SQL_TIME": pa.time64("us"),
    "SQL_TIMESTAMP": pa.timestamp("us"),
}
DECIMAL: Final = pa.decimal128(38, 18)
"""The type for BIG_DEC, as Flink has it; a number that does not fit is refused."""


def arrow_schema(kind: object, sink: str) -> pa.Schema:
    """The schema for a Row type, a tuple type (columns f0, f1), or an Arrow schema itself."""
    if isinstance(kind, pa.Schema):
        return kind
    if isinstance(kind, RowTypeInfo):
        names, types = list(kind.field_names), kind.field_types
    elif isinstance(kind, TupleTypeInfo):
        types = kind.field_types
        names = [f"f{place}" for place in range(len(types))]
    else:
        raise PlanInvalid(
            f"{sink}: the schema is {kind!r}; give Types.ROW_NAMED([...], [...]) or a pyarrow "
            f"schema, or declare the output type of the stream"
        )
    if not names:
        raise PlanInvalid(f"{sink}: the schema has no columns; give at least one")
    return pa.schema(
        [(name, _arrow(part, sink, name)) for name, part in zip(names, types, strict=True)]
    )


def _arrow(kind: TypeInformation, sink: str, column: str) -> pa.DataType:
    match kind:
        case BasicTypeInfo(name="BIG_DEC"):
            return DECIMAL
        case BasicTypeInfo(name=name) if name in _BASIC:
            return _BASIC[name]
        case ElementsTypeInfo():
            if kind.is_bytes:
                return pa.binary()
            return pa.list_(_arrow(kind.element_type, sink, column))
        case MapTypeInfo():
            key = _arrow(kind.key_type, sink, column)
            return pa.map_(key, _arrow(kind.value_type, sink, column))
        case RowTypeInfo():
            return pa.struct(
                [
                    (name, _arrow(part, sink, f"{column}.{name}"))
                    for name, part in zip(kind.field_names, kind.field_types, strict=True)
                ]
            )
        case TupleTypeInfo():
            return pa.struct(
                [
                    (f"f{place}", _arrow(part, sink, f"{column}.f{place}"))
                    for place, part in enumerate(kind.field_types)
                ]
            )
        case _:
            pass
    raise PlanInvalid(
        f"{sink}: column {column!r} is a {kind!r}, which has no form in Arrow; declare another "
        f"type, for instance Types.STRING()"
    )


def schema_misfit(declared: pa.Schema, table: pa.Schema) -> str | None:
    """Why rows of the declared schema are no rows of the table; None: they may be.

    Widths are not compared: each value is checked against the table's own type.
    """
    for field in declared:
        place = table.get_field_index(field.name)
        if place < 0:
            return f"it has no column {field.name!r}; it has {', '.join(map(repr, table.names))}"
        if _kind(field.type) != _kind(table.field(place).type):
            return f"its column {field.name!r} is {table.field(place).type}, not {field.type}"
    for field in table:
        if not field.nullable and field.name not in declared.names:
            return f"its column {field.name!r} may not be null, and the records do not have it"
    return None


def _kind(kind: pa.DataType) -> str:
    types = pa.types
    for name, is_kind in (
        ("integer", types.is_integer),
        ("float", types.is_floating),
        ("decimal", types.is_decimal),
        ("string", lambda kind: types.is_string(kind) or types.is_large_string(kind)),
        ("binary", lambda kind: types.is_binary(kind) or types.is_large_binary(kind)),
        ("list", lambda kind: types.is_list(kind) or types.is_large_list(kind)),
        ("map", types.is_map),
        ("struct", types.is_struct),
        ("instant", lambda kind: types.is_timestamp(kind) and kind.tz is not None),
        ("timestamp", types.is_timestamp),
    ):
        if is_kind(kind):
            return name
    return str(kind)
