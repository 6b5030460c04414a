"""The sink for any DB-API module with a real MariaDB, through pymysql: what works, and what not."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

pytest.importorskip("pymysql")

from headgate.base.elements import Bundle
from headgate.base.errors import ConnectorError, DatabaseUnready
from headgate.connectors.sql import DbApiSink
from headgate.control.error_classes import is_outside
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.functions.context import SnapshotMoment
from tests.connectors.sql.mariadb import MariaServer
from tests.core.chain.sink_lab import STEPS, TOTAL, SinkJob, open_sink, run_job, sink_context
from tests.servers import free_port

INSERT = "INSERT INTO found (n, word) VALUES (%s, %s)"


@pytest.fixture
def shop(mariadb: MariaServer) -> MariaServer:
    mariadb.clear()
    return mariadb


@contextmanager
def opened(sink: DbApiSink, **about: Any) -> Iterator[TwoPhaseSinkOperator]:
    task = open_sink(sink, sink_context(**about))
    try:
        yield task
    finally:
        task.close()


def feed(task: TwoPhaseSinkOperator, *records: Any) -> None:
    task.process(Bundle(list(records)), 0)


def test_rows_are_there_when_their_checkpoint_is_complete(shop: MariaServer) -> None:
    with opened(DbApiSink(shop.connect, INSERT)) as task:
        feed(task, (1, "a"), (2, "b"))
        task.snapshot(SnapshotMoment(1, 0))
        assert shop.numbers() == []
        task.checkpoint_completed(1)
    assert shop.numbers() == [1, 2]
    assert shop.rows("SELECT lots FROM headgate_commits") == [(1,)]


def test_whatever_happens_each_record_is_one_row(shop: MariaServer) -> None:
    @settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def once(steps: list[tuple[Any, ...]]) -> None:
        shop.rows("DELETE FROM found")
        job = SinkJob(
            lambda: DbApiSink(shop.connect, INSERT, batch_rows=3),
            shop.numbers,
            lambda number: (number, "x"),
        )
        run_job(job, steps, TOTAL)

    once()


def test_upserts_are_written_at_once(shop: MariaServer) -> None:
    shop.rows("ALTER TABLE found ADD PRIMARY KEY (n)")
    upsert = f"{INSERT} ON DUPLICATE KEY UPDATE word = VALUES(word)"
    with opened(DbApiSink(shop.connect, upsert, exactly_once=False)) as task:
        feed(task, (1, "a"), (2, "b"), (1, "c"))
        task.snapshot(SnapshotMoment(1, 0))
        assert shop.rows("SELECT * FROM found ORDER BY n") == [(1, "c"), (2, "b")]


def test_a_commit_is_repeated_when_its_connection_or_the_server_was_away(
    shop: MariaServer,
) -> None:
    with opened(DbApiSink(shop.connect, INSERT)) as task:
        feed(task, (1, "a"))
        task.snapshot(SnapshotMoment(1, 0))
        for (thread,) in shop.rows(
            "SELECT id FROM information_schema.processlist "
            "WHERE id <> connection_id() AND db = 'shop'"
        ):
            shop.rows(f"KILL {thread}")
        task.checkpoint_completed(1)
        feed(task, (2, "b"))
        task.snapshot(SnapshotMoment(2, 0))
        shop.kill()
        shop.start()
        task.checkpoint_completed(2)
    assert shop.numbers() == [1, 2]


def test_a_connection_that_commits_by_itself_is_refused(shop: MariaServer) -> None:
    sink = DbApiSink(partial(shop.connect, autocommit=True), INSERT)
    with pytest.raises(ConnectorError, match="turn autocommit off"):
        open_sink(sink, sink_context())


def test_a_lock_that_is_held_is_told_as_such(shop: MariaServer) -> None:
    waits = partial(shop.connect, init_command="SET innodb_lock_wait_timeout = 1")
    shop.rows("ALTER TABLE found ADD PRIMARY KEY (n)")
    with opened(DbApiSink(waits, INSERT), checkpoints=False) as task, shop.connect() as other:
        other.cursor().execute("INSERT INTO found VALUES (1, 'held')")
        feed(task, (1, "a"))
        with pytest.raises(DatabaseUnready, match="another transaction holds a lock"):
            task.finish()


def test_a_row_that_the_database_refuses_is_shown(shop: MariaServer) -> None:
    with opened(DbApiSink(shop.connect, INSERT), checkpoints=False) as task:
        feed(task, (1, "a"), (2, None))
        with pytest.raises(ConnectorError, match=r"for the row \(2, None\): .*cannot be null"):
            task.finish()
    assert shop.numbers() == []


def connect_as(server: MariaServer, password: str, database: str = "shop") -> Any:
    import pymysql

    return pymysql.connect(
        host="127.0.0.1",
        port=server.port,
        user="ada",
        password=password,
        database=database,
        ssl_disabled=True,
    )


def test_wrong_credentials_and_missing_rights_are_told_and_cost_no_row(shop: MariaServer) -> None:
    shop.check_rights()
    shop.rows("CREATE USER ada IDENTIFIED BY 'right'")
    for table in ("found", "headgate_commits"):  # rights of tables are checked at any time
        shop.rows(f"GRANT ALL ON shop.{table} TO ada")
    try:
        for arguments, reason in (
            (("wrong",), "Access denied for user 'ada'"),
            (("right", "bank"), "Access denied for user 'ada'.* to database 'bank'"),
        ):
            sink = DbApiSink(partial(connect_as, shop, *arguments), INSERT)
            with pytest.raises(DatabaseUnready, match=f"no connection.*{reason}.*; check connect"):
                open_sink(sink, sink_context())
        sink = DbApiSink(partial(connect_as, shop, "right"), INSERT)
        with opened(sink) as task:
            feed(task, (1, "a"))
            state = task.snapshot(SnapshotMoment(1, 0)).sink
            shop.rows("REVOKE INSERT ON shop.found FROM ada")
            with pytest.raises(ConnectorError, match="INSERT command denied to user 'ada'"):
                task.checkpoint_completed(1)
        shop.rows("GRANT INSERT ON shop.found TO ada")
        assert state is not None
        with opened(sink, restored=OperatorRestored(1, sinks=(state,)), attempt=1):
            assert shop.numbers() == [1]
    finally:
        shop.kill()
        shop.start()


def connect_nowhere(port: int) -> Any:
    import pymysql

    return pymysql.connect(host="127.0.0.1", port=port, user="root")


def test_a_server_that_is_not_there_is_a_fault_that_passes() -> None:
    sink = DbApiSink(partial(connect_nowhere, free_port()), INSERT)
    with pytest.raises(DatabaseUnready, match="no connection to the database") as caught:
        open_sink(sink, sink_context())
    assert is_outside(caught.value)
