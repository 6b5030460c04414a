"""``headgate peek``: the records that wait in front of a task right now; they stay where they are.

Each line has the channel, what the entry is, its timestamp and key, and the record itself.
"""

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.base.inspections import WaitingRecords
from headgate.cli.flame import VERTEX
from headgate.cli.jobs import JOB, JSON
from headgate.plan.table import clean

if TYPE_CHECKING:
    from headgate.observe.web.answers import VertexDetails

MOST: Final = 1000


@click.command()
@JOB
@VERTEX
@click.option(
    "--subtask",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="In front of which of its tasks.",
)
@click.option(
    "--gate",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Which input, if the vertex has several.",
)
@click.option(
    "--channel",
    type=click.IntRange(0),
    help="Only this one; without it all of the gate, the longest queues first.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MOST),
    default=20,
    show_default=True,
    help="So many entries at most.",
)
@JSON
def peek(
    job: str,
    vertex: str,
    subtask: int,
    gate: int,
    channel: int | None,
    limit: int,
    as_json: bool,
) -> int:
    """Show the records that wait in front of VERTEX.

    They are decoded, and none is taken away. VERTEX is its number, its name, or a part of its
    name. Records wait if the vertex, or what
    comes behind it, is slower than what it reads from.
    """
    from headgate.cli.rest_client import RestClient, find_vertex
    from headgate.host.driver.job_client import find_job

    page = RestClient(find_job(job))
    seen = find_vertex(page, vertex)
    query = {"subtask": subtask, "gate": gate, "channel": channel, "limit": limit}
    waiting = page.get(f"/vertices/{seen.id}/peek", WaitingRecords, query)
    if as_json:
        entries = [msgspec.structs.asdict(entry) for entry in waiting.entries]
        fields = {**msgspec.structs.asdict(waiting), "entries": entries}
        click.echo(json.dumps({"vertex": seen.id, "subtask": subtask, **fields}))
    else:
        show(waiting, seen, subtask)
    return 0


def show(waiting: WaitingRecords, vertex: "VertexDetails", subtask: int) -> None:
    """A line for each entry, below how many there are."""
    console = Console(highlight=False)
    console.print(Text(describe(waiting, vertex, subtask)), soft_wrap=True)
    if not waiting.entries:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("channel", justify="right", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("time", no_wrap=True)
    table.add_column("key", overflow="fold", max_width=24)
    table.add_column("record", overflow="fold")
    for entry in waiting.entries:
        table.add_row(
            str(entry.channel),
            Text(clean(entry.kind), "" if entry.kind == "record" else "dim"),
            _time(entry.timestamp_ms),
            Text("" if entry.key is None else clean(entry.key)),
            Text(clean(entry.text)),
        )
    console.print(table)


def describe(waiting: WaitingRecords, vertex: "VertexDetails", subtask: int) -> str:
    """How many records wait."""
    where = f"subtask {subtask} of {clean(vertex.name)!r}"
    if not waiting.entries and not waiting.buffers:
        return f"nothing waits in front of {where}: it reads its input as fast as it comes"
    if not waiting.entries:
        return (
            f"{waiting.buffers:,} buffers wait in front of {where}, all still with their producers "
            f"in other processes, where they cannot be read from here"
        )
    more = "" if waiting.complete else " at least"
    buffers = f" in {waiting.buffers:,} buffers" if waiting.buffers else ""
    shown = sum(entry.kind == "record" for entry in waiting.entries)
    counted = f"; shown are {shown:,}" if shown < waiting.records else ""
    return f"{waiting.records:,} records{more} wait in front of {where}{buffers}{counted}"


def _time(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return ""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):  # no date: the user's own clock
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03}Z"
