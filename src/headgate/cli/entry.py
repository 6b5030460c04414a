"""Where the ``headgate`` command begins: its exit codes, and the signals that lead to two of them.

It loads the command itself only when a signal can end it with one line.
"""

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

FAILED: Final = 1
CONFIGURATION: Final = 2
"""Usage, settings, a path or a job that cannot be found."""
NO_SPARK: Final = 3
"""No cluster, or too few slots."""
INTERRUPTED: Final = 130
TERMINATED: Final = 143
"""The last two come after the jobs were cancelled."""
WORDS: Final = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}


class Terminated(SystemExit):
    """SIGTERM has come; a user's ``except Exception`` lets it pass."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


@contextmanager
def signals_raise() -> Iterator[None]:
    """SIGTERM raises ``Terminated`` on the main thread, as Ctrl-C raises KeyboardInterrupt."""

    def terminate(number: int, frame: FrameType | None) -> None:
        if (cluster := sys.modules.get("headgate.spark.cluster")) is not None:
            cluster.drop_java_call()
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def show_signal(code: int) -> int:
    """One line on standard error; returns the exit code."""
    print(f"headgate: {WORDS[code]}", file=sys.stderr, flush=True)
    return code


def main() -> None:
    """Load the command, run it, and leave with its exit code."""
    code = [0]
    atexit.register(leave, code)  # the first to register is the last to be called
    try:
        with signals_raise():
            from headgate.cli.commands import main as run_command  # takes a second

            run_command()
    except KeyboardInterrupt:
        code[0] = show_signal(INTERRUPTED)
    except Terminated:
        code[0] = show_signal(TERMINATED)
    except SystemExit as end:
        code[0] = end.code if isinstance(end.code, int) else 0
        raise
    sys.exit(code[0])


def leave(code: list[int]) -> None:
    """After Ctrl-C, leave with the exit code.

    If the interrupt went through an ``exec`` (there is one in every dataclass), Python itself would
    end with the signal instead.
    """
    if code[0] == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
                stream.flush()
        os._exit(INTERRUPTED)
