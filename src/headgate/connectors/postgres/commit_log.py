"""The table in which exactly-once sinks note what is in: a row for each writer's newest lot.

Law: a lot's note is written in the transaction that writes its rows, and the lots of a writer are
committed in order; so a lot is in if and only if there is a note of it or of a later one.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.base.errors import PlanInvalid
from headgate.connectors.postgres.client import first_line, psycopg_module
from headgate.connectors.postgres.table import quoted_table
from headgate.functions.context import ConnectorContext

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
    task = context.task
    whose = f"{task.job} / {context.uid or context.operator} / {task.subtask}"
    return CommitLog(quoted_table(table), re.sub(r"[\x00-\x1f]", "?", whose)[:WHOSE_CHARS])
