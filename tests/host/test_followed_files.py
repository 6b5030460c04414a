"""A job that follows a folder, in worker processes that are killed: each line is written once."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from headgate.base.checkpoints import Stop
from headgate.base.errors import PathUnusable
from headgate.connectors.files.sink import TextFileSink
from headgate.connectors.files.source import TextFileSource
from headgate.control.life_cycle import JobState
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.core.operators.source import SourceOperator
from headgate.core.operators.split_discovery import find_splits
from headgate.host.driver.control_server import ControlServer
from headgate.plan import ship_strategies as ships
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamEdge, StreamGraph, StreamNode
from tests.host.control_rig import TIMES, Worker, ended, replace_times, workers
from tests.host.recovering_kit import Job, completed
from tests.host.rig import eventually


def job_graph(source: TextFileSource, out: Path, parallelism: int) -> JobGraph:
    splits, discovery = find_splits(source, "logs", parallelism)
    make = partial(SourceOperator, source, splits, assigned=discovery is not None)
    sink = partial(TwoPhaseSinkOperator, TextFileSink(out))
    graph = StreamGraph("logs", buffer_timeout_ms=5)
    graph.nodes[1] = StreamNode(
        1, "logs", NodeKind.SOURCE, make, parallelism, uid="logs", discovery=discovery
    )
    graph.nodes[2] = StreamNode(2, "files", NodeKind.SINK, sink, 1, uid="files")
    graph.edges.append(StreamEdge(1, 2, 0, ships.rebalance()))
    return build_job_graph(graph)


class Logs:
    """A folder that somebody writes to."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.lines: list[str] = []

    def append(self, name: str, count: int = 40) -> None:
        new = [f"{name}:{len(self.lines) + number}" for number in range(count)]
        with (self.folder / name).open("a") as file:
            file.write("".join(f"{line}\n" for line in new))
        self.lines += new


def written(out: Path) -> list[str]:
    parts = [path for path in out.rglob("*") if path.is_file() and path.name[0] != "."]
    return [line for path in parts for line in path.read_text().split()]


def start(opened: ExitStack, job: Job, stage: str = "") -> tuple[object, list[Worker]]:
    run, processes = job.begin(stage), opened.enter_context(workers(2))
    for slot, process in enumerate(processes):
        process.serve(job.contact(stage), slot)
    return run, processes


def test_a_folder_is_followed_over_killed_workers_and_another_parallelism(
    no_leaks: None, tmp_path: Path
) -> None:
    logs, out = Logs(tmp_path / "logs"), tmp_path / "out"
    source = TextFileSource(logs.folder, follow=True, discover_ms=10, split_bytes=100)
    times = replace_times(TIMES, cancel_ms=2_000, settle_ms=50, loss_ms=10)

    def all_are_written() -> bool:
        return len(written(out)) >= len(logs.lines)

    with ExitStack() as opened:
        server = opened.enter_context(ControlServer(times=times))
        about = {
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "execution.checkpointing.interval": "40 ms",
        }
        job = Job(server, job_graph(source, out, 2), **about)
        logs.append("a")
        logs.append("b")
        run, processes = start(opened, job)
        eventually(all_are_written, "what was there is written")
        eventually(lambda: completed(job) >= 2, "checkpoints")
        logs.append("a")
        logs.append("c")
        processes[0].signal(signal.SIGKILL)
        logs.append("d")
        (logs.folder / "a").rename(logs.folder / "a.1")
        logs.append("a")
        assert ended(run).restart_in_ms is not None
        run, _ = start(opened, job, "again")
        logs.append("b")
        eventually(all_are_written, "what was written meanwhile is written")
        logs.append("e")
        saved = run.savepoint(str(tmp_path / "savepoint"), Stop.SUSPEND).result(30)
        assert ended(run).state is JobState.FINISHED
        job.close(JobState.FINISHED)

        logs.append("a")
        logs.append("f")
        restored = {**about, "execution.state-recovery.path": str(saved)}
        again = Job(server, job_graph(source, out, 1), **restored)
        opened.callback(again.close)
        run, _ = start(opened, again)
        eventually(all_are_written, "the job has gone on from its savepoint")
        run.savepoint(str(tmp_path / "last"), Stop.DRAIN).result(30)
        ended(run)
    assert sorted(written(out)) == sorted(logs.lines)


def test_a_path_that_leads_nowhere_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    find: Callable[[], object] = partial(
        find_splits, TextFileSource(tmp_path / "no" / "*.log"), "logs", 1
    )
    with pytest.raises(PathUnusable, match=r"no/\*.log: does not exist") as caught:
        find()
    assert caught.value.operator in ("", "logs")
