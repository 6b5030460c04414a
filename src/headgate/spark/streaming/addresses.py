"""Finds the log of a stream that a streaming query names, and compares the schemas of both ends.

Of the options, ``job`` (an id or a name) is looked up among the jobs of this user on this machine,
``path`` is the folder itself, ``reference`` a file in which a program that has not started its job
yet will say where the log is. Law: what is not there, or does not fit, is reported in one sentence
with what there is.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.base.errors import PlanInvalid, StreamUnfit
from headgate.connectors.streaming.log_folder import LogFolder
from headgate.connectors.streaming.stream_end import columns_of, misfit, same_type
from headgate.connectors.streaming.stream_log import StreamInfo, StreamLog
from headgate.spark.dataframe.schema import TypeUnknown, arrow_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

REFERENCE: Final = "reference"
LOOK_S: Final = 0.1


def stream_uri(options: Mapping[str, str], kind: str) -> str:
    """The folder of the log; waits for the job of a reference. Raises StreamUnfit."""
    if reference := options.get(REFERENCE):
        folder, _, name = reference.rpartition("/")
        while (found := LogFolder(folder).read(name)) is None:
            time.sleep(LOOK_S)
        return found.decode()
    if path := options.get("path"):
        return path
    job, called = options.get("job"), options.get(kind)
    if not job or not called:
        raise StreamUnfit(
            f'name a running job and its {kind}: option("job", id or name) and '
            f'option("{kind}", name); or option("path", folder) for one of another machine'
        )
    return _uri_of(job, kind, called)


def stream_log(uri: str, kind: str) -> tuple[StreamLog, StreamInfo]:
    """The log in a folder; raises StreamUnfit if there is none of this kind."""
    log = StreamLog(uri)
    info = log.info()
    if info is None:
        raise StreamUnfit(
            f"{log.folder.shown()} holds no stream of a Headgate job; give the folder that the job "
            f"has, which every host must reach"
        )
    if info.kind != kind:
        raise StreamUnfit(
            f"{log.folder.shown()} is the {info.kind} {info.name!r} of a job; "
            f"{'write' if info.kind == 'input' else 'read'} it"
        )
    return log, info


def _uri_of(job: str, kind: str, name: str) -> str:
    from headgate.host.driver.job_client import find_job

    entry = find_job(job)
    streams = {(found, called): uri for found, called, uri in entry.streams}
    if (kind, name) not in streams:
        names = [called for found, called in streams if found == kind]
        there = f"it has {', '.join(map(repr, names))}" if names else f"it has no {kind}s"
        raise StreamUnfit(f"job {entry.job} ({entry.name}) has no {kind} {name!r}; {there}")
    return streams[kind, name]


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
