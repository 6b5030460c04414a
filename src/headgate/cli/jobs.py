"""Commands about the running jobs of this user on this machine: list, cancel, savepoint, stop.

JOB is an id, the beginning of one, or a name, if it means one running job alone. For savepoints
standard output gets the path, or one JSON object, and nothing else. Exit code 0: done, 1: the
savepoint failed, and the job runs on unless it was drained, or the job has not ended with it, 2: no
such job.
"""

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Final

import click

from headgate.api.job import ENDED, JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.errors import HeadgateError
from headgate.base.inspections import CancelAsked, JobAnswer, SavepointAnswer, SavepointAsked
from headgate.cli.entry import FAILED
from headgate.cli.rest_client import RestClient, StateAnswer
from headgate.host.driver.job_client import (
    JobGone,
    JobOverview,
    JobSilent,
    ask,
    find_job,
    running_jobs,
)
from headgate.host.driver.job_directory import JobEntry
from headgate.observe.job_view import time_text
from headgate.observe.web.answers import JobDetails
from headgate.plan.table import aligned, clean

JOB = click.argument("job")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
LOOK_S: Final = 0.1
"""Pause between two looks at whether a job that was cancelled has ended."""
WHY_S: Final = 2.0
"""How long a driver may take to say what limits its job before the list goes without it."""
_HEADS: Final = {"job": "id", "name": "name", "state": "state", "since": "since", "pid": "process"}


DIRECTORY = click.argument("directory", required=False, metavar="[FOLDER]")


DRAIN = click.option(
    "--drain",
    is_flag=True,
    help="End the job after the end of event time: all windows and timers fire first.",
)


_IS_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


@click.command("list")
@JSON
def list_jobs(as_json: bool) -> int:
    """List the jobs that run, and what limits each.

    Their ids, names, states, since when they run, the processes of their drivers, their pages.
    """

    jobs = [_fields(job) for job in running_jobs()]
    if as_json:
        click.echo(json.dumps({"jobs": jobs}))
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

    entry = find_job(job)
    state = (cancel_by_page(entry) or cancel_by_control(entry)).lower()
    if as_json:
        click.echo(json.dumps({"job": entry.job, "name": entry.name, "state": state}))
    else:
        click.echo(f"job {entry.job} ({entry.name}) is {state}")
    return 0


def cancel_by_page(entry: "JobEntry") -> str:
    """Ask its REST API, and wait; returns the state in which the job has ended.

    Nothing: it has no page, or the page does not answer, so that it has to be asked otherwise.
    """

    if not entry.web:
        return ""
    page = RestClient(entry)
    try:
        page.request("PATCH", "", {"mode": "cancel"})
    except (JobGone, JobSilent):
        return ""
    try:
        while (state := page.get("", StateAnswer).state) not in ENDED:
            time.sleep(LOOK_S)
    except JobGone:  # its program has ended with it
        return JobStatus.CANCELED.name
    return state


def cancel_by_control(entry: "JobEntry") -> str:
    """Cancel over the control port; returns the state in which the job has ended."""

    answer = ask(entry, CancelAsked("`headgate cancel` was called"))
    assert isinstance(answer, JobAnswer), "a cancellation is answered with the job's state"
    if answer.problem:
        raise click.ClickException(f"job {entry.job} was not cancelled: {answer.problem}")
    return answer.state


def show(jobs: Sequence[Mapping[str, object]]) -> None:
    """A table for people; below each job what limits it."""
    heads = {**_HEADS, **({"page": "page"} if any(job["page"] for job in jobs) else {})}
    rows = [[clean(str(job[key])) for key in heads] for job in jobs]
    head, *lines = aligned(list(heads.values()), rows).splitlines()
    click.echo(head)
    for job, line in zip(jobs, lines, strict=True):
        click.echo(line)
        if job["why"]:
            click.echo(f"    {clean(str(job['why']))}")


def _fields(seen: "JobOverview") -> dict[str, object]:
    entry = seen.entry
    return {
        "job": entry.job,
        "name": entry.name,
        "state": seen.state.lower(),
        "since": time_text(entry.since_ms),
        "since_ms": entry.since_ms,
        "pid": entry.pid,
        "page": entry.web,
        "why": quick_why(entry),
    }


def quick_why(entry: "JobEntry") -> str:
    """What limits the job, as its page says at once; nothing if it has none or does not answer."""

    if not entry.web:
        return ""
    try:
        why = RestClient(entry).get("", JobDetails, deadline_s=WHY_S).why
    except HeadgateError:
        return ""
    return (why.headline or why.summary) if why else ""


@click.command()
@JOB
@DIRECTORY
@click.option("--stop", "stops", is_flag=True, help="End the job with the savepoint.")
@DRAIN
@JSON
def savepoint(job: str, directory: str | None, stops: bool, drain: bool, as_json: bool) -> int:
    """Write the state of JOB to a savepoint in FOLDER; `headgate run --from` goes on from it.

    Without FOLDER it goes to where execution.checkpointing.savepoint-dir says. The job runs on,
    unless it is to stop.
    """
    if stops and drain:
        raise click.UsageError("--stop and --drain exclude each other; --drain stops the job too")
    stop = Stop.DRAIN if drain else Stop.SUSPEND if stops else Stop.NO
    return take_savepoint(job, directory, stop, as_json)


@click.command()
@JOB
@DIRECTORY
@DRAIN
@JSON
def stop(job: str, directory: str | None, drain: bool, as_json: bool) -> int:
    """End JOB with a savepoint in FOLDER, so that another run can go on from there.

    The command returns when the job has ended. Nothing is lost and nothing comes twice.
    """
    return take_savepoint(job, directory, Stop.DRAIN if drain else Stop.SUSPEND, as_json)


def take_savepoint(job: str, directory: str | None, stop: Stop, as_json: bool) -> int:
    """Ask the driver, wait, and report; returns the exit code."""

    entry = find_job(job)
    ends = " and ends it" if stop.ends else ""
    click.echo(f"takes a savepoint of job {entry.job} ({entry.name}){ends} …", err=True)
    answer = ask(entry, SavepointAsked(absolute(directory), stop))
    assert isinstance(answer, SavepointAnswer), "a request for a savepoint is answered with it"
    state = answer.state.lower()
    if as_json:
        report = {"job": entry.job, "name": entry.name, "path": answer.path, "state": state}
        click.echo(json.dumps({**report, "problem": answer.problem}))
    elif not answer.problem:
        click.echo(answer.path)
    if answer.problem:
        what = "stop" if stop.ends else "savepoint"  # the savepoint may be there all the same
        click.echo(f"headgate: {what} has failed: {answer.problem}", err=True)
        return FAILED
    if stop.ends:
        click.echo(f"job {entry.job} ({entry.name}) is {state}", err=True)
    return 0


def absolute(directory: str | None) -> str | None:
    """The driver may work in another folder."""
    if directory is None or _IS_URI.match(directory):
        return directory
    return os.path.abspath(directory)
