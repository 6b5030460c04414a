"""A driver whose workers are processes of their own, and a folder for what they write."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.host.driver.control_server import ControlServer
from tests.host.control_rig import TIMES, Launcher


@pytest.fixture
def launcher(no_leaks: None) -> Iterator[Launcher]:
    with ControlServer(times=TIMES) as server:
        yield Launcher(server)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "lines"
    made.mkdir()
    return made
