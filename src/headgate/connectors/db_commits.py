"""Rows go into a database, once: the second phase of ``db_sink``.

A table notes how many lots of each writer are in. Law: a lot and its note are written in one
transaction, and no lot whose number is noted already is written again; so a commit may be repeated,
by whomever. The table has one line for each writer, that is, for each task and attempt.
"""

import pickle
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headgate.api.source import Committer
from headgate.base.elements import Record
from headgate.base.errors import ConnectorError
from headgate.base.frame_errors import shown

Connection: TypeAlias = Any
"""Of the DB-API, whose modules have no types in common."""
Connect: TypeAlias = Callable[[], Connection]

WHOSE_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class RowsCommit:
    """A lot of rows that waits for its transaction; what the sink keeps in checkpoints."""

    writer: str
    number: int
    """Lots of a writer are counted from 1, and are committed in this order."""
    batches: tuple[bytes, ...]
    """Lists of parameters, pickled."""


class Database:
    """One connection, opened when it is needed and again after trouble."""

    def __init__(self, connect: Connect, whole: bool = True) -> None:
        """``whole``: transactions must be whole, so the connection must not commit by itself."""
        self._connect = connect
        self._whole = whole
        self._connection: Connection | None = None

    def run(self, work: Callable[[Any], None]) -> None:
        """Do this with a cursor, in one transaction.

        A connection that has waited for long may be dead: then once more with a new one.
        """
        was_open = self._connection is not None
        try:
            self._try(work)
        except ConnectorError:
            raise
        except Exception:
            if not was_open:
                raise
            self._try(work)

    def write(self, statement: str, batches: Iterable[Sequence[Any]]) -> None:
        """All rows in one transaction; raises ConnectorError with the row that is guilty."""
        there = list(batches)
        try:
            self.run(lambda cursor: _write(cursor, statement, there))
        except ConnectorError:
            raise
        except Exception as error:
            raise self.blame(statement, there, error) from error

    def blame(self, statement: str, batches: Sequence[Sequence[Any]], error: Exception) -> Any:
        """Which row it was, found by trying them one by one; nothing of that stays."""
        row: Any = None
        with suppress(Exception):
            cursor = self._open().cursor()
            for batch in batches:
                for row in batch:
                    cursor.execute(statement, row)
            row = None
        self._forget()
        of_row = "" if row is None else f" for the row {shown(row)}"
        return ConnectorError(
            f"the database refuses {statement!r}{of_row}: {_words(error)}; mend the statement, "
            f"the table or the records"
        )

    def close(self) -> None:
        """Idempotent."""
        self._forget()

    def _try(self, work: Callable[[Any], None]) -> None:
        connection = self._open()
        try:
            cursor = connection.cursor()
            try:
                work(cursor)
                connection.commit()
            finally:
                with suppress(Exception):
                    cursor.close()
        except BaseException:
            self._forget()
            raise

    def _open(self) -> Connection:
        if self._connection is None:
            try:
                connection = self._connect()
            except Exception as error:
                raise ConnectorError(
                    f"no connection to the database: {_words(error)}; check connect()"
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
        """Whatever its transaction has done is undone."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.rollback()
            with suppress(Exception):
                connection.close()


class RowsCommitter(Committer):
    """Writes lots that are not in yet."""

    def __init__(self, database: Database, statement: str, table: str, whose: str) -> None:
        self._database = database
        self._statement = statement
        self._table = table
        self._whose = re.sub(r"[^\w .:/()-]", "?", whose, flags=re.ASCII)[:WHOSE_CHARS]
        self._has_table = False

    def make_table(self) -> None:
        """The table of notes, if it is not there; another task may make it at the same moment."""
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
            except ConnectorError:
                raise
            except Exception as error:
                last = error
            else:
                self._has_table = True
                return
        assert last is not None
        raise ConnectorError(
            f"the table {self._table}, where the sink notes what it has written, cannot be made: "
            f"{_words(last)}; make it yourself ({make}), or name another with table=..."
        ) from last

    def commit(self, committables: Sequence[Record]) -> None:
        for lot in committables:
            self.make_table()
            batches = [pickle.loads(batch) for batch in lot.batches]
            try:
                self._database.run(lambda cursor: self._enter(cursor, lot, batches))  # noqa: B023
            except ConnectorError:
                raise
            except Exception as error:
                raise self._database.blame(self._statement, batches, error) from error

    def close(self) -> None:
        self._database.close()

    def _enter(self, cursor: Any, lot: RowsCommit, batches: Sequence[Sequence[Any]]) -> None:
        # The note first: it locks out whoever is about to write the same lot.
        if self._note(cursor, lot.writer, lot.number):
            _write(cursor, self._statement, batches)

    def _note(self, cursor: Any, writer: str, number: int) -> bool:
        """Whether the lot is not in yet. Our values are hex and digits: they need no quoting."""
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
    kind = type(connection)
    is_sqlite = kind.__module__ == "sqlite3"
    return is_sqlite and connection.isolation_level is None and not _has_transactions(connection)


def _has_transactions(connection: Connection) -> bool:
    """SQLite of Python 3.12 on may say so by another attribute."""
    return getattr(connection, "autocommit", None) is False


def _words(error: BaseException) -> str:
    text = str(error).strip().replace("\n", " ")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
