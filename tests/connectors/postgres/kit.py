"""A real PostgreSQL server for tests, and its database, emptied after each."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg

from tests.servers import ServerProcess, free_port, program

SLOTS = "FROM pg_replication_slots WHERE database = current_database()"

PLACES = [f"/usr/lib/postgresql/{version}/bin" for version in range(18, 12, -1)]
USER = "postgres"
SETTINGS = {
    "wal_level": "logical",
    "max_prepared_transactions": 20,
    "max_wal_senders": 10,
    "max_replication_slots": 10,
    "fsync": "off",
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "autovacuum": "off",
}


class PostgresServer:
    """Started once; ``restart`` keeps what was written."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.data = folder / "data"
        self.data.mkdir()
        user = "postgres" if os.getuid() == 0 else None
        if user:
            folder.chmod(0o755)
            shutil.chown(self.data, user)
        subprocess.run(
            [
                *(program("initdb", *PLACES), "-D", self.data, "-N", "-U", USER),
                *("--auth=trust", "--no-locale", "-E", "UTF8"),
            ],
            check=True,
            capture_output=True,
            user=user,
        )
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"host all {USER} all trust\nhost all all all scram-sha-256\n")
        self._log = folder / "log"
        self._process: ServerProcess | None = None

    def dsn(self, user: str = USER, password: str = "any") -> str:
        """All but the owner need their passwords."""
        return f"host=127.0.0.1 port={self.port} user={user} password={password} dbname=postgres"

    def start(self, **settings: Any) -> None:
        chosen = {**SETTINGS, "port": self.port, **settings}
        command = [program("postgres", *PLACES), "-D", str(self.data)]
        command += [f"--{name}={value}" for name, value in chosen.items()]
        command += [f"--unix_socket_directories={self.data}"]
        self._process = ServerProcess(command, self._answers, self._log, user=USER)
        self._process.start()

    def stop(self, how: int = signal.SIGINT) -> None:
        """Clients are sent away; SIGQUIT: nothing is written any more, as in a crash."""
        assert self._process is not None
        self._process.stop(how)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


class ServerDatabase:
    """The database of the server, looked at from outside."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.dsn = server.dsn()
        self._connection: psycopg.Connection[Any] | None = None

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._ask(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._ask(query).fetchall()

    def _ask(self, statement: str) -> Any:
        """On a connection that is kept, and opened again when the server was away."""
        if self._connection is not None:
            try:
                return self._connection.execute(statement)  # type: ignore[call-overload]
            except psycopg.OperationalError:
                self._connection.close()
        self._connection = psycopg.connect(self.dsn, autocommit=True)
        return self._connection.execute(statement)  # type: ignore[call-overload]

    def numbers(self, table: str = "found") -> list[int]:
        return [number for (number,) in self.rows(f"SELECT n FROM {table} ORDER BY n")]

    def prepared(self) -> list[str]:
        query = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY gid"
        return [gid for (gid,) in self.rows(query)]

    def end_others(self, like: str = "headgate%") -> int:
        """Break the connections of sinks and sources, as a firewall or an administrator does."""
        ended = self.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
            f"current_database() AND application_name LIKE '{like}' AND pid <> pg_backend_pid()"
        )
        return len(ended)

    def roll_back_prepared(self) -> None:
        for gid in self.prepared():
            self.run(f"ROLLBACK PREPARED '{gid}'")

    def clear(self) -> None:
        self.roll_back_prepared()
        self.end_others("%")
        self.clear_slots()
        for (name,) in self.rows("SELECT quote_ident(pubname) FROM pg_publication"):
            self.run(f"DROP PUBLICATION {name}")
        self.run("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        assert self._connection is not None
        self._connection.close()

    def clear_slots(self) -> None:
        self.await_free_slots()
        self.rows(f"SELECT pg_drop_replication_slot(slot_name) {SLOTS}")

    def await_free_slots(self) -> None:
        """The server notices a moment later that a reader has left."""
        while self.rows(f"SELECT 1 {SLOTS} AND active"):
            pass
