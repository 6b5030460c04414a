"""Commits what a sink has prepared: lots of rows from the checkpoint, and prepared transactions.

Law: a lot is committed at most once, however often this is repeated and whoever does so: a lot of
rows in one transaction with its note, a prepared transaction by the server, which forgets it then.
One that is gone without a note was rolled back by somebody: an error, not a loss in silence.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from headgate.base.elements import Record
from headgate.base.errors import ConnectorError, RecordsLost, TaskCancelled
from headgate.base.moved import loads
from headgate.connectors.postgres.client import SinkDatabase, first_line, psycopg_module
from headgate.connectors.postgres.commit_log import CommitLog
from headgate.connectors.postgres.inserts import InsertLot
from headgate.connectors.postgres.prepared import GID, PreparedLot
from headgate.connectors.postgres.table import blamed, copy_rows, quoted_table
from headgate.functions.sink import Committer

if TYPE_CHECKING:
    from headgate.connectors.postgres.client import PgConnection


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

        try:
            self._database.repeat(write)
        except (ConnectorError, TaskCancelled):
            raise
        except Exception as error:
            raise blamed(self._database, self._table, lot.columns, error) from error

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
