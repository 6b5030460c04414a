"""A driver whose workers are processes of their own."""

from collections.abc import Iterator

import pytest

from headgate.host.driver.control_server import ControlServer
from tests.host.control_rig import TIMES, Launcher


@pytest.fixture
def launcher(no_leaks: None) -> Iterator[Launcher]:
    with ControlServer(times=TIMES) as server:
        yield Launcher(server)
