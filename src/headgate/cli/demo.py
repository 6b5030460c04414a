"""``headgate demo``: a small real pipeline on the embedded Spark, with back pressure to be seen.

One operator is slow on purpose. The live picture shows that it is busy and that those before it
wait for buffers; the closing lines say the same in figures. In a terminal, job and page stay until
Ctrl-C. Law: nothing is left in the temporary folder.
"""

import os
import shutil
import signal
import sys
from collections import deque
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from headgate.api.environment import StreamExecutionEnvironment
from headgate.api.job import JobStatus
from headgate.api.settings.configuration import Configuration
from headgate.base.settings import ProgressShown
from headgate.cli.demo_pipeline import Size, build_orders
from headgate.cli.entry import Terminated
from headgate.cli.user_program import StartedJobs
from headgate.host.files.owned_folder import OwnedFolder
from headgate.observe.job_view import describe_shares
from headgate.observe.logs import set_up_logs
from headgate.observe.observer import JobObserver
from headgate.observe.web.server import page_link
from headgate.spark.dataframe.frame_job import FrameJob
from headgate.spark.job import SparkJob

TASKS: Final = 2
SHOWN_LINES: Final = 3
PER_S: Final = 10_000 / 3
"""Orders that the slow operator takes in a second."""
BRIEF_S: Final = 6.0
"""Where nobody watches."""
LONG_S: Final = 600.0
"""In a terminal: time to look around, and an end before the files fill the disk."""
SMALL_BUFFERS: Final = {
    # Little may be under way, so that back pressure reaches the source within a second.
    "taskmanager.memory.segment-size": "4kb",
    "taskmanager.network.memory.floating-buffers-per-gate": "2",
    "metrics.interval": "500",
}


@click.command()
@click.option(
    "--orders",
    type=click.IntRange(1),
    help=f"How many; without it {PER_S:,.0f} for each of the --seconds.",
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Orders a second.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, LONG_S),
    help="What the slow operator takes for all orders; without it "
    f"{LONG_S:.0f} in a terminal, else {BRIEF_S:.0f}.",
)
@click.option("--folder", type=click.Path(file_okay=False), help="Where the result stays.")
def demo(orders: int | None, rate: float | None, seconds: float | None, folder: str | None) -> int:
    """Run a small pipeline on Spark and watch where it is slow.

    Orders are made up, priced, keyed by customer and added up; then every total is looked up
    somewhere slow and written to files. In a terminal, Ctrl-C ends it.
    """

    set_up_logs()
    stays = sys.stdin.isatty() and sys.stdout.isatty()
    size = size_of(orders, seconds, rate, stays=stays)
    console = Console(highlight=False)
    console.print(introduction(size, stays=stays), soft_wrap=True)
    with ExitStack() as places:
        where = Path(folder) if folder else places.enter_context(OwnedFolder("demo"))
        job = run_orders(environment(size, str(where)), stays=stays)
        for line in summary(job, where, keeps=bool(folder)):
            console.print(line, markup=False, soft_wrap=True)
        if stays and job.status() is JobStatus.FINISHED and (link := page_link(job.job_id)):
            console.print(f"\nthe page stays until Ctrl-C: {link}", soft_wrap=True)
            with suppress(KeyboardInterrupt):
                signal.pause()
    return 0


def run_orders(env: StreamExecutionEnvironment, *, stays: bool) -> SparkJob | FrameJob:
    """The job, when it has ended: by itself, or by Ctrl-C if that is how it is to end."""
    with StartedJobs() as jobs:
        try:
            env.execute_async("orders")
            jobs.wait()
        except (KeyboardInterrupt, Terminated) as end:
            jobs.cancel("it was interrupted")
            if not (stays and jobs.started and isinstance(end, KeyboardInterrupt)):
                raise
    return jobs.started[0]


def size_of(orders: int | None, seconds: float | None, rate: float | None, *, stays: bool) -> Size:
    """What is not given of orders and seconds follows from the other."""
    if seconds is None:
        seconds = orders / PER_S if orders else LONG_S if stays else BRIEF_S
    return Size(orders or round(PER_S * (seconds or BRIEF_S)), TASKS, seconds, rate)


def environment(size: Size, folder: str) -> StreamExecutionEnvironment:
    """The program; what the user has configured stays, but for what the demonstration needs."""
    configuration = Configuration()
    for key, text in SMALL_BUFFERS.items():
        configuration.set_string(key, text)
    configuration.set_string("headgate.progress", ProgressShown.ON.value)
    env = StreamExecutionEnvironment(configuration)
    env.set_parallelism(size.tasks)
    build_orders(env, size, folder)
    return env


def introduction(size: Size, *, stays: bool) -> str:
    text = (
        f"{size.orders:,} orders → price → key by customer → running totals → slow look-up → "
        f"files\non {size.tasks} slots of a Spark that starts now; the look-up sleeps for "
        f"{1000 * size.seconds * size.tasks / size.orders:.2g} ms with each order.\n"
    )
    if stays:
        command = "headgate" if shutil.which("headgate") else f"{_own_python()} -m headgate"
        text += f"Ctrl-C ends it; `{command} why` in another terminal says what limits it.\n"
    return text


def _own_python() -> str:
    """The shortest path of this Python that can be typed here."""
    return min(sys.executable, os.path.relpath(sys.executable), key=len)


def summary(job: SparkJob | FrameJob, folder: Path, *, keeps: bool) -> list[str]:
    """How the operators spent their time, and the result; the closing line says what was slow."""
    observer = JobObserver(job)
    observer.look()
    vertices = observer.window().vertices
    width = max(len(vertex.name) for vertex in vertices)
    lines = [f"  {vertex.name:<{width}}  {describe_shares(vertex.gain)}" for vertex in vertices]
    if parts := sorted(folder.glob("totals*")):
        size = sum(part.stat().st_size for part in parts)
        place = f"in {folder}" if keeps else "which --folder would keep"
        lines += ["", f"{len(parts)} files, {size:,} bytes, {place}; the last lines of one:"]
        with parts[0].open(encoding="utf-8") as part:
            lines += [line.rstrip() for line in deque(part, SHOWN_LINES)]
    return lines
