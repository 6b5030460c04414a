"""Changes of a real PostgreSQL, each once, over lost connections, restarts and checkpoints."""

import pickle
import select
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from headgate.api.row import Row, RowKind
from headgate.base.elements import Bundle
from headgate.base.errors import ConnectorError, DatabaseUnready, PlanInvalid, RecordsLost
from headgate.connectors import servers
from headgate.connectors.not_sent import NOT_SENT
from headgate.connectors.postgres import changes
from headgate.connectors.postgres.changes import ChangesReader, PostgresChangesSource
from headgate.connectors.postgres.pgoutput import Place, shown_lsn
from headgate.connectors.postgres.sink import PostgresSink
from headgate.control.error_classes import is_final, is_outside
from headgate.functions.context import SnapshotMoment
from tests.connectors.kit import PATIENCE_S, read_some, read_until, task_context
from tests.connectors.postgres.kit import PostgresServer, ServerDatabase
from tests.core.chain.sink_lab import open_sink, sink_context
from tests.servers import free_port

TABLE = "CREATE TABLE found (n int PRIMARY KEY, word text)"


@contextmanager
def opened(
    source: PostgresChangesSource, place: Place | None = None, checkpoints: bool = True
) -> Iterator[ChangesReader]:
    context = sink_context(checkpoints=checkpoints) if checkpoints else task_context()
    (split,) = source.splits(4)
    reader = source.open(split, place, context)
    assert isinstance(reader, ChangesReader)
    try:
        connected(reader)
        yield reader
    finally:
        reader.close()


def connected(reader: ChangesReader) -> None:
    """Wait for the connection, or what it fails with."""
    give_up = time.monotonic() + PATIENCE_S
    while reader.fileno() is None:
        assert time.monotonic() < give_up
        assert not read_some(reader, 0)
        time.sleep(0.005)


def shown(rows: list[Any]) -> list[str]:
    return [f"{row.get_row_kind()} {' '.join(map(str, row))}" for row in rows]


def take(reader: ChangesReader, count: int) -> list[Any]:
    return read_until(reader, lambda rows: len(rows) >= count)


def eventually(holds: Callable[[], bool], reader: ChangesReader) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up
        assert not read_some(reader)
        time.sleep(0.01)


def confirmed(database: ServerDatabase) -> list[Any]:
    return database.rows("SELECT confirmed_flush_lsn FROM pg_replication_slots")


@pytest.fixture
def source(database: ServerDatabase) -> PostgresChangesSource:
    database.run(TABLE)
    return PostgresChangesSource(database.dsn, ["found"], slot="numbers")


# What comes.


def test_inserts_updates_deletes_and_truncates_come_with_their_kinds(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    with opened(source) as reader:
        database.run(
            "INSERT INTO found VALUES (1, 'a'), (2, NULL)",
            "UPDATE found SET word = 'b' WHERE n = 1",
            "UPDATE found SET n = 3 WHERE n = 1",
            "DELETE FROM found WHERE n = 2",
            "TRUNCATE found",
        )
        rows = take(reader, 7)
    assert shown(rows) == [
        "+I 1 a",
        "+I 2 None",
        "+U 1 b",
        "-U 1 NOT_SENT",
        "+U 3 b",
        "-D 2 NOT_SENT",
        "-D NOT_SENT NOT_SENT",
    ]
    assert rows[0].get_field_names() == ["n", "word"]
    assert rows[0].word == "a"
    assert pickle.loads(pickle.dumps(rows[-1]))[0] is NOT_SENT


def test_a_whole_old_row_comes_with_replica_identity_full(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    large = "x" * 100_000
    database.run("ALTER TABLE found REPLICA IDENTITY FULL", "ALTER TABLE found ADD m int")
    with opened(source) as reader:
        database.run(
            "ALTER TABLE found ALTER word SET STORAGE EXTERNAL",
            f"INSERT INTO found VALUES (1, '{large}', 1)",
            "UPDATE found SET m = 2",
            "DELETE FROM found",
        )
        rows = take(reader, 4)
    assert [list(row) for row in rows] == [
        [1, large, 1],
        [1, large, 1],
        [1, large, 2],
        [1, large, 2],
    ]
    kinds = [row.get_row_kind() for row in rows]
    assert kinds == [
        RowKind.INSERT,
        RowKind.UPDATE_BEFORE,
        RowKind.UPDATE_AFTER,
        RowKind.DELETE,
    ]


def test_a_large_value_that_was_not_changed_is_marked(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    database.run("ALTER TABLE found ADD m int", "ALTER TABLE found ALTER word SET STORAGE EXTERNAL")
    with opened(source) as reader:
        database.run(
            f"INSERT INTO found VALUES (1, '{'x' * 100_000}', 1)", "UPDATE found SET m = 2"
        )
        rows = take(reader, 2)
    assert list(rows[1]) == [1, NOT_SENT, 2]


def test_values_have_the_types_of_python(
    database: ServerDatabase,
) -> None:
    database.run(
        "CREATE TYPE mood AS ENUM ('glad')",
        "CREATE TABLE found (i int8, f float8, d numeric, b bool, t text, r bytea, day date, "
        "at timestamptz, u uuid, j jsonb, a int[], w text[], e mood, empty int)",
    )
    source = PostgresChangesSource(database.dsn, ["found"], slot="types")
    with opened(source) as reader:
        database.run(
            "SET timezone = 'Europe/Berlin'",
            "INSERT INTO found VALUES (9000000000, 0.1, 1.50, true, 'ü', '\\x00ff', '2026-02-03', "
            "'2026-02-03 04:05:06.789+01', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', "
            """'{"k": [1, null]}', '{1,NULL,3}', '{"a,b","c\\"d"}', 'glad', NULL)""",
        )
        (row,) = take(reader, 1)
    assert list(row) == [
        9_000_000_000,
        0.1,
        Decimal("1.50"),
        True,
        "ü",
        b"\0\xff",
        date(2026, 2, 3),
        datetime(2026, 2, 3, 3, 5, 6, 789_000, tzinfo=timezone.utc),
        uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        {"k": [1, None]},
        [1, None, 3],
        ["a,b", 'c"d'],
        "glad",
        None,
    ]


def test_columns_that_are_added_in_the_middle_are_there_from_then_on(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    with opened(source) as reader:
        database.run(
            "INSERT INTO found VALUES (1, 'a')",
            "ALTER TABLE found ADD more numeric",
            "INSERT INTO found VALUES (2, 'b', 0.5)",
            "ALTER TABLE found DROP word",
            "INSERT INTO found VALUES (3, 0.25)",
        )
        rows = take(reader, 3)
    assert [row.as_dict() for row in rows] == [
        {"n": 1, "word": "a"},
        {"n": 2, "word": "b", "more": Decimal("0.5")},
        {"n": 3, "more": Decimal("0.25")},
    ]


def test_rows_of_several_tables_tell_where_they_come_from(database: ServerDatabase) -> None:
    database.run(
        TABLE,
        'CREATE SCHEMA "odd.name"',
        'CREATE TABLE "odd.name"."T" (m int)',
        'CREATE PUBLICATION "Both" FOR TABLE found, "odd.name"."T"',
    )
    about = ["table", "lsn", "xid", "committed_at"]
    source = PostgresChangesSource(database.dsn, publication="Both", metadata=about)
    with opened(source) as reader:
        database.run(
            'WITH t AS (INSERT INTO "odd.name"."T" VALUES (7)) INSERT INTO found VALUES (1, NULL)'
        )
        rows = take(reader, 2)
        bundle_times = database.rows("SELECT now()")[0][0]
    found = {row.pg_table: row for row in rows}
    assert set(found) == {"public.found", "odd.name.T"}
    assert found["public.found"].pg_xid == found["odd.name.T"].pg_xid
    assert abs((bundle_times - rows[0].pg_committed_at).total_seconds()) < PATIENCE_S
    assert PostgresChangesSource(database.dsn, publication="Both").metadata == ("table",)
    database.run('DROP SCHEMA "odd.name" CASCADE')


def test_the_time_of_the_commit_is_the_event_time(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    with opened(source) as reader:
        before = database.rows("SELECT extract(epoch FROM clock_timestamp()) * 1000")[0][0]
        database.run("INSERT INTO found VALUES (1, 'a')", "INSERT INTO found VALUES (2, 'b')")
        after = database.rows("SELECT extract(epoch FROM clock_timestamp()) * 1000")[0][0]
        times: list[int | None] = []
        give_up = time.monotonic() + PATIENCE_S
        while len(times) < 2:
            assert time.monotonic() < give_up
            found = reader.poll(10)
            times += (found.timestamps or []) if isinstance(found, Bundle) else []
    first, second = times
    assert first is not None
    assert second is not None
    assert int(before) - 1 <= first <= second <= after


def test_a_transaction_that_is_rolled_back_leaves_no_trace(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    with opened(source) as reader, psycopg.connect(database.dsn) as other:
        other.execute("INSERT INTO found VALUES (1, 'rolled back')")
        other.rollback()
        other.execute("INSERT INTO found VALUES (2, 'late')")
        database.run("INSERT INTO found VALUES (3, 'early')")
        other.commit()
        assert shown(take(reader, 2)) == ["+I 3 early", "+I 2 late"]


# Where a new reader goes on.


def test_a_new_reader_goes_on_after_every_record_also_within_a_transaction(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    with opened(source) as reader:
        database.run(
            "INSERT INTO found SELECT i, 'x' FROM generate_series(1, 5) i",
            "UPDATE found SET n = n + 10 WHERE n > 3",
            "INSERT INTO found VALUES (6, 'y')",
        )
        everything: list[str] = []
        places: list[Any] = [reader.position()]
        while len(everything) < 10:
            for row in read_some(reader, 1) or ():
                everything += shown([row])
                places.append(reader.position())
    for done, place in enumerate(places):
        with opened(source, place) as reader:
            assert shown(take(reader, 10 - done)) == everything[done:]


def test_a_poll_never_brings_more_than_its_limit(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    with opened(source) as reader:
        database.run(
            "INSERT INTO found SELECT i FROM generate_series(1, 4) i",
            "UPDATE found SET n = n + 10",
        )
        sizes, rows = [], 0
        while rows < 12:
            found = read_some(reader, 3) or []
            assert len(found) <= 3
            sizes.append(len(found))
            rows += len(found)


def test_the_slot_moves_when_a_checkpoint_is_complete_and_not_before(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    with opened(source) as reader:
        begin = confirmed(database)
        database.run("INSERT INTO found VALUES (1, 'a')")
        take(reader, 1)
        place: Any = reader.position_at(SnapshotMoment(1, 0))
        reader.position_at(SnapshotMoment(2, 0))
        assert confirmed(database) == begin
        reader.checkpoint_completed(1)
        eventually(lambda: confirmed(database) != begin, reader)
        assert confirmed(database) == [(shown_lsn(place[0]),)]
    with opened(source, place) as reader:
        database.run("INSERT INTO found VALUES (2, 'b')")
        assert shown(take(reader, 1)) == ["+I 2 b"]


def test_changes_of_other_tables_do_not_hold_the_slot_back(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    database.run("CREATE TABLE other (n int)")
    with opened(source) as reader:
        before: Any = reader.position()
        database.run("INSERT INTO other SELECT generate_series(1, 1000)")
        (end,) = database.rows("SELECT pg_current_wal_lsn() - '0/0'")[0]
        eventually(lambda: reader.position()[0] >= end, reader)  # type: ignore[index]
        assert reader.position()[0] > before[0]  # type: ignore[index]


def test_without_checkpoints_the_slot_moves_with_the_reader(
    database: ServerDatabase, source: PostgresChangesSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "UNSAVED_S", 0.0)
    with opened(source, checkpoints=False) as reader:
        begin = confirmed(database)
        database.run("INSERT INTO found VALUES (1, 'a')")
        take(reader, 1)
        eventually(lambda: confirmed(database) != begin, reader)


def test_the_lag_is_known_in_bytes(database: ServerDatabase, source: PostgresChangesSource) -> None:
    with opened(source) as reader:
        database.run("INSERT INTO found SELECT i, 'x' FROM generate_series(1, 1000) i")
        read_until(reader, lambda rows: len(rows) > 0)
        assert reader.lag() is not None
        lag = reader.lag()
        assert lag is not None
        assert lag.bytes is not None


# Trouble.


@pytest.mark.parametrize("how", ["terminated", "restarted", "crashed"])
def test_a_lost_connection_neither_loses_nor_repeats_a_change(
    database: ServerDatabase, source: PostgresChangesSource, how: str
) -> None:
    with opened(source) as reader:
        database.run("INSERT INTO found SELECT i, 'x' FROM generate_series(1, 3000) i")
        rows = read_until(reader, lambda rows: len(rows) >= 500)
        place: Any = reader.position_at(SnapshotMoment(1, 0))
        reader.checkpoint_completed(1)
        if how == "terminated":
            assert database.end_others() == 1
        elif how == "crashed":
            database.server.stop(signal.SIGQUIT)
            database.server.start()
        else:
            rows += read_while_the_server_stops(reader, database.server)
            database.server.start()
        database.run("INSERT INTO found VALUES (5000, 'y')")
        rows += take(reader, 3001 - len(rows))
        assert [row.n for row in rows] == [*range(1, 3001), 5000]
        assert place[1] >= 500


def read_while_the_server_stops(reader: ChangesReader, server: PostgresServer) -> list[Any]:
    """It waits until its readers have confirmed everything, which takes checkpoints."""
    rows: list[Any] = []
    stops = threading.Thread(target=server.stop)
    stops.start()
    checkpoint = 2
    while stops.is_alive():
        rows += read_some(reader) or []
        reader.position_at(SnapshotMoment(checkpoint, 0))
        reader.checkpoint_completed(checkpoint)
        checkpoint += 1
        time.sleep(0.01)
    stops.join()
    return rows


def test_a_reader_is_woken_whenever_there_is_something_to_do(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    """Polled only when its descriptor, its time or its thread says so, as tasks do."""
    woken = threading.Event()
    reader = source.open("numbers", None, replace(sink_context(), wake=woken.set))
    rows: list[Any] = []

    def read(count: int) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while len(rows) < count:
            assert time.monotonic() < give_up
            woken.clear()
            found = read_some(reader) or []
            rows.extend(found)
            if not found and reader.fileno() is None:
                assert woken.wait(min(reader.wait_ms() / 1000, PATIENCE_S)) or not reader.wait_ms()
            elif not found:
                select.select([reader.fileno()], [], [], min(reader.wait_ms() / 1000, PATIENCE_S))

    database.run("CREATE PUBLICATION numbers FOR TABLE found")
    database.run("SELECT pg_create_logical_replication_slot('numbers', 'pgoutput')")
    for number in range(1, 6):
        database.run(f"INSERT INTO found VALUES ({number}, 'x')")
        read(number)
        database.end_others()
    reader.close()
    assert [row.n for row in rows] == [1, 2, 3, 4, 5]


def test_a_reader_that_is_held_up_for_long_is_sent_away_and_loses_nothing(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    database.run("ALTER DATABASE postgres SET wal_sender_timeout = '300ms'")
    with opened(source) as reader:
        database.run(
            "INSERT INTO found SELECT i, repeat('x', 2000) FROM generate_series(1, 9000) i"
        )
        give_up = time.monotonic() + PATIENCE_S
        while database.rows("SELECT 1 FROM pg_stat_replication"):
            assert time.monotonic() < give_up
            time.sleep(0.05)
        database.run("ALTER DATABASE postgres RESET wal_sender_timeout")
        assert [row.n for row in take(reader, 9000)] == list(range(1, 9001))


def test_a_slot_that_another_reads_is_told(
    database: ServerDatabase, source: PostgresChangesSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "RECONNECT_S", 0.1)
    with (
        opened(source),
        pytest.raises(DatabaseUnready, match="numbers is read by somebody else.*active for PID"),
        opened(source),
    ):
        pass


def test_a_slot_that_is_gone_is_a_loss_and_no_new_beginning(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    with opened(source) as reader:
        place: Any = reader.position()
    database.clear_slots()
    with pytest.raises(RecordsLost, match="slot numbers is gone") as caught, opened(source, place):
        pass
    assert is_final(caught.value)


def test_a_slot_that_somebody_has_moved_is_a_loss(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    with opened(source) as reader:
        place: Any = reader.position()
    database.run("INSERT INTO found VALUES (1, 'a')")
    database.await_free_slots()
    database.run("SELECT pg_replication_slot_advance('numbers', pg_current_wal_lsn())")
    with (
        pytest.raises(RecordsLost, match="does not have the changes any more"),
        opened(source, place),
    ):
        pass


def test_a_slot_of_another_kind_is_refused(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    database.run("SELECT pg_create_logical_replication_slot('numbers', 'test_decoding')")
    with pytest.raises(PlanInvalid, match=r"of another kind \(test_decoding\)"), opened(source):
        pass


def test_what_is_wrong_with_the_publication_is_told(database: ServerDatabase) -> None:
    database.run(TABLE, "CREATE TABLE other (n int)", "CREATE PUBLICATION p FOR TABLE other")
    for about, problem in (
        ({"publication": "nowhere"}, "there is no publication 'nowhere'"),
        ({"publication": "p", "tables": ["found"]}, "does not publish found"),
        ({"tables": ["missing"]}, 'relation "missing" does not exist'),
    ):
        source = PostgresChangesSource(database.dsn, **about)  # type: ignore[arg-type]
        with pytest.raises(PlanInvalid, match=problem), opened(source):
            pass


def test_a_publication_that_is_dropped_in_the_middle_is_told(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    with opened(source) as reader:
        database.run("DROP PUBLICATION numbers", "INSERT INTO found VALUES (1, 'a')")
        with pytest.raises(PlanInvalid, match='"numbers" does not exist'):
            take(reader, 1)


def test_a_server_that_does_not_write_changes_for_readers_is_told(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    database.server.stop()
    database.server.start(wal_level="replica")
    try:
        with (
            pytest.raises(PlanInvalid, match="wal_level is replica.*wal_level = logical"),
            opened(source),
        ):
            pass
    finally:
        database.server.stop()
        database.server.start()


def test_a_server_that_is_not_there_is_a_fault_that_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "RECONNECT_S", 0.1)
    source = PostgresChangesSource(f"host=127.0.0.1 port={free_port()}", ["found"])
    with pytest.raises(DatabaseUnready, match="source 'out'.*refused") as caught, opened(source):
        pass
    assert is_outside(caught.value)


def test_a_wrong_password_is_told(postgres: PostgresServer) -> None:
    source = PostgresChangesSource(postgres.dsn("nobody", "wrong"), ["found"])
    with pytest.raises(ConnectorError, match="password authentication failed"), opened(source):
        pass


def test_a_value_that_python_cannot_hold_is_told_with_its_column(database: ServerDatabase) -> None:
    database.run("CREATE TABLE found (n int PRIMARY KEY, day date)")
    source = PostgresChangesSource(database.dsn, ["found"])
    with opened(source) as reader:
        database.run("INSERT INTO found VALUES (1, 'infinity')")
        with pytest.raises(ConnectorError, match="column 'day' of table public.found: b'infinity'"):
            take(reader, 1)


def test_a_value_that_python_cannot_hold_can_be_left_out(database: ServerDatabase) -> None:
    database.run("CREATE TABLE found (n int PRIMARY KEY, day date)")
    source = PostgresChangesSource(database.dsn, ["found"])
    left_out: list[object] = []
    context = replace(sink_context(), malformed=lambda raw, error: left_out.append(raw))
    reader = source.open("headgate", None, context)
    connected(reader)  # type: ignore[arg-type]
    database.run("INSERT INTO found VALUES (1, NULL), (2, 'infinity'), (3, NULL), (4, NULL)")
    rows: list[Any] = []
    while len(rows) < 2:
        rows += read_some(reader, 1) or []
    place: Any = reader.position()
    reader.close()
    assert [row.n for row in rows] == [1, 3]
    assert len(left_out) == 1
    with opened(source, place) as reader:
        assert [row.n for row in take(reader, 1)] == [4]


def test_a_reader_that_is_closed_while_it_connects_leaves_nothing(
    source: PostgresChangesSource,
) -> None:
    reader = source.open("numbers", None, sink_context())
    reader.poll(10)
    reader.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tables": "found"}, "give a list of names"),
        ({}, "give tables=.*or the name of a publication"),
        ({"tables": ["a"], "slot": "Big"}, "give small letters, digits and underscores"),
        ({"tables": ["a"], "metadata": ["time"]}, "there is no metadata 'time'"),
        ({"tables": ["a.b.c"]}, "is no name of a table"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(PlanInvalid, match=problem):
        PostgresChangesSource("dbname=x", **options)


def test_changes_written_by_key_make_a_copy_of_the_table(
    database: ServerDatabase, source: PostgresChangesSource
) -> None:
    database.run("CREATE TABLE copy (n int PRIMARY KEY, word text)")
    with opened(source) as reader:
        database.run(
            "INSERT INTO found SELECT i, 'x' FROM generate_series(1, 20) i",
            "UPDATE found SET n = n + 100 WHERE n % 3 = 0",
            "UPDATE found SET word = 'y' WHERE n % 2 = 0",
            "DELETE FROM found WHERE n % 5 = 0",
        )
        task = open_sink(PostgresSink(database.dsn, "copy", keys=["n"]), sink_context())
        left = 20 + 6 * 2 + 10 + 4
        while left:
            rows: list[Row] = read_some(reader, 7) or []
            left -= len(rows)
            task.process(Bundle(list(rows)), 0)
        task.snapshot(SnapshotMoment(1, 0))
        task.close()
    assert database.rows("SELECT * FROM copy ORDER BY n") == database.rows(
        "SELECT * FROM found ORDER BY n"
    )
