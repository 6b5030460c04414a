"""PostgreSQL, started once for all tests of this folder; its database is emptied after each."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytest.importorskip("psycopg")

from tests.connectors.postgres.kit import PostgresServer, ServerDatabase


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with TemporaryDirectory(prefix="headgate-postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[ServerDatabase]:
    database = ServerDatabase(postgres)
    yield database
    database.clear()
