"""``headgate savepoint JOB`` and ``headgate stop JOB``: the state of a running job, to go on from.

Standard output gets the path of the savepoint, or one JSON object, and nothing else. Exit code 0:
it is there, 1: it came to nothing, and the job runs on unless it was drained, or the job has not
ended with it, 2: no such job.
"""

import json
import os
import re
from typing import Final

import click

from headgate.base.checkpoints import Stop
from headgate.cli.ending import FAILED
from headgate.cli.jobs import JOB, JSON

DIRECTORY = click.argument("directory", required=False, metavar="[FOLDER]")
DRAIN = click.option(
    "--drain",
    is_flag=True,
    help="End the job after the end of event time: all windows and timers fire first.",
)
_IS_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


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
    return take(job, directory, stop, as_json)


@click.command()
@JOB
@DIRECTORY
@DRAIN
@JSON
def stop(job: str, directory: str | None, drain: bool, as_json: bool) -> int:
    """End JOB with a savepoint in FOLDER, so that another run can go on from there.

    The command returns when the job has ended. Nothing is lost and nothing comes twice.
    """
    return take(job, directory, Stop.DRAIN if drain else Stop.SUSPEND, as_json)


def take(job: str, directory: str | None, stop: Stop, as_json: bool) -> int:
    """Ask the driver, wait, and tell; returns the exit code."""
    from headgate.base.messages import SavepointAnswer, SavepointAsked
    from headgate.host.driver.job_client import ask, find_job

    entry = find_job(job)
    ends = " and ends it" if stop.ends else ""
    click.echo(f"takes a savepoint of job {entry.job} ({entry.name}){ends} …", err=True)
    answer = ask(entry, SavepointAsked(absolute(directory), stop))
    assert isinstance(answer, SavepointAnswer), "who asks for a savepoint is told of it"
    state = answer.state.lower()
    if as_json:
        told = {"job": entry.job, "name": entry.name, "path": answer.path, "state": state}
        click.echo(json.dumps({**told, "problem": answer.problem}))
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
