"""The replication slot of a source, and the connection on which the server streams its changes.

psycopg has no API for replication, but its ``pq`` module, the thin layer over libpq, carries the
protocol: ``START_REPLICATION`` turns a connection into a stream of COPY data both ways. Law: the
slot is created if it is missing and the job is new, and never dropped; what the server may forget
is said by ``confirm`` alone. A slot that has lost what the job still needs is an error, not a gap.
"""

import time
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from headgate.base.errors import DatabaseUnready, HeadgateError, PlanInvalid, RecordsLost
from headgate.connectors.postgres.client import connect, first_line, is_lost, psycopg_module
from headgate.connectors.postgres.pgoutput import EPOCH_MS, Loader, Place, read_lsn, shown_lsn
from headgate.connectors.postgres.table import quoted, quoted_table

if TYPE_CHECKING:
    from headgate.connectors.postgres.client import PgConnection

SET_UP_MS: Final = 60_000
"""How long creating a slot may wait for transactions that were open before."""
SESSION: Final = (
    "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=3 "
    "-c bytea_output=hex"
)
"""How values are written, whatever the user's defaults are."""

_STATUS: Final = Struct(">cQQQqB").pack
_SLOT: Final = (
    "SELECT plugin, database = current_database(), active_pid, confirmed_flush_lsn::text, "
    "wal_status FROM pg_replication_slots WHERE slot_name = %s"
)


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """What is read, and under which names the server knows it."""

    dsn: str = field(repr=False)  # there may be a password in it
    slot: str
    publication: str
    tables: tuple[str, ...]


class ChangeStream:
    """A connection that streams changes; nothing here waits."""

    def __init__(self, connection: "PgConnection") -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._pgconn.nonblocking = 1
        self._psycopg = psycopg_module("PostgresChangesSource")
        self.next_data = self._pgconn.get_copy_data

    def fileno(self) -> int:
        return int(self._pgconn.socket)

    def receive(self) -> None:
        """Take in what the socket has; then ``next_data(1)`` gives it message by message."""
        self._pgconn.consume_input()

    def confirm(self, lsn: int) -> None:
        """The server may forget what is before ``lsn``; also a sign of life."""
        now = int(time.time() * 1000 - EPOCH_MS) * 1000
        self._pgconn.put_copy_data(_STATUS(b"r", lsn, lsn, lsn, now, 0))
        self._pgconn.flush()

    def end_reason(self) -> tuple[str, str]:
        """After the end of the data: the server's words, and its SQLSTATE."""
        result = self._pgconn.get_result()
        if result is None or not result.error_message:
            return "the server has ended the stream", ""
        state = result.error_field(self._psycopg.pq.DiagnosticField.SQLSTATE) or b""
        text = result.error_message.decode("utf-8", "replace")
        return " ".join(text.split()), state.decode()

    def make_loader(self, types: list[int]) -> Loader:
        """A function from texts to values of these types; unknown types stay texts."""
        psycopg = self._psycopg
        transformer = psycopg.adapt.Transformer(self._connection)
        transformer.set_loader_types(types, psycopg.pq.Format.TEXT)
        load: Loader = transformer.load_sequence
        return load

    def close(self) -> None:
        self._connection.close()


def open_stream(
    settings: SlotSettings, place: Place | None, whose: str
) -> tuple[ChangeStream, Place]:
    """The stream from a place on, and where it begins; None: where the slot is."""
    psycopg = psycopg_module("PostgresChangesSource")
    try:
        with connect(settings.dsn, whose) as connection:
            connection.execute(
                "SELECT set_config('statement_timeout', %s, false)", (str(SET_UP_MS),)
            )
            begin = _ready_slot(connection, settings, place, whose)
        found = place or (begin, 0)
        return _start(settings, found, whose), found
    except psycopg.Error as error:
        raise _explained(error, settings, whose) from error


def _ready_slot(
    connection: "PgConnection", settings: SlotSettings, place: Place | None, whose: str
) -> int:
    """Publication and slot are there; from which LSN the slot goes on."""
    level = connection.execute("SELECT current_setting('wal_level')").fetchone()
    if level is not None and level[0] != "logical":
        raise PlanInvalid(
            f"{whose}: the server does not write changes for readers (wal_level is {level[0]}); "
            f"set wal_level = logical in postgresql.conf and restart the server"
        )
    _ready_publication(connection, settings, whose)
    slot = settings.slot
    found = connection.execute(_SLOT, (slot,)).fetchone()
    if found is None:
        if place is not None:
            raise RecordsLost(
                f"{whose}: the replication slot {slot} is gone, and with it the changes since "
                f"{shown_lsn(place[0])}, where the checkpoint is; start the job afresh and read "
                f"the tables anew"
            )
        create = "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
        made = connection.execute(create, (slot,)).fetchone()
        assert made is not None
        return read_lsn(made[0])
    plugin, is_here, _, confirmed, status = found
    if plugin != "pgoutput" or not is_here:
        raise PlanInvalid(
            f"{whose}: the replication slot {slot} is of another "
            f"{'database' if plugin == 'pgoutput' else f'kind ({plugin})'}; give another slot"
        )
    reached = read_lsn(confirmed)
    if status == "lost" or (place is not None and reached > place[0]):
        raise RecordsLost(
            f"{whose}: the replication slot {slot} does not have the changes any more that the "
            f"job needs (the checkpoint is at {shown_lsn(place[0]) if place else 'its beginning'}, "
            f"the slot at {confirmed}, WAL {status}): somebody else has read from it, or "
            f"max_slot_wal_keep_size was exceeded; start the job afresh with a new slot"
        )
    return reached


def _ready_publication(connection: "PgConnection", settings: SlotSettings, whose: str) -> None:
    name, tables = settings.publication, settings.tables
    asked = "SELECT puballtables FROM pg_publication WHERE pubname = %s"
    found = connection.execute(asked, (name,)).fetchone()
    if found is None:
        if not tables:
            raise PlanInvalid(
                f"{whose}: there is no publication {name!r} in the database; CREATE PUBLICATION, "
                f"or give tables=..."
            )
        listed = ", ".join(map(quoted_table, tables))
        connection.execute(f"CREATE PUBLICATION {quoted(name)} FOR TABLE {listed}")
        return
    published = "SELECT to_regclass(quote_ident(schemaname) || '.' || quote_ident(tablename)) "
    rows = connection.execute(
        f"{published} FROM pg_publication_tables WHERE pubname = %s", (name,)
    ).fetchall()
    there = {str(row[0]) for row in rows}
    for table in tables:
        row = connection.execute("SELECT to_regclass(%s)", (quoted_table(table),)).fetchone()
        if row is None or row[0] is None or str(row[0]) not in there:
            raise PlanInvalid(
                f"{whose}: the publication {name!r} is there and does not publish {table}; ALTER "
                f"PUBLICATION … ADD TABLE, or give another publication"
            )


def _start(settings: SlotSettings, place: Place, whose: str) -> ChangeStream:
    psycopg = psycopg_module("PostgresChangesSource")
    connection = connect(
        settings.dsn, whose, replication="database", options=SESSION, client_encoding="UTF8"
    )
    try:
        publication = quoted(settings.publication).replace("'", "''")
        command = (
            f"START_REPLICATION SLOT {quoted(settings.slot)} LOGICAL {shown_lsn(place[0])} "
            f"(proto_version '1', publication_names '{publication}')"
        )
        result = connection.pgconn.exec_(command.encode())
        if result.status != psycopg.pq.ExecStatus.COPY_BOTH:
            raise psycopg.errors.error_from_result(result, encoding="utf-8")
        return ChangeStream(connection)
    except BaseException:
        connection.close()
        raise


def _explained(error: Any, settings: SlotSettings, whose: str) -> HeadgateError:
    state, text = error.sqlstate, first_line(error)
    if state == "55006":  # object in use
        return DatabaseUnready(
            f"{whose}: the replication slot {settings.slot} is read by somebody else ({text}); "
            f"give each job a slot of its own, or end the other reader"
        )
    if state == "57014":
        return DatabaseUnready(
            f"{whose}: creating the replication slot {settings.slot} has waited too long for "
            f"transactions that were open before ({text}); end them (see pg_stat_activity)"
        )
    if is_lost(error) or state[:2] in ("53", "57", "58"):
        return DatabaseUnready(f"{whose}: PostgreSQL has broken off: {text}")
    return PlanInvalid(f"{whose}: changes cannot be read: {text}")
