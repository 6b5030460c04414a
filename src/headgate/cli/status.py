"""``headgate status`` and ``headgate ui``: one job on one screen, and the address of its page.

They ask the REST API of the job's driver, so that it does not matter how the job was started.
"""

import json
import os
import time
import webbrowser
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import click
from rich.console import Console

from headgate.cli.jobs import JSON
from headgate.host.files.no_links import private_opener

if TYPE_CHECKING:
    from headgate.cli.rest_client import RestClient
    from headgate.host.driver.job_directory import JobEntry
    from headgate.observe.pictures import Facts
    from headgate.observe.web.answers import VertexDetails

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
    from headgate.cli.rest_client import RestClient
    from headgate.host.driver.job_client import find_job
    from headgate.observe.pictures import draw_status

    facts = facts_of(RestClient(find_job(job)))
    if as_json:
        click.echo(json.dumps(fields_of(facts)))
        return 0
    console = Console(highlight=False)
    console.print(draw_status(facts, console.width))
    return 0


def facts_of(page: "RestClient") -> "Facts":
    """All that is shown of a job."""
    from headgate.cli.rest_client import RequestRefused
    from headgate.observe.pictures import Facts
    from headgate.observe.web.answers import CheckpointOverview, JobDetails

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
    from headgate.observe.pictures import known

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
    from headgate.cli.rest_client import PageOff
    from headgate.host.driver.job_client import find_job

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
    """Of the job's page; a token stands behind the #, which no browser sends to a server."""
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
    from headgate.host.driver.job_directory import job_folder

    path = job_folder() / f"{quote(entry.job, safe='')}-{os.getpid()}.html"
    path.unlink(missing_ok=True)
    with open(path, "x", encoding="utf-8", opener=private_opener) as file:
        file.write(
            f'<!doctype html><title>Headgate</title><meta http-equiv="refresh" '
            f'content="0; url={escape(address)}"><a href="{escape(address)}">the page</a>\n'
        )
    return path
