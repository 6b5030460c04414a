"""Records as rows of a PostgreSQL table: upserts at least once, inserts exactly once in two ways.

``upsert`` merges by key; ``insert`` keeps rows in the checkpoint and writes them when it completes;
``prepare`` writes them at once into a transaction that is prepared with the checkpoint and
committed when it completes. Law: a sink travels to the tasks and holds nothing open.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headgate.base.errors import PlanInvalid
from headgate.connectors.checks import COUNT, check_settings, one_of
from headgate.connectors.postgres.client import (
    Limits,
    SinkDatabase,
    check_dsn,
    psycopg_module,
)
from headgate.connectors.postgres.commit_log import COMMIT_LOG, log_of
from headgate.connectors.postgres.commits import LotCommitter
from headgate.connectors.postgres.inserts import InsertLot
from headgate.connectors.postgres.prepared import PreparingWriter, check_server, name_writer
from headgate.connectors.postgres.table import TableRows, blamed, find_table, quoted_table
from headgate.connectors.postgres.upsert import UpsertWriter
from headgate.connectors.staged import PENDING_BYTES, Staged, StagingWriter, whose
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Committer, CommittingSinkWriter, TwoPhaseCommittingSink

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
            return UpsertWriter(
                self.dsn,
                name,
                self.limits,
                self.table,
                self.columns,
                self.keys,
                self.batch_rows,
                context,
            )
        # A transaction of rows stays open from checkpoint to checkpoint.
        limits = replace(self.limits, idle_ms=0)
        database = SinkDatabase(self.dsn, name, limits, sleep=context.sleep)
        context.when_cancelled(database.abort)
        try:
            connection = database.open()
            target = find_table(connection, self.table, self.columns, name)
            maker = TableRows(target, self.table, name, context.malformed)
            if self.mode == "prepare":
                log = log_of(self.commit_log, context)
                writer = name_writer(context, connection, self.table)
                rows = self.batch_rows
                return PreparingWriter(database, writer, log, self.table, target, maker, rows)
        except psycopg_module(name).Error as error:
            database.close()
            raise blamed(database, self.table, (), error) from error
        except BaseException:
            database.close()
            raise
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
            try:
                connection = database.open()  # what is wrong with the server is told at the start
                if self.mode == "prepare":
                    check_server(connection, database.whose)
                log.make(connection)
            except psycopg_module(database.whose).Error as error:
                database.close()
                raise blamed(database, self.commit_log, (), error) from error
            except BaseException:
                database.close()
                raise
        # An upserting sink commits nothing of its own, but what it did in another mode before.
        return LotCommitter(database, self.table, log)
