"""``headgate logs``: the lines of a job's log, of its driver and of all its workers.

They look as in the log itself. With ``--follow`` the command ends when the job does, or when its
driver is gone.
"""

import logging
import time
from collections.abc import Iterator
from itertools import count
from typing import Final

import click

from headgate.api.job import ENDED
from headgate.base.job_records import LogLine
from headgate.cli.jobs import JSON
from headgate.cli.rest_client import RestClient, StateAnswer
from headgate.cli.status import ANY_JOB
from headgate.host.driver.job_client import JobGone, find_job
from headgate.observe.logs import JsonLines, TextLines
from headgate.observe.web.answers import JobLogLines

LOOK_S: Final = 1.0
"""Pause between two looks at what is new."""
PAGE_LINES: Final = 1_000
"""Asked for at a time."""
LEVELS: Final = ("debug", "info", "warning", "error")


@click.command()
@ANY_JOB
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until the job ends.")
@click.option(
    "--level", type=click.Choice(LEVELS), help="Only lines of this level and above; else all."
)
@click.option(
    "--tail", type=click.IntRange(0), metavar="N", help="Of what there is, only the last N lines."
)
@JSON
def logs(job: str | None, follow: bool, level: str | None, tail: int | None, as_json: bool) -> int:
    """Show the log of JOB: what its driver says about it, and the warnings of its workers.

    Without JOB the only one that runs. The driver keeps the newest 2,000 lines;
    headgate.log.ship-level says which lines workers send.
    """

    page = RestClient(find_job(job))
    least = logging.getLevelName((level or LEVELS[0]).upper())
    kept = new_lines(page, 0)
    lines = [line for line in kept if weight(line) >= least]
    show(lines if tail is None else lines[len(lines) - min(tail, len(lines)) :], page, as_json)
    if not follow:
        return 0
    try:
        for some in followed(page, kept[-1].number if kept else 0):
            show([line for line in some if weight(line) >= least], page, as_json)
    except JobGone:
        entry = page.entry
        click.echo(f"the driver of job {entry.job} ({entry.name}) has ended", err=True)
    return 0


def new_lines(page: "RestClient", after: int) -> list[LogLine]:
    """All lines with a number above this one."""

    found: list[LogLine] = []
    for _ in count():
        query = {"after": after, "limit": PAGE_LINES}
        answer = page.get("/logs", JobLogLines, query)
        lines = [line for line in answer.lines if line.number > after]
        found += lines
        if len(lines) < PAGE_LINES:
            break
        after = lines[-1].number
    return found


def followed(page: "RestClient", after: int) -> Iterator[list[LogLine]]:
    """What is new, again and again, until the job has ended and all of it was given."""

    has_ended = False
    while not has_ended:
        time.sleep(LOOK_S)
        has_ended = page.get("", StateAnswer).state in ENDED  # before the lines: those are all
        lines = new_lines(page, after)
        after = lines[-1].number if lines else after
        yield lines


def weight(line: LogLine) -> int:
    """Weight of the line's level; a level of the user's own passes every filter."""
    found = logging.getLevelName(line.level)
    return found if isinstance(found, int) else logging.CRITICAL


def show(lines: list[LogLine], page: "RestClient", as_json: bool) -> None:
    """Print the lines as the log has them, without letters that would move a terminal's cursor."""

    formatter = JsonLines() if as_json else TextLines()
    for line in lines:
        text = formatter.format(record_of(line, page.entry.job, page.entry.name))
        click.echo(text if as_json else _clean(text))


def record_of(line: LogLine, job_id: str, job: str) -> logging.LogRecord:
    """A record of the standard library's, for its formatters."""
    fields: dict[str, object] = {
        "name": line.logger,
        "levelname": line.level,
        "msg": line.message,
        "created": line.at_ms / 1000,
        "exc_text": line.traceback or None,
        "job": job,
        "job_id": job_id,
    }
    for key, empty in (("operator", ""), ("task", ""), ("subtask", -1), ("attempt", -1)):
        if (value := getattr(line, key)) != empty:
            fields[key] = value
    return logging.makeLogRecord({**fields, "host": line.host} if line.host else fields)


def _clean(text: str) -> str:
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)
