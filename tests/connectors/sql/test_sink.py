"""Rows in a database, each once: real SQLite files, and a module that is like others."""

import pickle
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from headgate.api.row import Row
from headgate.base.elements import Bundle
from headgate.base.errors import ConnectorError, PlanInvalid
from headgate.connectors import sql as db_sink
from headgate.connectors.sql import DbApiSink, SqliteSink
from headgate.control.error_classes import is_final
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.functions.context import SnapshotMoment
from tests.core.chain.sink_lab import STEPS, TOTAL, SinkJob, open_sink, run_job, sink_context

INSERT = "INSERT INTO found (n, word) VALUES (?, ?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_database(tmp_path / "out.db")


def make_database(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE found (n INTEGER, word TEXT NOT NULL)")
    return path


def read(path: Path, query: str = "SELECT n, word FROM found ORDER BY rowid") -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def feed(task: TwoPhaseSinkOperator, *records: Any) -> None:
    task.process(Bundle(list(records)), 0)


@pytest.mark.parametrize(
    "change", ["DROP TABLE found", "ALTER TABLE found RENAME COLUMN word TO text"]
)
def test_a_table_that_is_another_while_rows_wait_ends_the_job(path: Path, change: str) -> None:
    task = open_sink(SqliteSink(path, INSERT), sink_context())
    feed(task, (1, "a"))
    task.snapshot(SnapshotMoment(1, 0))
    with closing(sqlite3.connect(path)) as db:
        db.execute(change)
    with pytest.raises(ConnectorError, match="the database refuses") as refused:
        task.checkpoint_completed(1)
    assert is_final(refused.value)
    task.close()


def test_a_row_with_too_few_values_is_no_fault_of_the_table(path: Path) -> None:
    task = open_sink(SqliteSink(path, INSERT), sink_context(checkpoints=False))
    feed(task, (1, "a"), (2,))
    with pytest.raises(ConnectorError, match=r"for the row \(2,\): ProgrammingError") as refused:
        task.finish()
    assert not is_final(refused.value)
    task.close()


class Refused(sqlite3.Cursor):
    words = ""

    def executemany(self, sql: str, parameters: Any) -> "Refused":
        raise sqlite3.ProgrammingError(self.words)


class RefusedConnection(sqlite3.Connection):
    def cursor(self, factory: Any = Refused) -> Any:
        return super().cursor(factory)


@pytest.mark.parametrize(
    "words",
    [
        "The INSERT permission was denied on the object 'found', database 'shop', schema 'dbo'.",
        "INSERT command denied to user 'clerk'@'localhost' for table 'found'",
        "permission denied for table found",
        "Cannot operate on a closed database.",
    ],
)
def test_missing_rights_may_be_granted_and_connections_made_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """In the words of several modules, all of which have one class for it and for wrong SQL."""
    monkeypatch.setattr(Refused, "words", words)
    connect = partial(sqlite3.connect, path, factory=RefusedConnection)
    task = open_sink(DbApiSink(connect, INSERT), sink_context(checkpoints=False))
    feed(task, (1, "a"))
    with pytest.raises(ConnectorError, match="ProgrammingError") as refused:
        task.finish()
    assert not is_final(refused.value)
    task.close()


def test_a_row_that_the_table_refuses_is_tried_again(path: Path) -> None:
    task = open_sink(SqliteSink(path, INSERT), sink_context())
    feed(task, (1, None))
    task.snapshot(SnapshotMoment(1, 0))
    with pytest.raises(ConnectorError, match="NOT NULL constraint failed") as refused:
        task.checkpoint_completed(1)
    assert not is_final(refused.value), "another row may stand in its way"
    task.close()


def test_rows_are_there_when_their_checkpoint_is_complete(path: Path) -> None:
    task = open_sink(SqliteSink(path, INSERT), sink_context())
    feed(task, (1, "a"), Row(2, "b"))
    task.snapshot(SnapshotMoment(1, 0))
    feed(task, [3, "c"])
    assert read(path) == []
    task.checkpoint_completed(1)
    assert read(path) == [(1, "a"), (2, "b")]
    task.snapshot(SnapshotMoment(2, 0))
    task.checkpoint_completed(2)
    task.close()
    assert read(path) == [(1, "a"), (2, "b"), (3, "c")]
    ((lots, whose),) = read(path, "SELECT lots, whose FROM headgate_commits")
    assert lots == 2
    assert whose == "job / the-sink / 0"


def test_a_lot_that_is_in_is_not_written_again(path: Path) -> None:
    sink = SqliteSink(path, INSERT)
    task = open_sink(sink, sink_context())
    feed(task, (1, "a"))
    state = task.snapshot(SnapshotMoment(1, 0)).sink
    assert state is not None
    task.checkpoint_completed(1)
    feed(task, (2, "b"))
    task.snapshot(SnapshotMoment(2, 0))
    task.checkpoint_completed(2)
    task.close()
    restored = OperatorRestored(1, sinks=(state,))
    open_sink(sink, sink_context(restored=restored)).close()
    assert read(path) == [(1, "a"), (2, "b")]


def test_records_of_all_kinds_become_parameters(path: Path) -> None:
    named = SqliteSink(path, "INSERT INTO found VALUES (:n, :word)")
    chosen = SqliteSink(path, INSERT, parameters=lambda word: (len(word), word))
    alone = SqliteSink(path, "INSERT INTO found VALUES (0, ?)")
    for sink, record in ((named, {"n": 7, "word": "x"}), (chosen, "abc"), (alone, "only")):
        task = open_sink(sink, sink_context(checkpoints=False))
        feed(task, record)
        task.finish()
        task.close()
    assert read(path) == [(7, "x"), (3, "abc"), (0, "only")]


def test_at_least_once_rows_are_there_at_the_latest_with_the_checkpoint(path: Path) -> None:
    sink = SqliteSink(path, INSERT, exactly_once=False, batch_rows=2)
    task = open_sink(sink, sink_context())
    feed(task, (1, "a"))
    assert read(path) == []
    feed(task, (2, "b"), (3, "c"))
    assert len(read(path)) == 3
    feed(task, (4, "d"))
    assert task.snapshot(SnapshotMoment(1, 0)).sink is None
    assert len(read(path)) == 4
    task.finish()
    assert not task.awaits_checkpoint
    task.close()
    assert read(path, "SELECT name FROM sqlite_master") == [("found",)]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_row_that_the_database_refuses_is_shown(path: Path, exactly_once: bool) -> None:
    sink = SqliteSink(path, INSERT, exactly_once=exactly_once)
    task = open_sink(sink, sink_context(checkpoints=False))
    feed(task, (1, "a"), (2, None), (3, "c"))
    with pytest.raises(ConnectorError, match=r"for the row \(2, None\): IntegrityError: NOT NULL"):
        task.finish()
    task.close()
    assert read(path) == []


def test_a_statement_that_the_database_does_not_know_is_shown(path: Path) -> None:
    task = open_sink(SqliteSink(path, "INSERT INTO nowhere VALUES (?)"), sink_context())
    feed(task, 1)
    task.snapshot(SnapshotMoment(1, 0))
    with pytest.raises(ConnectorError, match="refuses 'INSERT INTO nowhere.*no such table"):
        task.checkpoint_completed(1)
    task.close()


def test_a_database_that_cannot_be_opened_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="no connection to the database: OperationalError"):
        open_sink(SqliteSink(tmp_path / "no" / "folder.db", INSERT), sink_context())


def test_a_file_that_is_no_database_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all, but a line of text" * 100)
    with pytest.raises(ConnectorError, match="headgate_commits.*cannot be made.*not a database"):
        open_sink(SqliteSink(tmp_path / "text.db", INSERT), sink_context())


def test_a_connection_that_commits_by_itself_is_refused(path: Path) -> None:
    connect = partial(sqlite3.connect, path, isolation_level=None)
    with pytest.raises(ConnectorError, match="turn autocommit off"):
        open_sink(DbApiSink(connect, INSERT), sink_context())


def test_more_rows_than_may_wait_are_an_error_that_says_what_to_do(path: Path) -> None:
    sink = SqliteSink(path, INSERT, max_pending_bytes=200, batch_rows=10)
    task = open_sink(sink, sink_context())
    rows = [(number, "x") for number in range(100)]
    with pytest.raises(ConnectorError, match="more than 200 bytes wait for the next checkpoint"):
        feed(task, *rows)
    task.close()


def test_a_connection_that_has_died_meanwhile_is_opened_again(path: Path) -> None:
    made: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        made.append(sqlite3.connect(path))
        return made[-1]

    task = open_sink(DbApiSink(connect, INSERT), sink_context())
    feed(task, (1, "a"))
    task.snapshot(SnapshotMoment(1, 0))
    made[-1].close()
    task.checkpoint_completed(1)
    task.close()
    assert read(path) == [(1, "a")]


class Stubborn(sqlite3.Connection):
    """Breaks after its transaction was committed: nobody knows whether it was."""

    broken = False

    def commit(self) -> None:
        super().commit()
        if not Stubborn.broken and self.total_changes > 1:
            Stubborn.broken = True
            raise sqlite3.OperationalError("the line is dead")


def test_a_commit_of_which_nobody_knows_whether_it_was_one_is_not_repeated(path: Path) -> None:
    Stubborn.broken = False
    connect = partial(sqlite3.connect, path, factory=Stubborn)
    task = open_sink(DbApiSink(connect, INSERT), sink_context())
    feed(task, (1, "a"))
    task.snapshot(SnapshotMoment(1, 0))
    task.checkpoint_completed(1)
    task.close()
    assert Stubborn.broken
    assert read(path) == [(1, "a")]


def open_quickly(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=0.2)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_commit_that_waits_for_a_lock_ends_with_who_waits_for_what(
    path: Path, exactly_once: bool
) -> None:
    sink = DbApiSink(partial(open_quickly, path), INSERT, exactly_once=exactly_once)
    task = open_sink(sink, sink_context(checkpoints=False))
    feed(task, (1, "a"))
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            ConnectorError, match=r"sink 'out' .*waits for the database, where another.*is locked"
        ):
            task.finish()
    task.close()
    assert read(path) == []


def test_a_database_that_is_locked_at_the_start_is_no_table_that_cannot_be_made(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ConnectorError, match="another transaction holds a lock"):
            open_sink(DbApiSink(partial(open_quickly, path), INSERT), sink_context())


class Endless(sqlite3.Connection):
    """The statement of the sink never ends by itself."""

    def cursor(self, *args: Any, **more: Any) -> Any:
        cursor = super().cursor(*args, **more)
        if self.total_changes:
            rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            cursor.execute(f"{rows} SELECT count(*) FROM n").fetchall()
        return cursor


def test_a_transaction_that_does_not_end_is_interrupted_in_time(path: Path) -> None:
    connect = partial(sqlite3.connect, path, factory=Endless)
    sink = DbApiSink(connect, INSERT, commit_timeout_ms=200)
    task = open_sink(sink, sink_context())
    feed(task, (1, "a"))
    task.snapshot(SnapshotMoment(1, 0))
    task.checkpoint_completed(1)
    feed(task, (2, "b"))
    task.snapshot(SnapshotMoment(2, 0))
    with pytest.raises(ConnectorError, match=r"has waited 0.2 s for the database.*interrupted"):
        task.checkpoint_completed(2)
    task.close()
    assert read(path) == [(1, "a")]


def test_two_tasks_write_to_one_file(path: Path) -> None:
    sink = SqliteSink(path, INSERT)
    tasks = [open_sink(sink, sink_context(subtask, 2)) for subtask in range(2)]
    for checkpoint in range(1, 4):
        for subtask, task in enumerate(tasks):
            feed(task, (checkpoint * 10 + subtask, "x"))
            task.snapshot(SnapshotMoment(checkpoint, 0))
        for task in tasks:
            task.checkpoint_completed(checkpoint)
    for task in tasks:
        task.close()
    assert len(read(path)) == 6


@pytest.mark.parametrize(
    ("arguments", "options", "problem"),
    [
        (("not callable", INSERT), {}, "give a function that returns a new connection"),
        ((sqlite3.connect, " "), {}, "give one in SQL"),
        ((sqlite3.connect, INSERT), {"table": "a; DROP"}, "table is 'a; DROP'; give a name"),
        ((sqlite3.connect, INSERT), {"batch_rows": 0}, "give a whole number above 0"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(
    arguments: tuple[Any, Any], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        DbApiSink(*arguments, **options)


def test_descriptions_travel(path: Path) -> None:
    sink = pickle.loads(pickle.dumps(SqliteSink(path, INSERT)))
    open_sink(sink, sink_context()).close()


@pytest.fixture
def _careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for the disk."""

    def connect(path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=0.1)
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA journal_mode = MEMORY")
        return db

    monkeypatch.setattr(db_sink, "_open_sqlite", connect)


@pytest.mark.usefixtures("_careless")
def test_whatever_happens_each_record_is_one_row() -> None:
    @settings(max_examples=50, deadline=None)
    @given(STEPS)
    def once(steps: list[tuple[Any, ...]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = make_database(Path(folder) / "out.db")
            job = SinkJob(
                lambda: SqliteSink(path, INSERT, batch_rows=3),
                lambda: [n for n, _ in read(path)],
                lambda number: (number, "x"),
            )
            run_job(job, steps, TOTAL)

    once()


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_record_without_parameters_is_reported_and_the_others_are_written(
    path: Path, exactly_once: bool
) -> None:
    reported: list[object] = []
    context = replace(sink_context(), malformed=lambda record, error: reported.append(record))
    sink = SqliteSink(
        path,
        "INSERT INTO found VALUES (?, ?)",
        parameters=lambda record: (record["n"], "word"),
        exactly_once=exactly_once,
    )
    writer, committer = sink.create_writer(context), sink.create_committer(context)
    writer.write([{"n": 1}, {}, {"n": 2}])
    writer.flush()
    committer.commit(writer.prepare_commit(None))
    assert read(path) == [(1, "word"), (2, "word")] and reported == [{}]
    writer.close()
    committer.close()
