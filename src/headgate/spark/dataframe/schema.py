"""Spark's types in Arrow's words, for the schemas that go in and out.

Spark has such a table itself; it is private, differs from version to version, and does not name the
column that it stumbles over.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.base.errors import PlanInvalid, SchemaInvalid
from headgate.connectors.arrow.columns import RowShape
from headgate.spark.session import find_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType


class TypeUnknown(Exception):
    """A type that does not go in or out; ``path`` leads to it, ``problem`` says what it is."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path


def row_shape(session: "SparkSession", schema: "StructType") -> RowShape:
    """What a sink needs of a schema; raises SchemaInvalid."""
    try:
        arrow = arrow_schema(schema)
    except TypeUnknown as unknown:
        raise SchemaInvalid(
            schema.simpleString(), f"has column {unknown.path!r}, which {unknown.problem}"
        ) from None
    zone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    return RowShape(arrow, tuple(field.dataType.simpleString() for field in schema), zone)


def arrow_schema(schema: "StructType") -> pa.Schema:
    """Raises TypeUnknown."""
    return pa.schema(list(_fields(schema)))


def read_schema(schema: object) -> "StructType":
    """The schema that was given as a text, a type or a StructType; a session must run."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import DataType, StructField, StructType

    advice = "write for instance 'word string, count long'"
    kind = schema
    if isinstance(schema, pa.Schema):
        kind = _spark_schema(schema)
    if isinstance(schema, str):
        try:
            kind = DataType.fromDDL(schema)
        except (PySparkException, ValueError) as error:
            why = next((line for line in str(error).splitlines() if line.strip()), "")
            raise SchemaInvalid(schema, f"cannot be read ({why}); {advice}") from None
    if not isinstance(kind, DataType):
        raise SchemaInvalid(schema, f"is a {type(schema).__name__}; {advice}, or give a StructType")
    if not isinstance(kind, StructType):
        return StructType([StructField("value", kind)])
    if not kind.fields:
        raise SchemaInvalid(schema, f"has no columns; {advice}")
    return kind


def arrow_schema_of(schema: object, caller: str) -> pa.Schema:
    """A schema in Spark's words as pyarrow has it; a text is read by a session, which must run."""
    if isinstance(schema, str):
        find_session()
    try:
        return arrow_schema(read_schema(schema))
    except TypeUnknown as unknown:
        raise PlanInvalid(
            f"{caller}(): the schema {schema!r} has column {unknown.path!r}, which "
            f"{unknown.problem}"
        ) from None


def check_types(schema: "StructType") -> None:
    """Raises TypeUnknown if rows of this schema cannot be read in Python."""
    for place, field in enumerate(schema):
        try:
            arrow_type(field.dataType)
        except TypeUnknown as unknown:
            raise TypeUnknown(unknown.problem, _joined(field.name or str(place), unknown)) from None


def _spark_schema(schema: pa.Schema) -> "StructType":
    """As Spark's own table has it; raises SchemaInvalid."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        return from_arrow_schema(schema)
    except (PySparkException, ValueError) as error:
        why = next((line for line in str(error).splitlines() if line.strip()), "")
        names = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise SchemaInvalid(
            names, f"has no form in Spark ({why}); select() other columns, or cast them"
        ) from None


def arrow_type(kind: "DataType") -> pa.DataType:
    """Raises TypeUnknown."""
    from pyspark.sql import types

    match kind:
        case types.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case types.ArrayType():
            item = _within("element", lambda: arrow_type(kind.elementType))
            return pa.list_(pa.field("element", item, kind.containsNull))
        case types.MapType():
            key = _within("key", lambda: arrow_type(kind.keyType))
            value = _within("value", lambda: arrow_type(kind.valueType))
            return pa.map_(
                pa.field("key", key, False), pa.field("value", value, kind.valueContainsNull)
            )
        case types.StructType():
            return pa.struct(list(_fields(kind)))
        case types.StringType():
            return pa.string()
        case _:
            pass
    found = _simple_types().get(type(kind))
    if found is None:
        raise TypeUnknown(f"is a {kind.simpleString()}, and such values do not travel; cast it")
    return found


def _simple_types() -> dict[type, pa.DataType]:
    from pyspark.sql import types

    return {
        types.BooleanType: pa.bool_(),
        types.ByteType: pa.int8(),
        types.ShortType: pa.int16(),
        types.IntegerType: pa.int32(),
        types.LongType: pa.int64(),
        types.FloatType: pa.float32(),
        types.DoubleType: pa.float64(),
        types.BinaryType: pa.binary(),
        types.DateType: pa.date32(),
        types.TimestampType: pa.timestamp("us", tz="UTC"),
        types.TimestampNTZType: pa.timestamp("us"),
        types.DayTimeIntervalType: pa.duration("us"),
        types.NullType: pa.null(),
    }


def _fields(schema: "StructType") -> Iterator[pa.Field]:
    names = schema.names
    for field in schema:
        if names.count(field.name) > 1:
            raise TypeUnknown(
                "is there more than once; give each column a name of its own", field.name
            )
        kind = _within(field.name, lambda field=field: arrow_type(field.dataType))  # type: ignore[misc]
        yield pa.field(field.name, kind, field.nullable)


def _within(name: str, find: Callable[[], pa.DataType]) -> pa.DataType:
    try:
        return find()
    except TypeUnknown as unknown:
        raise TypeUnknown(unknown.problem, _joined(name, unknown)) from None


def _joined(name: str, unknown: TypeUnknown) -> str:
    return f"{name}.{unknown.path}" if unknown.path else name
