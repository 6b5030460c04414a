"""Records as rows of a Delta table: appended, or merged by keys; each exactly once.

Tasks write Parquet files into the table's folder; nobody reads them before the log names them,
which happens when the checkpoint completes. Changes that are merged wait in files below
``_headgate`` in the same folder. Each commit carries Delta's own application transactions: the
writer's id as the application, the number of its lot as the version. Law: a lot and its transaction
are one entry of the log, and Delta refuses an entry whose transaction was changed since the table
was read. What a killed task leaves is removed by the table's own VACUUM, or, of changes, by the
next job.
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from headgate.base.errors import TableUnfit
from headgate.connectors.arrow.lake_sink import COMMIT_TIMEOUT_MS, CommitTarget, LakeSink, SinkRows
from headgate.connectors.arrow.staged_rows import DELETED, StagedLot, StagedRowsWriter, last_changes
from headgate.connectors.checks import check_settings, one_of
from headgate.connectors.delta.data_files import (
    DeltaDataFile,
    partition_folder,
    rows_by_partition,
    statistics_of,
)
from headgate.connectors.delta.folder import DeltaFolder
from headgate.connectors.delta.table import (
    RETENTION,
    OpenTable,
    TableAddress,
    notes_kept_ms,
    table_id,
    table_schema,
    why_unwritable,
)
from headgate.connectors.paths import AnyPath, folder_uri, short_place
from headgate.functions.context import ConnectorContext

CLOCKS_DIFFER_MS: Final = 60_000
"""How far the clocks of a worker and of the table's file system may be apart."""


class DeltaTarget(CommitTarget):
    """Adds files to the log, or merges what they hold by keys."""

    def __init__(self, address: TableAddress, keys: Sequence[str]) -> None:
        """``keys``: of lots that are merged; without keys they are appended."""
        self.where = address.where
        self._address = address
        self._folder = DeltaFolder(address.uri, address.options)
        self._keys = tuple(keys)
        self._first = 0
        """The first version that the last ``write`` can have made."""
        self._delta = address.library()
        self.conflict: type[Exception] = self._delta.exceptions.CommitFailedError

    def load(self) -> OpenTable:
        return self._address.load()

    def table_id(self, table: OpenTable) -> str:
        return table_id(table)

    def has(self, table: OpenTable, lot: StagedLot) -> bool:
        version = table.transaction_version(lot.writer)
        return version is not None and version >= lot.number

    def file_size(self, table: OpenTable, file: DeltaDataFile) -> int | None:
        return self._folder.size(file.path)

    def shown(self, file: DeltaDataFile) -> str:
        return self._folder.shown(file.path)

    def check(self, table: OpenTable, lots: Sequence[StagedLot]) -> None:
        problem = why_unwritable(table)
        if problem is not None:
            raise TableUnfit(f"{self.where} {problem}, which the sink does not write")
        kept_ms, now_ms = notes_kept_ms(table), time.time() * 1000
        if kept_ms is not None and min(lot.prepared_ms for lot in lots) < now_ms - kept_ms:
            raise TableUnfit(
                f"{self.where}: the checkpoint holds commits that are older than the table "
                f"remembers ({RETENTION}), so nobody knows whether they were done; go on from a "
                f"newer one"
            )
        types = {field.name: str(field.type) for field in table_schema(table)}
        partitions = list(table.metadata().partition_columns)
        for file in (file for lot in lots for file in lot.files):
            for name, kind in file.columns:
                if types.get(name) != kind:
                    raise TableUnfit(
                        f"{self.where}: its column {name!r} was {kind} when rows were written, "
                        f"and is {types.get(name, 'gone')} now; undo the change of the table, and "
                        f"start the job again"
                    )
            if not self._keys and [column for column, _ in file.partition] != partitions:
                raise TableUnfit(
                    f"{self.where}: its partitions were changed while records waited for their "
                    f"commit; undo that, and start the job again"
                )

    def write(self, table: OpenTable, lots: Sequence[StagedLot]) -> None:
        self._first = table.version() + 1  # a merge moves the table on
        newest = {lot.writer: lot.number for lot in lots}
        now_ms = int(time.time() * 1000)
        properties = self._delta.CommitProperties(
            custom_metadata={"headgate.checkpoint": str(max(lot.checkpoint for lot in lots))},
            app_transactions=[
                self._delta.Transaction(writer, number, now_ms) for writer, number in newest.items()
            ],
        )
        if self._keys:
            (lot,) = lots
            self._merge(table, lot, properties)
            return
        table.create_write_transaction(
            [self._action(file) for lot in lots for file in lot.files],
            "append",
            table.schema(),
            list(table.metadata().partition_columns),
            commit_properties=properties,
        )

    def settle(self, table: OpenTable) -> None:
        self._folder.settle_log(self._first, with_files=bool(self._keys))

    def settle_found(self, table: OpenTable, lots: Sequence[StagedLot]) -> None:
        since_ms = min(lot.prepared_ms for lot in lots) - CLOCKS_DIFFER_MS
        first = self._folder.first_version(table.version(), since_ms)
        self._folder.settle_log(first, with_files=bool(self._keys))

    def discard(self, table: OpenTable, lot: StagedLot) -> None:
        for file in lot.files:
            self._folder.remove(file.path)

    def _action(self, file: DeltaDataFile) -> Any:
        return self._delta.transaction.AddAction(
            file.path, file.size, dict(file.partition), file.written_ms, True, file.statistics
        )

    def _merge(self, table: OpenTable, lot: StagedLot, properties: Any) -> None:
        rows = pa.concat_tables([self._read(file.path) for file in lot.files])
        if len(lot.files) > 1:
            rows = last_changes(rows, self._keys)
        columns = [name for name in rows.column_names if name != DELETED]
        new = {_quoted(name): f"s.{_quoted(name)}" for name in columns}
        (
            table.merge(
                rows,
                " AND ".join(f"t.{_quoted(key)} = s.{_quoted(key)}" for key in self._keys),
                source_alias="s",
                target_alias="t",
                commit_properties=properties,
            )
            .when_matched_delete(f"s.{_quoted(DELETED)}")
            .when_matched_update(new)
            .when_not_matched_insert(new, f"NOT s.{_quoted(DELETED)}")
            .execute()
        )

    def _read(self, name: str) -> pa.Table:
        with closing(self._folder.open(name)) as file:
            return parquet.read_table(file)


def _quoted(column: str) -> str:
    """A column's name in SQL."""
    return '"{}"'.format(column.replace('"', '""'))


COMPRESSIONS: Final = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")
CHANGES_FOLDER: Final = "_headgate"
"""Delta's readers and VACUUM leave out what begins with an underscore."""
CHANGES: Final = f"{CHANGES_FOLDER}/changes"
CHANGES_KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""After that, changes that nobody has committed are removed; as long as VACUUM waits."""


class DeltaSink(LakeSink):
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
        self.address = TableAddress(folder_uri(path), "DeltaSink", storage_options)
        super().__init__(
            SinkRows("DeltaSink", mode, keys, schema, create, partition_by, commit_timeout_ms)
        )
        self.compression = compression
        check_settings(self, {"compression": one_of(*COMPRESSIONS)})

    @property
    def default_name(self) -> str:
        return f"Delta table {short_place(self.address.uri)}"

    def create_writer(self, context: ConnectorContext) -> StagedRowsWriter:
        table, rows = self._table(), self.rows
        partitions = table.metadata().partition_columns
        schema = rows.row_schema(table_schema(table), partitions, self.address.where)
        stage = DeltaStage(table, self, context)
        if rows.keys and context.task.subtask == 0:
            stage.remove_old_changes()
        return StagedRowsWriter(schema, stage, context, rows.keys)

    def commit_target(self) -> DeltaTarget:
        self._table()
        return DeltaTarget(self.address, self.rows.keys)

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


class DeltaStage:
    """Writes data files where the table will read them; changes, where its readers do not look."""

    def __init__(self, table: OpenTable, sink: DeltaSink, context: ConnectorContext) -> None:
        self.table = table_id(table)
        self._folder = DeltaFolder(sink.address.uri, sink.address.options)
        self._are_changes = bool(sink.rows.keys)
        self._partitions = [] if self._are_changes else table.metadata().partition_columns
        self._compression = sink.compression
        self._context = context
        kind = CHANGES if self._are_changes else "part"
        self._stem = f"{kind}-{context.task.subtask:05}-{secrets.token_hex(8)}"
        self._count = 0

    def write(self, rows: pa.Table) -> list[DeltaDataFile]:
        columns = tuple(
            (field.name, str(field.type)) for field in rows.schema if field.name != DELETED
        )
        written: list[DeltaDataFile] = []
        operator = self._context.operator
        try:
            for partition, some in rows_by_partition(rows, self._partitions, operator):
                name = f"{partition_folder(partition)}{self._stem}-{self._count}.parquet"
                self._count += 1
                size = self._folder.write(name, some, self._compression)
                now_ms = self._context.now_ms()
                statistics = "" if self._are_changes else statistics_of(some)
                written.append(DeltaDataFile(name, size, partition, now_ms, statistics, columns))
        except BaseException:
            self.discard(written)
            raise
        return written

    def discard(self, files: Sequence[DeltaDataFile]) -> None:
        for file in files:
            self._folder.remove(file.path)

    def remove_old_changes(self) -> None:
        """Remove what killed tasks have left, and nobody has committed since."""
        oldest_ms = self._context.now_ms() - CHANGES_KEPT_MS
        for name, changed_ms in self._folder.files_in(CHANGES_FOLDER):
            if name.startswith(f"{CHANGES}-") and changed_ms < oldest_ms:
                self._folder.remove(name)
