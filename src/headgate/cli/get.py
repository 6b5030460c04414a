"""``headgate get``: what a keyed state of a running job holds at some keys, at this moment.

The job's driver is asked over its control port, so that it needs no page. Standard output gets a
line for each key, the value in JSON or as ``repr`` shows it; or one JSON object. Exit code 0: there
is something at a key at least, 1: there is nothing at any, or it cannot be read, 2: no such job.
"""

import json
from typing import TYPE_CHECKING

import click

from headgate.cli.exit_codes import FAILED
from headgate.cli.jobs import JOB, JSON
from headgate.plan.table import clean

if TYPE_CHECKING:
    from headgate.base.inspections import ShownState, ShownValue

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
    from headgate.base.inspections import StateAsked, StateShown
    from headgate.host.driver.job_client import ask, find_job

    entry = find_job(job)
    answer = ask(entry, StateAsked(uid, state, list(keys), key_type or "", timeout_s))
    assert isinstance(answer, StateShown), "a question about state is answered with it"
    found = answer.found
    if found is None:
        click.echo(f"headgate: job {entry.job} ({entry.name}): {answer.problem}", err=True)
        return FAILED
    if as_json:
        click.echo(json.dumps({"job": entry.job, "name": entry.name, **fields(found)}))
    else:
        show(found)
    return 0 if any(value.found and not value.problem for value in found.values) else FAILED


def fields(found: "ShownState") -> dict[str, object]:
    """For one JSON object."""
    values = [
        {
            "key": value.key,
            "found": value.found,
            "value": value.value,
            "text": value.text,
            "problem": value.problem,
        }
        for value in found.values
    ]
    return {
        "uid": found.uid,
        "operator": found.operator,
        "state": found.state,
        "kind": found.kind,
        "values": values,
    }


def show(found: "ShownState") -> None:
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
            click.echo(before + clean(_words(value)))


def _words(value: "ShownValue") -> str:
    return value.text or json.dumps(value.value, ensure_ascii=False)
