"""Copies of a PostgreSQL table in lakes and databases: equal to it, or refused with the reason."""

import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from headgate.base.errors import HeadgateError
from headgate.connectors.delta.sink import DeltaSink
from headgate.connectors.iceberg.sink import IcebergSink
from headgate.connectors.postgres.changes import PostgresChangesSource
from headgate.connectors.postgres.sink import PostgresSink
from headgate.connectors.sql import SqliteSink
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from tests.connectors.delta import kit as delta
from tests.connectors.iceberg import kit as iceberg
from tests.connectors.kit import read_until
from tests.connectors.lake_kit import checkpoint, feed
from tests.connectors.postgres.kit import ServerDatabase
from tests.core.chain.sink_lab import open_sink, sink_context

COLUMNS = "(n int PRIMARY KEY, word text NOT NULL, note text)"
SCHEMA = pa.schema(
    [pa.field("n", pa.int32(), False), pa.field("word", pa.string(), False), ("note", pa.string())]
)
LAST = -1
"""The key of the last row that is written."""
LARGE = "md5(random()::text) || repeat(md5(random()::text), 200)"


@pytest.fixture(scope="module", autouse=True)
def _libraries(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Their threads and descriptors begin with their first use and last to the end."""
    delta.rows(delta.make_table(tmp_path_factory.mktemp("first") / "table"))
    iceberg.begin(tmp_path_factory.mktemp("second"))


Copy = tuple[Any, Callable[[], list[dict[str, Any]]]]
"""A sink, and what its table holds."""


def in_delta(folder: Path, database: ServerDatabase) -> Copy:
    path = delta.make_table(folder / "table", SCHEMA)
    return DeltaSink(path, mode="upsert", keys=["n"]), lambda: delta.rows(path)


def in_iceberg(folder: Path, database: ServerDatabase) -> Copy:
    place = iceberg.make_table(folder / "place", SCHEMA)
    sink = IcebergSink(iceberg.settings(place), iceberg.NAME, mode="upsert", keys=["n"])
    return sink, lambda: iceberg.rows(place)


def in_postgres(folder: Path, database: ServerDatabase) -> Copy:
    database.run(f"CREATE TABLE copy {COLUMNS}")
    sink = PostgresSink(database.dsn, "copy", keys=["n"], batch_rows=7)
    return sink, lambda: rows_of(database, "copy")


COPIES = pytest.mark.parametrize("make_copy", [in_delta, in_iceberg, in_postgres])


def rows_of(database: ServerDatabase, table: str) -> list[dict[str, Any]]:
    found = database.rows(f"SELECT n, word, note FROM {table}")
    return [dict(zip(("n", "word", "note"), row, strict=True)) for row in found]


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["n"]))


def changes(database: ServerDatabase, *settings: str) -> PostgresChangesSource:
    database.run(f"CREATE TABLE origin {COLUMNS}", *settings)
    return PostgresChangesSource(database.dsn, ["origin"], slot="origin")


def follow(
    source: PostgresChangesSource, task: TwoPhaseSinkOperator, write: Callable[[], None], lots: int
) -> None:
    """What ``write`` changes, up to the last row, in so many checkpoints."""
    (split,) = source.splits(1)
    reader = source.open(split, None, sink_context())
    try:
        read_until(reader, lambda _: reader.fileno() is not None)
        write()
        rows: Sequence[Any] = read_until(
            reader, lambda found: any(row.n == LAST and row.word == "last" for row in found)
        )
    finally:
        reader.close()
    size = max(1, len(rows) // lots)
    for number, start in enumerate(range(0, len(rows), size), 1):
        feed(task, *rows[start : start + size])
        checkpoint(task, number)
        task.checkpoint_completed(number)


def random_statement(chosen: random.Random) -> str:
    n, other = chosen.randrange(12), chosen.randrange(12)
    word, note = f"'word {chosen.randrange(1000)}'", chosen.choice(["NULL", "'a note'"])
    free = f"n = {n} AND NOT EXISTS (SELECT 1 FROM origin WHERE n = {other})"
    return chosen.choice(
        [
            f"INSERT INTO origin VALUES ({n}, {word}, {note}) ON CONFLICT DO NOTHING",
            f"INSERT INTO origin VALUES ({n}, {word}, {note}) ON CONFLICT (n) DO UPDATE SET "
            f"word = EXCLUDED.word, note = EXCLUDED.note",
            f"UPDATE origin SET word = {word} WHERE n = {n}",
            f"UPDATE origin SET n = {other} WHERE {free}",
            f"UPDATE origin SET n = {other}, word = {word} WHERE {free}",
            f"DELETE FROM origin WHERE n = {n}",
        ]
    )


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@COPIES
def test_a_copy_equals_its_table_after_writes_deletes_and_changes_of_keys(
    make_copy: Callable[..., Copy], identity: str, database: ServerDatabase, tmp_path: Path
) -> None:
    source = changes(database, f"ALTER TABLE origin REPLICA IDENTITY {identity}")
    chosen = random.Random(f"{make_copy.__name__} {identity}")
    statements = [random_statement(chosen) for _ in range(250)]

    def write() -> None:
        for start in range(0, len(statements), 5):  # transactions of some statements
            database.run(";".join(statements[start : start + 5]))
        database.run(f"INSERT INTO origin VALUES ({LAST}, 'last')")

    sink, copied = make_copy(tmp_path, database)
    task = open_sink(sink, sink_context())
    follow(source, task, write, lots=8)
    task.close()
    assert by_key(copied()) == by_key(rows_of(database, "origin"))


@COPIES
def test_keys_that_change_places_do_so_in_the_copy(
    make_copy: Callable[..., Copy], database: ServerDatabase, tmp_path: Path
) -> None:
    source = changes(database)
    sink, copied = make_copy(tmp_path, database)
    task = open_sink(sink, sink_context())

    def write() -> None:
        database.run(
            "INSERT INTO origin VALUES (1, 'one'), (2, 'two'), (3, 'three')",
            "UPDATE origin SET n = 0 WHERE n = 1; UPDATE origin SET n = 1 WHERE n = 2; "
            "UPDATE origin SET n = 2 WHERE n = 0",
            "UPDATE origin SET n = 30 WHERE n = 3",
            f"INSERT INTO origin VALUES ({LAST}, 'last')",
        )

    follow(source, task, write, lots=1)
    task.close()
    found = {row["n"]: row["word"] for row in copied()}
    assert found == {1: "two", 2: "one", 30: "three", LAST: "last"}


@pytest.mark.parametrize("change", ["UPDATE origin SET word = 'new'", "TRUNCATE origin"])
@COPIES
def test_values_that_the_server_does_not_send_are_refused_with_what_to_do(
    make_copy: Callable[..., Copy], change: str, database: ServerDatabase, tmp_path: Path
) -> None:
    """A large value that an update leaves as it is, and the key of a truncated table."""
    source = changes(database, "ALTER TABLE origin ALTER COLUMN note SET STORAGE EXTERNAL")
    sink, _ = make_copy(tmp_path, database)
    task = open_sink(sink, sink_context())

    def write() -> None:
        database.run(
            f"INSERT INTO origin VALUES (1, 'word', {LARGE})",
            change,
            f"INSERT INTO origin VALUES ({LAST}, 'last')",
        )

    with pytest.raises(HeadgateError, match="REPLICA IDENTITY FULL.*truncates=False"):
        follow(source, task, write, lots=1)
    task.close()


@COPIES
def test_large_values_that_stay_are_copied_from_a_table_that_sends_whole_rows(
    make_copy: Callable[..., Copy], database: ServerDatabase, tmp_path: Path
) -> None:
    source = changes(
        database,
        "ALTER TABLE origin REPLICA IDENTITY FULL",
        "ALTER TABLE origin ALTER COLUMN note SET STORAGE EXTERNAL",
    )
    sink, copied = make_copy(tmp_path, database)
    task = open_sink(sink, sink_context())

    def write() -> None:
        database.run(
            f"INSERT INTO origin VALUES (1, 'word', {LARGE})",
            "UPDATE origin SET word = 'new'",
            f"INSERT INTO origin VALUES ({LAST}, 'last')",
        )

    follow(source, task, write, lots=2)
    task.close()
    assert by_key(copied()) == by_key(rows_of(database, "origin"))


@pytest.mark.parametrize("mode", ["insert", "prepare"])
def test_a_sink_that_inserts_refuses_changes_of_rows(
    mode: str, database: ServerDatabase, tmp_path: Path
) -> None:
    source = changes(database, "ALTER TABLE origin REPLICA IDENTITY FULL")
    database.run("CREATE TABLE copy (n int, word text, note text)")
    task = open_sink(PostgresSink(database.dsn, "copy", mode=mode), sink_context())

    def write() -> None:
        database.run(
            "INSERT INTO origin VALUES (1, 'word')",
            "DELETE FROM origin",
            f"INSERT INTO origin VALUES ({LAST}, 'last')",
        )

    with pytest.raises(HeadgateError, match=r"is a change \(-D\), and the sink inserts; give keys"):
        follow(source, task, write, lots=1)
    task.close()


def test_a_statement_is_not_run_for_rows_that_are_gone(
    database: ServerDatabase, tmp_path: Path
) -> None:
    source = changes(database, "ALTER TABLE origin REPLICA IDENTITY FULL")
    file = tmp_path / "copy.db"
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("CREATE TABLE copy (n int PRIMARY KEY, word text, note text)")
    statement = "INSERT INTO copy VALUES (?, ?, ?) ON CONFLICT (n) DO UPDATE SET word = word"
    task = open_sink(SqliteSink(file, statement), sink_context())

    def write() -> None:
        database.run(
            "INSERT INTO origin VALUES (1, 'word')",
            "DELETE FROM origin",
            f"INSERT INTO origin VALUES ({LAST}, 'last')",
        )

    with pytest.raises(HeadgateError, match=r"says that a row is gone \(-D\).*parameters="):
        follow(source, task, write, lots=1)
    task.close()
