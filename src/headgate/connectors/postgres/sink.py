"""Records as rows of a PostgreSQL table: upserts at least once, inserts exactly once in two ways.

``upsert`` sends a batch by COPY to a temporary table and merges it by key; ``insert`` keeps rows in
the checkpoint and writes them when it completes; ``prepare`` writes them at once into a transaction
that is prepared with the checkpoint and committed when it completes (see ``commits``). Law: a sink
travels to the tasks and holds nothing open. The last row of a key wins, and writing a batch twice
changes nothing, so a lost connection is answered by writing the batch again. Keys are merged in
their order, so that two tasks do not wait for each other's locks in a circle.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.api.row import GONE, Row, RowKind
from headgate.base.elements import Record
from headgate.base.errors import PlanInvalid
from headgate.connectors.checks import COUNT, check_settings, one_of
from headgate.connectors.postgres.client import (
    Limits,
    SinkDatabase,
    check_dsn,
    first_line,
    psycopg_module,
)
from headgate.connectors.postgres.commits import (
    COMMIT_LOG,
    InsertLot,
    LotCommitter,
    PreparingWriter,
    check_server,
    log_of,
    writer_id,
)
from headgate.connectors.postgres.table import (
    TableRows,
    TargetTable,
    blaming,
    copy_rows,
    find_table,
    quoted,
    quoted_table,
)
from headgate.connectors.staged import PENDING_BYTES, Staged, StagingWriter, whose
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import Committer, CommittingSinkWriter, TwoPhaseCommittingSink

if TYPE_CHECKING:
    from headgate.connectors.postgres.client import PgConnection

LINGER_S: Final = 1.0
"""Rows that wait for a full batch for longer are written with the next records."""
STAGE: Final = "pg_temp.headgate_stage"
NUMBER: Final = "headgate_number"
IS_GONE: Final = "headgate_gone"


@dataclass(frozen=True, slots=True)
class KeyedMerge:
    """The statements from the temporary table to the one that people read."""

    target: TargetTable
    keys: tuple[str, ...]

    @property
    def stage(self) -> str:
        columns = self.target.listed()
        return (
            f"CREATE TEMPORARY TABLE headgate_stage ON COMMIT DELETE ROWS AS SELECT {columns}, "
            f"0 AS {NUMBER}, false AS {IS_GONE} FROM {self.target.name} WITH NO DATA"
        )

    @property
    def upsert(self) -> str:
        target, keys = self.target, self.target.listed(self.keys)
        others = [quoted(column) for column in target.columns if column not in self.keys]
        changes = ", ".join(f"{column} = EXCLUDED.{column}" for column in others)
        return (
            f"INSERT INTO {target.name} ({target.listed()}) SELECT {target.listed()} "
            f"FROM ({self._newest}) AS newest WHERE NOT {IS_GONE} ORDER BY {keys} "
            f"ON CONFLICT ({keys}) DO {f'UPDATE SET {changes}' if changes else 'NOTHING'}"
        )

    @property
    def delete(self) -> str:
        match = " AND ".join(f"t.{quoted(key)} = newest.{quoted(key)}" for key in self.keys)
        return (
            f"DELETE FROM {self.target.name} AS t USING ({self._newest}) AS newest "
            f"WHERE {IS_GONE} AND {match}"
        )

    @property
    def _newest(self) -> str:
        keys = self.target.listed(self.keys)
        return f"SELECT DISTINCT ON ({keys}) * FROM {STAGE} ORDER BY {keys}, {NUMBER} DESC"


class UpsertWriter(CommittingSinkWriter):
    """Writes at once, so it has nothing to commit later."""

    def __init__(self, sink: "PostgresSink", context: ConnectorContext) -> None:
        self._table = sink.table
        self._asked_columns = sink.columns
        self._keys = sink.keys
        self._batch_rows = sink.batch_rows
        self._rows: list[tuple[Any, ...]] = []
        self._has_gone = False
        self._written_s = time.monotonic()
        name = whose(context)
        self._database = SinkDatabase(sink.dsn, name, sink.limits, self._make_ready, context.sleep)
        context.when_cancelled(self._database.abort)
        self._database.open()
        self._maker = TableRows(self._merge.target, sink.table, name, context.malformed)

    def write(self, records: list[Record]) -> None:
        rows = self._rows
        kinds = [record.get_row_kind() if type(record) is Row else None for record in records]
        if any(kind in GONE for kind in kinds):
            self._add_with_gone(records, kinds)
        else:
            found = self._maker.rows(records)
            count = len(rows)
            rows += [(*row, number, False) for number, row in enumerate(found, count)]
        is_due = time.monotonic() - self._written_s > LINGER_S
        if len(rows) >= self._batch_rows or is_due:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            with blaming(self._database, self._table, self._merge.target.columns):
                self._database.repeat(self._write)
            self._rows = []
            self._has_gone = False
        self._written_s = time.monotonic()

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[Record]:
        return ()

    def close(self) -> None:
        self._database.close()

    def _add_with_gone(self, records: list[Record], kinds: list[RowKind | None]) -> None:
        columns = self._merge.target.columns
        keys = [column in self._keys for column in columns]
        for record, kind in zip(records, kinds, strict=True):
            gone = kind in GONE
            for row in self._maker.rows([record]):
                if gone:  # of the row that is gone only the key is sure to be known
                    row = [value if key else None for value, key in zip(row, keys, strict=True)]
                self._rows.append((*row, len(self._rows), gone))
                self._has_gone |= gone

    def _write(self, connection: "PgConnection") -> None:
        columns = (*self._merge.target.columns, NUMBER, IS_GONE)
        with connection.transaction():
            copy_rows(connection, STAGE, columns, lambda: self._rows)
            if self._has_gone:
                connection.execute(self._merge.delete)
            connection.execute(self._merge.upsert)

    def _make_ready(self, connection: "PgConnection") -> None:
        """Create the temporary table on a new connection, and check that the merge can work."""
        whose = self._database.whose
        target = find_table(connection, self._table, self._asked_columns, whose)
        missing = [key for key in self._keys if key not in target.columns]
        if missing:
            raise PlanInvalid(
                f"{whose}: the key {missing[0]!r} is no column that is written to {self._table}; "
                f"those are {', '.join(target.columns)}"
            )
        self._merge = KeyedMerge(target, self._keys)
        psycopg = psycopg_module(whose)
        try:
            connection.execute(self._merge.stage)
            connection.execute(f"EXPLAIN {self._merge.upsert}")
        except psycopg.errors.InvalidColumnReference:
            raise PlanInvalid(
                f"{whose}: table {self._table} has no primary key or unique index on exactly "
                f"({', '.join(self._keys)}), which an upsert needs; create one, or give other keys"
            ) from None
        except psycopg.ProgrammingError as error:
            raise PlanInvalid(
                f"{whose}: rows cannot be merged into {self._table}: {first_line(error)}"
            ) from None


BATCH_ROWS: Final = 10_000
"""Rows that go to the server with one COPY."""
TIME_LIMITS: Final = Limits()
CHECKS: Final = {
    "mode": one_of("upsert", "insert", "prepare"),
    "batch_rows": COUNT,
    "max_pending_bytes": COUNT,
    "statement_timeout_ms": COUNT,
    "lock_timeout_ms": COUNT,
}


class PostgresSink(TwoPhaseCommittingSink):
    """Writes records to a table of PostgreSQL.

    ::

        stream.sink_to(PostgresSink("host=db dbname=shop", "sales"))               # exactly once
        stream.sink_to(PostgresSink("host=db dbname=shop", "totals", keys=["item"]))    # by key

    A record is a Row, tuple, list or dict with a value for each of ``columns`` (all columns of the
    table if they are not given). ``mode``: ``"upsert"`` (the default with ``keys``) keeps the last
    row of each key, at least once; a Row of kind DELETE or UPDATE_BEFORE deletes its key.
    ``"insert"`` (the default without ``keys``) appends exactly once, with rows kept in the
    checkpoint; ``"prepare"`` does so with rows kept in the server by ``PREPARE TRANSACTION``.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        mode: str | None = None,
        batch_rows: int = BATCH_ROWS,
        max_pending_bytes: int = PENDING_BYTES,
        statement_timeout_ms: int = TIME_LIMITS.statement_ms,
        lock_timeout_ms: int = TIME_LIMITS.lock_ms,
        commit_log: str = COMMIT_LOG,
    ) -> None:
        self.dsn = check_dsn(dsn, "PostgresSink")
        self.mode = mode or ("upsert" if keys else "insert")
        self.batch_rows = batch_rows
        self.max_pending_bytes = max_pending_bytes
        self.statement_timeout_ms = statement_timeout_ms
        self.lock_timeout_ms = lock_timeout_ms
        check_settings(self, CHECKS)
        if (self.mode == "upsert") != bool(keys):
            raise PlanInvalid(
                f"PostgresSink: mode {self.mode!r} {'needs' if not keys else 'takes no'} keys; "
                f"keys are the columns of a unique index, for mode='upsert'"
            )
        quoted_table(table)
        quoted_table(commit_log)
        self.table = table
        self.columns = None if columns is None else tuple(columns)
        self.keys = tuple(keys or ())
        self.limits = Limits(statement_timeout_ms, lock_timeout_ms)
        self.commit_log = commit_log

    @property
    def default_name(self) -> str:
        return f"table {self.table}"

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        name = whose(context)
        if self.mode == "upsert":
            return UpsertWriter(self, context)
        # A transaction of rows stays open from checkpoint to checkpoint.
        limits = replace(self.limits, idle_ms=0)
        database = SinkDatabase(self.dsn, name, limits, sleep=context.sleep)
        context.when_cancelled(database.abort)
        with blaming(database, self.table):
            connection = database.open()
            target = find_table(connection, self.table, self.columns, name)
            maker = TableRows(target, self.table, name, context.malformed)
            if self.mode == "prepare":
                log = log_of(self.commit_log, context)
                return PreparingWriter(
                    database,
                    context.task.job_id,
                    writer_id(context, connection, self.table),
                    log,
                    self.table,
                    target,
                    maker,
                    self.batch_rows,
                )
        database.close()
        columns = target.columns

        def lot(staged: Staged) -> InsertLot:
            return InsertLot(staged.writer, staged.number, columns, staged.batches)

        return StagingWriter(
            maker.inserts,
            context,
            self.max_pending_bytes,
            lot=lot,
            batch_messages=self.batch_rows,
            advice="raise max_pending_bytes, or let them wait in the server with mode='prepare'",
        )

    def create_committer(self, context: ConnectorContext) -> Committer:
        database = SinkDatabase(self.dsn, whose(context), self.limits, sleep=context.sleep)
        context.when_cancelled(database.abort)
        log = log_of(self.commit_log, context)
        if self.mode != "upsert":
            with blaming(database, self.commit_log):
                connection = database.open()  # what is wrong with the server is told at the start
                if self.mode == "prepare":
                    check_server(connection, database.whose)
                log.make(connection)
        # An upserting sink commits nothing of its own, but what it did in another mode before.
        return LotCommitter(database, self.table, log)
