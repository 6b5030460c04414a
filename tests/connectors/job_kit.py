"""Jobs in real worker processes, as the tests of connectors run them."""

from contextlib import ExitStack
from pathlib import Path

from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.driver_run import DriverRun
from headgate.plan.job_graph import JobGraph
from tests.host.control_rig import TIMES, Worker, ended, replace_times, workers
from tests.host.recovering_kit import Job


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
    run, processes = job.begin(stage), opened.enter_context(workers(count))
    for slot, process in enumerate(processes):
        process.serve(job.contact(stage), slot)
    return run, processes


def begin_again(opened: ExitStack, job: Job, count: int, run: DriverRun, stage: str) -> DriverRun:
    """After the loss of a process."""
    assert ended(run).restart_in_ms is not None
    assert job.keeper.settled().wait(20)
    return begin(opened, job, count, stage)[0]
