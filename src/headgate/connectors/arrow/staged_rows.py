"""Rows on their way into a table: the first phase of sinks that commit data files to a lake.

A writer gathers records to Arrow tables and hands them to a *stage*, which writes data files that
nobody reads before they are committed. Law: a lot names all files that were written since the lot
before; a file that no lot has named is removed when the writer is closed; writer ids are made anew
with each writer, so the lots of two runs are never taken for each other. Records that are no rows
of the table go to the operator's error policy, one by one. Of a row that is gone (deleted, or its
state before an update, whose key may be another) only the key is staged.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headgate.api.row import GONE, Row, RowKind, are_inserts
from headgate.base.elements import Record
from headgate.base.errors import RecordUnfit
from headgate.connectors.arrow.columns import ColumnMaker, RowShape
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import CommittingSinkWriter

BATCH_ROWS: Final = 1024
"""Rows are made columns in lots of this size, whose bytes are known then."""
FILE_ROWS: Final = 1 << 20
FILE_BYTES: Final = 64 << 20
"""Rows of so many bytes in memory are written to files before the checkpoint asks for it."""
DELETED: Final = "_headgate_deleted"
"""The column of staged changes that says whether the row of this key goes."""


@dataclass(frozen=True, slots=True)
class StagedLot:
    """Data files that wait for one commit; what a sink of a table keeps in checkpoints."""

    writer: str
    number: int
    """Lots of a writer are counted from 1, and are committed in this order."""
    table: str
    """The table's own id: another table of the same name is not this one."""
    files: tuple[Any, ...]
    """As the stage has returned them."""
    prepared_ms: int
    checkpoint: int
    """0: at the end of the input."""


class Stage(Protocol):
    """Writes data files of one task; what it returns for a file is small and can be pickled."""

    table: str
    """The id of the table."""

    def write(self, rows: pa.Table) -> Sequence[Any]:
        """Files with these rows, durable; on an error it leaves none behind."""

    def discard(self, files: Sequence[Any]) -> None:
        """Remove files that nobody will commit, as far as that is possible."""


class StagedRowsWriter(CommittingSinkWriter):
    """Gathers the records of one task.

    ``keys``: the columns by which changes are merged, so that rows of all kinds are taken; without
    keys rows are appended, and only inserts are taken. ``name``: of the writer; empty: a new one.
    """

    def __init__(
        self,
        schema: pa.Schema,
        stage: Stage,
        context: ConnectorContext,
        keys: Sequence[str] = (),
        name: str = "",
    ) -> None:
        types = tuple(str(field.type) for field in schema)
        self._keys = tuple(keys)
        self._needed = [
            field.name for field in schema if keys and not field.nullable and field.name not in keys
        ]
        """Columns that are null in no row but those that are gone."""
        for name in self._needed:
            place = schema.get_field_index(name)
            schema = schema.set(place, schema.field(place).with_nullable(True))
        self._maker = ColumnMaker(RowShape(schema, types, "UTC"), context.operator)
        self._are_keys = [name in self._keys for name in schema.names]
        self._stage = stage
        self._operator = context.operator
        self._malformed = context.malformed
        self._now_ms = context.now_ms
        self._records: list[Record] = []
        self._deleted: list[bool] = []
        """Whether each record's row is gone, if there are keys."""
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._files: list[Any] = []
        self._writer = name or secrets.token_hex(8)
        self._number = 0

    def write(self, records: list[Record]) -> None:
        if not are_inserts(records):
            records = self._changes(records)
        elif self._keys:
            self._deleted += [False] * len(records)
        self._records += records
        if len(self._records) >= BATCH_ROWS:
            self._make_batch()
            if self._rows >= FILE_ROWS or self._bytes >= FILE_BYTES:
                self._write_files()

    def flush(self) -> None:
        self._make_batch()

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[StagedLot]:
        self._make_batch()
        self._write_files()
        if not self._files:
            return ()
        self._number += 1
        files, self._files = tuple(self._files), []
        checkpoint = 0 if moment is None else moment.checkpoint
        return [
            StagedLot(
                self._writer, self._number, self._stage.table, files, self._now_ms(), checkpoint
            )
        ]

    def close(self) -> None:
        files, self._files = self._files, []
        self._records, self._batches = [], []
        self._stage.discard(files)

    def _changes(self, records: list[Record]) -> list[Record]:
        """What is staged of the records, when not all are inserts."""
        found: list[Record] = []
        for record in records:
            kind = record.get_row_kind() if isinstance(record, Row) else RowKind.INSERT
            if self._keys:
                staged = self._key_of(record) if kind in GONE else record
                if staged is not None:
                    found.append(staged)
                    self._deleted.append(kind in GONE)
            elif kind is RowKind.INSERT:
                found.append(record)
            else:
                problem = f"is a change ({kind}), and the sink appends; give mode='upsert'"
                self._malformed(record, RecordUnfit(self._operator, "", record, problem))
        return found

    def _key_of(self, record: Record) -> Row | None:
        """The row with nothing but its key; None: it is no row of the table."""
        try:
            values = self._maker.values(record)
        except RecordUnfit as error:
            self._malformed(record, error)
            return None
        pairs = zip(values, self._are_keys, strict=True)
        return Row(*[value if is_key else None for value, is_key in pairs])

    def _make_batch(self) -> None:
        records, self._records = self._records, []
        deleted, self._deleted = self._deleted, []
        if not records:
            return
        try:
            batch = self._batch(records, deleted)
        except RecordUnfit:  # each alone, to learn which one it is
            fit = [self._fits(records[n], deleted[n : n + 1]) for n in range(len(records))]
            if not any(fit):
                return
            batch = self._batch(list(compress(records, fit)), list(compress(deleted, fit)))
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes

    def _fits(self, record: Record, deleted: list[bool]) -> bool:
        try:
            self._batch([record], deleted)
        except RecordUnfit as error:
            self._malformed(record, error)
            return False
        return True

    def _batch(self, records: list[Record], deleted: list[bool]) -> pa.RecordBatch:
        """Raises RecordUnfit."""
        batch = self._maker.batch(list(self._maker.columns(records)))
        for key in self._keys:
            if batch.column(key).null_count:
                raise RecordUnfit(self._operator, key, None, "is the key of a row; give it a value")
        if self._keys:
            batch = batch.append_column(DELETED, pa.array(deleted, pa.bool_()))
        for name in self._needed:
            column = batch.column(name)
            if (
                column.null_count
                and pc.any(pc.greater(column.is_null(), batch.column(DELETED))).as_py()
            ):
                problem = "stands in a column that the schema calls not null"
                raise RecordUnfit(self._operator, name, None, problem)
        return batch

    def _write_files(self) -> None:
        if self._batches:
            rows = pa.Table.from_batches(self._batches)
            if self._keys:
                rows = last_changes(rows, self._keys)
            self._files += self._stage.write(rows)
            self._batches, self._rows, self._bytes = [], 0, 0


def last_changes(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order of the rows."""
    place = "\0place"
    numbered = rows.select(list(keys)).append_column(place, pa.array(range(rows.num_rows)))
    last = numbered.group_by(list(keys)).aggregate([(place, "max")]).column(f"{place}_max")
    if len(last) == rows.num_rows:
        return rows
    return rows.take(last.combine_chunks().sort())
