"""Rows in a real PostgreSQL: by key, and exactly once in two ways, whatever breaks."""

import logging
import pickle
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings

from headgate.api.row import Row, RowKind, named_row
from headgate.base.elements import Bundle
from headgate.base.errors import (
    ConnectorError,
    DatabaseUnready,
    PlanInvalid,
    RecordsLost,
    TableUnfit,
)
from headgate.connectors import servers
from headgate.connectors.postgres import commits
from headgate.connectors.postgres.sink import PostgresSink
from headgate.control.error_classes import is_final, is_outside
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.functions.context import SnapshotMoment
from tests.connectors.kit import CancelledTask
from tests.connectors.postgres.kit import PostgresServer, ServerDatabase
from tests.core.chain.sink_lab import STEPS, TOTAL, SinkJob, open_sink, run_job, sink_context
from tests.servers import free_port

TABLE = "CREATE TABLE found (n int, word text NOT NULL)"
KEYED = "CREATE TABLE found (n int PRIMARY KEY, word text)"
EXACT = ["insert", "prepare"]


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon."""
    monkeypatch.setattr(servers, "RECONNECT_S", 0.3)


def feed(task: TwoPhaseSinkOperator, *records: Any) -> None:
    task.process(Bundle(list(records)), 0)


@contextmanager
def opened(sink: PostgresSink, **about: Any) -> Iterator[TwoPhaseSinkOperator]:
    task = open_sink(sink, sink_context(**about))
    try:
        yield task
    finally:
        task.close()


def checkpoint(task: TwoPhaseSinkOperator, number: int) -> OperatorRestored:
    state = task.snapshot(SnapshotMoment(number, 0)).sink
    return OperatorRestored(number, sinks=() if state is None else (state,))


# Exactly once.


@pytest.mark.parametrize("mode", EXACT)
def test_rows_are_there_when_their_checkpoint_is_complete(
    database: ServerDatabase, mode: str
) -> None:
    database.run(TABLE)
    with opened(PostgresSink(database.dsn, "found", mode=mode, batch_rows=2)) as task:
        feed(task, (1, "a"), Row(2, "b"), {"word": "c", "n": 3})
        checkpoint(task, 1)
        feed(task, named_row(["word", "n"], ["d", 4]))
        assert database.numbers() == []
        task.checkpoint_completed(1)
        assert database.numbers() == [1, 2, 3]
        checkpoint(task, 2)
        task.checkpoint_completed(2)
    assert database.rows("SELECT * FROM found ORDER BY n") == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
        (4, "d"),
    ]
    log = database.rows("SELECT lot, whose FROM headgate_commit_log")
    assert log == [(2, "job / the-sink / 0")]
    assert database.prepared() == []


def test_a_prepared_transaction_names_job_subtask_and_checkpoint(database: ServerDatabase) -> None:
    database.run(TABLE)
    sink = PostgresSink(database.dsn, "found", mode="prepare")
    with opened(sink, subtask=1, parallelism=2) as task:
        feed(task, (1, "a"))
        checkpoint(task, 7)
        (gid,) = database.prepared()
        found = commits.GID.fullmatch(gid)
        assert found is not None
        assert (found["job"], found["subtask"], found["checkpoint"]) == ("job-1", "1", "7")


@pytest.mark.parametrize("mode", EXACT)
def test_a_new_run_commits_what_its_checkpoint_holds_and_nothing_else(
    database: ServerDatabase, mode: str
) -> None:
    database.run(TABLE)
    sink = PostgresSink(database.dsn, "found", mode=mode)
    with opened(sink) as task:
        feed(task, (1, "a"))
        held = checkpoint(task, 1)
        feed(task, (2, "b"))
        checkpoint(task, 2)
    with opened(sink, restored=held, attempt=1):
        assert database.numbers() == [1]
        assert database.prepared() == []
    with opened(sink, restored=held, attempt=2):
        assert database.numbers() == [1]


@pytest.mark.parametrize("mode", EXACT)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_subtasks_that_are_gone_after_a_rescale_leave_nothing(
    database: ServerDatabase, mode: str, parallelism: int
) -> None:
    database.run(TABLE)
    job = SinkJob(
        lambda: PostgresSink(database.dsn, "found", mode=mode),
        database.numbers,
        lambda number: (number, "x"),
    )
    job.write(10)
    job.store(job.take(), notified=0)
    job.write(10)
    job.take()
    job.crash(parallelism)
    assert database.numbers() == list(range(10))
    assert database.prepared() == []
    job.end(30)


def test_a_savepoint_with_pending_commits_is_committed_by_whoever_goes_on_from_it(
    database: ServerDatabase,
) -> None:
    database.run(TABLE)
    sink = PostgresSink(database.dsn, "found", mode="prepare")
    with opened(sink) as task:
        feed(task, (1, "a"))
        state = task.snapshot(SnapshotMoment(1, 0, is_savepoint=True)).sink
        assert state is not None
        assert database.numbers() == []
        feed(task, (2, "b"))
        checkpoint(task, 2)
        task.checkpoint_completed(2)
        assert database.numbers() == [1, 2]
    with opened(sink, restored=OperatorRestored(1, sinks=(state,))):
        assert database.numbers() == [1, 2]


@pytest.mark.parametrize(("before", "after"), [("insert", "upsert"), ("prepare", "insert")])
def test_a_job_may_go_on_in_another_mode(database: ServerDatabase, before: str, after: str) -> None:
    database.run(KEYED)
    keys = ["n"] if after == "upsert" else None
    with opened(PostgresSink(database.dsn, "found", mode=before)) as task:
        feed(task, (1, "a"))
        held = checkpoint(task, 1)
    with opened(PostgresSink(database.dsn, "found", mode=after, keys=keys), restored=held):
        assert database.numbers() == [1]


def test_a_job_that_is_started_afresh_leaves_other_jobs_transactions_alone(
    database: ServerDatabase,
) -> None:
    database.run(TABLE)
    sink = PostgresSink(database.dsn, "found", mode="prepare")
    with opened(sink) as live:
        feed(live, (1, "a"))
        checkpoint(live, 1)
        context = sink_context()
        another = replace(context.task, job_id="another")
        open_sink(sink, replace(context, task=another)).close()
        live.checkpoint_completed(1)
    assert database.numbers() == [1]


def test_a_frozen_writer_that_wakes_does_not_touch_its_successors_transactions(
    database: ServerDatabase,
) -> None:
    database.run(TABLE)
    sink = PostgresSink(database.dsn, "found", mode="prepare")
    with opened(sink) as frozen, opened(sink, attempt=1) as task:
        feed(task, (1, "a"))
        checkpoint(task, 1)
        feed(frozen, (-1, "junk"))
        checkpoint(frozen, 1)
        assert len(database.prepared()) == 2
        frozen._writer._roll_back_leftovers()  # type: ignore[union-attr]
        task.checkpoint_completed(1)
    with opened(sink, attempt=2):
        assert database.prepared() == []
    assert database.numbers() == [1]


def test_a_transaction_that_somebody_has_rolled_back_is_no_silent_loss(
    database: ServerDatabase,
) -> None:
    database.run(TABLE)
    sink = PostgresSink(database.dsn, "found", mode="prepare")
    with opened(sink) as task:
        feed(task, (1, "a"))
        held = checkpoint(task, 1)
        database.run(f"ROLLBACK PREPARED '{database.prepared()[0]}'")
        with pytest.raises(RecordsLost, match="somebody has rolled it back"):
            task.checkpoint_completed(1)
    with pytest.raises(RecordsLost) as caught:
        open_sink(sink, sink_context(restored=held))
    assert is_final(caught.value)


def test_a_transaction_that_is_prepared_for_long_is_warned_of(
    database: ServerDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database.run(TABLE)
    monkeypatch.setattr(commits, "OLD_S", -1)
    sink = PostgresSink(database.dsn, "found", mode="prepare")
    with opened(sink) as task, caplog.at_level(logging.WARNING):
        feed(task, (1, "a"))
        checkpoint(task, 1)
        with opened(PostgresSink(database.dsn, "found", mode="prepare"), subtask=1, parallelism=2):
            assert "holds locks and stops VACUUM" in caplog.text


def test_a_server_without_prepared_transactions_is_told_in_a_sentence(
    database: ServerDatabase,
) -> None:
    database.run(TABLE)
    database.server.stop()
    database.server.start(max_prepared_transactions=0)
    try:
        with pytest.raises(PlanInvalid, match="max_prepared_transactions is 0.*mode='insert'"):
            open_sink(PostgresSink(database.dsn, "found", mode="prepare"), sink_context())
        open_sink(PostgresSink(database.dsn, "found"), sink_context()).close()
    finally:
        database.server.stop()
        database.server.start()


def test_more_rows_than_may_wait_are_an_error_that_says_what_to_do(
    database: ServerDatabase,
) -> None:
    database.run(TABLE)
    sink = PostgresSink(database.dsn, "found", max_pending_bytes=200, batch_rows=10)
    with opened(sink) as task, pytest.raises(ConnectorError, match="more than 200 bytes wait"):
        feed(task, *[(number, "x") for number in range(100)])


@pytest.mark.parametrize("mode", EXACT)
def test_whatever_happens_each_record_is_one_row(database: ServerDatabase, mode: str) -> None:
    database.run(TABLE)

    @settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
    @given(STEPS)
    def once(steps: list[tuple[Any, ...]]) -> None:
        database.roll_back_prepared()
        database.run("TRUNCATE found")
        chosen = steps if mode == "insert" else without_savepoints(steps)
        job = SinkJob(
            lambda: PostgresSink(database.dsn, "found", mode=mode, batch_rows=3),
            database.numbers,
            lambda number: (number, "x"),
        )
        run_job(job, chosen, TOTAL)

    once()


def without_savepoints(steps: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A job that has gone back before a savepoint rolls back what that one needs."""
    return [("take", False) if step[0] == "take" else step for step in steps]


# By key.


def test_the_last_row_of_a_key_wins(database: ServerDatabase) -> None:
    database.run(KEYED, "INSERT INTO found VALUES (9, 'old')")
    with opened(PostgresSink(database.dsn, "found", keys=["n"])) as task:
        feed(task, (1, "a"), (2, "b"), (1, "c"), (9, "new"))
        checkpoint(task, 1)
        feed(task, (2, "d"))
        checkpoint(task, 2)
    assert database.rows("SELECT * FROM found ORDER BY n") == [(1, "c"), (2, "d"), (9, "new")]


def test_rows_of_a_changelog_update_and_delete(database: ServerDatabase) -> None:
    database.run(KEYED, "INSERT INTO found VALUES (5, 'old'), (6, 'stays'), (7, 'goes')")
    with opened(PostgresSink(database.dsn, "found", keys=["n"])) as task:
        feed(
            task,
            named_row(["n", "word"], [1, "a"]),
            Row.of_kind(RowKind.UPDATE_BEFORE, n=5, word="old"),
            Row.of_kind(RowKind.UPDATE_AFTER, n=55, word="moved"),
            Row.of_kind(RowKind.DELETE, n=7, word=None),
            Row.of_kind(RowKind.DELETE, n=1, word="a"),
            Row.of_kind(RowKind.DELETE, n=6, word="stays"),
            Row.of_kind(RowKind.INSERT, n=6, word="again"),
        )
        checkpoint(task, 1)
    assert database.rows("SELECT * FROM found ORDER BY n") == [(6, "again"), (55, "moved")]


def test_two_tasks_that_write_the_same_keys_do_not_deadlock(database: ServerDatabase) -> None:
    database.run(KEYED)
    sink = PostgresSink(database.dsn, "found", keys=["n"], batch_rows=500)
    problems: list[BaseException] = []

    def write(subtask: int) -> None:
        try:
            with opened(sink, subtask=subtask, parallelism=2) as task:
                for number in range(1, 6):
                    keys = range(500) if subtask else range(499, -1, -1)
                    feed(task, *[(key, str(number)) for key in keys])
                    checkpoint(task, number)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=write, args=(subtask,)) for subtask in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert database.rows("SELECT count(*), min(word), max(word) FROM found") == [(500, "5", "5")]


def test_a_batch_is_written_again_when_its_connection_is_lost(database: ServerDatabase) -> None:
    database.run(KEYED)
    with opened(PostgresSink(database.dsn, "found", keys=["n"])) as task:
        feed(task, (1, "a"))
        checkpoint(task, 1)
        assert database.end_others() == 1
        feed(task, (2, "b"))
        checkpoint(task, 2)
    assert database.numbers() == [1, 2]


def test_values_of_all_common_types_are_written(database: ServerDatabase) -> None:
    database.run(
        "CREATE TABLE found (n int PRIMARY KEY, d numeric, b bytea, j jsonb, a int[], "
        "t timestamptz, g int GENERATED ALWAYS AS (n * 2) STORED)"
    )
    with opened(PostgresSink(database.dsn, "found", keys=["n"])) as task:
        feed(task, (1, Decimal("1.50"), b"\0\\x", {"k": [1, None]}, [1, None, 3], "2026-01-02Z"))
        checkpoint(task, 1)
    ((n, d, b, j, a, _, g),) = database.rows("SELECT * FROM found")
    assert (n, d, b, j, a, g) == (1, Decimal("1.50"), b"\0\\x", {"k": [1, None]}, [1, None, 3], 2)


# What is told, and when.


@pytest.mark.parametrize("mode", ["upsert", *EXACT])
def test_a_value_that_does_not_fit_is_told_with_its_column(
    database: ServerDatabase, mode: str
) -> None:
    database.run(KEYED)
    sink = PostgresSink(database.dsn, "found", keys=["n"] if mode == "upsert" else None, mode=mode)
    for bad, problem in (
        (("two", "b"), "column 'n' of found does not take 'two' in the row .*invalid input syntax"),
        ((2, "a\0b"), r"column 'word' of found does not take 'a\\x00b' in the row .*NUL"),
        ((2**40, "b"), "column 'n' of found .*out of range"),
        ((2, object()), "column 'word' of found .*cannot adapt"),
        ((None, "b"), "column 'n' of found does not take.*null value"),
    ):
        with opened(sink, checkpoints=False) as task:
            feed(task, (1, "a"), bad)
            with pytest.raises(ConnectorError, match=problem) as caught:
                task.finish()
            assert not is_outside(caught.value)
    assert database.numbers() == []


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ((1,), "it has 1 values for 2 columns"),
        ({"n": 1}, "no field 'word'"),
        (5, "it has 1 values for 2 columns"),
    ],
)
def test_a_record_that_is_no_row_is_told_at_once(
    database: ServerDatabase, record: Any, problem: str
) -> None:
    database.run(TABLE)
    with (
        opened(PostgresSink(database.dsn, "found")) as task,
        pytest.raises(ConnectorError, match=rf"is no row of found: .*{problem}"),
    ):
        feed(task, record)


@pytest.mark.parametrize("mode", ["upsert", *EXACT])
def test_a_record_that_is_no_row_can_be_left_out(database: ServerDatabase, mode: str) -> None:
    database.run(KEYED)
    sink = PostgresSink(database.dsn, "found", keys=["n"] if mode == "upsert" else None, mode=mode)
    left_out: list[object] = []
    context = sink_context(checkpoints=False)
    context = replace(context, malformed=lambda raw, error: left_out.append(raw))
    task = open_sink(sink, context)
    feed(task, (1, "a"), (2,), Row.of_kind(RowKind.UPDATE_AFTER, n=3), (4, "d"))
    task.finish()
    task.close()
    assert database.numbers() == [1, 4]
    assert len(left_out) == 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"table": "nowhere"}, "there is no table nowhere"),
        ({"table": "found", "columns": ["n", "wrod"]}, "has no column 'wrod'; it has n, word"),
        ({"table": "found", "keys": ["m"]}, "the key 'm' is no column"),
        ({"table": "found", "keys": ["n"]}, r"no primary key or unique index on exactly \(n\)"),
    ],
)
def test_a_table_that_does_not_fit_is_told_at_the_start(
    database: ServerDatabase, options: dict[str, Any], problem: str
) -> None:
    database.run(TABLE)
    with pytest.raises(PlanInvalid, match=problem):
        open_sink(PostgresSink(database.dsn, **options), sink_context())


@pytest.mark.parametrize("mode", ["upsert", *EXACT])
def test_a_server_that_is_not_there_is_told_at_the_start(mode: str) -> None:
    dsn = f"host=127.0.0.1 port={free_port()}"
    sink = PostgresSink(dsn, "found", keys=["n"] if mode == "upsert" else None, mode=mode)
    with pytest.raises(DatabaseUnready, match="sink 'out'.*no connection.*refused") as caught:
        open_sink(sink, sink_context())
    assert is_outside(caught.value)


def test_a_wrong_password_is_told_and_is_not_a_fault_that_passes(
    postgres: PostgresServer,
) -> None:
    sink = PostgresSink(postgres.dsn("nobody", "wr0ng-secret"), "found")
    with pytest.raises(ConnectorError, match="password authentication failed") as caught:
        open_sink(sink, sink_context())
    assert not is_outside(caught.value)
    assert "wr0ng-secret" not in str(caught.value)


def test_a_table_of_notes_that_may_not_be_created_is_told(database: ServerDatabase) -> None:
    database.run(
        TABLE, "CREATE ROLE guest LOGIN PASSWORD 'right'", "GRANT USAGE ON SCHEMA public TO guest"
    )
    try:
        sink = PostgresSink(database.server.dsn("guest", "right"), "found")
        with pytest.raises(PlanInvalid, match="cannot be created .*permission denied"):
            open_sink(sink, sink_context())
    finally:
        database.run("DROP OWNED BY guest", "DROP ROLE guest")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"dsn": 5}, "give a DSN"),
        ({"mode": "append"}, "give one of upsert, insert, prepare"),
        ({"mode": "upsert"}, "needs keys"),
        ({"mode": "prepare", "keys": ["n"]}, "takes no keys"),
        ({"table": "a.b.c"}, "is no name of a table"),
        ({"batch_rows": 0}, "give a whole number above 0"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        PostgresSink(**{"dsn": "dbname=x", "table": "found", **options})


def test_a_dsn_that_cannot_be_read_is_refused_without_showing_it() -> None:
    with pytest.raises(PlanInvalid, match="the DSN cannot be read") as caught:
        open_sink(PostgresSink("host=x passwort=geheim", "found"), sink_context())
    assert "geheim" not in str(caught.value)


# Trouble in the middle.


@pytest.mark.parametrize("mode", ["upsert", *EXACT])
def test_a_lock_that_is_held_ends_with_who_holds_it(database: ServerDatabase, mode: str) -> None:
    database.run(KEYED)
    keys = ["n"] if mode == "upsert" else None
    sink = PostgresSink(database.dsn, "found", keys=keys, mode=mode, lock_timeout_ms=200)
    with opened(sink, checkpoints=False) as task, psycopg.connect(database.dsn) as other:
        feed(task, (1, "a"))
        other.execute("SET application_name = 'backup'")
        other.execute("LOCK TABLE found IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(DatabaseUnready, match=r"gives up.*held by process \d+ \(backup\)"):
            task.finish()


@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_a_sink_that_waits_for_a_lock_ends_with_its_task(
    database: ServerDatabase, mode: str
) -> None:
    database.run(KEYED)
    sink = PostgresSink(database.dsn, "found", keys=["n"] if mode == "upsert" else None, mode=mode)
    task = CancelledTask()
    writer, committer = sink.create_writer(task.context), sink.create_committer(task.context)
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname ="

    def write() -> None:
        writer.write([(1, "a")])
        writer.flush()
        committer.commit(writer.prepare_commit(SnapshotMoment(1, 0)))

    with psycopg.connect(database.dsn) as other:
        other.execute("LOCK TABLE found IN ACCESS EXCLUSIVE MODE")
        task.cancel_while(write, lambda: bool(database.rows(f"{waiting} current_database()")))
        writer.close()
        committer.close()


def test_a_table_that_is_locked_at_the_start_is_a_fault_that_passes(
    database: ServerDatabase,
) -> None:
    database.run(KEYED)
    sink = PostgresSink(database.dsn, "found", keys=["n"], lock_timeout_ms=100)
    with psycopg.connect(database.dsn) as other:
        other.execute("LOCK TABLE found IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(DatabaseUnready, match="lock timeout"):
            open_sink(sink, sink_context())


@pytest.mark.parametrize("mode", ["upsert", "insert"])
def test_rows_wait_for_a_lock_and_are_written_when_it_is_gone(
    database: ServerDatabase, mode: str
) -> None:
    database.run(KEYED)
    sink = PostgresSink(database.dsn, "found", keys=["n"] if mode == "upsert" else None, mode=mode)
    with opened(sink, checkpoints=False) as task, psycopg.connect(database.dsn) as other:
        feed(task, (1, "a"))
        other.execute("LOCK TABLE found IN ACCESS EXCLUSIVE MODE")
        writes = threading.Thread(target=task.finish)
        writes.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = "
        while not database.rows(f"{waiting} current_database()"):
            assert writes.is_alive()
        other.commit()
        writes.join(30)
    assert database.numbers() == [1]


def test_a_lost_transaction_that_was_open_sends_the_job_back_to_its_checkpoint(
    database: ServerDatabase,
) -> None:
    database.run(TABLE)
    sink = PostgresSink(database.dsn, "found", mode="prepare", batch_rows=1)
    with opened(sink) as task:
        feed(task, (1, "a"))
        database.end_others()
        with pytest.raises(DatabaseUnready, match="PostgreSQL has broken off"):
            feed(task, (2, "b"))
        with pytest.raises(Exception, match="broken off"):
            checkpoint(task, 1)
    assert database.prepared() == []


@pytest.mark.parametrize("change", ["DROP TABLE found", "ALTER TABLE found DROP COLUMN word"])
def test_a_table_that_is_another_while_rows_wait_ends_the_job(
    database: ServerDatabase, change: str
) -> None:
    database.run(TABLE)
    sink = PostgresSink(database.dsn, "found", mode="insert")
    with opened(sink) as task:
        feed(task, (1, "a"))
        held = checkpoint(task, 1)
    database.run(change)
    with (
        pytest.raises(TableUnfit, match="is not the table any more that the rows") as unfit,
        opened(sink, restored=held, attempt=1),
    ):
        pass
    assert is_final(unfit.value)


@pytest.mark.parametrize("mode", EXACT)
def test_a_commit_is_repeated_when_its_connection_is_lost(
    database: ServerDatabase, mode: str
) -> None:
    database.run(TABLE)
    with opened(PostgresSink(database.dsn, "found", mode=mode)) as task:
        feed(task, (1, "a"))
        checkpoint(task, 1)
        database.end_others()
        task.checkpoint_completed(1)
        assert database.numbers() == [1]


@pytest.mark.parametrize("crash", [False, True])
def test_what_is_prepared_outlives_a_restart_of_the_server(
    database: ServerDatabase, crash: bool
) -> None:
    database.run(TABLE)
    with opened(PostgresSink(database.dsn, "found", mode="prepare")) as task:
        feed(task, (1, "a"))
        checkpoint(task, 1)
        server = database.server
        server.stop(signal.SIGQUIT if crash else signal.SIGINT)
        try:
            started = threading.Timer(0.3, server.start)
            started.start()
            task.checkpoint_completed(1)
        finally:
            started.join()
    assert database.numbers() == [1]


@pytest.mark.usefixtures("quickly")
def test_a_server_that_stays_away_is_a_fault_that_passes(database: ServerDatabase) -> None:
    database.run(KEYED)
    with opened(PostgresSink(database.dsn, "found", keys=["n"])) as task:
        feed(task, (1, "a"))
        database.server.stop()
        try:
            with pytest.raises(DatabaseUnready) as caught:
                checkpoint(task, 1)
        finally:
            database.server.start()
    assert is_outside(caught.value)


def test_descriptions_travel(database: ServerDatabase) -> None:
    database.run(TABLE)
    sink = pickle.loads(pickle.dumps(PostgresSink(database.dsn, "found")))
    open_sink(sink, sink_context()).close()
    assert sink.default_name == "table found"
