"""``headgate why``: is the job keeping up, and if not, why?

The driver judges by the last ten seconds and then looks at the task that limits the job, which
takes some seconds. Standard output gets a paragraph and a table, or one JSON object.
"""

import textwrap
from typing import TYPE_CHECKING, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.cli.jobs import JSON
from headgate.cli.status import ANY_JOB
from headgate.plan.table import clean

if TYPE_CHECKING:
    from headgate.observe.analysis.diagnosis import Diagnosis, VertexAdvice

MARGIN_S: Final = 20.0
"""Longer than the samples take: the answer is on its way, or the machine is busy."""
MOST_S: Final = 30.0
WIDEST: Final = 100
"""Longer lines are hard to read."""
HEADS: Final = "vertex", "rate/s", "possible/s", "target/s", "busy", "bp", "tasks", "suggested"
DROPPED: Final = ("bp", "busy", "possible/s", "rate/s")
"""Columns that a narrow terminal does not get, in this order."""
GAP: Final = 2
LEAST_NAME, WIDEST_NAME = 20, 40


@click.command()
@ANY_JOB
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, MOST_S),
    default=2.0,
    show_default=True,
    help="How long to take samples of the task that limits the job.",
)
@click.option("--quick", is_flag=True, help="Answer at once, from counters alone.")
@JSON
def why(job: str | None, seconds: float, quick: bool, as_json: bool) -> int:
    """Say what limits JOB, with the evidence, and what to do about it.

    Without JOB the only one that runs. The paragraph names the vertex, and the subtask, the hot
    keys or the line of Python if it is a matter of these; what the job could do without it, and
    what would limit it then. The table has the rate of each vertex, what it could take, what it
    would have to take to keep up with the sources, and its suggested parallelism. Records that
    operators have left out by design, because they came too late or failed, are told in any case.
    """
    from headgate.cli.rest_client import RestClient
    from headgate.host.driver.job_client import find_job
    from headgate.observe.analysis.diagnosis import Diagnosis

    page = RestClient(find_job(job))
    query = {"seconds": f"{seconds:g}", "quick": "true" if quick else None}
    found = page.get("/why", Diagnosis, query, seconds + MARGIN_S)
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        show(found)
    return 0


def show(found: "Diagnosis") -> None:
    """The paragraph, wrapped to the terminal, and the table."""
    console = Console(highlight=False)
    width = min(console.width, WIDEST)
    console.print(textwrap.fill(clean(found.summary), width), markup=False, soft_wrap=True)
    for left_out in found.left_out:
        text = textwrap.fill(clean(f"Left out: {left_out.summary}."), width)
        console.print(text, style="yellow", markup=False, soft_wrap=True)
    if found.advice:
        console.print()
        console.print(advice_table(found, width))


def advice_table(found: "Diagnosis", width: int) -> Table:
    """A line for each vertex; the one that limits the job is bold.

    What does not fit is left out by columns, and then by the ends of names, never by digits.
    """
    rows = [_cells(advice) for advice in found.advice]
    heads, room = list(HEADS), 0
    for dropped in (None, *DROPPED):
        heads = [head for head in heads if head != dropped]
        room = width - sum(
            GAP + max(len(head), *(len(row[HEADS.index(head)]) for row in rows))
            for head in heads[1:]
        )
        if room >= min(LEAST_NAME, max(len(row[0]) for row in rows)):
            break
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(
        heads[0], overflow="ellipsis", no_wrap=True, max_width=max(1, min(WIDEST_NAME, room))
    )
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    for row, advice in zip(rows, found.advice, strict=True):
        style = "bold" if advice.vertex == found.vertex else ""
        table.add_row(*(Text(row[HEADS.index(head)], style) for head in heads))
    return table


def _cells(advice: "VertexAdvice") -> tuple[str, ...]:
    suggested = str(advice.suggested) if advice.suggested != advice.parallelism else ""
    if advice.limited_by:
        suggested = f"{advice.suggested} ({clean(advice.limited_by)})"
    return (
        clean(advice.name),
        f"{advice.rate:,.0f}",
        f"{advice.true_rate:,.0f}" if advice.true_rate >= 0 else "",
        f"{advice.target_rate:,.0f}",
        f"{advice.busy:.0%}",
        f"{advice.backpressured:.0%}",
        str(advice.parallelism),
        suggested,
    )
