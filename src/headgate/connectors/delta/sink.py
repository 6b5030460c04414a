"""Records as rows of a Delta table: appended, or merged by keys; each exactly once.

Tasks write Parquet files into the table's folder; nobody reads them before the log names them,
which happens when the checkpoint completes (see ``commits``). Changes that are merged wait in files
below ``_headgate`` in the same folder. Law: an uncommitted file is never named by the log; what a
killed task leaves is removed by the table's own VACUUM, or, of changes, by the next job.
"""

import copy
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from headgate.api.types.types import RowTypeInfo, TypeInformation
from headgate.base.errors import PlanInvalid, TableUnfit
from headgate.connectors.arrow.staged_rows import DELETED, StagedRowsWriter
from headgate.connectors.arrow.types import arrow_schema, schema_misfit
from headgate.connectors.delta.commits import COMMIT_TIMEOUT_MS, DeltaCommitter
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
        if mode not in ("append", "upsert"):
            raise PlanInvalid(f"DeltaSink: the mode is {mode!r}; give 'append' or 'upsert'")
        self.keys = _names("keys", keys)
        if (mode == "upsert") != bool(self.keys):
            raise PlanInvalid(
                "DeltaSink: mode='upsert' needs keys=[...], the columns that tell rows apart, and "
                "mode='append' takes none"
            )
        if compression not in COMPRESSIONS:
            raise PlanInvalid(
                f"DeltaSink: the compression is {compression!r}; "
                f"give one of {', '.join(COMPRESSIONS)}"
            )
        if type(commit_timeout_ms) is not int or commit_timeout_ms < 1:
            raise PlanInvalid(
                f"DeltaSink: commit_timeout_ms is {commit_timeout_ms!r}; "
                f"give a whole number above 0"
            )
        self.schema = None if schema is None else arrow_schema(schema, "DeltaSink")
        self.create = bool(create)
        self.partition_by = _names("partition_by", partition_by)
        self.compression = compression
        self.commit_timeout_ms = commit_timeout_ms
        self._check_names()

    @property
    def default_name(self) -> str:
        return f"Delta table {short_place(self.address.uri)}"

    def for_type(self, type_info: TypeInformation | None) -> "DeltaSink":
        """The sink for a stream of this type; called by ``sink_to``."""
        if self.schema is not None:
            return self
        if self.create and type_info is None:
            raise PlanInvalid(
                "DeltaSink(create=True) has no schema, and the stream declares no type; give "
                "schema=..., or an output_type to the operator before it"
            )
        if not self.create and not _has_names(type_info):
            return self
        typed = copy.copy(self)
        typed.schema = arrow_schema(type_info, "DeltaSink")
        typed._check_names()
        return typed

    def create_writer(self, context: ConnectorContext) -> StagedRowsWriter:
        table = self._table()
        schema = self._row_schema(table)
        stage: FileStage | ChangeStage
        if self.keys:
            stage = ChangeStage(table, self, context)
            if context.task.subtask == 0:
                stage.remove_old()
        else:
            stage = FileStage(table, self, context)
        return StagedRowsWriter(schema, stage, context, self.keys)

    def create_committer(self, context: ConnectorContext) -> DeltaCommitter:
        self._table()  # what is wrong with it is said at the start
        return DeltaCommitter(self.address, self.keys, self.commit_timeout_ms)

    def _check_names(self) -> None:
        for what, names in (("keys", self.keys), ("partition_by", self.partition_by)):
            for name in names:
                if self.schema is not None and name not in self.schema.names:
                    raise PlanInvalid(
                        f"DeltaSink: {what} has {name!r}, and the schema has only "
                        f"{_listed(self.schema.names)}"
                    )

    def _table(self) -> OpenTable:
        """The table, created if that is wanted, and fit for the sink."""
        address = self.address
        table = address.find() if self.create else address.load()
        if table is None:
            assert self.schema is not None, "a sink that creates a table has no schema"
            address.create(self.schema, self.partition_by)
            table = address.load()
        problem = why_unwritable(table)
        if problem is not None:
            raise TableUnfit(
                f"DeltaSink: the table at {address.uri} {problem}, which the sink does not write; "
                f"write to another table"
            )
        found = tuple(table.metadata().partition_columns)
        if self.partition_by and found != self.partition_by:
            raise TableUnfit(
                f"DeltaSink: the table at {address.uri} has partitions by {_listed(found)}, not by "
                f"{_listed(self.partition_by)}; leave partition_by out, or create another table"
            )
        return table

    def _row_schema(self, table: OpenTable) -> pa.Schema:
        """The columns of a record, with the table's types."""
        there = table_schema(table)
        problem = None if self.schema is None else schema_misfit(self.schema, there)
        wanted = there if self.schema is None else self.schema
        for name in (*self.keys, *table.metadata().partition_columns):
            if problem is None and name not in wanted.names:
                problem = f"the records have no column {name!r}, which tells where a row belongs"
        for key in self.keys:
            if problem is None and pa.types.is_nested(there.field(key).type):
                problem = f"its column {key!r} is nested, and cannot be a key"
        if problem is not None:
            raise TableUnfit(
                f"DeltaSink: the table at {self.address.uri} does not fit: {problem}; change the "
                f"records, or write to another table"
            )
        return pa.schema([there.field(name) for name in wanted.names])


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


def _names(what: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise PlanInvalid(f"DeltaSink: {what} is {names!r}; give a list of names of columns")
    return tuple(names)


def _has_names(type_info: Any) -> bool:
    """Whether records of the type are known by names, and not by positions."""
    if not isinstance(type_info, RowTypeInfo):
        return False
    names = list(type_info.field_names)
    return names != [f"f{place}" for place in range(len(names))]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "no column"
