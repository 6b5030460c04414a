"""``headgate list`` and ``headgate cancel JOB``: the running jobs of this user on this machine.

JOB is an id, the beginning of one, or a name, as long as one running job alone is called so.
"""

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from headgate.host.driver.job_client import JobOverview

JOB = click.argument("job")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_HEADS: Final = ("id", "name", "state", "since", "process")


@click.command("list")
@JSON
def list_jobs(as_json: bool) -> int:
    """List the jobs that run: their ids, names, states, and since when."""
    from headgate.host.driver.job_client import running_jobs

    jobs = running_jobs()
    if as_json:
        click.echo(json.dumps({"jobs": [_fields(one) for one in jobs]}))
    elif not jobs:
        click.echo("no job of yours runs on this machine", err=True)
    else:
        show(jobs)
    return 0


@click.command()
@JOB
@JSON
def cancel(job: str, as_json: bool) -> int:
    """End JOB at once, and wait for its end; `headgate stop` keeps its state."""
    from headgate.base.messages import CancelAsked, JobAnswer
    from headgate.host.driver.job_client import ask, find_job

    entry = find_job(job)
    answer = ask(entry, CancelAsked("`headgate cancel` was called"))
    assert isinstance(answer, JobAnswer), "a cancellation is answered by how the job is"
    if answer.problem:
        raise click.ClickException(f"job {entry.job} was not cancelled: {answer.problem}")
    state = answer.state.lower()
    if as_json:
        click.echo(json.dumps({"job": entry.job, "name": entry.name, "state": state}))
    else:
        click.echo(f"job {entry.job} ({entry.name}) is {state}")
    return 0


def show(jobs: "Sequence[JobOverview]") -> None:
    """A table for people."""
    rows = [_HEADS, *map(_cells, jobs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())


def _cells(seen: "JobOverview") -> tuple[str, ...]:
    fields = _fields(seen)
    return tuple(str(fields[key]) for key in ("job", "name", "state", "since", "pid"))


def _fields(seen: "JobOverview") -> dict[str, object]:
    entry = seen.entry
    since = datetime.fromtimestamp(entry.since_ms / 1000, timezone.utc)
    return {
        "job": entry.job,
        "name": entry.name,
        "state": seen.state.lower(),
        "since": since.strftime("%Y-%m-%d %H:%M:%SZ"),
        "since_ms": entry.since_ms,
        "pid": entry.pid,
    }
