"""The entry of the `headgate` command.

Exit codes: 0 finished, 1 job failed, 2 usage or configuration, 3 no cluster or slots,
130 interrupted, 143 terminated after draining.
"""

import sys

import click

from headgate import __version__
from headgate.base.errors import HeadgateError, SettingsInvalid
from headgate.cli.bench_commands import bench
from headgate.cli.demo import run_demo

FAILED = 1
CONFIGURATION = 2
INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headgate")
def command() -> None:
    """Stream processing in Python on the Spark cluster you already have."""


command.add_command(bench)


@command.command()
@click.option("--seconds", default=1.5, show_default=True, type=click.FloatRange(0.2, 60))
def demo(seconds: float) -> None:
    """Show live what a stopped consumer does to its neighbour, with and without credits."""
    run_demo(seconds)


def main() -> None:
    """Run the command and leave with its exit code."""
    try:
        code = command.main(prog_name="headgate", standalone_mode=False)
    except click.ClickException as trouble:
        trouble.show()
        sys.exit(trouble.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except HeadgateError as error:
        click.echo(f"headgate: {error}", err=True)
        sys.exit(CONFIGURATION if isinstance(error, SettingsInvalid) else FAILED)
    sys.exit(code if isinstance(code, int) else 0)
