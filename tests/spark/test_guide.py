"""What the documents show runs, and prints what they show."""

from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest

from tests.spark.pages import ROOT, blocks_of, check_block, check_page

PAGES = (
    "docs/guide.md",
    "docs/event-time.md",
    "docs/state-and-timers.md",
    "docs/checkpoints.md",
    "docs/state-as-a-table.md",
    "docs/sinks.md",
    "docs/windows.md",
    "docs/two-streams.md",
    "docs/async-io.md",
    "docs/model-calls.md",
    "docs/errors.md",
    "docs/testing.md",
    "docs/types.md",
    "docs/batch.md",
    "docs/columns.md",
    "docs/coming-from-pyflink.md",
    "docs/structured-streaming.md",
    "docs/connectors/files.md",
    "docs/connectors/delta.md",
    "docs/connectors/iceberg.md",
    "docs/connectors/kafka.md",
    "docs/connectors/http.md",
)
WITH_POSTGRES = "docs/connectors/postgres.md"
SERVED = (("redis", "redis"), ("nats", "nats"), ("mqtt", "paho.mqtt"))
"""Pages on servers of messages, and the libraries that they need."""
WITH_S3 = "docs/connectors/object-stores.md"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_prints_what_it_shows(program: ModuleType, page: str) -> None:
    check_page(program, page)


@pytest.mark.timeout(600)
def test_the_page_on_postgresql_prints_what_it_shows(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    from tests.connectors.postgres.kit import PostgresServer

    with TemporaryDirectory(prefix="headgate-postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            monkeypatch.setenv("SHOP_DSN", server.dsn())
            check_page(program, WITH_POSTGRES)
        finally:
            server.stop()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "library"), SERVED)
def test_the_page_on_a_server_prints_what_it_shows(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, library: str
) -> None:
    pytest.importorskip(library)
    kit = import_module(f"tests.connectors.{name}.kit")
    with TemporaryDirectory(prefix=f"headgate-{name}-") as folder:
        server = kit.PageServer(Path(folder))
        server.process.start()
        try:
            monkeypatch.setenv(f"SHOP_{name.upper()}", server.url)
            check_page(program, f"docs/connectors/{name}.md")
        finally:
            server.process.stop()


@pytest.mark.timeout(600)
def test_the_page_on_object_stores_prints_what_it_shows(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("moto.server")
    pytest.importorskip("obstore")
    from tests.s3_kit import running_store

    with running_store(tmp_path / "store.log") as store:
        monkeypatch.setenv("SHOP_BUCKET", store.at("{}"))
        check_page(program, WITH_S3)


def test_the_readme_shows_what_its_program_prints(program: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = blocks_of(readme)
    check_block(program, shown, "README.md")
