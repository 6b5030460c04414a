"""The sink for any DB-API module with PostgreSQL, through psycopg: exactly once, as it is."""

from functools import partial
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings

from headgate.base.elements import Bundle
from headgate.base.errors import ConnectorError, DatabaseUnready
from headgate.connectors.sql import DbApiSink
from tests.connectors.postgres.kit import ServerDatabase
from tests.core.chain.sink_lab import STEPS, TOTAL, SinkJob, open_sink, run_job, sink_context

TABLE = "CREATE TABLE found (n int PRIMARY KEY, word text NOT NULL)"
INSERT = "INSERT INTO found (n, word) VALUES (%s, %s)"


def test_whatever_happens_each_record_is_one_row(database: ServerDatabase) -> None:
    database.run("CREATE TABLE found (n int, word text NOT NULL)")

    @settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def once(steps: list[tuple[Any, ...]]) -> None:
        database.run("TRUNCATE found")
        job = SinkJob(
            lambda: DbApiSink(partial(psycopg.connect, database.dsn), INSERT, batch_rows=3),
            database.numbers,
            lambda number: (number, "x"),
        )
        run_job(job, steps, TOTAL)

    once()


def test_a_lock_that_is_held_is_told_as_such(database: ServerDatabase) -> None:
    database.run(TABLE)
    connect = partial(psycopg.connect, database.dsn, options="-c lock_timeout=200")
    task = open_sink(DbApiSink(connect, INSERT), sink_context(checkpoints=False))
    with psycopg.connect(database.dsn) as other:
        other.execute("LOCK TABLE found")
        task.process(Bundle([(1, "a")]), 0)
        with pytest.raises(DatabaseUnready, match="another transaction holds a lock"):
            task.finish()
    task.close()


def test_a_connection_that_commits_by_itself_is_refused(database: ServerDatabase) -> None:
    connect = partial(psycopg.connect, database.dsn, autocommit=True)
    with pytest.raises(ConnectorError, match="turn autocommit off"):
        open_sink(DbApiSink(connect, INSERT), sink_context())
