"""Iceberg tables as a source: the rows of one snapshot, and those that later snapshots append.

The driver reads manifests and finds the data files; a task reads a file as one split, through the
library, which knows of renamed columns and deleted rows. Law: a row of an appended file is read
once; snapshots that only rearrange rows (replace) are passed over, and one that changes or removes
rows is refused, unless the source is asked to skip it.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headgate.base.errors import PathUnusable, TableUnfit
from headgate.connectors.arrow.lake_source import (
    BEGIN_ANEW,
    DISCOVER_MS,
    Batches,
    DataFileReader,
    LakeEnumerator,
    LakeSource,
    RefusingReader,
    without_rows,
)
from headgate.connectors.iceberg.catalog import (
    CatalogSettings,
    IcebergAddress,
    OpenCatalog,
    OpenTable,
    table_id,
)
from headgate.connectors.iceberg.data_files import IcebergFile, library_file, plain_file
from headgate.connectors.libraries import library, words
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position, SplitReader


@dataclass(frozen=True, slots=True)
class IcebergSplit:
    """A data file with what was deleted of it, or why there is none."""

    file: IcebergFile | None
    deletes: tuple[IcebergFile, ...]
    rows: int | None
    """None: not known."""
    schema: int
    """The id of the schema that its snapshot has."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What an enumerator keeps in checkpoints."""

    table: str
    snapshot: int | None
    """None: the table had none."""
    sequence: int
    """The sequence number of the snapshot; in tables of format version 1 always 0."""


class IcebergSource(LakeSource):
    """Rows of an Iceberg table, with the names of its columns.

    ::

        env.from_source(IcebergSource("lake", "shop.sales"), source_name="sales")
        env.from_source(IcebergSource("lake", "shop.sales", follow=True), source_name="sales")

    ``catalog``: the name of a catalog that PyIceberg is configured for, or its properties. It reads
    the table as of the snapshot with this id; None: the newest. With ``follow`` it goes on with the
    rows that each later snapshot appends, for ever; ``only_new`` leaves out those that are there
    already. A later snapshot that changes or removes rows ends the job, or, with ``skip_changes``,
    is left out as a whole.
    """

    def __init__(
        self,
        catalog: CatalogSettings,
        table: str,
        *,
        snapshot: int | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        only_new: bool = False,
        skip_changes: bool = False,
        discover_ms: int = DISCOVER_MS,
    ) -> None:
        address = IcebergAddress(table, catalog, "IcebergSource")
        super().__init__(address, columns, follow, only_new, skip_changes, discover_ms)
        self.snapshot = snapshot
        self._table: OpenTable | None = None
        """In a task, as it was last loaded."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    @property
    def default_name(self) -> str:
        return f"Iceberg table {self.address.table}"

    def create_enumerator(self, parallelism: int, position: Position) -> "IcebergEnumerator":
        return IcebergEnumerator(self, position)

    def open(self, split: object, position: Position, context: ConnectorContext) -> SplitReader:
        assert isinstance(split, IcebergSplit), split
        if split.file is None:
            return RefusingReader(TableUnfit(split.problem))
        if self._table is None or split.schema not in self._table.schemas():
            with closing(self.address.open()) as catalog:
                self._table = catalog.load()
        schema = self._table.schemas()[split.schema]
        if self.columns is not None:
            try:
                schema = schema.select(*self.columns)
            except ValueError as error:
                raise TableUnfit(
                    f"{self.address.where} has not all columns of {list(self.columns)}: "
                    f"{words(error)}"
                ) from error
        batches = partial(scanned, self._table, split, schema)
        return DataFileReader(batches, schema.column_names, position, split.rows)


class IcebergEnumerator(LakeEnumerator):
    """Reads the manifests, in the driver."""

    def __init__(self, source: IcebergSource, position: Position) -> None:
        assert position is None or isinstance(position, _Seen), position
        super().__init__(source, position)
        self._source = source
        self._address = source.address
        self._catalog: OpenCatalog | None = None

    def refusal(self, problem: str) -> IcebergSplit:
        return IcebergSplit(None, (), None, 0, problem)

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()

    def _load(self) -> OpenTable:
        if self._catalog is None:
            self._catalog = self._address.open()
        return self._catalog.load()

    def begin(self) -> list[IcebergSplit]:
        table = self._load()
        snapshot = table.current_snapshot()
        if self._source.snapshot is not None:
            snapshot = table.snapshot_by_id(self._source.snapshot)
            if snapshot is None:
                raise TableUnfit(
                    f"{self._address.where} has no snapshot {self._source.snapshot}, or it has "
                    f"expired; leave snapshot out to read the newest one"
                )
        self.seen = _seen(table, snapshot)
        if snapshot is None or self._source.only_new:
            return []
        schema = _schema_of(table, snapshot)
        return [
            IcebergSplit(
                plain_file(task.file, task.file.spec_id),
                tuple(plain_file(file, file.spec_id) for file in task.delete_files),
                None if task.delete_files else task.file.record_count,
                schema,
            )
            for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
        ]

    def later(self) -> Iterator[list[IcebergSplit]]:
        table = self._load()
        if table_id(table) != self.seen.table:
            raise TableUnfit(f"{self._address.where} was replaced by another one; {BEGIN_ANEW}")
        for snapshot in self._since(table, self.seen):
            splits = list(self._appended(table, snapshot))
            self.seen = _seen(table, snapshot)
            yield splits

    def _since(self, table: OpenTable, seen: _Seen) -> list[Any]:
        """The snapshots after the last one, oldest first."""
        found: list[Any] = []
        snapshot = table.current_snapshot()
        while snapshot is not None and snapshot.snapshot_id != seen.snapshot:
            found.append(snapshot)
            parent = snapshot.parent_snapshot_id
            if parent is not None and parent == seen.snapshot:  # which may have expired itself
                break
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        else:
            # A snapshot forgets its parent when that expires; the numbers tell what is missing.
            oldest = (found[-1].sequence_number or 0) if found else seen.sequence + 1
            if snapshot is None and oldest not in (0, seen.sequence + 1):
                raise TableUnfit(
                    f"{self._address.where}: snapshots after {seen.snapshot} have expired, or the "
                    f"table was rolled back, so that rows would be missing; {BEGIN_ANEW}"
                )
        return found[::-1]

    def _appended(self, table: OpenTable, snapshot: Any) -> Iterator[IcebergSplit]:
        operation = getattr(snapshot.summary.operation, "value", "") if snapshot.summary else ""
        if operation == "replace":
            return
        if operation != "append":
            if self._source.skip_changes:
                return
            raise TableUnfit(
                f"{self._address.where}: its snapshot {snapshot.snapshot_id} changes or removes "
                f"rows ({operation or 'unknown'}), and the source reads appended ones only; leave "
                f"such snapshots out with skip_changes=True, or {BEGIN_ANEW}"
            )
        schema = _schema_of(table, snapshot)
        own = snapshot.snapshot_id
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != own:
                continue
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                if entry.snapshot_id == own and int(entry.status) == _ADDED:
                    file = entry.data_file
                    yield IcebergSplit(
                        plain_file(file, file.spec_id), (), file.record_count, schema
                    )


_ADDED: Final = 1
"""The status of a file that a snapshot has added, in Iceberg's specification."""


def _seen(table: OpenTable, snapshot: Any) -> _Seen:
    if snapshot is None:
        return _Seen(table_id(table), None, 0)
    return _Seen(table_id(table), snapshot.snapshot_id, snapshot.sequence_number or 0)


def _schema_of(table: OpenTable, snapshot: Any) -> int:
    known = snapshot.schema_id
    return int(table.metadata.current_schema_id if known is None else known)


def scanned(table: OpenTable, split: IcebergSplit, schema: Any, skipped: int) -> Batches:
    """The rows of a data file after so many; the library reads it as a whole."""
    assert split.file is not None
    arrow = library("pyiceberg.io.pyarrow", "iceberg", "IcebergSource")
    tables = library("pyiceberg.table", "iceberg", "IcebergSource")
    task = tables.FileScanTask(library_file(split.file), set(map(library_file, split.deletes)))
    scan = arrow.ArrowScan(table.metadata, table.io, schema, tables.ALWAYS_TRUE)
    try:
        for batch in scan.to_record_batches([task]):
            rest, skipped = without_rows(batch, skipped)
            if rest.num_rows:
                yield rest
    except Exception as error:
        raise PathUnusable(
            split.file.path,
            f"cannot be read: {words(error)}; if its snapshot has expired, start the job anew, "
            f"else look at the table's place",
        ) from error
