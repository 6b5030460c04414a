"""File sinks in jobs of real worker processes that fail, stop and are taken over.

Whatever happens, every number is in one part, once, and nothing hidden is left at the end.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headgate.base.checkpoints import Stop
from headgate.base.elements import Record
from headgate.base.errors import SavepointFailed
from headgate.connectors.files.layout import RollingPolicy
from headgate.connectors.files.part_commits import PartCommitter
from headgate.connectors.files.sink import Encoder, FileSink, PartSink, TextFileSink
from headgate.control.life_cycle import JobState
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.operators.one_input import MapOperator
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.core.operators.source import SourceOperator
from headgate.functions.context import SnapshotMoment
from headgate.functions.source import Source, SplitReader
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.driver_run import DriverRun
from headgate.plan import ship_strategies as ships
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamEdge, StreamGraph, StreamNode
from tests.host.checkpoint_kit import PART_RECORDS, FailsBehindCheckpoints
from tests.host.control_rig import TIMES, Worker, ended, replace_times, workers
from tests.host.recovering_kit import Job, completed
from tests.host.rig import eventually

COUNT = 4_000
INTERVAL = "execution.checkpointing.interval"
SMALL = RollingPolicy.default_rolling_policy(part_size=4 * PART_RECORDS)


class Numbers(Source):
    """Numbers of two splits, that can be read again; they end when there is a file ``hurry``."""

    bounded = True
    finds_more = False

    def __init__(self, hurry: Path) -> None:
        self.hurry = hurry

    def open(self, split: int, position: int | None, context: OperatorContext) -> "NumberReader":
        return NumberReader(split if position is None else position, self.hurry)


class NumberReader(SplitReader):
    def __init__(self, number: int, hurry: Path) -> None:
        self.number, self.hurry = number, hurry

    def poll(self, limit: int) -> Sequence[int] | None:
        if self.number >= COUNT:
            return None if self.hurry.exists() else ()
        time.sleep(0.003)
        found = range(self.number, min(self.number + 20, COUNT), 2)
        self.number += 20
        return found

    def wait_ms(self) -> float:
        return 5.0

    def position(self) -> int:
        return self.number

    def close(self) -> None:
        pass


class FailsToCommit(TextFileSink):
    """As long as there is a file ``fail``, the commit of one task fails, half done."""

    def create_committer(self, context: OperatorContext) -> PartCommitter:
        return HalfCommitter(Path(self.names.folder).parent / "fail")


class HalfCommitter(PartCommitter):
    def __init__(self, fail: Path) -> None:
        super().__init__()
        self.fail = fail

    def commit(self, committables: Sequence[Record]) -> None:
        half = len(committables) // 2
        super().commit(committables[:half])
        if self.fail.exists():
            self.fail.unlink()
            raise OSError("the commit fails")
        super().commit(committables[half:])


class DiesWithSavepoint(TwoPhaseSinkOperator):
    """The process of one task dies when a savepoint has reached it: parts wait for it in vain."""

    def snapshot(self, moment: SnapshotMoment) -> OperatorSnapshot:
        taken = super().snapshot(moment)
        fail = Path(self._sink.names.folder).parent / "fail"  # type: ignore[attr-defined]
        if moment.is_savepoint and fail.exists():
            if self.context.task.subtask == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.2)
        return taken


def job_graph(
    folder: Path,
    sink: PartSink,
    function: Callable[[int], int] = lambda number: number,
    operator: type[TwoPhaseSinkOperator] = TwoPhaseSinkOperator,
    parallelism: int = 2,
) -> JobGraph:
    graph = StreamGraph("numbers", buffer_timeout_ms=5)
    source = partial(SourceOperator, Numbers(folder / "hurry"), (0, 1))
    makers: list[tuple[str, NodeKind, Any, int]] = [
        ("numbers", NodeKind.SOURCE, source, 2),
        ("map", NodeKind.OPERATOR, partial(MapOperator, function), parallelism),
        ("files", NodeKind.SINK, partial(operator, sink), parallelism),
    ]
    for number, (name, kind, make, tasks) in enumerate(makers, 1):
        graph.nodes[number] = StreamNode(number, name, kind, make, tasks, uid=name)
    for source_node in (1, 2):
        graph.edges.append(StreamEdge(source_node, source_node + 1, 0, ships.rebalance()))
    return build_job_graph(graph)


@pytest.fixture
def servers(no_leaks: None) -> Iterator[list[ControlServer]]:
    times = replace_times(TIMES, cancel_ms=2_000, settle_ms=50, loss_ms=10)
    with ControlServer(times=times) as first, ControlServer(times=times) as second:
        yield [first, second]


@pytest.fixture
def opened(servers: list[ControlServer]) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def open_job(
    opened: ExitStack, server: ControlServer, folder: Path, graph: JobGraph, **settings: str
) -> Job:
    about = {
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        INTERVAL: "60 ms",
        "restart-strategy.fixed-delay.attempts": "100",
    }
    job = Job(server, graph, **{**about, **settings})
    opened.callback(job.close)
    return job


def begin(opened: ExitStack, job: Job, stage: str = "") -> tuple[DriverRun, list[Worker]]:
    """A run, in processes of its own."""
    run, processes = job.begin(stage), opened.enter_context(workers(2))
    for slot, process in enumerate(processes):
        process.serve(job.contact(stage), slot)
    return run, processes


def finish(opened: ExitStack, job: Job, run: DriverRun) -> None:
    """To the end, with other processes if a run cannot go on in those that it has."""
    stage = 0
    while (outcome := ended(run)).restart_in_ms is not None:
        assert job.keeper.settled().wait(20)
        stage += 1
        run, _ = begin(opened, job, f"again {stage}")
    assert outcome.state is JobState.FINISHED, outcome


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*") if path.is_file()]


def check(folder: Path) -> None:
    parts = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    found = sorted(int(line) for path in parts for line in path.read_text().split())
    assert found == list(range(COUNT)), f"lost: {sorted(set(range(COUNT)) - set(found))}"
    assert hidden(folder) == []


def test_a_row_format_that_rolls_by_size_loses_nothing_over_failures(
    servers: list[ControlServer], opened: ExitStack, tmp_path: Path
) -> None:
    builder = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    sink = builder.with_rolling_policy(SMALL).build()
    graph = job_graph(tmp_path, sink, FailsBehindCheckpoints(tmp_path))
    job = open_job(opened, servers[0], tmp_path, graph, **{INTERVAL: "150 ms"})
    run, _ = begin(opened, job)
    (tmp_path / "hurry").touch()
    finish(opened, job, run)
    assert job.keeper.restarts >= 2
    check(tmp_path / "out")


def test_a_stop_with_savepoint_that_fails_while_it_commits_leaves_nothing_hidden(
    servers: list[ControlServer], opened: ExitStack, tmp_path: Path
) -> None:
    sink = FailsToCommit(tmp_path / "out", rolling_policy=SMALL)
    job = open_job(opened, servers[0], tmp_path, job_graph(tmp_path, sink))
    run, _ = begin(opened, job)
    eventually(lambda: completed(job) >= 2, "checkpoints")
    (tmp_path / "fail").touch()
    saved = run.savepoint(str(tmp_path / "savepoint"), Stop.SUSPEND)
    with pytest.raises(SavepointFailed):
        saved.result(30)
    (tmp_path / "hurry").touch()
    finish(opened, job, run)
    assert not (tmp_path / "fail").exists()
    check(tmp_path / "out")


def test_a_stop_with_savepoint_that_is_never_complete_leaves_nothing_hidden(
    servers: list[ControlServer], opened: ExitStack, tmp_path: Path
) -> None:
    sink = TextFileSink(tmp_path / "out", rolling_policy=SMALL)
    graph = job_graph(tmp_path, sink, operator=DiesWithSavepoint)
    job = open_job(opened, servers[0], tmp_path, graph)
    run, _ = begin(opened, job)
    eventually(lambda: completed(job) >= 2, "checkpoints")
    (tmp_path / "fail").touch()
    saved = run.savepoint(str(tmp_path / "savepoint"), Stop.SUSPEND)
    with pytest.raises(SavepointFailed):
        saved.result(30)
    assert ended(run).restart_in_ms is not None
    assert any(".kept-" in name for name in hidden(tmp_path / "out"))
    (tmp_path / "fail").unlink()
    (tmp_path / "hurry").touch()
    finish(opened, job, run)
    check(tmp_path / "out")


@pytest.mark.parametrize("interval", ["60 ms", "60 s"])
def test_a_driver_that_takes_over_removes_what_the_one_before_has_left(
    servers: list[ControlServer], opened: ExitStack, tmp_path: Path, interval: str
) -> None:
    """Also if that had not completed any checkpoint."""
    sink = TextFileSink(tmp_path / "out", rolling_policy=SMALL)
    graph = job_graph(tmp_path, sink)
    first = open_job(opened, servers[0], tmp_path, graph, **{INTERVAL: interval})
    _, processes = begin(opened, first)
    eventually(lambda: len(hidden(tmp_path / "out")) >= 2, "parts")
    if interval != "60 s":
        eventually(lambda: completed(first) >= 2, "checkpoints")
    for process in processes:
        process.signal(signal.SIGKILL)
    assert hidden(tmp_path / "out")
    second = open_job(opened, servers[1], tmp_path, graph)
    (tmp_path / "hurry").touch()
    finish(opened, second, begin(opened, second)[0])
    check(tmp_path / "out")
