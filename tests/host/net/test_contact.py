"""The contact: the module path is the driver's on its own machine, and nowhere else."""

import pytest

from headgate.host.net.contact import DriverContact, local_path


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_workers_on_the_same_machine_find_what_the_driver_finds(host: str) -> None:
    assert local_path((host, 1))


@pytest.mark.parametrize("host", ["10.1.2.3", "2001:db8::1", "driver.example"])
def test_workers_on_other_machines_keep_their_own_path(host: str) -> None:
    assert local_path((host, 1)) == ()


def test_a_contact_names_the_driver_and_hides_the_secret() -> None:
    contact = DriverContact(("10.1.2.3", 4), "job", b"secret bytes")
    assert contact.driver == "10.1.2.3:4"
    assert "secret bytes" not in repr(contact)
