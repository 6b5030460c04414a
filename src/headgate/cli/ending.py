"""How a user's program ends: exit codes, and what is said about trouble.

0 finished, 1 job failed, 2 usage or configuration, 3 no cluster or slots, 130 interrupted, 143
terminated. The last two come after the jobs were cancelled.
"""

import logging
import signal
import threading
import traceback
from contextlib import suppress
from typing import Final

import click

from headgate.base.errors import (
    CheckpointError,
    HeadgateError,
    JobExceedsMemory,
    JobFailed,
    RestoreRefused,
    SettingsInvalid,
    SlotsShort,
    SparkUnready,
)
from headgate.cli.user_program import user_part, user_traceback, without_our_frames
from headgate.host.driver.job_client import JobNotFound
from headgate.spark.job import SparkJob

FAILED: Final = 1
CONFIGURATION: Final = 2
NO_SPARK: Final = 3


def code_of(error: BaseException) -> int:
    """The exit code that tells a script what kind of trouble it was."""
    match error:
        case (
            SettingsInvalid()
            | JobExceedsMemory()
            | CheckpointError()
            | RestoreRefused()
            | JobNotFound()
        ):
            return CONFIGURATION
        case SparkUnready() | SlotsShort():
            return NO_SPARK
        case _:
            return FAILED


def tell_trouble(error: Exception, script: str) -> None:
    """On standard error: where in the user's code, and what; without pages of internals."""
    match error:
        case JobFailed() if logging.getLogger("headgate").isEnabledFor(logging.DEBUG):
            click.echo(str(error), err=True)
        case JobFailed():
            traces = user_part(str(error).removesuffix(error.summary).rstrip() + "\n")
            click.echo(f"{traces.rstrip()}\n\n{error.summary}".lstrip(), err=True)
        case HeadgateError():
            click.echo(f"{user_traceback(error, script)}headgate: {error}", err=True)
        case _:
            error.__traceback__ = without_our_frames(error, script)
            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)


class Jobs:
    """The jobs that a program has started, and how they end with it."""

    def __init__(self) -> None:
        self.started: list[SparkJob] = []

    def launched(self, job: SparkJob) -> None:
        """Called on the thread that starts the job."""
        self.started.append(job)
        take_interrupts()

    def wait(self) -> None:
        """For those that the program has left running; raises what made one of them fail."""
        for job in self.started:
            if not job.has_ended():
                job.wait()

    def cancel(self, reason: str, *, suspend: bool = False) -> None:
        """``suspend``: it is none of the jobs' fault; those with an id can go on later."""
        for job in self.started:
            if not job.has_ended():
                with suppress(HeadgateError):
                    job.cancel(reason, suspend=suspend)


def take_interrupts() -> None:
    """Ctrl-C is ours again, after a Spark session has put its own handler in place.

    Spark's kills all of its tasks at once; we want to end them in order.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
