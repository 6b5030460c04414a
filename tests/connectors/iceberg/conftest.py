"""The library's own threads begin with its first use and last to the end."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _library() -> None:
    pytest.importorskip("pyiceberg")
    from tests.connectors.iceberg import kit

    kit.start_threads()
