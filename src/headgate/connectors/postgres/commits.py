"""Rows of PostgreSQL exactly once: what waits for a commit, the log of commits, and the commits.

Rows wait in the checkpoint (``InsertLot``) or in the server (``PreparedLot``, by ``PREPARE
TRANSACTION``). Law: a lot's note is written in the transaction that writes its rows, and the lots
of a writer are committed in order; so a lot is in if and only if there is a note of it or of a
later one, and it is committed at most once, whoever repeats this. A prepared transaction that is
gone without a note was rolled back by somebody: an error, not a loss in silence. A new writer rolls
back what earlier writers of its own job, sink and subtask have prepared and no checkpoint has
named, and never what a later writer prepares (the server's clock tells which is later).
"""

import logging
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, PlanInvalid, RecordsLost
from headgate.base.moved import loads
from headgate.connectors.postgres.client import SinkDatabase, first_line, psycopg_module
from headgate.connectors.postgres.table import (
    TableRows,
    TargetTable,
    blaming,
    copy_rows,
    quoted_table,
)
from headgate.connectors.staged import WriterId, writer_note
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import Committer, CommittingSinkWriter

if TYPE_CHECKING:
    from headgate.connectors.postgres.client import PgConnection

COMMIT_LOG: Final = "headgate_commit_log"
WHOSE_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class CommitLog:
    """Statements about the table of notes."""

    table: str
    """Quoted."""
    whose: str
    """Job, sink and subtask, for people who look into the table."""

    def make(self, connection: "PgConnection") -> None:
        """Create the table if it is missing; other tasks do the same at the same time."""
        if self._is_there(connection):
            return
        create = (
            f"CREATE TABLE IF NOT EXISTS {self.table} (writer text NOT NULL, lot bigint NOT NULL, "
            f"whose text, committed_at timestamptz NOT NULL DEFAULT now(), "
            f"PRIMARY KEY (writer, lot))"
        )
        psycopg = psycopg_module("PostgresSink")
        try:
            with connection.transaction():
                # Two that create the same table at once are an error, in spite of IF NOT EXISTS.
                connection.execute("SELECT pg_advisory_xact_lock(hashtext('headgate_commit_log'))")
                connection.execute(create)
        except (psycopg.errors.InsufficientPrivilege, psycopg.ProgrammingError) as error:
            raise PlanInvalid(
                f"the table {self.table}, where the sink notes what it has committed, cannot be "
                f"created ({first_line(error)}); create it yourself ({create}), or name another "
                f"with commit_log=..."
            ) from error

    def note(self, connection: "PgConnection", writer: str, lot: int) -> bool:
        """Note a lot, in the open transaction; False: it is in already."""
        table = self._in_query
        cursor = connection.execute(
            f"INSERT INTO {table} (writer, lot, whose) SELECT %s, %s, %s WHERE NOT EXISTS "
            f"(SELECT 1 FROM {table} WHERE writer = %s AND lot >= %s) ON CONFLICT DO NOTHING",
            (writer, lot, self.whose, writer, lot),
        )
        return cursor.rowcount == 1

    def lock_writer(self, connection: "PgConnection", writer: str) -> None:
        """Until the open transaction ends, nobody else notes lots of this writer.

        ``note`` alone does not see that while it waited for another attempt's note, this one was
        committed and replaced by that of a later lot: a statement sees the table as of its start.
        """
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (writer,))

    def has(self, connection: "PgConnection", writer: str, lot: int) -> bool:
        """Whether a lot is in."""
        asked = f"SELECT 1 FROM {self._in_query} WHERE writer = %s AND lot >= %s"
        return connection.execute(asked, (writer, lot)).fetchone() is not None

    def forget_older(self, connection: "PgConnection", writer: str, lot: int) -> None:
        """The note of this lot speaks for those before it."""
        connection.execute(
            f"DELETE FROM {self._in_query} WHERE writer = %s AND lot < %s", (writer, lot)
        )

    @property
    def _in_query(self) -> str:
        """The table in a query with placeholders, which begin with %."""
        return self.table.replace("%", "%%")

    def _is_there(self, connection: "PgConnection") -> bool:
        found = connection.execute("SELECT to_regclass(%s)", (self.table,)).fetchone()
        return found is not None and found[0] is not None


def log_of(table: str, context: ConnectorContext) -> CommitLog:
    """The table of notes, as one task writes to it."""
    whose = re.sub(r"[\x00-\x1f]", "?", writer_note(context))[:WHOSE_CHARS]
    return CommitLog(quoted_table(table), whose)


@dataclass(frozen=True, slots=True)
class InsertLot:
    """Rows that wait for their transaction; what the sink keeps in checkpoints."""

    writer: str
    number: int
    """Lots of a writer are counted from 1, and are committed in this order."""
    columns: tuple[str, ...]
    batches: tuple[bytes, ...]
    """Lists of rows, pickled."""


log = logging.getLogger(__name__)

OLD_S: Final = 600
"""Transactions that are prepared for longer are warned of: they hold locks and stop VACUUM."""
LOOK_S: Final = 60.0
GID: Final = re.compile(
    r"headgate:(?P<job>[\w.-]*):(?P<owner>[0-9a-f]{16}):(?P<subtask>\d+):"
    r"(?P<began>[0-9a-f]+)-(?P<token>[0-9a-f]{16}):(?P<checkpoint>\d+|end)-(?P<lot>\d+)",
    re.ASCII,
)
_PREPARED: Final = (
    "SELECT gid, extract(epoch FROM now() - prepared)::float8 FROM pg_prepared_xacts "
    "WHERE database = current_database() AND gid LIKE 'headgate:%'"
)


@dataclass(frozen=True, slots=True)
class PreparedLot:
    """A prepared transaction; what the sink keeps in checkpoints."""

    gid: str
    writer: str
    number: int


def writer_id(context: ConnectorContext, connection: "PgConnection", table: str) -> WriterId:
    """The writer of one task; the server's clock, which all tasks share, says when it began."""
    task = context.task
    # Without an id, or with checkpoints elsewhere, other runs cannot be known to be this job's.
    job = f"{task.job_id}\0{task.checkpoint_folder}" if task.job_id else secrets.token_hex(8)
    clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8"
    found = connection.execute(clock).fetchone()
    assert found is not None
    whose = f"{job}\0{context.uid or context.operator}\0{table}"
    return WriterId.new(context, whose, int(found[0]), 16)


def check_server(connection: "PgConnection", whose: str) -> None:
    """Raises PlanInvalid if the server keeps no prepared transactions."""
    found = connection.execute("SELECT current_setting('max_prepared_transactions')").fetchone()
    if found is not None and int(found[0]) == 0:
        raise PlanInvalid(
            f"{whose}: the server keeps no prepared transactions (max_prepared_transactions is 0); "
            f"set it to at least twice the parallelism of the sink in postgresql.conf and restart "
            f"the server, or give mode='insert', which is exactly once without them"
        )


class PreparingWriter(CommittingSinkWriter):
    """Writes into an open transaction, and prepares it at each checkpoint."""

    def __init__(
        self,
        database: SinkDatabase,
        job_id: str,
        writer: WriterId,
        commit_log: CommitLog,
        table: str,
        target: TargetTable,
        maker: TableRows,
        batch_rows: int,
    ) -> None:
        self._database = database
        self._job = re.sub(r"[^\w.-]", "_", job_id, flags=re.ASCII)[:48]
        self._writer = writer
        self._log = commit_log
        self._table = table
        self._target = target
        self._maker = maker
        self._batch_rows = batch_rows
        self._rows: list[Sequence[Any]] = []
        self._open: PgConnection | None = None
        """The connection whose transaction holds rows."""
        self._number = 0
        self._looked_s = 0.0
        self._warned: set[str] = set()
        self._roll_back_leftovers()

    def write(self, records: list[Record]) -> None:
        self._rows += self._maker.inserts(records)
        if len(self._rows) >= self._batch_rows:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        target = self._target
        with blaming(self._database, self._table, target.columns):
            if self._open is None:
                self._number += 1
                self._open = self._database.repeat(self._begin)
            copy_rows(self._open, target.name, target.columns, lambda: self._rows)
        self._rows = []

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[PreparedLot]:
        if self._open is None:
            return ()
        writer, at = self._writer, "end" if moment is None else moment.checkpoint
        began = f"{writer.began_ms:x}-{writer.token}"
        gid = f"headgate:{self._job}:{writer.owner}:{writer.subtask}:{began}:{at}-{self._number}"
        connection, self._open = self._open, None
        psycopg = psycopg_module(self._database.whose)
        with blaming(self._database, self._table, self._target.columns):
            try:
                connection.execute(f"PREPARE TRANSACTION '{gid}'")
            except psycopg.errors.OutOfMemory as error:
                raise ConnectorError(
                    f"{self._database.whose}: {first_line(error)}; raise max_prepared_transactions "
                    f"of the server, or roll back what is forgotten (SELECT * FROM "
                    f"pg_prepared_xacts)"
                ) from error
        with suppress(psycopg.Error):
            self._warn_of_old(connection)
        return [PreparedLot(gid, writer.token, self._number)]

    def close(self) -> None:
        self._database.close()

    def _begin(self, connection: "PgConnection") -> "PgConnection":
        connection.execute("BEGIN")
        self._log.note(connection, self._writer.token, self._number)
        return connection

    def _roll_back_leftovers(self) -> None:
        """What earlier runs have prepared and the checkpoint does not know."""
        connection = self._database.open()
        psycopg = psycopg_module(self._database.whose)
        for gid, _ in connection.execute(_PREPARED).fetchall():
            found = GID.fullmatch(gid)
            if found is not None and self._writer.succeeds(found):
                try:
                    connection.execute(f"ROLLBACK PREPARED '{gid}'")
                except psycopg.errors.UndefinedObject:
                    continue
                except psycopg.Error as error:
                    log.warning("prepared transaction %s stays: %s", gid, first_line(error))
        self._warn_of_old(connection)

    def _warn_of_old(self, connection: "PgConnection") -> None:
        now_s = time.monotonic()
        if self._looked_s and now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        for gid, age_s in connection.execute(_PREPARED).fetchall():
            if age_s > OLD_S and gid not in self._warned:
                self._warned.add(gid)
                log.warning(
                    "transaction %s is prepared since %d minutes, holds locks and stops VACUUM; if "
                    "its job will not go on, run ROLLBACK PREPARED '%s'",
                    gid,
                    age_s / 60,
                    gid,
                )


class LotCommitter(Committer):
    """Commits lots of either kind, so a job may go on in another mode than it began with."""

    def __init__(self, database: SinkDatabase, table: str, log: CommitLog) -> None:
        self._database = database
        self._table = table
        self._log = log

    def commit(self, committables: Sequence[Record]) -> None:
        for lot in sorted(committables, key=lambda lot: (lot.writer, lot.number)):
            if isinstance(lot, InsertLot):
                self._enter(lot)
            else:
                assert isinstance(lot, PreparedLot)
                self._finish(lot)

    def close(self) -> None:
        self._database.close()

    def _enter(self, lot: InsertLot) -> None:
        target = quoted_table(self._table)

        def rows() -> Iterator[Any]:
            return chain.from_iterable(map(loads, lot.batches))

        def write(connection: "PgConnection") -> None:
            with connection.transaction():
                self._log.lock_writer(connection, lot.writer)
                if self._log.note(connection, lot.writer, lot.number):
                    copy_rows(connection, target, lot.columns, rows)
                    self._log.forget_older(connection, lot.writer, lot.number)

        with blaming(self._database, self._table, lot.columns):
            self._database.repeat(write)

    def _finish(self, lot: PreparedLot) -> None:
        assert GID.fullmatch(lot.gid), lot.gid
        whose = self._database.whose
        psycopg = psycopg_module(whose)

        def finish(connection: "PgConnection") -> None:
            try:
                connection.execute(f"COMMIT PREPARED '{lot.gid}'")
            except psycopg.errors.UndefinedObject:
                if not self._log.has(connection, lot.writer, lot.number):
                    raise _lost(whose, lot.gid) from None
            self._log.forget_older(connection, lot.writer, lot.number)

        try:
            self._database.repeat(finish)
        except psycopg.Error as error:
            raise ConnectorError(
                f"{whose}: prepared transaction {lot.gid} cannot be committed: {first_line(error)}"
            ) from error


def _lost(whose: str, gid: str) -> RecordsLost:
    return RecordsLost(
        f"{whose}: prepared transaction {gid} is gone and was not committed: somebody has rolled "
        f"it back, and its rows are missing; go on from an older savepoint, or start afresh"
    )
