"""What the documents show runs, and prints what they show.

A page's blocks run in order, as one program. A block of text is what the block before it prints;
lines are compared without their order, because tasks run side by side.
"""

import io
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
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
WITH_REDIS = "docs/connectors/redis.md"
WITH_NATS = "docs/connectors/nats.md"
WITH_S3 = "docs/connectors/object-stores.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Shown:
    """A block of code with its line on the page, and what it is said to print."""

    line: int
    code: str
    output: str = ""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: "SparkSession") -> ModuleType:
    """The module that the code runs in: ``__main__``, as for a script; and a folder for files."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.chdir(tmp_path)
    return module


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
def test_the_page_on_redis_prints_what_it_shows(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("redis")
    from tests.connectors.redis.kit import RedisServerProcess

    with TemporaryDirectory(prefix="headgate-redis-") as folder:
        server = RedisServerProcess(Path(folder))
        server.process.start()
        try:
            monkeypatch.setenv("SHOP_REDIS", server.url)
            check_page(program, WITH_REDIS)
        finally:
            server.process.stop()


@pytest.mark.timeout(600)
def test_the_page_on_nats_prints_what_it_shows(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nats")
    from tests.connectors.nats.kit import NatsServerProcess

    with TemporaryDirectory(prefix="headgate-nats-") as folder:
        server = NatsServerProcess(Path(folder))
        server.process.start()
        try:
            monkeypatch.setenv("SHOP_NATS", server.url)
            check_page(program, WITH_NATS)
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


def check_page(program: ModuleType, page: str) -> None:
    for shown in blocks_of((ROOT / page).read_text(encoding="utf-8")):
        printed = run(program, shown, page)
        where = f"{page}:{shown.line} prints\n{printed}"
        assert sorted(printed.splitlines()) == sorted(shown.output.splitlines()), where


def test_the_readme_shows_what_its_program_prints(program: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (shown,) = blocks_of(readme)
    printed = run(program, shown, "README.md")
    assert sorted(printed.splitlines()) == sorted(shown.output.splitlines()), printed


def blocks_of(text: str) -> Iterator[Shown]:
    """Blocks of code, each with the text behind it."""
    present: Shown | None = None
    for found in BLOCK.finditer(text):
        if found[1] == "text":
            assert present is not None, f"output without code: {found[2]}"
            present.output = found[2]
            continue
        if present is not None:
            yield present
        present = Shown(text.count("\n", 0, found.start(2)) + 1, found[2])
    if present is not None:
        yield present


def run(program: ModuleType, shown: Shown, page: str) -> str:
    """What a block prints; errors name the line on the page."""
    code = compile("\n" * (shown.line - 1) + shown.code, page, "exec")
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, program.__dict__)
    return printed.getvalue()
