"""The library's own threads begin with its first use and last to the end."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _library(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("pyiceberg")
    from tests.connectors.iceberg import kit

    path: Path = tmp_path_factory.mktemp("first")
    kit.begin(path)
