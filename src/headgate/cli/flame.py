"""``headgate flame``: where the time of a vertex goes, by samples of its tasks' stacks.

The driver asks the task managers, which look at the stacks only as long as this runs. Standard
output gets a table; with ``--svg`` or ``--folded`` a file gets all of it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.base.inspections import MAX_HERTZ, MAX_SECONDS
from headgate.cli.jobs import JOB
from headgate.observe.flame import FrameOwner, draw_flame, folded, hottest_frames
from headgate.plan.table import clean

if TYPE_CHECKING:
    from headgate.observe.web.answers import FlameGraph, VertexDetails

ROWS: Final = 20
LEAST: Final = 0.005
"""Frames with a smaller share are left out of the table."""
MARGIN_S: Final = 15.0
"""Longer than the samples take: the answer is on its way, or the machine is busy."""
VERTEX = click.argument("vertex")
_OWNERS: Final = {
    FrameOwner.USER: "bold",
    FrameOwner.LIBRARY: "",
    FrameOwner.HEADGATE: "dim",
}
_FILE = click.Path(dir_okay=False, writable=True)


@click.command()
@JOB
@VERTEX
@click.option("--subtask", type=click.IntRange(0), help="Only this one; without it, all.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, MAX_SECONDS),
    default=5.0,
    show_default=True,
    help="How long to take samples.",
)
@click.option(
    "--hertz",
    type=click.FloatRange(1, MAX_HERTZ),
    default=100.0,
    show_default=True,
    help="Samples per second and task.",
)
@click.option("--svg", type=_FILE, help="Draw a flame graph to this file.")
@click.option(
    "--folded",
    "folded_file",
    type=_FILE,
    help="Write all stacks to this file, a line each, for speedscope, flamegraph.pl and others.",
)
@click.option(
    "--cpu/--wall",
    "on_cpu",
    default=False,
    help="Only where a CPU was used, or all time, waiting included (the default).",
)
def flame(
    job: str,
    vertex: str,
    subtask: int | None,
    seconds: float,
    hertz: float,
    svg: str | None,
    folded_file: str | None,
    on_cpu: bool,
) -> int:
    """Show where the tasks of VERTEX spend their time.

    VERTEX is its number, its name, or a part of its name. The table has the frames of your own code
    first: "self" is the share of samples that were in this line, "total" of those that were in it
    or in what it called. 100 samples a second cost a task at most 2 % while they are taken, and
    nothing otherwise.
    """
    from headgate.cli.rest_client import RestClient, find_vertex
    from headgate.host.driver.job_client import find_job
    from headgate.observe.web.answers import FlameGraph

    page = RestClient(find_job(job))
    seen = find_vertex(page, vertex)
    query = {
        "subtask": "all" if subtask is None else subtask,
        "seconds": f"{seconds:g}",
        "hertz": f"{hertz:g}",
        "type": "on_cpu" if on_cpu else "full",
    }
    where = f"/vertices/{seen.id}/flamegraph"
    tree = page.get(where, FlameGraph, query, seconds + MARGIN_S)
    title = f"{page.entry.name}: {seen.name}" + ("" if subtask is None else f", subtask {subtask}")
    facts = describe(tree, on_cpu)
    if svg:
        _write(svg, draw_flame(tree.data, title, facts), "--svg")
    if folded_file:
        _write(folded_file, folded(tree.data), "--folded")
    if not svg and not folded_file:
        show(tree, seen, facts)
    return 0


def describe(tree: "FlameGraph", on_cpu: bool) -> str:
    """How much was seen."""
    cpu = f", on a CPU for {tree.cpu_ms / tree.wall_ms:.0%} of it" if tree.wall_ms > 0 else ""
    tasks = len(tree.subtasks)
    whose = f" of {tasks} tasks" if tasks > 1 else ""
    shown = "; shown is CPU time" if on_cpu else ""
    seconds = tree.wall_ms / 1000 / max(1, tasks)
    return f"{tree.samples:,} samples{whose} within {seconds:.1f} s{cpu}{shown}"


def show(tree: "FlameGraph", vertex: "VertexDetails", facts: str) -> None:
    """The frames that cost most, as a table."""
    console = Console(highlight=False)
    console.print(Text.assemble((clean(vertex.name), "bold"), f"  {facts}"))
    frames = [frame for frame in hottest_frames(tree.data) if frame.weight >= LEAST]
    if not frames:
        console.print("no stack was seen: the tasks wait for records, or have ended")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in ("self", "total"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("frame", overflow="fold")
    table.add_column("", no_wrap=True)
    for frame in frames[:ROWS]:
        style = _OWNERS[frame.owner]
        table.add_row(
            f"{frame.own:.1%}",
            f"{frame.total:.1%}",
            Text(clean(frame.name), style),
            Text(frame.owner.value, "dim"),
        )
    console.print(table)
    if len(frames) > ROWS:
        console.print(Text(f"{len(frames) - ROWS} more; --svg FILE draws them all", "dim"))


def _write(path: str, text: str, option: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(
            f"{path} cannot be written: {error.strerror}", param_hint=option
        ) from error
    click.echo(f"written to {path}", err=True)
