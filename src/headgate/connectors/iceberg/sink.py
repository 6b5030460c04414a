"""Records as rows of an Iceberg table: appended, or replaced by keys; each exactly once.

Tasks write data files into the table's place; no snapshot names them before the checkpoint is
complete. Each commit is one transaction with the files and a note of the writer, in a property of
the table: snapshots expire, properties do not. Law: a commit is refused by the catalog if anybody
has committed since the note was read. Notes are kept for a month; a lot that is older than the
notes is refused, never written twice. What a killed task leaves is removed with the table's other
orphan files.
"""

import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, closing
from importlib.util import find_spec
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.base.errors import PlanInvalid, TableUnfit
from headgate.connectors.arrow.lake_sink import (
    COMMIT_TIMEOUT_MS,
    CommitTarget,
    LakeSink,
    SinkRows,
)
from headgate.connectors.arrow.staged_rows import DELETED, StagedLot, StagedRowsWriter, last_changes
from headgate.connectors.iceberg.catalog import (
    CatalogSettings,
    IcebergAddress,
    OpenCatalog,
    OpenTable,
    table_id,
    table_schema,
)
from headgate.connectors.iceberg.data_files import (
    IcebergFile,
    IcebergStage,
    file_size,
    library_file,
    read_changes,
    remove_files,
)
from headgate.connectors.libraries import library, words
from headgate.functions.context import ConnectorContext

NOTE: Final = "headgate.writer."
"""The property of a writer's last lot: its number, and when it was committed."""
FORGOTTEN: Final = "headgate.forgotten-before-ms"
"""Notes from before this time were removed."""
NOTES_KEPT_MS: Final = 30 * 24 * 3600 * 1000


class IcebergTarget(CommitTarget):
    """Appends files, or replaces the rows whose keys they hold."""

    def __init__(self, address: IcebergAddress, catalog: OpenCatalog, keys: Sequence[str]) -> None:
        """``keys``: of lots that are merged; without keys they are appended. Owns the catalog."""
        self.where = address.where
        self._catalog = catalog
        self._keys = tuple(keys)
        errors = library("pyiceberg.exceptions", "iceberg", address.user)
        self.conflict: type[Exception] = errors.CommitFailedException
        warnings.filterwarnings("ignore", message="Delete operation did not match any records")

    def load(self) -> OpenTable:
        return self._catalog.load()

    def table_id(self, table: OpenTable) -> str:
        return table_id(table)

    def has(self, table: OpenTable, lot: StagedLot) -> bool:
        number, _, _ = table.properties.get(f"{NOTE}{lot.writer}", "0").partition("@")
        return int(number) >= lot.number

    def file_size(self, table: OpenTable, file: IcebergFile) -> int | None:
        return file_size(table, file.path)

    def check(self, table: OpenTable, lots: Sequence[StagedLot]) -> None:
        forgotten_ms = int(table.properties.get(FORGOTTEN, 0))
        for lot in lots:
            if lot.prepared_ms < forgotten_ms:
                raise TableUnfit(
                    f"{self.where}: the checkpoint holds commits from before the table's notes "
                    f"begin, so nobody knows whether they were done; go on from a newer one"
                )
            for file in lot.files:
                if not self._keys and file.spec != table.metadata.default_spec_id:
                    raise TableUnfit(
                        f"{self.where}: its partitions were changed while records waited for their "
                        f"commit; make the old partition spec the default again, and start the job "
                        f"again"
                    )

    def write(self, table: OpenTable, lots: Sequence[StagedLot]) -> None:
        newest = {lot.writer: lot.number for lot in lots}
        about = {
            "headgate.checkpoint": str(max(lot.checkpoint for lot in lots)),
            "headgate.lots": ",".join(f"{writer}:{number}" for writer, number in newest.items()),
        }
        transaction = _tried_once(table).transaction()
        if self._keys:
            (lot,) = lots
            self._replace(table, transaction, lot, about)
        else:
            append = transaction.update_snapshot(snapshot_properties=about)
            merges = table.properties.get("commit.manifest-merge.enabled", "") == "true"
            with append.merge_append() if merges else append.fast_append() as snapshot:
                for file in (file for lot in lots for file in lot.files):
                    snapshot.append_data_file(library_file(file))
        now_ms = int(time.time() * 1000)
        notes = {f"{NOTE}{writer}": f"{number}@{now_ms}" for writer, number in newest.items()}
        old = _old_notes(table, now_ms)
        if old:
            notes[FORGOTTEN] = str(now_ms - NOTES_KEPT_MS)
            transaction.remove_properties(*old)
        transaction.set_properties(notes)
        transaction.commit_transaction()

    def discard(self, table: OpenTable, lot: StagedLot) -> None:
        remove_files(table, lot.files)

    def close(self) -> None:
        self._catalog.close()

    def _replace(
        self, table: OpenTable, transaction: Any, lot: StagedLot, about: dict[str, str]
    ) -> None:
        rows = read_changes(table, lot.files)
        if len(lot.files) > 1:
            rows = last_changes(rows, self._keys)
        if table.current_snapshot() is not None:
            transaction.delete(self._with_keys(rows), snapshot_properties=about)
        new = rows.filter(pc.invert(rows.column(DELETED))).drop_columns([DELETED])
        if new.num_rows:
            try:
                transaction.append(_with_required(table, new), snapshot_properties=about)
            except ValueError as error:  # the columns, by the library's own comparison
                raise TableUnfit(
                    f"{self.where}: its columns were changed while rows waited for their commit: "
                    f"{words(error)}; undo the change of the table, and start the job again"
                ) from error

    def _with_keys(self, rows: pa.Table) -> Any:
        """The condition for the rows of these keys."""
        where = library("pyiceberg.expressions", "iceberg", "IcebergSink")
        if len(self._keys) == 1:
            (key,) = self._keys
            return where.In(key, rows.column(key).to_pylist())
        equal = [
            where.And(*(where.EqualTo(key, value) for key, value in row.items()))
            for row in rows.select(list(self._keys)).to_pylist()
        ]
        return equal[0] if len(equal) == 1 else where.Or(*equal)


def _with_required(table: OpenTable, rows: pa.Table) -> pa.Table:
    """Rows that are there have values where the table wants some; those that are gone have none."""
    required = {field.name for field in table.schema().fields if field.required}
    fields = [field.with_nullable(field.name not in required) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _tried_once(table: OpenTable) -> OpenTable:
    """The table for a transaction that the library does not try again.

    Its own attempts read the table again, but not the notes: what another attempt of the job has
    committed meanwhile would be committed once more.
    """
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _old_notes(table: OpenTable, now_ms: int) -> list[str]:
    return [
        key
        for key, value in table.properties.items()
        if key.startswith(NOTE) and int(value.partition("@")[2] or 0) < now_ms - NOTES_KEPT_MS
    ]


class IcebergSink(LakeSink):
    """Rows, dicts, tuples or dataclasses as rows of an Iceberg table.

    ::

        catalog = {"type": "rest", "uri": "http://catalog:8181"}
        stream.sink_to(IcebergSink(catalog, "shop.sales"))

    ``catalog``: the name of a catalog that PyIceberg is configured for, or its properties.
    ``mode="upsert"`` replaces the row with the same ``keys``, or inserts one; a Row of kind DELETE
    removes it. ``create=True`` makes the table if there is none, with ``schema`` or the declared
    type of the stream, in partitions by the columns ``partition_by``.
    """

    def __init__(
        self,
        catalog: CatalogSettings,
        table: str,
        *,
        mode: str = "append",
        keys: Sequence[str] = (),
        schema: object = None,
        create: bool = False,
        partition_by: Sequence[str] = (),
        commit_timeout_ms: int = COMMIT_TIMEOUT_MS,
    ) -> None:
        self.address = IcebergAddress(table, catalog, "IcebergSink")
        super().__init__(
            SinkRows("IcebergSink", mode, keys, schema, create, partition_by, commit_timeout_ms)
        )

    @property
    def default_name(self) -> str:
        return f"Iceberg table {self.address.table}"

    def create_writer(self, context: ConnectorContext) -> StagedRowsWriter:
        with closing(self.address.open()) as catalog:
            table = self._table(catalog)
        rows = self.rows
        schema = rows.row_schema(table_schema(table, "IcebergSink"), (), self.address.where)
        stage = IcebergStage(table, are_changes=bool(rows.keys))
        return StagedRowsWriter(schema, stage, context, rows.keys)

    def commit_target(self) -> IcebergTarget:
        with ExitStack() as opened:
            catalog = opened.enter_context(closing(self.address.open()))
            self._table(catalog)
            target = IcebergTarget(self.address, catalog, self.rows.keys)
            opened.pop_all()  # the target closes it
            return target

    def _table(self, catalog: OpenCatalog) -> OpenTable:
        """The table, created if that is wanted, and fit for the sink."""
        rows = self.rows
        table = catalog.find() if rows.create else catalog.load()
        if table is None:
            assert rows.schema is not None, "a sink that creates a table has no schema"
            catalog.create(rows.schema, rows.partition_by)
            table = catalog.load()
        partitions = partitions_of(table)
        rows.check_partitions(partitions, self.address.where)
        made = [name for name in partitions if "(" in name]
        if made and find_spec("pyiceberg_core") is None:
            raise PlanInvalid(
                f"{self.address.where} has partitions by {made[0]}, which PyIceberg makes with a "
                f"library of its own; run pip install 'pyiceberg[pyiceberg-core]'"
            )
        return table


def partitions_of(table: OpenTable) -> list[str]:
    """Columns, and others as they are made of columns: ``day(sold_at)``."""
    schema = table.schema()
    found = []
    for field in table.spec().fields:
        column, transform = schema.find_column_name(field.source_id), str(field.transform)
        found.append(column if transform == "identity" else f"{transform}({column})")
    return found
