"""A user's program under the ``headgate`` command: how it runs, what is shown of its errors.

The script runs as ``python script.py`` would: it is ``__main__`` as long as it runs. That matters
for more than looks: functions and classes of ``__main__`` travel to the workers by value, and are
looked up there again. Tracebacks show the user's frames, without pages of internals.
"""

import logging
import re
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType

import click

import headgate
from headgate.base import errors
from headgate.base.user_traceback import user_frames
from headgate.cli.entry import CONFIGURATION, FAILED, NO_SPARK
from headgate.cli.rest_client import PageOff, VertexNotFound
from headgate.host.driver.job_client import JobNotFound
from headgate.spark.dataframe.frame_job import FrameJob
from headgate.spark.job import SparkJob
from headgate.spark.session import on_started
from headgate.spark.submission import on_action_begun, on_launched

PACKAGE = Path(headgate.__file__).parent


def run_script(path: str, arguments: Sequence[str]) -> None:
    """Run it to its end; what it raises comes out here. It stays ``__main__`` afterwards."""
    try:
        code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        problem = "".join(traceback.format_exception_only(error)).rstrip()
        raise click.ClickException(f"{path} is not valid Python\n{problem}") from error
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __cached__=None, __builtins__=__builtins__)
    sys.argv = [path, *arguments]
    folder = str(Path(path).resolve().parent)
    # As Python does it: the script's folder instead of the command's own.
    sys.path[0] = folder
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def without_our_frames(error: BaseException, script: str) -> TracebackType | None:
    """The traceback of an exception that is the user's own, from the script on."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename != script:
        found = found.tb_next
    return found or error.__traceback__


_LINK = "\nThe above exception was the direct cause of the following exception:\n\n"
_OURS = "headgate.base.errors.UserFunctionFailed: "
_PLACE = rf"(?:{re.escape(str(PACKAGE))}|[^\"\n]*site-packages/headgate)"
_FRAME = re.compile(rf'  File "{_PLACE}/[^\n]*\n(?:    [^\n]*\n)*')


def without_machinery(text: str) -> str:
    """A worker's traceback without Headgate's frames, and without our own words about it."""
    theirs, _, ours = text.rpartition(_LINK)
    return _FRAME.sub("", theirs if theirs and _OURS in ours else text)


def exit_code_of(error: BaseException) -> int:
    """The exit code that tells a script what kind of error it was."""
    match error:
        case (
            errors.SettingsInvalid()
            | errors.JobExceedsMemory()
            | errors.CheckpointError()
            | errors.RestoreRefused()
            | JobNotFound()
            | PageOff()
            | VertexNotFound()
        ):
            return CONFIGURATION
        case errors.SparkUnready() | errors.SlotsShort():
            return NO_SPARK
        case _:
            return FAILED


def show_error(error: Exception, script: str) -> None:
    """On standard error: where in the user's code, and what."""
    match error:
        case errors.JobFailed() if logging.getLogger("headgate").isEnabledFor(logging.DEBUG):
            click.echo(str(error), err=True)
        case errors.JobFailed():
            traces = without_machinery(str(error).removesuffix(error.summary).rstrip() + "\n")
            click.echo(f"{traces.rstrip()}\n\n{error.summary}".lstrip(), err=True)
        case errors.HeadgateError():
            frames = "".join(traceback.format_list(user_frames(error)))
            begin = f"Traceback (most recent call last):\n{frames}" if frames else ""
            click.echo(f"{begin}headgate: {error}", err=True)
        case _:
            error.__traceback__ = without_our_frames(error, script)
            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)


class StartedJobs:
    """The jobs that a program starts within the context, and how they end with it.

    Afterwards nothing more is shown of them.
    """

    def __init__(self) -> None:
        self.started: list[SparkJob | FrameJob] = []

    def __enter__(self) -> "StartedJobs":
        on_launched.append(self.launched)
        on_action_begun.append(self.launched)
        on_started.append(restore_interrupt_handler)
        return self

    def __exit__(self, *trouble: object) -> None:
        on_started.remove(restore_interrupt_handler)
        on_launched.remove(self.launched)
        on_action_begun.remove(self.launched)
        self.close_display()

    def close_display(self) -> None:
        """Show the last of all jobs, and nothing after it."""
        from headgate.observe.display import display

        display().close()

    def launched(self, job: "SparkJob | FrameJob") -> None:
        """Called on the thread that starts the job, or with an action that has begun."""
        self.started = [*(job for job in self.started if not job.has_ended()), job]
        restore_interrupt_handler()

    def wait(self) -> None:
        """Wait for the jobs that the program has left running; raises what made one fail."""
        for job in self.started:
            if not job.has_ended():
                job.wait()

    def cancel(self, reason: str, *, suspend: bool = False) -> None:
        """``suspend``: it is none of the jobs' fault; those with an id can go on later."""
        for job in self.started:
            if not job.has_ended():
                with suppress(errors.HeadgateError):
                    job.cancel(reason, suspend=suspend)


def restore_interrupt_handler() -> None:
    """Handle Ctrl-C again, after a Spark session has installed its own handler.

    Spark's kills all of its tasks at once; Headgate ends them in order.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
