"""Writers and drivers that are killed between any two steps of a commit, against a real server."""

import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.base.elements import Bundle
from headgate.connectors.postgres.sink import PostgresSink
from headgate.core.chain.snapshots import OperatorRestored
from headgate.functions.context import SnapshotMoment
from tests.connectors.postgres.kit import ServerDatabase
from tests.core.chain.sink_lab import open_sink, sink_context

CHECKPOINTS = 2
STEPS = 200
"""More than a run takes."""


class DeadlySteps:
    """Counts what a process does, and kills it at a chosen step."""

    def __init__(self, last: int) -> None:
        self._left = last

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **more: Any) -> Any:
            self.step()
            return function(*args, **more)

        return stepping


def run_job(sink: PostgresSink, store: Path, steps: DeadlySteps) -> None:
    """A sink from its newest checkpoint to the end; ``store`` is what a driver would keep."""
    restored, position, done = None, 0, 0
    if store.exists():
        done, position, state = pickle.loads(store.read_bytes())
        restored = OperatorRestored(done, sinks=() if state is None else (state,))
    task = open_sink(sink, sink_context(restored=restored, attempt=done))
    for number in range(done + 1, CHECKPOINTS + 1):
        task.process(Bundle([(position, "x"), (position + 1, "x")]), 0)
        position += 2
        taken = task.snapshot(SnapshotMoment(number, 0)).sink
        steps.step()
        store.with_suffix(".new").write_bytes(pickle.dumps((number, position, taken)))
        os.replace(store.with_suffix(".new"), store)
        steps.step()
        task.checkpoint_completed(number)
    task.close()


def in_process(sink: PostgresSink, store: Path, last: int) -> bool:
    """Whether a process of its own came to the end; it dies at its ``last`` step."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            steps = DeadlySteps(last)
            psycopg.Connection.wait = steps.before(psycopg.Connection.wait)  # type: ignore[method-assign]
            run_job(sink, store, steps)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


@pytest.mark.parametrize("mode", ["insert", "prepare", "upsert"])
def test_a_kill_between_any_two_steps_neither_loses_nor_repeats_a_row(
    database: ServerDatabase, tmp_path: Path, mode: str
) -> None:
    database.run("CREATE TABLE found (n int PRIMARY KEY, word text)")
    if mode != "upsert":  # a repeated row shall be seen, and not refused
        database.run("ALTER TABLE found DROP CONSTRAINT found_pkey")
    keys = ["n"] if mode == "upsert" else None
    sink = PostgresSink(database.dsn, "found", mode=mode, keys=keys)
    for last in range(1, STEPS):
        store = tmp_path / f"checkpoint-{last}"
        is_through = in_process(sink, store, last)
        if not is_through:
            assert in_process(sink, store, -1)
        assert database.numbers() == list(range(2 * CHECKPOINTS)), f"killed at step {last}"
        assert database.prepared() == []
        if is_through:
            break
        database.run("TRUNCATE found")
    assert is_through
    assert last > 10


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
