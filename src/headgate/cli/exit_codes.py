"""Exit codes of the command, and the signals that lead to two of them.

It loads nothing else, so that signals are handled before the command itself is loaded.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
