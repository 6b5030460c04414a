"""The library's own threads and descriptors begin with its first use and last to the end."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _library(tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("deltalake")
    from tests.connectors.delta import kit

    path: Path = tmp_path_factory.mktemp("first") / "table"
    kit.begin(path)
