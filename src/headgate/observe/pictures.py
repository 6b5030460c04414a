"""Progress for people: a table with bars for a terminal of 80 columns, lines for a log.

The bar of a vertex shows where its tasks' time went: full is busy, dotted is waiting for buffers,
empty is idle. Only the cause of back pressure is marked, not those that it holds up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from headgate.observe.progress import Bottleneck, Shares, VertexRow

BAR: Final = 20
NAME: Final = 33
FULL, DOTTED, EMPTY = "█", "▒", "·"
LEGEND: Final = f"{FULL} busy  {DOTTED} back-pressured  {EMPTY} idle"


@dataclass(frozen=True, slots=True)
class JobView:
    """One job at one moment, ready to be drawn."""

    name: str
    status: str
    seconds: float
    rows: Sequence[VertexRow]
    bottlenecks: Sequence[Bottleneck]


def draw_job(view: JobView) -> RenderableType:
    """A table with a line for each vertex, and what holds it up below."""
    table = Table(
        title=Text.assemble(
            (view.name, "bold"), f"  {view.status}  {view.seconds:.0f} s", ("   " + LEGEND, "dim")
        ),
        title_justify="left",
        title_style="",
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    table.add_column("vertex", width=NAME, no_wrap=True, overflow="ellipsis")
    for head in ("in", "out", "in/s"):
        table.add_column(head, justify="right", width=6, no_wrap=True)
    table.add_column("", width=BAR, no_wrap=True)
    blamed = {one.row.vertex for one in view.bottlenecks[:1]}
    for row in view.rows:
        table.add_row(
            Text(_title(row), "bold" if row.vertex in blamed else ""),
            short_number(row.records_in),
            short_number(row.records_out),
            short_number(row.in_per_s),
            draw_bar(row, row.vertex in blamed),
        )
    for one in view.bottlenecks[:1]:
        table.caption = Text(one.describe())
        table.caption_style = ""
        table.caption_justify = "left"
    return table


def draw_bar(row: VertexRow, blamed: bool) -> Text:
    """Parts as long as their shares; all of them together always fill the bar."""
    if not row.running and row.ended == row.tasks:
        return Text("ended", "dim")
    if not row.running:
        return Text("starting", "dim")
    busy, held_up, idle = _cells(row.shares)
    return Text.assemble(
        (FULL * busy, "red" if blamed else "green"), (DOTTED * held_up, "yellow"), EMPTY * idle
    )


def tell_job(view: JobView) -> list[str]:
    """The same for a log: a line for each vertex."""
    lines = [
        f"{view.name}: {_title(row)}: {row.records_in:,} in, {row.records_out:,} out, "
        f"{row.in_per_s:,.0f} in/s, {tell_shares(row.shares)}"
        for row in view.rows
        if row.running
    ]
    return [*lines, *(f"{view.name}: {one.describe()}" for one in view.bottlenecks[:1])]


def tell_end(view: JobView) -> str:
    """One line when the job has ended; the rows are those of its whole life."""
    source = sum(row.records_in for row in view.rows if row.is_source)
    blamed = f"; {view.bottlenecks[0].describe()}" if view.bottlenecks else ""
    return f"{view.name}: {view.status} after {view.seconds:.1f} s, {source:,} records{blamed}"


def tell_shares(shares: Shares) -> str:
    return (
        f"busy {shares.busy:.0%}, back-pressured {shares.backpressured:.0%}, idle {shares.idle:.0%}"
    )


def short_number(number: float) -> str:
    """At most six characters: 999, 9,999, 99.9k, 1.23M."""
    if number < 10_000:
        return f"{number:,.0f}"
    for unit in "kMGT":
        number /= 1000
        if number < 9.995:
            return f"{number:.2f}{unit}"
        if number < 99.95:
            return f"{number:.1f}{unit}"
        if number < 999.5:
            return f"{number:.0f}{unit}"
    return f"{number:.0f}T"


def _title(row: VertexRow) -> str:
    return row.name if row.tasks == 1 else f"{row.tasks} x {row.name}"


def _cells(shares: Shares) -> tuple[int, int, int]:
    """Whole characters; the rounding goes to the last part, so that the sum is right."""
    if shares == Shares():
        return 0, 0, BAR
    busy = round(shares.busy * BAR)
    held_up = round((shares.busy + shares.backpressured) * BAR) - busy
    return busy, held_up, BAR - busy - held_up
