"""PostgreSQL in jobs of real worker processes that are killed, and of drivers that take over."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate.connectors.postgres.changes import PostgresChangesSource
from headgate.connectors.postgres.sink import PostgresSink
from headgate.control.life_cycle import JobState
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.core.operators.source import SourceOperator
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader
from headgate.host.driver.driver_run import DriverRun
from headgate.plan import ship_strategies as ships
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamEdge, StreamGraph, StreamNode
from tests.connectors.job_kit import begin, begin_again, open_job
from tests.connectors.postgres.kit import ServerDatabase
from tests.host.control_rig import ended
from tests.host.recovering_kit import Job, completed
from tests.host.rig import eventually

COUNT = 2_000


class SlowNumbers(Source):
    """Numbers that can be read again; they end when there is a file ``hurry``."""

    bounded = True
    finds_more = False

    def __init__(self, hurry: Path) -> None:
        self.hurry = hurry

    def open(self, split: int, position: int | None, context: ConnectorContext) -> "SlowReader":
        return SlowReader(position or 0, self.hurry)


class SlowReader(SplitReader):
    def __init__(self, number: int, hurry: Path) -> None:
        self.number, self.hurry = number, hurry

    def poll(self, limit: int) -> Sequence[Any] | None:
        if self.number >= COUNT:
            return None if self.hurry.exists() else ()
        time.sleep(0.002)
        found = [(number, "x") for number in range(self.number, min(self.number + 10, COUNT))]
        self.number += 10
        return found

    def fileno(self) -> None:
        return None

    def wait_ms(self) -> float:
        return 5.0

    def position(self) -> int:
        return self.number

    def close(self) -> None:
        pass


def graph_of(source: Any, split: object, sink: PostgresSink, parallelism: int) -> JobGraph:
    graph = StreamGraph("numbers", buffer_timeout_ms=5)
    read = partial(SourceOperator, source, (split,))
    graph.nodes[1] = StreamNode(1, "read", NodeKind.SOURCE, read, 1, uid="read")
    write = partial(TwoPhaseSinkOperator, sink)
    graph.nodes[2] = StreamNode(2, "write", NodeKind.SINK, write, parallelism, uid="write")
    graph.edges.append(StreamEdge(1, 2, 0, ships.rebalance()))
    return build_job_graph(graph)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def finish(opened: ExitStack, job: Job, run: DriverRun) -> None:
    """To the end, with other processes if a run cannot go on in those that it has."""
    stage = 0
    while (outcome := ended(run)).restart_in_ms is not None:
        assert job.keeper.settled().wait(20)
        stage += 1
        run, _ = begin(opened, job, 2, f"again {stage}")
    assert outcome.state is JobState.FINISHED, outcome


def test_killed_workers_and_a_driver_that_takes_over_write_each_row_once(
    opened: ExitStack, tmp_path: Path, database: ServerDatabase
) -> None:
    database.run("CREATE TABLE found (n int, word text)")
    numbers = SlowNumbers(tmp_path / "hurry")
    sink = PostgresSink(database.dsn, "found", mode="prepare", batch_rows=20)
    first = open_job(opened, tmp_path, graph_of(numbers, 0, sink, 2))
    _, processes = begin(opened, first, 2)
    eventually(lambda: completed(first) >= 2, "checkpoints")
    for process in processes:
        process.signal(signal.SIGKILL)
    second = open_job(opened, tmp_path, graph_of(numbers, 0, sink, 1))
    (tmp_path / "hurry").touch()
    finish(opened, second, begin(opened, second, 2)[0])
    assert database.numbers() == list(range(COUNT))
    assert database.prepared() == []


def test_changes_come_once_into_a_copy_over_a_killed_worker(
    opened: ExitStack, tmp_path: Path, database: ServerDatabase
) -> None:
    database.run("CREATE TABLE origin (n int PRIMARY KEY)", "CREATE TABLE found (n int)")
    source = PostgresChangesSource(database.dsn, ["origin"], slot="origin")
    sink = PostgresSink(database.dsn, "found", mode="prepare")
    job = open_job(opened, tmp_path, graph_of(source, "origin", sink, 1))
    run, processes = begin(opened, job, 2)
    slot = "SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn IS NOT NULL"
    eventually(lambda: bool(database.rows(slot)), "the slot")
    database.run("INSERT INTO origin SELECT generate_series(1, 500)")
    eventually(lambda: database.numbers() != [], "rows")
    for process in processes:
        process.signal(signal.SIGKILL)
    database.run("INSERT INTO origin SELECT generate_series(501, 600)")
    again = begin_again(opened, job, 2, run, "again")
    eventually(lambda: len(database.numbers()) >= 600, "the rest")
    assert database.numbers() == list(range(1, 601))
    again.cancel("the test is over")
    ended(again)
