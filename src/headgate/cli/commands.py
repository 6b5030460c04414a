"""The `headgate` command with its subcommands.

Exit codes: 0 finished, 1 job failed, 2 usage or configuration, 3 no cluster or slots,
130 interrupted, 143 terminated after draining.
"""

import shlex
import sys

import click

from headgate import __version__
from headgate.base.errors import HeadgateError
from headgate.cli.checkpoints import checkpoints, state
from headgate.cli.demo import demo
from headgate.cli.doctor import doctor
from headgate.cli.entry import CONFIGURATION, INTERRUPTED, show_signal
from headgate.cli.history import history
from headgate.cli.inspections import flame, get, peek
from headgate.cli.jobs import cancel, list_jobs, savepoint, stop
from headgate.cli.logs import logs
from headgate.cli.plan import plan
from headgate.cli.run import run
from headgate.cli.status import status, ui, why
from headgate.cli.top import top
from headgate.cli.user_program import exit_code_of


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headgate")
def command() -> None:
    """Stream processing in Python on the Spark cluster you already have."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def bench(words: tuple[str, ...]) -> int:
    """Tell how to run the benchmarks, which a clone has and the package has not."""
    line = shlex.join([".venv/bin/python", "-m", "benchmarks", *words])
    problem = "the benchmarks are not part of the package"
    click.echo(f"headgate: {problem}; in the root of a clone, run {line}", err=True)
    return CONFIGURATION


RUNNING = (list_jobs, status, why, top, logs, ui, flame, peek, get, savepoint, stop, cancel)
"""About jobs that run."""

for subcommand in (run, *RUNNING, history, checkpoints, state, plan, demo, doctor, bench):
    command.add_command(subcommand)


def main() -> None:
    """Run the command and leave with its exit code."""
    run_command(command, "headgate")


def run_command(chosen: click.Command, name: str) -> None:
    """Run a command under this name and leave with its exit code."""
    try:
        code = chosen.main(prog_name=name, standalone_mode=False)
    except click.ClickException as trouble:
        trouble.show()
        sys.exit(trouble.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(show_signal(INTERRUPTED))
    except HeadgateError as error:
        click.echo(f"headgate: {error}", err=True)
        sys.exit(exit_code_of(error))
    sys.exit(code if isinstance(code, int) else 0)
