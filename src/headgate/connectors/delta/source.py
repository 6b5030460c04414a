"""Delta tables as a source: the rows of one version, and those that later versions append.

The driver reads the table's log and finds the data files; a task reads a file as one split. Law: a
row of an appended file is read once; versions that only rearrange rows (OPTIMIZE) are passed over,
and one that changes or removes rows is refused, unless the source is asked to skip it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet

from headgate.base.errors import FileGone, PathUnusable, TableUnfit
from headgate.connectors.arrow.lake_source import (
    BATCH_ROWS,
    BEGIN_ANEW,
    DISCOVER_MS,
    Batches,
    DataFileReader,
    LakeEnumerator,
    LakeSource,
    RefusingReader,
    without_rows,
)
from headgate.connectors.checks import check_settings, optional, whole
from headgate.connectors.delta.data_files import Partition, partition_text
from headgate.connectors.delta.folder import DeltaFolder, log_name
from headgate.connectors.delta.table import OpenTable, TableAddress, table_id, table_schema
from headgate.connectors.libraries import words
from headgate.connectors.paths import AnyPath, folder_uri, short_place
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position, SplitReader

MOST_VERSIONS: Final = 1000
"""Versions that are read at a time."""
_READABLE: Final = frozenset(
    {"timestampNtz", "deletionVectors", "columnMapping", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Features of readers that ask nothing of whoever reads a file, if nothing uses them."""


@dataclass(frozen=True, slots=True)
class DeltaSplit:
    """A data file, or why there is none."""

    path: str
    partition: Partition
    rows: int | None
    version: int
    """That has added it, or that was read as a whole."""
    schema_version: int
    """The newest one, up to that, which may have changed the columns."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What an enumerator keeps in checkpoints."""

    table: str
    version: int
    schema_version: int


class DeltaSource(LakeSource):
    """Rows of a Delta table, with the names of its columns.

    ::

        env.from_source(DeltaSource("sales"), source_name="sales")
        env.from_source(DeltaSource("sales", follow=True), source_name="sales")

    It reads the table as of ``version``; None: the newest. With ``follow`` it goes on with the rows
    that each later version appends, for ever; ``only_new`` leaves out those that are there already.
    A later version that changes or removes rows ends the job, or, with ``skip_changes``, is left
    out as a whole.
    """

    def __init__(
        self,
        path: AnyPath,
        *,
        version: int | None = None,
        columns: Sequence[str] | None = None,
        follow: bool = False,
        only_new: bool = False,
        skip_changes: bool = False,
        discover_ms: int = DISCOVER_MS,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        address = TableAddress(folder_uri(path), "DeltaSource", storage_options)
        super().__init__(address, columns, follow, only_new, skip_changes, discover_ms)
        self.version = version
        check_settings(self, {"version": optional(whole(0))})
        self._schemas: dict[int, pa.Schema] = {}

    @property
    def default_name(self) -> str:
        return f"Delta table {short_place(self.address.uri)}"

    def create_enumerator(self, parallelism: int, position: Position) -> "DeltaEnumerator":
        return DeltaEnumerator(self, position)

    def open(self, split: object, position: Position, context: ConnectorContext) -> SplitReader:
        assert isinstance(split, DeltaSplit), split
        if split.problem:
            return RefusingReader(TableUnfit(split.problem))
        schema = self._schema(split.schema_version)
        file = DeltaFile(self.address, split, schema)
        return DataFileReader(file.batches, schema.names, position, split.rows)

    def _schema(self, version: int) -> pa.Schema:
        """The columns that are read."""
        if version not in self._schemas:
            there = table_schema(self.address.load(version))
            names = there.names if self.columns is None else self.columns
            for name in names:
                if name not in there.names:
                    raise TableUnfit(
                        f"{self.address.where} has no column {name!r}; it has "
                        f"{', '.join(map(repr, there.names))}"
                    )
            self._schemas[version] = pa.schema([there.field(name) for name in names])
        return self._schemas[version]


class DeltaEnumerator(LakeEnumerator):
    """Reads the log, in the driver."""

    def __init__(self, source: DeltaSource, position: Position) -> None:
        assert position is None or isinstance(position, _Seen), position
        super().__init__(source, position)
        self._source = source
        self._address = source.address

    def refusal(self, problem: str) -> DeltaSplit:
        version = self.seen.version + 1
        return DeltaSplit("", (), None, version, version, problem)

    def begin(self) -> list[DeltaSplit]:
        table = self._address.load(self._source.version)
        problem = why_unreadable(table)
        if problem is not None:
            raise TableUnfit(f"{self._address.where} {problem}, which the source does not read")
        if not self._source.only_new and pa.table(table.deletion_vectors()).num_rows:
            raise TableUnfit(f"{self._address.where} {_DELETED_ROWS}")
        version = table.version()
        self.seen = _Seen(table_id(table), version, version)
        if self._source.only_new:
            return []
        return [
            DeltaSplit(
                unquote(action["path"]),
                tuple(
                    (column, partition_text(value, column, self._source.default_name))
                    for column, value in (action.get("partition") or {}).items()
                ),
                action["num_records"],
                version,
                version,
            )
            for action in pa.table(table.get_add_actions()).to_pylist()
        ]

    @cached_property
    def _folder(self) -> DeltaFolder:
        return DeltaFolder(self._address.uri, self._address.options)

    def later(self) -> Iterator[list[DeltaSplit]]:
        folder = self._folder
        next_version = self.seen.version + 1
        if folder.size(log_name(next_version)) is None:
            self._check_log(next_version)
            return
        if table_id(self._address.load()) != self.seen.table:
            raise TableUnfit(f"{self._address.where} was replaced by another one; {BEGIN_ANEW}")
        for version in range(next_version, next_version + MOST_VERSIONS):
            entry = folder.read(log_name(version))
            if entry is None:
                return
            yield self._appended(version, [json.loads(line) for line in entry.splitlines()])

    def _appended(self, version: int, actions: Sequence[dict[str, Any]]) -> list[DeltaSplit]:
        """The files of one version, which is seen then."""
        schema_version = self.seen.schema_version
        if any("metaData" in action or "protocol" in action for action in actions):
            schema_version = version
            problem = why_unreadable(self._address.load(version))
            if problem is not None:
                raise TableUnfit(
                    f"{self._address.where} {problem} from version {version} on, which the source "
                    f"does not read"
                )
        added = self._added(version, actions)
        self.seen = _Seen(self.seen.table, version, schema_version)
        return [
            DeltaSplit(
                unquote(add["path"]),
                tuple((add.get("partitionValues") or {}).items()),
                _rows_of(add),
                version,
                schema_version,
            )
            for add in added
        ]

    def _added(self, version: int, actions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the log says of files of new rows."""
        if any("remove" in action and action["remove"]["dataChange"] for action in actions):
            if self._source.skip_changes:
                return []
            raise TableUnfit(
                f"{self._address.where}: its version {version} changes or removes rows, and the "
                f"source reads appended ones only; leave such versions out with "
                f"skip_changes=True, or {BEGIN_ANEW}"
            )
        added = [action["add"] for action in actions if "add" in action]
        if any(add.get("deletionVector") for add in added):
            raise TableUnfit(f"{self._address.where} {_DELETED_ROWS}")
        return [add for add in added if add["dataChange"]]

    def _check_log(self, version: int) -> None:
        """There is no such version: is it not written yet, or will it never be?"""
        names = {name.rpartition("/")[2] for name, _ in self._folder.files_in("_delta_log")}
        if not names:
            raise TableUnfit(f"{self._address.where} is gone; {BEGIN_ANEW}")
        newest = max((name[:20] for name in names if name[:20].isdigit()), default="")
        if newest and int(newest) >= version:
            raise TableUnfit(
                f"{self._address.where}: its version {version} is not in the log any more, which "
                f"keeps versions for delta.logRetentionDuration; {BEGIN_ANEW}"
            )


_DELETED_ROWS: Final = (
    "marks rows as deleted (deletion vectors), which the source does not read; remove the marks "
    "with REORG TABLE ... APPLY (PURGE)"
)


def why_unreadable(table: OpenTable) -> str | None:
    """What keeps Headgate from reading a table's data files; None: nothing does."""
    mapping = table.metadata().configuration.get("delta.columnMapping.mode") or "none"
    if mapping != "none":
        return f"maps its columns (delta.columnMapping.mode={mapping})"
    unknown = set(table.protocol().reader_features or ()) - _READABLE
    return f"has the feature {min(unknown)}" if unknown else None


def _rows_of(add: Mapping[str, Any]) -> int | None:
    statistics = json.loads(add.get("stats") or "{}")
    found = statistics.get("numRecords")
    return found if isinstance(found, int) else None


class DeltaFile:
    """One data file, read with the columns of the table."""

    def __init__(self, address: TableAddress, split: DeltaSplit, schema: pa.Schema) -> None:
        self._address = address
        self._split = split
        self._schema = schema
        self._constants = dict(split.partition)

    def batches(self, skipped: int) -> Batches:
        """The rows after so many."""
        folder = DeltaFolder(self._address.uri, self._address.options)
        shown = folder.shown(self._split.path)
        if folder.size(self._split.path) is None:
            raise FileGone(shown, "is gone: a VACUUM has removed it before it was read")
        with closing(folder.open(self._split.path)) as raw:
            try:
                for batch in self._read(parquet.ParquetFile(raw), skipped):
                    yield self._complete(batch)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise PathUnusable(shown, f"cannot be read: {words(error)}") from error

    def _read(self, file: Any, skipped: int) -> Iterator[pa.RecordBatch]:
        groups = list(range(file.num_row_groups))
        while groups and file.metadata.row_group(groups[0]).num_rows <= skipped:
            skipped -= file.metadata.row_group(groups.pop(0)).num_rows
        there = file.schema_arrow.names
        wanted = [name for name in self._schema.names if name in there]
        for batch in file.iter_batches(BATCH_ROWS, groups, wanted or there[:1]):
            rest, skipped = without_rows(batch, skipped)
            if rest.num_rows:
                yield rest

    def _complete(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """With the values of the partition, and nulls for columns that the file has not."""
        arrays = []
        for field in self._schema:
            if field.name in self._constants:
                value = _partition_value(self._constants[field.name], field.type)
                arrays.append(pa.repeat(value, batch.num_rows))
            elif field.name in batch.schema.names:
                arrays.append(batch.column(field.name).cast(field.type))
            else:
                arrays.append(pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """What the log has written; it may leave out that an instant is in UTC."""
    if text and pa.types.is_timestamp(kind) and kind.tz and not _ZONE.search(text):
        text += "Z"
    return pa.scalar(text or None, pa.string()).cast(kind)


_ZONE: Final = re.compile(r"(Z|[+-]\d\d:?\d\d)$")
