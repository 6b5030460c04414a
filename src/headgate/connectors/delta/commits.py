"""Delta tables as targets of commits: the second phase of ``sink``.

Each commit carries Delta's own application transactions: the writer's id as the application, the
number of its lot as the version. Law: a lot and its transaction are one entry of the log, and Delta
refuses an entry whose transaction was changed since the table was read.
"""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from headgate.base.errors import TableUnfit
from headgate.connectors.arrow.staged_rows import DELETED, StagedLot, last_changes
from headgate.connectors.delta.data_files import DeltaDataFile
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

CLOCKS_DIFFER_MS: Final = 60_000
"""Of a worker and of the file system that the table is on."""


class DeltaTarget:
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

    def close(self) -> None:
        """The library keeps nothing open."""

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
