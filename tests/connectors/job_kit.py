"""Jobs in real worker processes, as the tests of connectors run them."""

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headgate.api.environment import StreamExecutionEnvironment
from headgate.base.checkpoints import Stop
from headgate.control.life_cycle import JobState
from headgate.functions.sink import Sink
from headgate.functions.source import Source
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.driver_run import DriverRun
from headgate.plan.job_graph import JobGraph
from tests.host.control_rig import TIMES, Worker, ended, replace_times, workers
from tests.host.recovering_kit import Job, completed
from tests.host.rig import eventually

LOOK_S = 0.1
COMMITS = {"execution.checkpointing.interval": "150 ms"}
"""So that jobs do more than commit."""


def open_job(opened: ExitStack, folder: Path, graph: JobGraph, **settings: str) -> Job:
    times = replace_times(TIMES, cancel_ms=2_000, settle_ms=50, loss_ms=10)
    server = opened.enter_context(ControlServer(times=times))
    about = {
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "execution.checkpointing.interval": "60 ms",
        "restart-strategy.fixed-delay.attempts": "100",
    }
    job = Job(server, graph, **{**about, **settings})
    opened.callback(job.close)
    return job


def begin(
    opened: ExitStack, job: Job, count: int, stage: str = ""
) -> tuple[DriverRun, list[Worker]]:
    processes = opened.enter_context(workers(count))
    return serve(job, processes, stage), processes


def serve(job: Job, processes: Sequence[Worker], stage: str = "") -> DriverRun:
    run = job.begin(stage)
    for slot, process in enumerate(processes):
        process.serve(job.contact(stage), slot)
    return run


def begin_again(opened: ExitStack, job: Job, count: int, run: DriverRun, stage: str) -> DriverRun:
    """After the loss of a process."""
    assert ended(run).restart_in_ms is not None
    assert job.keeper.settled().wait(20)
    return begin(opened, job, count, stage)[0]


class CopyJob(ABC):
    """Numbers are added to a place that a job follows into another one."""

    def __init__(self) -> None:
        self.count = 0

    @abstractmethod
    def append(self, numbers: range) -> None:
        """To the place that is followed."""

    @abstractmethod
    def source(self) -> Source: ...

    @abstractmethod
    def sink(self) -> Sink: ...

    @abstractmethod
    def copied(self) -> Sequence[Any]:
        """The numbers in the other place, as an independent reader finds them."""

    def add(self, count: int) -> None:
        self.append(range(self.count, self.count + count))
        self.count += count

    def graph(self, parallelism: int) -> JobGraph:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism)
        stream = env.from_source(self.source(), source_name="followed").uid("followed")
        stream.sink_to(self.sink()).uid("written")
        graph = env.get_job_graph()
        env.close()
        return graph

    def all_are_in(self) -> None:
        """Waits until each number has come, and once."""

        def are_in() -> bool:
            time.sleep(LOOK_S)  # a look costs more than the job
            return len(self.copied()) >= self.count

        eventually(are_in, "the last records")
        assert sorted(self.copied()) == list(range(self.count))


def copy_through_trouble(copy: CopyJob, folder: Path, before: int, after: int) -> None:
    """A killed worker, a savepoint while commits wait, and another parallelism.

    Processes that are left serve the next run.
    """
    copy.add(200)
    with ExitStack() as opened, workers(max(before, after) + 1) as processes:
        job = open_job(opened, folder, copy.graph(before), **COMMITS)
        run = serve(job, processes[:before])
        eventually(lambda: completed(job) >= 2, "checkpoints")
        copy.add(50)
        processes[0].signal(signal.SIGKILL)
        assert ended(run).restart_in_ms is not None
        assert job.keeper.settled().wait(20)
        for process in processes[1:before]:
            process.report()
        run = serve(job, processes[1 : before + 1], "again")
        copy.add(50)
        copy.all_are_in()
        copy.add(50)
        saved = run.savepoint(str(folder / "savepoint"), Stop.SUSPEND).result(30)
        assert ended(run).state is JobState.FINISHED
        for process in processes[1 : before + 1]:
            assert process.report()["error"] is None
        copy.add(50)
        settings = {**COMMITS, "execution.savepoint.path": str(saved)}
        job = open_job(opened, folder / "later", copy.graph(after), **settings)
        run = serve(job, processes[1 : after + 1])
        copy.add(50)
        copy.all_are_in()
        run.cancel("the test is over")
        ended(run)
