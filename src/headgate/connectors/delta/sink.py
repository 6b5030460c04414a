"""Records as rows of a Delta table: appended, or merged by keys; each exactly once.

Tasks write Parquet files into the table's folder; nobody reads them before the log names them,
which happens when the checkpoint completes (see ``commits``). Changes that are merged wait in files
below ``_headgate`` in the same folder. Law: an uncommitted file is never named by the log; what a
killed task leaves is removed by the table's own VACUUM, or, of changes, by the next job.
"""

import copy
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from headgate.api.types.types import TypeInformation
from headgate.base.errors import TableUnfit
from headgate.connectors.arrow.sink_rows import SinkRows
from headgate.connectors.arrow.staged_rows import DELETED, StagedRowsWriter
from headgate.connectors.arrow.table_commits import COMMIT_TIMEOUT_MS, StagedLotCommitter
from headgate.connectors.checks import check_settings, one_of
from headgate.connectors.delta.commits import DeltaTarget
from headgate.connectors.delta.data_files import (
    DeltaDataFile,
    partition_folder,
    rows_by_partition,
    statistics_of,
)
from headgate.connectors.delta.folder import DeltaFolder, table_uri
from headgate.connectors.delta.table import (
    OpenTable,
    TableAddress,
    table_id,
    table_schema,
    why_unwritable,
)
from headgate.connectors.paths import AnyPath, short_place
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import TwoPhaseCommittingSink

COMPRESSIONS: Final = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")
CHANGES_FOLDER: Final = "_headgate"
"""Delta's readers and VACUUM leave out what begins with an underscore."""
CHANGES_KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""After that, changes that nobody has committed are removed; as long as VACUUM waits."""


class DeltaSink(TwoPhaseCommittingSink):
    """Rows, dicts, tuples or dataclasses as rows of a Delta table.

    ::

        stream.sink_to(DeltaSink("sales"))
        stream.sink_to(DeltaSink("s3://lake/people", mode="upsert", keys=["id"]))

    ``mode="upsert"`` replaces the row with the same ``keys``, or inserts one; a Row of kind DELETE
    removes it. ``create=True`` makes the table if there is none, with ``schema`` or the declared
    type of the stream, in partitions by ``partition_by``.
    """

    def __init__(
        self,
        path: AnyPath,
        *,
        mode: str = "append",
        keys: Sequence[str] = (),
        schema: object = None,
        create: bool = False,
        partition_by: Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
        compression: str = "snappy",
        commit_timeout_ms: int = COMMIT_TIMEOUT_MS,
    ) -> None:
        self.address = TableAddress(table_uri(path), "DeltaSink", storage_options)
        self.rows = SinkRows(
            "DeltaSink", mode, keys, schema, create, partition_by, commit_timeout_ms
        )
        self.compression = compression
        check_settings(self, {"compression": one_of(*COMPRESSIONS)})

    @property
    def default_name(self) -> str:
        return f"Delta table {short_place(self.address.uri)}"

    def for_type(self, type_info: TypeInformation | None) -> "DeltaSink":
        """The sink for a stream of this type; called by ``sink_to``."""
        typed = copy.copy(self)
        typed.rows = self.rows.for_type(type_info)
        return typed

    def create_writer(self, context: ConnectorContext) -> StagedRowsWriter:
        table, rows = self._table(), self.rows
        partitions = table.metadata().partition_columns
        schema = rows.row_schema(table_schema(table), partitions, self.address.where)
        stage: FileStage | ChangeStage
        if rows.keys:
            stage = ChangeStage(table, self, context)
            if context.task.subtask == 0:
                stage.remove_old()
        else:
            stage = FileStage(table, self, context)
        return StagedRowsWriter(schema, stage, context, rows.keys)

    def create_committer(self, context: ConnectorContext) -> StagedLotCommitter:
        self._table()  # what is wrong with it is said at the start
        target = DeltaTarget(self.address, self.rows.keys)
        rows = self.rows
        return StagedLotCommitter(target, bool(rows.keys), rows.commit_timeout_ms, context.sleep)

    def _table(self) -> OpenTable:
        """The table, created if that is wanted, and fit for the sink."""
        address, rows = self.address, self.rows
        table = address.find() if rows.create else address.load()
        if table is None:
            assert rows.schema is not None, "a sink that creates a table has no schema"
            address.create(rows.schema, rows.partition_by)
            DeltaFolder(address.uri, address.options).settle_new()
            table = address.load()
        problem = why_unwritable(table)
        if problem is not None:
            raise TableUnfit(
                f"{address.where} {problem}, which the sink does not write; write to another table"
            )
        rows.check_partitions(table.metadata().partition_columns, address.where)
        return table


class FileStage:
    """Writes data files where the table will read them."""

    def __init__(self, table: OpenTable, sink: DeltaSink, context: ConnectorContext) -> None:
        self.table = table_id(table)
        self._folder = DeltaFolder(sink.address.uri, sink.address.options)
        self._partitions = list(table.metadata().partition_columns)
        self._compression = sink.compression
        self._context = context
        self._stem = f"part-{context.task.subtask:05}-{secrets.token_hex(8)}"
        self._count = 0

    def write(self, rows: pa.Table) -> list[DeltaDataFile]:
        columns = _columns(rows)
        written: list[DeltaDataFile] = []
        operator = self._context.operator
        try:
            for partition, some in rows_by_partition(rows, self._partitions, operator):
                name = f"{partition_folder(partition)}{self._stem}-{self._count}.parquet"
                self._count += 1
                size = self._folder.write(name, some, self._compression)
                now_ms, statistics = self._context.now_ms(), statistics_of(some)
                written.append(DeltaDataFile(name, size, partition, now_ms, statistics, columns))
        except BaseException:
            self.discard(written)
            raise
        return written

    def discard(self, files: Sequence[DeltaDataFile]) -> None:
        for file in files:
            self._folder.remove(file.path)


class ChangeStage:
    """Writes changes where the table's readers do not look."""

    def __init__(self, table: OpenTable, sink: DeltaSink, context: ConnectorContext) -> None:
        self.table = table_id(table)
        self._folder = DeltaFolder(sink.address.uri, sink.address.options)
        self._compression = sink.compression
        self._context = context
        self._stem = f"{CHANGES_FOLDER}/changes-{context.task.subtask:05}-{secrets.token_hex(8)}"
        self._count = 0

    def write(self, rows: pa.Table) -> list[DeltaDataFile]:
        name = f"{self._stem}-{self._count}.parquet"
        self._count += 1
        size = self._folder.write(name, rows, self._compression)
        return [DeltaDataFile(name, size, (), self._context.now_ms(), "", _columns(rows))]

    def discard(self, files: Sequence[DeltaDataFile]) -> None:
        for file in files:
            self._folder.remove(file.path)

    def remove_old(self) -> None:
        """What tasks have left that were killed, and nobody has committed since."""
        oldest_ms = self._context.now_ms() - CHANGES_KEPT_MS
        for name, changed_ms in self._folder.files_in(CHANGES_FOLDER):
            if name.startswith(f"{CHANGES_FOLDER}/changes-") and changed_ms < oldest_ms:
                self._folder.remove(name)


def _columns(rows: pa.Table) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, str(field.type)) for field in rows.schema if field.name != DELETED)
