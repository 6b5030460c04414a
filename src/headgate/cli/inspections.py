"""Commands that look into the tasks of a running job: ``headgate flame``, ``peek`` and ``get``.

``flame`` shows where the time of a vertex goes, by samples of its tasks' stacks, which are taken
only as long as the command runs. ``peek`` shows the records that wait in front of a task; they stay
where they are. ``get`` shows what a keyed state holds at some keys: the driver is asked over its
control port, so that the job needs no page. Its exit code is 0 if there is something at a key at
least, 1 if there is nothing at any, or it cannot be read.
"""

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console
from rich.text import Text

from headgate.base.inspections import (
    MAX_HERTZ,
    MAX_SECONDS,
    ShownState,
    StateAsked,
    StateShown,
    WaitingRecords,
)
from headgate.cli.entry import FAILED
from headgate.cli.jobs import JOB, JSON
from headgate.cli.rest_client import RestClient, find_vertex
from headgate.host.driver.job_client import ask, find_job
from headgate.observe.flame import FrameOwner, draw_flame, folded, hottest_frames
from headgate.observe.pictures import plain_table
from headgate.observe.web.answers import FlameGraph, VertexDetails
from headgate.plan.table import clean

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
    facts = describe_samples(tree, on_cpu)
    if svg:
        _write(svg, draw_flame(tree.data, title, facts), "--svg")
    if folded_file:
        _write(folded_file, folded(tree.data), "--folded")
    if not svg and not folded_file:
        show_frames(tree, seen, facts)
    return 0


def describe_samples(tree: "FlameGraph", on_cpu: bool) -> str:
    """How much was seen."""
    cpu = f", on a CPU for {tree.cpu_ms / tree.wall_ms:.0%} of it" if tree.wall_ms > 0 else ""
    tasks = len(tree.subtasks)
    whose = f" of {tasks} tasks" if tasks > 1 else ""
    shown = "; shown is CPU time" if on_cpu else ""
    seconds = tree.wall_ms / 1000 / max(1, tasks)
    return f"{tree.samples:,} samples{whose} within {seconds:.1f} s{cpu}{shown}"


def show_frames(tree: "FlameGraph", vertex: "VertexDetails", facts: str) -> None:
    """The frames that cost most, as a table."""
    console = Console(highlight=False)
    console.print(Text.assemble((clean(vertex.name), "bold"), f"  {facts}"))
    frames = [frame for frame in hottest_frames(tree.data) if frame.weight >= LEAST]
    if not frames:
        console.print("no stack was seen: the tasks wait for records, or have ended")
        return
    table = plain_table()
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


MOST_RECORDS: Final = 1000


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
    type=click.IntRange(1, MOST_RECORDS),
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
    comes after it, is slower than what it reads from.
    """

    page = RestClient(find_job(job))
    seen = find_vertex(page, vertex)
    query = {"subtask": subtask, "gate": gate, "channel": channel, "limit": limit}
    waiting = page.get(f"/vertices/{seen.id}/peek", WaitingRecords, query)
    if as_json:
        entries = [msgspec.structs.asdict(entry) for entry in waiting.entries]
        fields = {**msgspec.structs.asdict(waiting), "entries": entries}
        click.echo(json.dumps({"vertex": seen.id, "subtask": subtask, **fields}))
    else:
        show_waiting(waiting, seen, subtask)
    return 0


def show_waiting(waiting: WaitingRecords, vertex: "VertexDetails", subtask: int) -> None:
    """A line for each entry, below how many there are."""
    console = Console(highlight=False)
    console.print(Text(describe_waiting(waiting, vertex, subtask)), soft_wrap=True)
    if not waiting.entries:
        return
    table = plain_table()
    table.add_column("channel", justify="right", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("time", no_wrap=True)
    table.add_column("key", overflow="fold", max_width=24)
    table.add_column("record", overflow="fold")
    for entry in waiting.entries:
        table.add_row(
            str(entry.channel),
            Text(clean(entry.kind), "" if entry.kind == "record" else "dim"),
            _moment(entry.timestamp_ms),
            Text("" if entry.key is None else clean(entry.key)),
            Text(clean(entry.text)),
        )
    console.print(table)


def describe_waiting(waiting: WaitingRecords, vertex: "VertexDetails", subtask: int) -> str:
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


def _moment(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return ""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):  # no date: the user's own clock
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03}Z"


KEY_TYPES = click.Choice(("string", "int", "float", "bool", "bytes", "tuple", "json"))


@click.command()
@JOB
@click.argument("uid")
@click.argument("state")
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@click.option(
    "--key-type",
    type=KEY_TYPES,
    help="What the keys are, if the program does not declare it.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.1, 20.0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for a task that is busy, or for a job that restarts.",
)
@JSON
def get(
    job: str,
    uid: str,
    state: str,
    keys: tuple[str, ...],
    key_type: str | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Show what STATE of the operator UID holds at each KEY.

    UID may also be the operator's name. A KEY is read by the type that key_by() declares; where it
    declares none, as a JSON literal (42, "a", ["a", 1] for a tuple) or else as a text. Reading
    changes nothing, and the job runs on; keys of the same task are read at the same moment.
    """

    entry = find_job(job)
    answer = ask(entry, StateAsked(uid, state, list(keys), key_type or "", timeout_s))
    assert isinstance(answer, StateShown), "a question about state is answered with it"
    found = answer.found
    if found is None:
        click.echo(f"headgate: job {entry.job} ({entry.name}): {answer.problem}", err=True)
        return FAILED
    if as_json:
        click.echo(json.dumps({"job": entry.job, "name": entry.name, **msgspec.to_builtins(found)}))
    else:
        show_state(found)
    return 0 if any(value.found and not value.problem for value in found.values) else FAILED


def show_state(found: "ShownState") -> None:
    """The value alone of a single key; of several the key before each."""
    for value in found.values:
        key = json.dumps(value.key, ensure_ascii=False)
        if value.problem:
            click.echo(f"headgate: key {clean(key)}: {clean(value.problem)}", err=True)
        elif not value.found:
            hint = "" if isinstance(value.key, str) else "; for a text, give --key-type string"
            click.echo(f"headgate: there is nothing at the key {clean(key)}{hint}", err=True)
        else:
            before = f"{clean(key)}\t" if len(found.values) > 1 else ""
            text = value.text or json.dumps(value.value, ensure_ascii=False)
            click.echo(before + clean(text))
