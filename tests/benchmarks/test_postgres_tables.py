"""The parts of the section ``postgres`` of ``bench sources`` that need no Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("psycopg")

import psycopg

from benchmarks import postgres_tables as bench
from benchmarks.sources import MEANINGS
from tests.connectors.kit import read_to_end
from tests.connectors.postgres.kit import PLACES
from tests.core.chain.sink_lab import sink_context
from tests.servers import program


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    program("initdb", *PLACES)
    with bench.a_server() as dsn:
        assert dsn is not None
        yield dsn


def test_a_server_that_is_named_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(bench.DSN, "host=db.example")
    with bench.a_server() as dsn:
        assert dsn == "host=db.example"


def test_plain_loops_write_and_read_all_rows(dsn: str) -> None:
    for plain in (bench.plain_insert, bench.plain_upsert, bench.plain_changes):
        assert plain(dsn, 1_500) > 0
        with psycopg.connect(dsn) as connection:
            (found,) = connection.execute("SELECT count(DISTINCT n) FROM bench")
        assert found == (1_500,)


def test_readers_of_jobs_end_after_their_rows(dsn: str, tmp_path: Path) -> None:
    source = bench.PickedRows(bench.PICKED + 10, str(tmp_path / "began"))
    rows = read_to_end(source.open(0, None, sink_context()), 7_000)
    assert len(rows) == bench.PICKED + 10
    assert (tmp_path / "began").exists()
    bench._make_changes(dsn, 2_500)
    changes = bench.FirstChanges(dsn, publication="bench", slot="bench", metadata=())
    changes.count = 2_400
    reader = changes.open("bench", None, sink_context())
    meter = bench.ChangeMeter()
    meter.take(read_to_end(reader))
    reader.close()
    assert meter.report()["records"] == 2_400


def test_every_figure_is_explained() -> None:
    for name in ("insert", "prepare", "upsert", "changes"):
        figures = bench._figures(name, [2.0], [1.0])
        shown = [key for key in figures if not key.endswith("_all")]
        assert len(shown) == 3
        assert set(shown) <= set(MEANINGS)
