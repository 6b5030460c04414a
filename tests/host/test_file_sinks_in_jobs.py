"""File sinks in jobs of real worker processes that fail, stop and are taken over.

Whatever happens, every number is in one part, once, and nothing hidden is left at the end.
"""

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
from headgate.base.job_errors import SavepointFailed
from headgate.connectors.file_sink import PartSink, TextFileSink
from headgate.connectors.file_sink_builder import Encoder, FileSink
from headgate.connectors.part_commits import PartCommitter
from headgate.connectors.rolling import RollingPolicy
from headgate.control.life import JobState
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operators import MapOperator
from headgate.core.chain.snapshots import Moment
from headgate.core.chain.source_operator import SourceOperator
from headgate.core.chain.two_phase import TwoPhaseSinkOperator
from headgate.host.control_server import ControlServer
from headgate.plan import ships
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamEdge, StreamGraph, StreamNode
from tests.host.control_rig import TIMES, ended, replace_times, workers
from tests.host.rig import eventually
from tests.host.test_recovering_runs import Job, completed

COUNT = 3_000
FAILS_AT = 500
SMALL = RollingPolicy.default_rolling_policy(part_size=400)


class Numbers:
    """Numbers of two splits, slow until there is a file ``hurry``; they can be read again."""

    bounded = True
    finds_more = False

    def __init__(self, hurry: Path) -> None:
        self.hurry = hurry

    def open(self, split: int, position: int | None, context: OperatorContext) -> "NumberReader":
        return NumberReader(split if position is None else position, self.hurry)


class NumberReader:
    def __init__(self, number: int, hurry: Path) -> None:
        self.number, self.hurry = number, hurry

    def poll(self, limit: int) -> Sequence[int] | None:
        if self.number >= COUNT:
            return None if self.hurry.exists() else ()
        time.sleep(0 if self.hurry.exists() else 0.005)
        found = range(self.number, min(self.number + 20, COUNT), 2)
        self.number += 20
        return found

    def wait_ms(self) -> float:
        return 5.0

    def position(self) -> int:
        return self.number

    def close(self) -> None:
        pass


class FailsNowAndThen:
    """Once at every 500th number, in whichever attempt."""

    def __init__(self, marks: Path) -> None:
        self.marks = marks

    def __call__(self, number: int) -> int:
        if number and number % FAILS_AT == 0:
            try:
                (self.marks / f"mark-{number}").touch(exist_ok=False)
            except FileExistsError:
                return number
            raise ValueError(f"once at {number}")
        return number


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


class FailsToPrepare(TwoPhaseSinkOperator):
    """One task fails when a savepoint has reached it: there is none, but parts wait for it."""

    def snapshot(self, moment: Moment) -> Any:
        taken = super().snapshot(moment)
        fail = Path(self._sink.names.folder).parent / "fail"  # type: ignore[attr-defined]
        if moment.is_savepoint and self.context.task.subtask and fail.exists():
            fail.unlink()
            time.sleep(0.1)
            raise OSError("no savepoint")
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


def open_job(opened: ExitStack, server: ControlServer, folder: Path, graph: JobGraph) -> Job:
    job = Job(
        server,
        graph,
        **{
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            "execution.checkpointing.interval": "60 ms",
            "restart-strategy.fixed-delay.attempts": "100",
        },
    )
    opened.callback(job.close)
    return job


def check(folder: Path) -> None:
    parts = [path for path in folder.rglob("*") if path.is_file()]
    shown = [path for path in parts if path.name[0] != "."]
    found = sorted(int(line) for path in shown for line in path.read_text().split())
    assert found == list(range(COUNT)), f"lost: {sorted(set(range(COUNT)) - set(found))}"
    assert [path.name for path in parts if path.name[0] == "."] == []


def test_a_row_format_that_rolls_by_size_loses_nothing_over_failures(
    servers: list[ControlServer], opened: ExitStack, tmp_path: Path
) -> None:
    builder = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    sink = builder.with_rolling_policy(SMALL).build()
    graph = job_graph(tmp_path, sink, FailsNowAndThen(tmp_path))
    job = open_job(opened, servers[0], tmp_path, graph)
    with workers(2) as processes:
        run = job.begin()
        for slot, process in enumerate(processes):
            process.serve(job.contact(), slot)
        eventually(lambda: (tmp_path / f"mark-{COUNT - FAILS_AT}").exists(), "the last failure")
        (tmp_path / "hurry").touch()
        assert ended(run).state is JobState.FINISHED
    assert job.keeper.restarts >= 3
    check(tmp_path / "out")


@pytest.mark.parametrize("fails", ["commit", "prepare"])
def test_a_stop_with_savepoint_that_fails_leaves_nothing_hidden(
    servers: list[ControlServer], opened: ExitStack, tmp_path: Path, fails: str
) -> None:
    kind = FailsToCommit if fails == "commit" else TextFileSink
    operator = TwoPhaseSinkOperator if fails == "commit" else FailsToPrepare
    sink = kind(tmp_path / "out", rolling_policy=SMALL)
    job = open_job(opened, servers[0], tmp_path, job_graph(tmp_path, sink, operator=operator))
    with workers(2) as processes:
        run = job.begin()
        for slot, process in enumerate(processes):
            process.serve(job.contact(), slot)
        eventually(lambda: completed(job) >= 2, "checkpoints")
        (tmp_path / "fail").touch()
        saved = run.savepoint(str(tmp_path / "savepoint"), Stop.SUSPEND)
        with pytest.raises(SavepointFailed):
            saved.result(30)
        eventually(lambda: not (tmp_path / "fail").exists(), "it failed")
        (tmp_path / "hurry").touch()
        assert ended(run).state is JobState.FINISHED
    check(tmp_path / "out")


def test_what_a_driver_and_its_workers_leave_is_removed_by_the_one_that_takes_over(
    servers: list[ControlServer], opened: ExitStack, tmp_path: Path
) -> None:
    sink = TextFileSink(tmp_path / "out", rolling_policy=SMALL)
    first = open_job(opened, servers[0], tmp_path, job_graph(tmp_path, sink))
    with workers(4) as processes:
        run = first.begin()
        for slot in (0, 1):
            processes[slot].serve(first.contact(), slot)
        eventually(lambda: completed(first) >= 2, "checkpoints")
        processes[0].signal(signal.SIGSTOP)
        second = open_job(opened, servers[1], tmp_path, job_graph(tmp_path, sink))
        again = second.begin()
        for slot in (0, 1):
            processes[2 + slot].serve(second.contact(), slot)
        eventually(lambda: completed(second) >= 1, "the second goes on")
        processes[0].signal(signal.SIGCONT)
        outcome = ended(run)
        assert outcome.failure is not None and "taken over" in outcome.failure.message
        processes[1].signal(signal.SIGKILL)
        processes[0].report()
        (tmp_path / "hurry").touch()
        assert ended(again).state is JobState.FINISHED
    check(tmp_path / "out")
