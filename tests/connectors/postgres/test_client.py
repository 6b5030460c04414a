"""Addresses of PostgreSQL that cannot be read, and the passwords in them."""

import pytest

from headgate.base.errors import PlanInvalid
from headgate.connectors.postgres.changes import PostgresChangesSource
from headgate.connectors.postgres.client import connect
from headgate.connectors.postgres.sink import PostgresSink


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://ada:geheim%zz@db/shop",
        "postgresql://ada:geheim 2@db/shop",
        'postgresql://ada:a"geheim%zz@db/shop',
        "postgresql://ada:geheim@[::1/shop",
        "host=db password=ganz geheim",
        "host=db password='geheim",
    ],
)
def test_a_dsn_that_cannot_be_read_is_refused_without_its_password(dsn: str) -> None:
    with pytest.raises(PlanInvalid, match="the DSN cannot be read") as caught:
        connect(dsn, "sink")
    assert "geheim" not in str(caught.value)


def test_a_dsn_that_is_no_text_is_refused_without_its_password() -> None:
    with pytest.raises(PlanInvalid, match="of type dict; give a DSN") as caught:
        PostgresSink({"password": "geheim"}, "found")  # type: ignore[arg-type]
    assert "geheim" not in str(caught.value)


def test_the_settings_of_a_source_show_no_password() -> None:
    source = PostgresChangesSource("host=db password=geheim", ["found"])
    assert "geheim" not in repr(source.settings)
