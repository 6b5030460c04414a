"""The driver's ports: free ones, or those that the settings say."""

import socket
import threading

import pytest

from headgate.base.errors import SettingsInvalid
from headgate.base.settings import JobSettings
from headgate.spark.cluster import LOOPBACK
from headgate.spark.driver_services import DriverServices
from tests.spark.cluster import free_port


def test_both_ports_can_be_chosen() -> None:
    control, results = free_port(), free_port()
    driver = DriverServices(
        LOOPBACK, LOOPBACK, JobSettings(control_port=control, results_port=results)
    )
    assert driver.control.address == (LOOPBACK, control)
    assert driver.results.address == (LOOPBACK, results)
    driver.close()


@pytest.mark.parametrize("field", ["control_port", "results_port"])
def test_a_port_that_is_taken_is_told_with_its_key(field: str) -> None:
    threads = set(threading.enumerate())
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsInvalid, match=rf"\.port: port {port} of 127.0.0.1 cannot"):
            DriverServices(LOOPBACK, LOOPBACK, JobSettings(**{field: port}))
    assert set(threading.enumerate()) == threads


def test_a_number_that_is_no_port_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="70000 is above 65535"):
        DriverServices(LOOPBACK, LOOPBACK, JobSettings(control_port=70_000))


def test_the_address_that_workers_get_may_be_another() -> None:
    driver = DriverServices("0.0.0.0", "198.51.100.7", JobSettings())
    assert driver.control.address[0] == driver.results.address[0] == "198.51.100.7"
    driver.close()
