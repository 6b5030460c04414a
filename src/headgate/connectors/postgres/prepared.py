"""Rows, exactly once, that wait in the server: ``PREPARE TRANSACTION`` and ``COMMIT PREPARED``.

A transaction's id names job, sink, subtask, writer and checkpoint. Law: what a checkpoint has named
is committed, by whoever goes on from it; a new writer rolls back what earlier writers of its own
job, sink and subtask have prepared and nobody has named, and never what a later writer prepares
(the server's clock tells which is later). Each transaction holds a note of itself for the commit
log, so that one that is gone can be told from one that is committed (``commits``).
"""

import hashlib
import logging
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, PlanInvalid, TaskCancelled
from headgate.connectors.postgres.client import SinkDatabase, first_line, psycopg_module
from headgate.connectors.postgres.commit_log import CommitLog
from headgate.connectors.postgres.table import TableRows, TargetTable, blamed, copy_rows
from headgate.functions.context import ConnectorContext, SnapshotMoment
from headgate.functions.sink import CommittingSinkWriter

if TYPE_CHECKING:
    from headgate.connectors.postgres.client import PgConnection

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


@dataclass(frozen=True, slots=True)
class WriterName:
    """One writer, as the ids of its transactions tell it."""

    job: str
    owner: str
    """Of the job and the sink: the same over all runs of the job."""
    subtask: int
    parallelism: int
    began_ms: int
    """By the server's clock, which all tasks share."""
    token: str

    def gid(self, checkpoint: int | None, lot: int) -> str:
        at = "end" if checkpoint is None else checkpoint
        return (
            f"headgate:{self.job}:{self.owner}:{self.subtask}:{self.began_ms:x}-{self.token}:"
            f"{at}-{lot}"
        )

    def succeeds(self, gid: str) -> bool:
        """Whether this writer replaces the one that has prepared a transaction."""
        found = GID.fullmatch(gid)
        return (
            found is not None
            and found["owner"] == self.owner
            and int(found["subtask"]) % self.parallelism == self.subtask
            and int(found["began"], 16) <= self.began_ms
            and found["token"] != self.token
        )


def name_writer(context: ConnectorContext, connection: "PgConnection", table: str) -> WriterName:
    """A name for the writer of one task, never given before."""
    task = context.task
    # Without an id, or with checkpoints elsewhere, other runs cannot be known to be this job's.
    job = f"{task.job_id}\0{task.checkpoint_folder}" if task.job_id else secrets.token_hex(8)
    owner = hashlib.sha256(f"{job}\0{context.uid or context.operator}\0{table}".encode())
    clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8"
    found = connection.execute(clock).fetchone()
    assert found is not None
    return WriterName(
        re.sub(r"[^\w.-]", "_", task.job_id, flags=re.ASCII)[:48],
        owner.hexdigest()[:16],
        task.subtask,
        task.parallelism,
        int(found[0]),
        secrets.token_hex(8),
    )


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
        name: WriterName,
        commit_log: CommitLog,
        table: str,
        target: TargetTable,
        maker: TableRows,
        batch_rows: int,
    ) -> None:
        self._database = database
        self._name = name
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
        try:
            if self._open is None:
                self._number += 1
                self._open = self._database.repeat(self._begin)
            copy_rows(self._open, self._target.name, self._target.columns, lambda: self._rows)
        except (ConnectorError, TaskCancelled):
            raise
        except Exception as error:
            self._database.close()
            raise blamed(self._database, self._table, self._target.columns, error) from error
        self._rows = []

    def prepare_commit(self, moment: SnapshotMoment | None) -> Sequence[PreparedLot]:
        if self._open is None:
            return ()
        gid = self._name.gid(None if moment is None else moment.checkpoint, self._number)
        connection, self._open = self._open, None
        psycopg = psycopg_module(self._database.whose)
        try:
            connection.execute(f"PREPARE TRANSACTION '{gid}'")
        except psycopg.errors.OutOfMemory as error:
            raise ConnectorError(
                f"{self._database.whose}: {first_line(error)}; raise max_prepared_transactions of "
                f"the server, or roll back what is forgotten (SELECT * FROM pg_prepared_xacts)"
            ) from error
        except psycopg.Error as error:
            self._database.close()
            raise blamed(self._database, self._table, self._target.columns, error) from error
        with suppress(psycopg.Error):
            self._warn_of_old(connection)
        return [PreparedLot(gid, self._name.token, self._number)]

    def close(self) -> None:
        self._database.close()

    def _begin(self, connection: "PgConnection") -> "PgConnection":
        connection.execute("BEGIN")
        self._log.note(connection, self._name.token, self._number)
        return connection

    def _roll_back_leftovers(self) -> None:
        """What earlier runs have prepared and the checkpoint does not know."""
        connection = self._database.open()
        psycopg = psycopg_module(self._database.whose)
        for gid, _ in connection.execute(_PREPARED).fetchall():
            if self._name.succeeds(gid):
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
