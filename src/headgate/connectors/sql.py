"""Records as rows of a database: any module of Python's DB-API, SQLite among them.

Exactly once: rows wait in the task and in its checkpoints, and are written when the checkpoint
completes. A table of notes counts the lots committed for each writer, with a row per writer, that
is, per task and attempt. Law: a lot and its note are written in one transaction, and no lot whose
number was noted is written again, so anybody may repeat a commit. At most ``max_pending_bytes`` of
rows wait, which bounds memory and checkpoints; waiting for the database is bounded in time, and the
error says what was waited for.
"""

import logging
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from headgate.api.row import GONE, Row, values_of
from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, DatabaseUnready, TableUnfit, TaskCancelled, shown
from headgate.base.moved import loads
from headgate.connectors.checks import COUNT, Check, check_settings
from headgate.connectors.libraries import words
from headgate.connectors.paths import AnyPath, local_path
from headgate.connectors.servers import LOOK_S
from headgate.connectors.staged import (
    PENDING_BYTES,
    DirectWriter,
    Staged,
    StagingWriter,
    checked,
    cut,
    whose,
    writer_note,
)
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Committer, CommittingSinkWriter, TwoPhaseCommittingSink

Connection: TypeAlias = Any
"""A connection of the DB-API, whose modules have no types in common."""
Connect: TypeAlias = Callable[[], Connection]

WHOSE_CHARS: Final = 200
TIMEOUT_MS: Final = 300_000
WARN_S: Final = 30.0
"""A transaction that takes longer is logged, once."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RowsCommit:
    """A lot of rows that waits for its transaction; what the sink keeps in checkpoints."""

    writer: str
    number: int
    """Lots of a writer are counted from 1, and are committed in this order."""
    batches: tuple[bytes, ...]
    """Lists of parameters, pickled."""


class DatabaseConnection:
    """One connection, opened when it is needed and again after trouble."""

    def __init__(
        self,
        connect: Connect,
        whole: bool = True,
        timeout_ms: int = TIMEOUT_MS,
        whose: str = "",
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """``whole``: transactions must be atomic, so autocommit must be off; ``whose``: the sink,
        for messages; ``is_cancelled``: of its task.
        """
        self._is_cancelled = is_cancelled
        self._connect = connect
        self._whole = whole
        self._timeout_s = timeout_ms / 1000
        self._whose = whose or "a sink"
        self._connection: Connection | None = None

    def run(self, work: Callable[[Any], None]) -> None:
        """Call ``work`` with a cursor, in one transaction.

        A connection that was idle for long may be dead: then it is tried again with a new one.
        """
        was_open = self._connection is not None
        try:
            self._try(work)
        except (ConnectorError, TaskCancelled):
            raise
        except Exception as error:
            if not was_open or _is_lock(error):
                raise
            self._try(work)

    def write(self, statement: str, batches: Iterable[Sequence[Any]]) -> None:
        """All rows in one transaction; raises ConnectorError with the row at fault."""
        there = list(batches)
        try:
            self.run(lambda cursor: _write(cursor, statement, there))
        except (ConnectorError, TaskCancelled):
            raise
        except Exception as error:
            raise self.blame(statement, there, error) from error

    def blame(self, statement: str, batches: Sequence[Sequence[Any]], error: Exception) -> Any:
        """The error with the row at fault, found by trying each; the trial is rolled back."""
        if _is_lock(error):  # no row is at fault, and looking for it would wait again
            return self.locked(error)
        row: Any = None
        with suppress(Exception):
            connection = self._open()
            with self._watch(connection, "looks for a row"):
                cursor = connection.cursor()
                for batch in batches:
                    for row in batch:
                        cursor.execute(statement, row)
                row = None
        self._forget()
        of_row = "" if row is None else f" for the row {shown(row)}"
        kind = TableUnfit if _is_of_statement(error) else ConnectorError
        return kind(
            f"the database refuses {statement!r}{of_row}: {words(error)}; mend the statement, "
            f"the table or the records"
        )

    def locked(self, error: Exception) -> ConnectorError:
        """Somebody else holds what a transaction needs."""
        return DatabaseUnready(
            f"{self._whose} waits for the database, where another transaction holds a lock, and "
            f"gives up: {words(error)}; end that transaction, or let connect() wait longer"
        )

    def close(self) -> None:
        """Idempotent."""
        self._forget()

    def _try(self, work: Callable[[Any], None]) -> None:
        connection = self._open()
        watch = self._watch(connection, "writes to the database")
        try:
            with watch:
                cursor = connection.cursor()
                try:
                    work(cursor)
                    connection.commit()
                finally:
                    with suppress(Exception):
                        cursor.close()
        except BaseException as error:
            self._forget()
            if watch.was_cancelled:
                raise TaskCancelled(f"{self._whose} was cancelled") from error
            if watch.is_over and isinstance(error, Exception):
                raise DatabaseUnready(
                    f"{self._whose} has waited {self._timeout_s:g} s for the database to take a "
                    f"transaction, and gives up ({words(error)}); see what holds it up there, or "
                    f"raise commit_timeout_ms"
                ) from error
            raise

    def _watch(self, connection: Connection, doing: str) -> "_Watch":
        what = f"{self._whose} {doing}"
        return _Watch(connection, self._timeout_s, what, self._is_cancelled)

    def _open(self) -> Connection:
        if self._connection is None:
            try:
                connection = self._connect()
            except Exception as error:
                raise DatabaseUnready(
                    f"no connection to the database: {words(error)}; check connect()"
                ) from error
            self._connection = connection
            if self._whole and _commits_by_itself(connection):
                self._forget()
                raise ConnectorError(
                    "the connection commits each statement by itself; turn autocommit off, so that "
                    "rows and the note of them are written together"
                )
        return self._connection

    def _forget(self) -> None:
        """Roll back and close."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.rollback()
            with suppress(Exception):
                connection.close()


class _Watch:
    """Watches a transaction: warns if it takes long, and interrupts it at the time limit, or when
    the task is cancelled.

    Connections of most modules can be interrupted from another thread (``interrupt`` or
    ``cancel``); for others there is only the warning, and the time limit of ``connect()``.
    """

    def __init__(
        self,
        connection: Connection,
        limit_s: float,
        what: str,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self.is_over = False
        self.was_cancelled = False
        self._is_cancelled = is_cancelled
        self._connection = connection
        self._limit_s = limit_s
        self._what = what
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-db-watch", daemon=True)

    def __enter__(self) -> "_Watch":
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        if self._limit_s > WARN_S:
            if self._ends_until(self._began + WARN_S):
                return
            if not self.was_cancelled:
                log.warning("%s, which takes more than %g s; is there a lock?", self._what, WARN_S)
        if self._ends_until(self._began + self._limit_s):
            return
        self.is_over = not self.was_cancelled
        self._interrupt()

    def _ends_until(self, deadline_s: float) -> bool:
        """Whether the transaction ends by itself, before that time or the task's cancellation."""
        while not self.was_cancelled and (left_s := deadline_s - time.monotonic()) > 0:
            if self._done.wait(min(left_s, LOOK_S)):
                return True
            self.was_cancelled = self._is_cancelled()
        return self._done.is_set()

    def _interrupt(self) -> None:
        for name in ("interrupt", "cancel"):
            stop = getattr(self._connection, name, None)
            if callable(stop):
                with suppress(Exception):
                    stop()
                return
        if self.was_cancelled:
            return
        log.error(
            "%s for more than %g s, and its module cannot interrupt it; set a time limit in "
            "connect()",
            self._what,
            self._limit_s,
        )


class RowsCommitter(Committer):
    """Writes lots that were not committed yet."""

    def __init__(
        self, database: DatabaseConnection, statement: str, table: str, whose: str
    ) -> None:
        self._database = database
        self._statement = statement
        self._table = table
        self._whose = re.sub(r"[^\w .:/()-]", "?", whose, flags=re.ASCII)[:WHOSE_CHARS]
        self._has_table = False

    def make_table(self) -> None:
        """Create the table of notes if it is missing; another task may do so concurrently."""
        if self._has_table:
            return
        look = f"SELECT lots FROM {self._table} WHERE 1 = 0"
        make = (
            f"CREATE TABLE {self._table} (writer VARCHAR(32) NOT NULL PRIMARY KEY, "
            f"lots BIGINT NOT NULL, whose VARCHAR({WHOSE_CHARS}))"
        )
        last: Exception | None = None
        for statement in (look, make, look):
            try:
                self._database.run(lambda cursor: cursor.execute(statement))  # noqa: B023
            except (ConnectorError, TaskCancelled):
                raise
            except Exception as error:
                if _is_lock(error):
                    raise self._database.locked(error) from error
                last = error
            else:
                self._has_table = True
                return
        assert last is not None
        raise ConnectorError(
            f"the table {self._table}, where the sink notes what it has written, cannot be made: "
            f"{words(last)}; make it yourself ({make}), or name another with table=..."
        ) from last

    def commit(self, committables: Sequence[Record]) -> None:
        for lot in committables:
            self.make_table()
            batches = [loads(batch) for batch in lot.batches]
            try:
                self._database.run(lambda cursor: self._enter(cursor, lot, batches))  # noqa: B023
            except (ConnectorError, TaskCancelled):
                raise
            except Exception as error:
                raise self._database.blame(self._statement, batches, error) from error

    def close(self) -> None:
        self._database.close()

    def _enter(self, cursor: Any, lot: RowsCommit, batches: Sequence[Sequence[Any]]) -> None:
        # The note first: it locks out others that are about to write the same lot.
        if self._note(cursor, lot.writer, lot.number):
            _write(cursor, self._statement, batches)

    def _note(self, cursor: Any, writer: str, number: int) -> bool:
        """Whether the lot is new. Our values are hex and digits: they need no quoting."""
        table = self._table
        where = f"WHERE writer = '{writer}'"
        cursor.execute(f"UPDATE {table} SET lots = {number} {where} AND lots < {number}")
        if cursor.rowcount < 0:
            raise ConnectorError(
                "the database's module does not tell how many rows an UPDATE has changed, so rows "
                "cannot be written exactly once; give exactly_once=False"
            )
        if cursor.rowcount:
            return True
        cursor.execute(f"SELECT lots FROM {table} {where}")
        if cursor.fetchone() is not None:
            return False
        columns = f"'{writer}', {number}, '{self._whose}'"
        cursor.execute(f"INSERT INTO {table} (writer, lots, whose) VALUES ({columns})")
        return True


def is_name(table: object) -> bool:
    """A table's name, perhaps with its schema, that needs no quotes in SQL."""
    return isinstance(table, str) and bool(re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", table))


def _write(cursor: Any, statement: str, batches: Iterable[Sequence[Any]]) -> None:
    for batch in batches:
        cursor.executemany(statement, batch)


def _commits_by_itself(connection: Connection) -> bool:
    if getattr(connection, "autocommit", None) is True:
        return True
    asked = getattr(connection, "get_autocommit", None)  # of MySQL's and MariaDB's modules
    if callable(asked) and asked():
        return True
    kind = type(connection)
    is_sqlite = kind.__module__ == "sqlite3"
    return is_sqlite and connection.isolation_level is None and not _has_transactions(connection)


def _has_transactions(connection: Connection) -> bool:
    """SQLite of Python 3.12 on may say so by another attribute."""
    return getattr(connection, "autocommit", None) is False


def _is_lock(error: BaseException) -> bool:
    """Whether the database gave up waiting for a lock; modules say so in words only."""
    text = str(error).lower()
    return type(error).__name__ == "LockNotAvailable" or bool(
        re.search(r"\b(is locked|lock wait timeout|lock timeout|lock request time)", text)
    )


def _is_of_statement(error: BaseException) -> bool:
    """Whether the table or a column is not there, or the statement is wrong: no row would do.

    The DB-API has a class for that, by name; SQLite has words. The class also stands for a row
    that does not fit its statement, for rights that are missing, which somebody may grant, and for
    a connection that was closed.
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    if "ProgrammingError" in names and "InsufficientPrivilege" not in names:
        return not re.search(r"\bbinding|\bdenied\b|\bclosed\b", str(error).lower())
    return bool(re.search(r"\bno such (table|column)\b|\bhas no column\b", str(error)))


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


@dataclass(eq=False, repr=False)
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

    connect: Connect
    statement: str
    _: KW_ONLY
    parameters: Callable[[Record], Sequence[Any] | Mapping[str, Any]] | None = None
    exactly_once: bool = True
    table: str = "headgate_commits"
    batch_rows: int = BATCH_ROWS
    max_pending_bytes: int = PENDING_BYTES
    commit_timeout_ms: int = TIMEOUT_MS

    def __post_init__(self) -> None:
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
        database = self._database(context, whole=True)
        committer = RowsCommitter(database, self.statement, self.table, writer_note(context))
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
