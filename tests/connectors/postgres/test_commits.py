"""Two attempts of a task that commit the same lots at the same time, in a real PostgreSQL."""

import os
import pickle
import signal
import threading
import time
from contextlib import closing, suppress

import psycopg

from headgate.connectors.postgres.commits import InsertLot
from headgate.connectors.postgres.sink import PostgresSink
from tests.connectors.postgres.kit import ServerDatabase
from tests.core.chain.sink_lab import sink_context


def test_a_slow_attempt_does_not_write_a_lot_whose_note_was_replaced_by_that_of_a_later_one(
    database: ServerDatabase,
) -> None:
    database.run("CREATE TABLE found (n int)")
    sink = PostgresSink(database.dsn, "found")
    first, second = (InsertLot("w", n, ("n",), (pickle.dumps([(n,)]),)) for n in (1, 2))
    with (
        closing(sink.create_committer(sink_context(attempt=1))) as slow,
        closing(sink.create_committer(sink_context(attempt=2))) as quick,
        psycopg.connect(database.dsn) as other,
    ):
        other.execute("LOCK TABLE found IN EXCLUSIVE MODE")
        winner = threading.Thread(target=quick.commit, args=([first, second],))
        winner.start()
        (held_up,) = _waiting(database, 1)  # it has noted the first lot, and cannot write its row
        loser = threading.Thread(target=slow.commit, args=([first],))
        loser.start()
        (pid,) = _waiting(database, 2) - {held_up}
        os.kill(pid, signal.SIGSTOP)  # as on a busy machine
        try:
            other.commit()
            while winner.is_alive() and not (database.numbers() and held_up in _waits(database)):
                pass  # either all is written, or the second lot waits for the slow one
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        loser.join(30)
        winner.join(30)
    assert database.numbers() == [1, 2]


def test_names_may_have_any_character(database: ServerDatabase) -> None:
    database.run('CREATE TABLE "100%s" ("a%b" int)')
    sink = PostgresSink(database.dsn, "100%s", commit_log="no%tes; --")
    lots = [InsertLot("w", n, ("a%b",), (pickle.dumps([(n,)]),)) for n in (1, 2)]
    with closing(sink.create_committer(sink_context())) as committer:
        for due in ([lots[0]], lots):
            committer.commit(due)
    assert database.rows('SELECT * FROM "100%s"') == [(1,), (2,)]
    assert database.rows('SELECT lot FROM "no%tes; --"') == [(2,)]


def _waits(database: ServerDatabase) -> set[int]:
    """The server's processes that wait for a lock."""
    waits = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return {pid for (pid,) in database.rows(waits)}


def _waiting(database: ServerDatabase, count: int) -> set[int]:
    """The same, as soon as there are so many."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if len(found := _waits(database)) == count:
            return found
    raise AssertionError(f"not {count} wait for a lock")
