"""Every test of a connector is also a check for threads, files and sockets left behind."""

from collections.abc import Iterator

import pytest

from tests.connectors.kit import nothing_leaks


@pytest.fixture(autouse=True)
def _leaves_nothing_behind() -> Iterator[None]:
    with nothing_leaks():
        yield
