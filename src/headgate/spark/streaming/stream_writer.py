"""Writes the micro-batches of a streaming query into a named input of a job.

Tasks write parts; the commit of a micro-batch is one entry of the input's log, named by the query
and the number of the micro-batch, so that Spark may repeat it. Law: a task begins only when little
enough is unread; nothing else waits, for Spark could not stop it. If the job has ended, or is not
there, the task waits for a moment, in which the job may be started again, and then fails the query,
which can be restarted from its own checkpoint.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import WriterCommitMessage

from headgate.base.errors import StreamUnfit
from headgate.connectors.streaming.source import unread
from headgate.connectors.streaming.stream_log import (
    LogEntry,
    LogPart,
    StreamInfo,
    StreamLog,
    part_prefix,
)
from headgate.host.driver.job_client import JobNotFound
from headgate.spark.streaming.addresses import check_columns, stream_log, stream_uri

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""Local properties that Spark gives to the tasks of a micro-batch."""
LOOK_S: Final = 0.05
JOB_LOOK_S: Final = 0.5
ROWS: Final = 10_000
"""Rows in a batch that is made of single rows, where PySpark hands over no batches."""

_Writer: Any = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)
_GETS_BATCHES: Final = hasattr(datasource, "DataSourceStreamArrowWriter")


@dataclass
class WrittenParts(WriterCommitMessage):
    """What a task of a micro-batch has written."""

    query: str
    uri: str
    log: str
    parts: tuple[LogPart, ...]


class InputStreamWriter(_Writer):  # type: ignore[misc]
    """Made for each micro-batch; it travels to the tasks, and commits beside Spark's driver."""

    def __init__(self, options: Mapping[str, str], schema: "StructType", patience_s: float) -> None:
        self._options = dict(options)
        self._schema = schema
        self._patience_s = patience_s
        self._found: tuple[str, StreamInfo] | None = None
        """The folder of the log, and what the stream is; None: the job is not there."""

    def look(self) -> bool:
        """Look for the input; False: no such job runs. Raises StreamUnfit if it does not fit."""
        try:
            uri = stream_uri(self._options, "input")
        except JobNotFound:
            return False
        _, info = stream_log(uri, "input")
        check_columns(info, self._schema)
        self._found = uri, info
        return True

    def write(self, iterator: Iterator[Any]) -> WrittenParts:
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        if not query or batch is None:
            raise StreamUnfit(
                "Spark does not tell which streaming query this is; write with writeStream"
            )
        uri, info = self._await_job()
        schema, number, log = info.arrow_schema, int(batch), StreamLog(uri)
        prefix = f"{part_prefix(query, number)}{context.partitionId()}-"
        self._await_room(log, info, query, number)
        batches = iterator if _GETS_BATCHES else self._batches(iterator, schema)
        fitting = (_fitted(found, schema) for found in batches)
        parts = log.write_parts(prefix, schema, fitting)
        return WrittenParts(query, uri, info.log, tuple(parts))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        written = [message for message in messages if message]
        if not written:
            return
        log = StreamLog(written[0].uri)
        info = log.info()
        if info is None or {info.log} != {message.log for message in written}:
            raise StreamUnfit(
                f"the input in {log.folder.shown()} was made anew while a micro-batch was written; "
                f"restart the query"
            )
        parts = tuple(part for message in written for part in message.parts)
        query = written[0].query
        if (newest := log.newest(query)) > batchId:  # Spark repeats only the last one
            log.drop_parts(parts)
            raise StreamUnfit(
                f"input {info.name!r} has micro-batches up to {newest} of this query, which goes "
                f"on with {batchId}: its checkpointLocation is an older copy, and the rows of its "
                f"micro-batches may be others; restart it from the newest one, or begin with "
                f"another checkpointLocation"
            )
        if not log.append(LogEntry(query, batchId, parts)):
            _drop_uncommitted(log, query, batchId, parts)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """A commit that fails late, or whose process dies, may have made the entry: that counts."""
        for message in messages:
            if message:
                _drop_uncommitted(StreamLog(message.uri), message.query, batchId, message.parts)

    def _batches(self, rows: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        names = self._schema.names
        values: list[Any] = []
        for row in rows:
            values.append(dict(zip(names, row, strict=True)))
            if len(values) == ROWS:
                yield pa.RecordBatch.from_pylist(values, schema)
                values = []
        if values:
            yield pa.RecordBatch.from_pylist(values, schema)

    def _await_job(self) -> tuple[str, StreamInfo]:
        give_up = time.monotonic() + self._patience_s
        while self._found is None and not self.look():
            if time.monotonic() > give_up:
                uri = stream_uri(self._options, "input")  # raises, and says what there is
                return uri, stream_log(uri, "input")[1]
            time.sleep(JOB_LOOK_S)
        assert self._found is not None
        return self._found

    def _await_room(self, log: StreamLog, info: StreamInfo, query: str, number: int) -> None:
        """Until the job runs and little enough is unread."""
        ended_at = None
        while True:
            owner = log.owner()
            if owner is not None and not owner.has_ended:
                ended_at = None
                waiting, batches = unread(log, query, number)
                if waiting <= info.most_bytes and batches < info.most_batches:
                    return
            else:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() - ended_at > self._patience_s:
                    how = "no job has it" if owner is None else owner.ending()
                    raise StreamUnfit(
                        f"input {info.name!r} takes no more rows: {how}; start the job again from "
                        f"its checkpoint or savepoint, and restart the query, which repeats "
                        f"micro-batch {number}"
                    )
            time.sleep(LOOK_S)


def _drop_uncommitted(log: StreamLog, query: str, number: int, parts: Iterable[LogPart]) -> None:
    """Parts that the entry of their micro-batch does not name: it may be of another attempt."""
    entry = log.read_entry(query, number)
    committed = () if entry is None else entry.parts
    log.drop_parts(part for part in parts if part not in committed)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With the columns of the input in their order."""
    arrays = [
        batch.column(batch.schema.get_field_index(field.name)).cast(field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
