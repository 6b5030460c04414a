"""The formats of lakes: each test here runs once with each of their kits."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

LIBRARIES = {"delta": "deltalake", "iceberg": "pyiceberg"}


@pytest.fixture(scope="session", params=list(LIBRARIES))
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Threads and descriptors of a library begin with its first use and last to the end."""
    pytest.importorskip(LIBRARIES[request.param])
    kit = import_module(f"tests.connectors.{request.param}.kit")
    kit.begin(tmp_path_factory.mktemp("first") / "table")
    return kit


@pytest.fixture
def place(lake: Any, tmp_path: Path) -> Any:
    """A table with the columns n and word."""
    return lake.make_table(tmp_path / "table")
