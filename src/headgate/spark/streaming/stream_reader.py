"""Reads a named output of a job as the source of a streaming query.

An offset holds the id of the log, a token of the query, the last entry of each writer, and how many
were read of those of earlier runs of the job, which are not named any more. Law: the entries
between two offsets are always the same, so Spark may read them again; entries are removed when
Spark has said that it will not. One query reads at a time: the newest.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from headgate.base.errors import PathUnusable, StreamUnfit
from headgate.connectors.streaming.stream_log import LogPart, StreamLog
from headgate.spark.streaming.addresses import check_columns, spark_schema, stream_log, stream_uri

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

READER: Final = "reader.json"
IDLE_S: Final = 0.1
"""How long Spark's question for news may wait for some; Spark asks again at once."""
LOOK_S: Final = 0.02
OWNER_S: Final = 1.0
TASK_BYTES: Final = 32 << 20
"""Parts of so many bytes are read by one task."""


class OutputParts(InputPartition):
    """Files that one task reads."""

    def __init__(self, uri: str, names: Sequence[str]) -> None:
        super().__init__(None)
        self.uri = uri
        self.names = tuple(names)


class OutputStreamReader(DataSourceStreamReader):
    """Lives in a process beside Spark's driver; ``read`` runs in tasks."""

    def __init__(self, options: Mapping[str, str], schema: "StructType") -> None:
        self._options = dict(options)
        self._schema = schema
        self._log: StreamLog | None = None
        self._log_id = ""
        self._fresh = ""
        """The token of a query that begins here; claimed with its first real offset."""
        self._token = self._after = ""
        """Tokens of this query and of the query that read the output before; empty: not known."""
        self._owner_at = 0.0
        self._latest: dict[str, Any] = {"read": {}}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        log = self._open()
        removed = log.removed()
        return self._offset(self._begun(log), removed.numbers, removed.folded)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """PySpark 4.0 and 4.1 do not tell where they are.

        They ask a new query for this first, and call ``partitions`` first of one that goes on.
        """
        log = self._open()
        if start is None:
            token = self._token or self._begun(log)
        else:
            token = self._checked(log, start)
        before = (start or self._latest)["read"]
        give_up = time.monotonic() + IDLE_S
        while True:
            read, folded = self._newest(log)
            if _is_ahead(read, before):
                return self._offset(token, read, folded)
            if time.monotonic() > give_up:
                self._check_job(log, read)
                return start or self._offset(token, read, folded)
            time.sleep(LOOK_S)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        log = self._open()
        self._checked(log, end)  # not the first: Spark may have asked for a new initial offset
        self._check_log(start)
        removed = log.removed()
        if removed.is_behind(start["read"], start.get("folded", 0)):
            raise self._gone(log)
        trimmed = removed.numbers
        parts: list[LogPart] = []
        for writer, last in end["read"].items():
            first = start["read"].get(writer, 0)
            if first < trimmed.get(writer, 0) and first < last:
                raise self._gone(log)
            for number in range(first + 1, last + 1):
                entry = log.read_entry(writer, number)
                if entry is None:
                    raise self._gone(log)
                parts += entry.parts
        if parts:
            log.take(end["read"])
        return [OutputParts(log.uri, names) for names in _shares(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OutputParts)
        log, schema = StreamLog(partition.uri), spark_schema(self._schema)
        for name in partition.names:
            try:
                for batch in log.read_part(name):
                    table = pa.Table.from_batches([batch]).select(schema.names)
                    yield from table.cast(schema).to_batches()
            except PathUnusable as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    raise self._gone(log) from error
                raise

    def commit(self, end: dict[str, Any]) -> None:
        log = self._open()
        self._checked(log, end)
        log.trim(end["read"])

    def _open(self) -> StreamLog:
        if self._log is None:
            log, info = stream_log(stream_uri(self._options, "output"), "output")
            check_columns(info, self._schema)
            self._log, self._log_id = log, info.log
        return self._log

    def _newest(self, log: StreamLog) -> tuple[dict[str, int], int]:
        """Up to which number there are entries of each writer; and how many of those before."""
        entries, removed = log.entries(), log.removed()  # in this order: see StreamLog.has
        read = dict(removed.numbers)
        for writer, numbers in entries.items():
            if not removed.covers(writer, numbers[-1]):
                read[writer] = numbers[-1]
        return read, removed.folded

    def _begun(self, log: StreamLog) -> str:
        """The token of a query that begins now."""
        if not self._fresh:
            self._fresh, self._after = secrets.token_hex(8), _claimed(log)
        return self._fresh

    def _offset(self, token: str, read: Mapping[str, int], folded: int) -> dict[str, Any]:
        """Always in the same order, for Spark compares texts."""
        ordered = dict(sorted(read.items()))
        known = {"log": self._log_id, "reader": token, "after": self._after, "folded": folded}
        self._latest = {**known, "read": ordered}
        return self._latest

    def _checked(self, log: StreamLog, offset: Mapping[str, Any]) -> str:
        """The token of this query; raises StreamUnfit if another one reads the output."""
        self._check_log(offset)
        token, after = str(offset["reader"]), str(offset.get("after", ""))
        claimed = _claimed(log)
        if token != claimed:
            # The second: it was stopped between the first offset and the first look at it.
            if token != self._fresh and (after != claimed or not token):
                raise StreamUnfit(
                    f"another query has begun to read {self._shown(log)}; stop one of them, and "
                    f"let one query serve several sinks with foreachBatch"
                )
            log.folder.replace(READER, token.encode())
            self._fresh = ""  # whoever claims it from now on is another one
        self._token, self._after = token, after
        return token

    def _check_log(self, offset: Mapping[str, Any]) -> None:
        if offset["log"] != self._log_id:
            assert self._log is not None
            raise StreamUnfit(
                f"the query has read another log than that of {self._shown(self._log)}; restart it "
                f"with the job that it has read, or with another checkpointLocation"
            )

    def _check_job(self, log: StreamLog, read: Mapping[str, int]) -> None:
        """All is read: will more come?"""
        if time.monotonic() - self._owner_at < OWNER_S:
            return
        self._owner_at = time.monotonic()
        owner = log.owner()
        if owner is None or not owner.has_ended or owner.state == "FINISHED":
            return
        if self._newest(log)[0] == read:  # its last rows may have come since
            raise StreamUnfit(
                f"{self._shown(log)} brings no more rows, and all that it has were read: "
                f"{owner.ending()}; start the job again from its checkpoint, and restart the query"
            )

    def _gone(self, log: StreamLog) -> StreamUnfit:
        return StreamUnfit(
            f"{self._shown(log)}: the query starts from an old offset, whose rows were removed "
            f"when Spark had read them; restart it from its newest checkpoint, or begin with "
            f"another checkpointLocation"
        )

    def _shown(self, log: StreamLog) -> str:
        info = log.info()
        return f"output {info.name!r} in {log.folder.shown()}" if info else log.folder.shown()


def _claimed(log: StreamLog) -> str:
    """The token of the query that has the output; empty: none has begun."""
    return (log.folder.read(READER) or b"").decode()


def _is_ahead(read: Mapping[str, int], before: Mapping[str, int]) -> bool:
    return any(number > before.get(writer, 0) for writer, number in read.items())


def _shares(parts: Sequence[LogPart]) -> Iterator[list[str]]:
    """Names of parts for each task."""
    names: list[str] = []
    size = 0
    for part in parts:
        names.append(part.name)
        size += part.bytes
        if size >= TASK_BYTES:
            yield names
            names, size = [], 0
    if names:
        yield names
