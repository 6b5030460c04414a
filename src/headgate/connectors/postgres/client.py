"""Connections to PostgreSQL: opened when they are needed, with time limits, and again after loss.

Law: waiting is bounded (by ``Limits``), errors say what happened in a sentence, and those that may
pass by themselves are DatabaseUnready, which lets a job try for long. Sinks and sources share it.
"""

import os
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from headgate.base.errors import ConnectorError, DatabaseUnready, PlanInvalid
from headgate.base.redaction import has_stray_login
from headgate.connectors.libraries import clause, library
from headgate.connectors.servers import Sleep, repeat, shut_down

if TYPE_CHECKING:
    import psycopg

    PgConnection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

CONNECT_S: Final = 10
LINKS: Final = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""A server that is gone without a word is noticed after a minute; the DSN may say otherwise."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long the server may take: for a statement, and for a lock that a statement waits for."""

    statement_ms: int = 300_000
    lock_ms: int = 60_000
    idle_ms: int = 60_000
    """How long a transaction may stay open without a statement; 0: for ever."""


def psycopg_module(user: str) -> Any:
    """The client library; raises PlanInvalid with the command that installs it."""
    return library("psycopg", "postgres", user)


def check_dsn(dsn: object, user: str) -> str:
    """A DSN as libpq takes it: ``host=… dbname=…`` or ``postgresql://…``; raises PlanInvalid."""
    if not isinstance(dsn, str):
        raise PlanInvalid(
            f"{user} was given something of type {type(dsn).__name__}; give a DSN such as "
            f"'host=db dbname=shop'"
        )
    if has_stray_login(dsn):  # libpq would take half of the password for a host, and name it
        raise PlanInvalid(
            f"{user}: the DSN cannot be read; percent-encode special signs in user and password "
            f"(%2F for /, %40 for @, %3F for ?, %23 for #), or write it like 'host=db user=ada'"
        )
    return dsn


def connect(dsn: str, whose: str, **parameters: Any) -> "PgConnection":
    """A new connection with autocommit; raises DatabaseUnready or ConnectorError."""
    psycopg = psycopg_module(whose)
    try:
        given = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise PlanInvalid(
            f"{whose}: the DSN cannot be read ({_unquoted(error)}); write it like "
            f"'host=db dbname=shop user=ada'; in a URI, percent-encode what is special"
        ) from None  # the error's text may hold the DSN, and that a password
    about = {"application_name": f"headgate {whose}"[:63], **LINKS, **given, **parameters}
    try:
        connection: PgConnection = psycopg.connect("", autocommit=True, **about)
    except psycopg.Error as error:
        text = first_line(error)
        kind = ConnectorError if _REFUSED.search(text) else DatabaseUnready
        raise kind(
            f"{whose}: no connection to PostgreSQL: {text}; check the address, user, password and "
            f"database in the DSN, and that the server runs"
        ) from None
    return connection


def _unquoted(error: BaseException) -> str:
    """What libpq says of a DSN, without what it quotes from it: that may be a password."""
    return re.sub(r'".*"', '"…"', first_line(error))


_REFUSED: Final = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|does not exist|permission denied"
)
"""What another attempt would be told as well."""


class SinkDatabase:
    """One connection of a sink, opened when it is needed and again after trouble."""

    def __init__(
        self,
        dsn: str,
        whose: str,
        limits: Limits,
        prepare: "Callable[[PgConnection], None] | None" = None,
        sleep: Sleep = time.sleep,
    ) -> None:
        """``prepare`` makes a fresh connection ready, for instance creates temporary tables."""
        self.whose = whose
        self._dsn = dsn
        self._limits = limits
        self._prepare = prepare
        self._sleep = sleep
        self._connection: PgConnection | None = None
        self._lock = threading.Lock()

    def open(self) -> "PgConnection":
        """The connection, with autocommit."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._dsn, self.whose)
            try:
                self._set_limits(self._connection)
                if self._prepare is not None:
                    self._prepare(self._connection)
            except psycopg_module(self.whose).OperationalError as error:
                self.close()
                raise self.unready(error) from error
            except BaseException:
                self.close()
                raise
        return self._connection

    def repeat(self, work: "Callable[[PgConnection], Result]") -> Result:
        """What ``work`` returns; it is idempotent, and called again if the connection is lost.

        It is called again after a deadlock, too, which the server ends by giving up one of the two.
        """

        def attempt() -> Result:
            try:
                return work(self.open())
            except psycopg_module(self.whose).Error as error:
                self.close()
                if is_lost(error) or error.sqlstate in _CONFLICTS:
                    raise self.unready(error) from error
                raise
            except BaseException:
                self.close()
                raise

        return repeat(attempt, is_unready, sleep=self._sleep)

    def abort(self) -> None:
        """A statement under way fails; from any thread. The server may still carry it out."""
        with self._lock:  # a descriptor that was closed may be somebody else's
            connection = self._connection
            if connection is None or connection.closed:
                return
            twin = socket.socket(fileno=os.dup(connection.fileno()))
        with twin:
            shut_down(twin)

    def look(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What a query finds on a connection of its own; nothing if there is trouble."""
        try:
            with connect(self._dsn, self.whose) as connection:
                self._set_limits(connection)
                return connection.execute(query, values).fetchall()
        except (psycopg_module(self.whose).Error, ConnectorError):
            return []

    def unready(self, error: Exception) -> DatabaseUnready:
        """Trouble of the server that may pass."""
        return DatabaseUnready(
            f"{self.whose}: PostgreSQL has broken off: {first_line(error)}; see the server's log"
        )

    def close(self) -> None:
        """Idempotent; an open transaction is rolled back."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _set_limits(self, connection: "PgConnection") -> None:
        limits = self._limits
        connection.execute(
            "SELECT set_config('statement_timeout', %s, false), "
            "set_config('lock_timeout', %s, false), "
            "set_config('idle_in_transaction_session_timeout', %s, false)",
            (str(limits.statement_ms), str(limits.lock_ms), str(limits.idle_ms)),
        )


_CONFLICTS: Final = frozenset({"40001", "40P01"})
_GONE: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})


def is_unready(error: Exception) -> bool:
    """Whether another attempt may go well."""
    return isinstance(error, DatabaseUnready)


def is_lost(error: Any) -> bool:
    """Whether the connection is gone, not only a statement refused."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        psycopg = psycopg_module("PostgreSQL")
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state in _GONE or state.startswith("08")


def first_line(error: BaseException) -> str:
    """What the server or the library says, in a line; without the statement."""
    diag = getattr(error, "diag", None)
    primary, detail = getattr(diag, "message_primary", None), getattr(diag, "message_detail", None)
    text = f"{primary} ({clause(detail)})" if primary and detail else primary or str(error)
    return clause(text) or type(error).__name__
