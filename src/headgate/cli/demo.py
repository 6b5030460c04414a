"""``headgate demo``: a small real pipeline on the embedded Spark, with back pressure to be seen.

One operator is slow on purpose. The live picture shows that it is busy, that those before it wait
for buffers, and the closing summary says the same in figures.
"""

import tempfile
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from headgate.api.environment import StreamExecutionEnvironment
from headgate.api.settings.configuration import Configuration
from headgate.base.settings import ProgressShown
from headgate.cli.demo_pipeline import Size, build_orders
from headgate.cli.exit_codes import INTERRUPTED, Terminated, signals_raise
from headgate.cli.user_program import StartedJobs
from headgate.observe.analysis.diagnosis import Diagnosis
from headgate.observe.observer import JobObserver
from headgate.observe.progress import VertexRow

TASKS: Final = 2
SHOWN_LINES: Final = 3
SMALL_BUFFERS: Final = {
    # Little may be under way, so that back pressure reaches the source within a second.
    "taskmanager.memory.segment-size": "4kb",
    "taskmanager.network.memory.floating-buffers-per-gate": "2",
    "metrics.interval": "500",
}


@click.command()
@click.option("--orders", default=20_000, show_default=True, type=click.IntRange(1))
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Orders a second.")
@click.option(
    "--seconds",
    default=6.0,
    show_default=True,
    type=click.FloatRange(0, 600),
    help="What the slow operator takes for all orders.",
)
@click.option("--folder", type=click.Path(file_okay=False), help="Where the result goes.")
def demo(orders: int, rate: float | None, seconds: float, folder: str | None) -> int:
    """Run a small pipeline on Spark and watch where it is slow.

    Orders are made up, priced, keyed by customer and added up; then every total is looked up
    somewhere slow and written to files.
    """
    from headgate.observe.display import display
    from headgate.observe.logs import set_up_logs
    from headgate.spark.submission import on_launched

    set_up_logs()
    folder = folder or tempfile.mkdtemp(prefix="headgate-demo-")
    size = Size(orders, TASKS, seconds, rate)
    env = environment(size, folder)
    console = Console(highlight=False)
    console.print(introduction(size), soft_wrap=True)
    jobs = StartedJobs()
    on_launched.append(jobs.launched)
    try:
        with signals_raise():
            client = env.execute_async("orders")
            jobs.wait()
            result = client.get_job_execution_result().result()
    except (KeyboardInterrupt, Terminated) as end:
        jobs.cancel("it was interrupted")
        return INTERRUPTED if isinstance(end, KeyboardInterrupt) else int(str(end.code))
    finally:
        on_launched.remove(jobs.launched)
        display().close()
    (job,) = jobs.started
    observer = JobObserver(job)
    observer.look()
    rows, found = observer.rows(), observer.quick_diagnosis()
    for line in summary(rows, found, result.net_runtime_ms / 1000, Path(folder)):
        console.print(line, markup=False, soft_wrap=True)
    return 0


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


def introduction(size: Size) -> str:
    return (
        f"{size.orders:,} orders → price → key by customer → running totals → slow look-up → "
        f"files\non {size.tasks} slots of a Spark that starts now; the look-up sleeps for "
        f"{1000 * size.seconds * size.tasks / size.orders:.2g} ms with each order.\n"
    )


def summary(rows: list[VertexRow], found: Diagnosis, seconds: float, folder: Path) -> list[str]:
    """What was done, what was slow and how it showed, and where the result is."""
    orders = sum(row.records_in for row in rows if row.is_source)
    width = max(len(row.name) for row in rows)
    lines = [
        "",
        f"{orders:,} orders in {seconds:.1f} s: {orders / seconds:,.0f} a second",
        *(f"  {row.name:<{width}}  {row.shares.describe()}" for row in rows),
    ]
    if found.vertex >= 0:
        lines.append(f"bottleneck: {found.headline}")
    parts = sorted(folder.glob("totals*"))
    size = sum(part.stat().st_size for part in parts)
    lines += ["", f"{len(parts)} files, {size:,} bytes, in {folder}; the last lines of one:"]
    if parts:
        lines += parts[0].read_text(encoding="utf-8").splitlines()[-SHOWN_LINES:]
    return lines
