"""Where the ``headgate`` command begins: a signal ends it with one line, while it loads, too."""

import atexit
import os
import sys
from contextlib import suppress

from headgate.cli.exit_codes import (
    INTERRUPTED,
    TERMINATED,
    Terminated,
    show_signal,
    signals_raise,
)


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
