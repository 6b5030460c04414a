"""``headgate status``, ``ui`` and ``why``: one job on one screen, its page, and what limits it.

They ask the REST API of the job's driver, so that it does not matter how the job was started. For
``why`` the driver judges by the last ten seconds and then looks at the task that limits the job,
which takes some seconds.
"""

import json
import os
import textwrap
import time
import webbrowser
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.cli.jobs import JSON
from headgate.cli.rest_client import PageOff, RequestRefused, RestClient
from headgate.host.driver.job_client import find_job
from headgate.host.driver.job_directory import JobEntry, job_folder
from headgate.host.files.private_files import private_opener
from headgate.observe.analysis.diagnosis import Diagnosis, VertexAdvice
from headgate.observe.pictures import Facts, draw_status, known, plain_table
from headgate.observe.web.answers import CheckpointOverview, JobDetails, VertexDetails
from headgate.plan.table import clean

ANY_JOB = click.argument("job", required=False)
BROWSER_S: Final = 15.0
"""How long a browser that has to be started may take to read the file that leads to the page."""


@click.command()
@ANY_JOB
@JSON
def status(job: str | None, as_json: bool) -> int:
    """Show how JOB gets on, on one screen.

    Its state, what limits it, its vertices, its last checkpoint, its latest failure. Without JOB
    the only one that runs. Rates and shares are those of the last ten seconds; lag is
    how far the watermark is behind the clock, p99 the latency from the sources.
    """

    facts = facts_of(RestClient(find_job(job)))
    if as_json:
        click.echo(json.dumps(fields_of(facts)))
        return 0
    console = Console(highlight=False)
    console.print(draw_status(facts, console.width))
    return 0


def facts_of(page: "RestClient") -> "Facts":
    """All that is shown of a job."""

    job = page.get("", JobDetails)
    checkpoints: CheckpointOverview | None
    try:
        checkpoints = page.get("/checkpoints", CheckpointOverview)
    except RequestRefused:  # the job was just forgotten, or the driver is of another version
        checkpoints = None
    return Facts(job, page.entry.web, checkpoints)


def fields_of(facts: "Facts") -> dict[str, object]:
    """What ``--json`` says of a job."""
    job = facts.job
    history = facts.checkpoints.history if facts.checkpoints else []
    last = history[0] if history else None
    failure = job.latest_failure
    return {
        "job": job.jid,
        "name": job.name,
        "state": job.state.lower(),
        "since_ms": job.start_time,
        "seconds": job.seconds,
        "restarts": job.restarts,
        "page": facts.page,
        "why": job.why.summary if job.why else "",
        "left_out": [
            {name: getattr(each, name) for name in _LEFT_OUT}
            for each in (job.why.left_out if job.why else [])
        ],
        "checkpoint": last and {name: getattr(last, name) for name in _CHECKPOINT},
        "failure": failure and {name: getattr(failure, name) for name in _FAILURE},
        "vertices": [_vertex_fields(vertex) for vertex in job.vertices],
    }


_LEFT_OUT: Final = ("operator", "late", "most_late_ms", "skipped", "dead_letters")
_CHECKPOINT: Final = ("checkpoint", "kind", "status", "triggered_at_ms", "took_ms", "state_bytes")
_FAILURE: Final = ("at_ms", "kind", "message")
_SHARES: Final = ("busy", "max_busy", "backpressured", "idle")
_KNOWN: Final = ("watermark_lag_ms", "latency_p50_ms", "latency_p99_ms", "state_bytes")


def _vertex_fields(vertex: "VertexDetails") -> dict[str, object]:

    return {
        "vertex": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "status": vertex.status.lower(),
        "in_per_s": vertex.rates.in_per_s,
        "out_per_s": vertex.rates.out_per_s,
        **{name: getattr(vertex, name) for name in _SHARES},
        **{name: known(getattr(vertex, name)) for name in _KNOWN},
    }


@click.command()
@ANY_JOB
@click.option("--open", "opens", is_flag=True, help="Open it in a browser.")
@JSON
def ui(job: str | None, opens: bool, as_json: bool) -> int:
    """Print the address of JOB's web page.

    Without JOB the only one that runs. If the page asks for a token, the address has it, and is
    for you alone: whoever has the token may look at the job and cancel it.
    """

    entry = find_job(job)
    if not entry.web:
        raise PageOff(entry)
    address = page_address(entry)
    if as_json:
        click.echo(json.dumps({"job": entry.job, "name": entry.name, "page": address}))
    else:
        click.echo(address)
    if opens:
        open_browser(entry, address)
    return 0


def page_address(entry: "JobEntry") -> str:
    """The address of the job's page; a token follows the #, which no browser sends to a server."""
    path = f"/jobs/{quote(entry.job, safe='')}"
    if entry.token:
        path = f"token={quote(entry.token, safe='')}&path={path}"
    return f"{entry.web.rstrip('/')}/#{path}"


def open_browser(entry: "JobEntry", address: str) -> None:
    """Start one; a token does not go through its command line, which all users can read."""
    leads: Path | None = None
    if entry.token:
        leads = lead_to(entry, address)
        address = leads.as_uri()
    try:
        if not webbrowser.open(address):
            raise click.ClickException("no browser could be started; open the address yourself")
        if leads is not None:
            time.sleep(BROWSER_S)
    finally:
        if leads is not None:
            leads.unlink(missing_ok=True)


def lead_to(entry: "JobEntry", address: str) -> Path:
    """A file for the user alone that sends a browser on to the address."""

    path = job_folder() / f"{quote(entry.job, safe='')}-{os.getpid()}.html"
    path.unlink(missing_ok=True)
    with open(path, "x", encoding="utf-8", opener=private_opener) as file:
        file.write(
            f'<!doctype html><title>Headgate</title><meta http-equiv="refresh" '
            f'content="0; url={escape(address)}"><a href="{escape(address)}">the page</a>\n'
        )
    return path


PROBE_MARGIN_S: Final = 20.0
"""Longer than the samples take: the answer is on its way, or the machine is busy."""
MOST_PROBE_S: Final = 30.0
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
    type=click.FloatRange(0.1, MOST_PROBE_S),
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

    page = RestClient(find_job(job))
    query = {"seconds": f"{seconds:g}", "quick": "true" if quick else None}
    found = page.get("/why", Diagnosis, query, seconds + PROBE_MARGIN_S)
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        show_diagnosis(found)
    return 0


def show_diagnosis(found: "Diagnosis") -> None:
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
    rows = [_advice_cells(advice) for advice in found.advice]
    heads, room = list(HEADS), 0
    for dropped in (None, *DROPPED):
        heads = [head for head in heads if head != dropped]
        room = width - sum(
            GAP + max(len(head), *(len(row[HEADS.index(head)]) for row in rows))
            for head in heads[1:]
        )
        if room >= min(LEAST_NAME, max(len(row[0]) for row in rows)):
            break
    table = plain_table(GAP)
    table.add_column(
        heads[0], overflow="ellipsis", no_wrap=True, max_width=max(1, min(WIDEST_NAME, room))
    )
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    for row, advice in zip(rows, found.advice, strict=True):
        style = "bold" if advice.vertex == found.vertex else ""
        table.add_row(*(Text(row[HEADS.index(head)], style) for head in heads))
    return table


def _advice_cells(advice: "VertexAdvice") -> tuple[str, ...]:
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
