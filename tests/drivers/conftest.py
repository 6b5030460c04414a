"""The scenarios run once for each driver and each kind of flow control."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from headgate.base.settings import FlowControl
from tests.drivers.driver import Driver
from tests.drivers.host_driver import HostDriver
from tests.drivers.sim_driver import SimDriver

DRIVERS: Final[dict[str, Callable[[FlowControl], Driver]]] = {
    "host": HostDriver,
    "sim": SimDriver,
}
"""A driver is made for a flow control; if it has ``close``, that is called after the scenario."""


@pytest.fixture(params=list(FlowControl), ids=lambda mode: mode.value)
def mode(request: pytest.FixtureRequest) -> FlowControl:
    chosen: FlowControl = request.param
    return chosen


@pytest.fixture(params=list(DRIVERS))
def driver(request: pytest.FixtureRequest, mode: FlowControl) -> Iterator[Driver]:
    """Ready for a scenario; after it every segment must be home."""
    made = DRIVERS[request.param](mode)
    try:
        yield made
        for where in (0, 1):
            made.run_until(
                lambda where=where: made.free_segments(where) == made.total_segments,  # type: ignore[misc]
                "all segments home",
            )
    finally:
        getattr(made, "close", lambda: None)()
