"""Records as rows of a database: any module of Python's DB-API, SQLite among them.

Exactly once: rows wait in the task and in its checkpoints, and are written when the checkpoint
completes, in one transaction with a note of their writer (see ``commits``). Law: at most
``max_pending_bytes`` of rows wait, which bounds memory and checkpoints.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from headgate.api.row import GONE, Row, values_of
from headgate.base.elements import Record
from headgate.base.errors import ConnectorError
from headgate.connectors.checks import COUNT, Check, check_settings
from headgate.connectors.paths import AnyPath, local_path
from headgate.connectors.sql.commits import (
    TIMEOUT_MS,
    Connect,
    Connection,
    DatabaseConnection,
    RowsCommit,
    RowsCommitter,
    is_name,
)
from headgate.connectors.staged import (
    PENDING_BYTES,
    DirectWriter,
    Staged,
    StagingWriter,
    checked,
    cut,
    whose,
)
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Committer, CommittingSinkWriter, TwoPhaseCommittingSink

BATCH_ROWS: Final = 1000
"""Rows that go to the database with one call."""
SQLITE_WAIT_S: Final = 60.0
"""SQLite lets one task write at a time; the others wait for their turn."""


CHECKS: Final = {
    "connect": Check("a function that returns a new connection", callable),
    "statement": Check("one in SQL", lambda statement: bool(str(statement).strip())),
    "table": Check("a name of letters and digits", is_name),
    "batch_rows": COUNT,
    "max_pending_bytes": COUNT,
    "commit_timeout_ms": COUNT,
}


class DbApiSink(TwoPhaseCommittingSink):
    """Runs ``statement`` for each record, in transactions that follow the checkpoints.

    ::

        stream.sink_to(DbApiSink(
            lambda: psycopg2.connect("dbname=shop"),
            "INSERT INTO sales (item, price) VALUES (%s, %s)",
        ))

    ``connect`` is called in the tasks. ``parameters`` makes the values for the statement of a
    record; without it a Row, tuple or list stands for its values, a dict for itself, and anything
    else for the only value. ``exactly_once=False`` writes at once, at least once, and keeps no
    notes: for statements that may be repeated, such as upserts. A transaction that takes longer
    than ``commit_timeout_ms`` is interrupted, and the job is restarted.
    """

    def __init__(
        self,
        connect: Connect,
        statement: str,
        *,
        parameters: Callable[[Record], Sequence[Any] | Mapping[str, Any]] | None = None,
        exactly_once: bool = True,
        table: str = "headgate_commits",
        batch_rows: int = BATCH_ROWS,
        max_pending_bytes: int = PENDING_BYTES,
        commit_timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self.connect = connect
        self.statement = statement
        self.parameters = parameters
        self.exactly_once = exactly_once
        self.table = table
        self.batch_rows = batch_rows
        self.max_pending_bytes = max_pending_bytes
        self.commit_timeout_ms = commit_timeout_ms
        check_settings(self, CHECKS)

    @property
    def default_name(self) -> str:
        found = re.search(r"\b(?:into|update|from)\s+([\w.]+)", self.statement, re.IGNORECASE)
        return f"table {found[1]}" if found else "database"

    def create_writer(self, context: ConnectorContext) -> CommittingSinkWriter:
        make = partial(_rows, self.parameters or values_for, context.malformed)
        size = self.batch_rows
        if self.exactly_once:
            return StagingWriter(
                make,
                context,
                self.max_pending_bytes,
                lot=_lot,
                batch_messages=size,
                advice="raise max_pending_bytes, or give exactly_once=False and a statement that "
                "may be repeated",
            )
        database = self._database(context, whole=False)

        def send(rows: list[Any]) -> None:
            database.write(self.statement, cut(rows, size, None))

        return DirectWriter(make, send, database.close, batch_messages=size)

    def create_committer(self, context: ConnectorContext) -> Committer:
        task = context.task
        writers = f"{task.job} / {context.uid or context.operator} / {task.subtask}"
        database = self._database(context, whole=True)
        committer = RowsCommitter(database, self.statement, self.table, writers)
        return checked(committer, RowsCommitter.make_table) if self.exactly_once else committer

    def _database(self, context: ConnectorContext, whole: bool) -> DatabaseConnection:
        return DatabaseConnection(
            self.connect, whole, self.commit_timeout_ms, whose(context), context.is_cancelled
        )


class SqliteSink(DbApiSink):
    """``DbApiSink`` for a file of SQLite; all tasks must see the file.

    ::

        stream.sink_to(SqliteSink("sales.db", "INSERT INTO sales VALUES (?, ?)"))
    """

    def __init__(self, path: AnyPath, statement: str, **options: Any) -> None:
        """``options`` are those of ``DbApiSink``."""
        connect = partial(_open_sqlite, os.path.abspath(local_path(path)))
        super().__init__(connect, statement, **options)


def _open_sqlite(path: str) -> Connection:
    return sqlite3.connect(path, timeout=SQLITE_WAIT_S)


def values_for(record: Record) -> Sequence[Any] | Mapping[str, Any]:
    """What a statement gets of a record."""
    if isinstance(record, Row):
        kind = record.get_row_kind()
        if kind in GONE:
            raise ConnectorError(
                f"{record!r:.200} says that a row is gone ({kind}), and the statement writes rows; "
                f"filter such rows, or give parameters=... for a statement that knows them"
            )
        return tuple(values_of(record))
    if isinstance(record, tuple | list | Mapping):
        return record
    return (record,)


def _rows(
    values: Callable[[Record], Any],
    malformed: Callable[[object, Exception], None],
    records: list[Record],
) -> list[Any]:
    """One for each record; a record that ``values`` fails for is left out, or raises."""
    rows: list[Any] = []
    for record in records:
        try:
            rows.append(values(record))
        except Exception as error:
            malformed(record, error)
    return rows


def _lot(staged: Staged) -> RowsCommit:
    return RowsCommit(staged.writer, staged.number, staged.batches)
