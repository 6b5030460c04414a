"""MariaDB, started once for all tests of this folder: it is up within a second."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.connectors.sql.mariadb import MariaServer


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaServer]:
    with TemporaryDirectory(prefix="headgate-mariadb-") as folder:
        server = MariaServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
