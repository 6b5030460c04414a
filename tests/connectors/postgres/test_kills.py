"""Writers and drivers that are killed between any two steps of a commit, against a real server."""

import os
import signal
from pathlib import Path

import psycopg
import pytest

from headgate.base.elements import Bundle
from headgate.connectors.postgres.sink import PostgresSink
from tests.connectors.kill_kit import RECORDS, killed_at_each_step
from tests.connectors.postgres.kit import ServerDatabase
from tests.core.chain.sink_lab import open_sink, sink_context


@pytest.mark.parametrize("mode", ["insert", "prepare", "upsert"])
def test_a_kill_between_any_two_steps_neither_loses_nor_repeats_a_row(
    database: ServerDatabase, tmp_path: Path, mode: str
) -> None:
    database.run("CREATE TABLE found (n int PRIMARY KEY, word text)")
    if mode != "upsert":  # a repeated row shall be seen, and not refused
        database.run("ALTER TABLE found DROP CONSTRAINT found_pkey")
    keys = ["n"] if mode == "upsert" else None
    sink = PostgresSink(database.dsn, "found", mode=mode, keys=keys)

    def check(step: int) -> None:
        assert database.numbers() == list(range(RECORDS)), f"killed at step {step}"
        assert database.prepared() == []
        database.run("TRUNCATE found")

    patches = [(psycopg.Connection, "wait")]
    assert killed_at_each_step(sink, tmp_path, patches, check, lambda n: (n, "x")) > 10


def test_a_process_that_dies_with_an_open_transaction_leaves_no_row_and_no_lock(
    database: ServerDatabase, tmp_path: Path
) -> None:
    database.run("CREATE TABLE found (n int, word text)")
    sink = PostgresSink(database.dsn, "found", mode="prepare", batch_rows=1)
    child = os.fork()
    if child == 0:
        try:
            task = open_sink(sink, sink_context())
            task.process(Bundle([(1, "x")]), 0)
            (tmp_path / "written").touch()
            signal.pause()
        finally:
            os._exit(1)
    while not (tmp_path / "written").exists():
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    database.run("ALTER TABLE found ADD more int")
    assert database.numbers() == []
