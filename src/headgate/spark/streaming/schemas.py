"""The schemas of a stream's two ends: the job's, as its log has it, and the streaming query's."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.base.errors import PlanInvalid, StreamUnfit
from headgate.connectors.streaming.stream_end import columns_of, misfit, same_type
from headgate.connectors.streaming.stream_log import StreamInfo
from headgate.spark.dataframe.schema import TypeUnknown, arrow_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def check_columns(info: StreamInfo, schema: "StructType") -> None:
    """Raises StreamUnfit, with the column, if rows of the one are none of the other."""
    there = columns_of((text for _, text in info.columns), info.arrow_schema)
    given = {}
    for field in schema.fields:
        try:
            given[field.name] = field.dataType.simpleString(), arrow_type(field.dataType)
        except TypeUnknown as unknown:
            raise StreamUnfit(f"column {field.name!r} {unknown.problem}") from None
    problem = misfit(there, given, (info.kind, "query"))
    if problem:
        raise StreamUnfit(
            f"the query does not fit {info.kind} {info.name!r}: {problem}; select and cast its "
            f"columns"
        )


def check_declared(schema: pa.Schema, whose: str) -> None:
    """Raises PlanInvalid, with the column, if Spark has no such type for an input or output."""
    from pyspark.sql.pandas.types import from_arrow_type

    convert: Any = from_arrow_type
    for field in schema:
        try:
            found = arrow_type(convert(field.type, prefer_timestamp_ntz=True))
        except Exception as error:  # of several kinds, some of them Spark's
            why = getattr(error, "problem", "is of a type that Spark's streams do not have")
            raise PlanInvalid(
                f"{whose}: column {field.name!r}, {field.type} in Arrow, {why}; declare another "
                f"type"
            ) from error
        if not same_type(field.type, found):
            raise PlanInvalid(
                f"{whose}: column {field.name!r} is {field.type}, and {found} in Spark; declare it "
                f"so"
            )


def spark_type(info: StreamInfo) -> "StructType":
    """The schema of an output for Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    convert: Any = from_arrow_schema
    found: StructType = convert(info.arrow_schema, prefer_timestamp_ntz=True)
    return found


def spark_schema(schema: "StructType") -> pa.Schema:
    """What Spark wants batches of a source to be."""
    from pyspark.sql.pandas.types import to_arrow_schema

    convert: Any = to_arrow_schema
    try:
        return convert(schema, timezone="UTC")
    except TypeError:  # PySpark before 4.2 knows no other zone
        return convert(schema)
