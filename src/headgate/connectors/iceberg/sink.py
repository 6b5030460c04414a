"""Records as rows of an Iceberg table: appended, or replaced by keys; each exactly once.

Tasks write data files into the table's place; no snapshot names them before the checkpoint is
complete (see ``commits``). Law: an uncommitted file is never named by a snapshot; what a killed
task leaves is removed with the table's other orphan files.
"""

import copy
from collections.abc import Sequence
from importlib.util import find_spec

from headgate.api.types.types import TypeInformation
from headgate.base.errors import PlanInvalid
from headgate.connectors.arrow.sink_rows import SinkRows
from headgate.connectors.arrow.staged_rows import StagedRowsWriter
from headgate.connectors.arrow.table_commits import COMMIT_TIMEOUT_MS, StagedLotCommitter
from headgate.connectors.iceberg.catalog import (
    CatalogSettings,
    IcebergAddress,
    OpenCatalog,
    OpenTable,
    table_schema,
)
from headgate.connectors.iceberg.commits import IcebergTarget
from headgate.connectors.iceberg.data_files import IcebergChangeStage, IcebergStage
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import TwoPhaseCommittingSink


class IcebergSink(TwoPhaseCommittingSink):
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
        self.rows = SinkRows(
            "IcebergSink", mode, keys, schema, create, partition_by, commit_timeout_ms
        )

    @property
    def default_name(self) -> str:
        return f"Iceberg table {self.address.table}"

    def for_type(self, type_info: TypeInformation | None) -> "IcebergSink":
        """The sink for a stream of this type; called by ``sink_to``."""
        typed = copy.copy(self)
        typed.rows = self.rows.for_type(type_info)
        return typed

    def create_writer(self, context: ConnectorContext) -> StagedRowsWriter:
        with self.address.opened() as catalog:
            table = self._table(catalog)
        rows = self.rows
        schema = rows.row_schema(table_schema(table, "IcebergSink"), (), self.address.where)
        stage = IcebergChangeStage(table) if rows.keys else IcebergStage(table)
        return StagedRowsWriter(schema, stage, context, rows.keys)

    def create_committer(self, context: ConnectorContext) -> StagedLotCommitter:
        catalog = self.address.open()
        try:
            self._table(catalog)  # what is wrong with it is said at the start
            target = IcebergTarget(self.address, catalog, self.rows.keys)
        except BaseException:
            catalog.close()
            raise
        rows = self.rows
        return StagedLotCommitter(target, bool(rows.keys), rows.commit_timeout_ms, context.sleep)

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
