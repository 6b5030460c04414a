"""Iceberg tables as targets of commits: the second phase of ``sink``.

Each commit is one transaction with the files and a note of the writer, in a property of the table:
snapshots expire, properties do not. Law: a commit is refused by the catalog if anybody has
committed since the note was read. Notes are kept for a month; a lot that is older than the notes is
refused, never written twice.
"""

import time
import warnings
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.base.errors import TableUnfit
from headgate.connectors.arrow.staged_rows import DELETED, StagedLot, last_changes
from headgate.connectors.arrow.table_commits import words
from headgate.connectors.iceberg.catalog import IcebergAddress, OpenCatalog, OpenTable, table_id
from headgate.connectors.iceberg.data_files import (
    IcebergFile,
    file_size,
    library_file,
    read_changes,
    remove_files,
)
from headgate.connectors.libraries import library

NOTE: Final = "headgate.writer."
"""The property of a writer's last lot: its number, and when it was committed."""
FORGOTTEN: Final = "headgate.forgotten-before-ms"
"""Notes from before this time were removed."""
NOTES_KEPT_MS: Final = 30 * 24 * 3600 * 1000


class IcebergTarget:
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

    def shown(self, file: IcebergFile) -> str:
        return file.path

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

    def settle(self, table: OpenTable) -> None:
        """The catalog has done so, and files are settled before it hears of them."""

    def settle_found(self, table: OpenTable, lots: Sequence[StagedLot]) -> None:
        """The same."""

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
            transaction.delete(self._those(rows), snapshot_properties=about)
        new = rows.filter(pc.invert(rows.column(DELETED))).drop_columns([DELETED])
        if new.num_rows:
            try:
                transaction.append(_with_required(table, new), snapshot_properties=about)
            except ValueError as error:  # the columns, by the library's own comparison
                raise TableUnfit(
                    f"{self.where}: its columns were changed while rows waited for their commit: "
                    f"{words(error)}; undo the change of the table, and start the job again"
                ) from error

    def _those(self, rows: pa.Table) -> Any:
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
