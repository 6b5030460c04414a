"""Ctrl-C and SIGTERM: what they raise, the exit code, and the line that is said.

It loads nothing, so that signals can be looked after before the command itself is loaded.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
TERMINATED: Final = 143
WORDS: Final = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}


class Terminated(SystemExit):
    """SIGTERM has come; a user's ``except Exception`` lets it pass."""

    def __init__(self) -> None:
        super().__init__(TERMINATED)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM raises ``Terminated`` on the main thread, as Ctrl-C raises KeyboardInterrupt."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def tell_signal(code: int) -> int:
    """One line on standard error; returns the exit code."""
    print(f"headgate: {WORDS[code]}", file=sys.stderr, flush=True)
    return code
