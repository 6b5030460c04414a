"""Work on servers that is tried again while its trouble may pass.

Law: the work is idempotent or knows what an earlier attempt has done; waits grow, have some chance
in them, so that many tasks do not come back at once, and end at a deadline, or with the task if
``sleep`` is that of its context.
"""

import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

RECONNECT_S: Final = 20.0
"""How long a lost server is tried again before the job is restarted."""
FIRST_WAIT_S: Final = 0.05
LONGEST_WAIT_S: Final = 2.0

LOOK_S: Final = 0.1
"""Between two looks whether the task was cancelled, where a client waits by its own means."""

Result = TypeVar("Result")
Sleep: TypeAlias = Callable[[float], None]
"""``ConnectorContext.sleep``; with 0 seconds it only raises if the task was cancelled."""


def repeat(
    work: Callable[[], Result],
    may_pass: Callable[[Exception], bool],
    within_s: float = RECONNECT_S,
    is_over: Callable[[], bool] = lambda: False,
    sleep: Sleep = time.sleep,
) -> Result:
    """What ``work`` returns; the last error if it does not pass in time, or ``is_over``."""
    deadline = time.monotonic() + within_s
    attempt = 0
    while True:
        try:
            return work()
        except Exception as error:
            wait_s = backoff_s(attempt)
            if is_over() or not may_pass(error) or time.monotonic() + wait_s > deadline:
                raise
        attempt += 1
        sleep(wait_s)


def backoff_s(
    attempt: int, first_s: float = FIRST_WAIT_S, longest_s: float = LONGEST_WAIT_S
) -> float:
    """How long to wait after failed attempt number ``attempt``, from 0: half of it by chance."""
    full_s = min(longest_s, first_s * 2.0 ** min(attempt, 30))
    return float(full_s * random.uniform(0.5, 1.0))


def shut_down(connection: Any) -> None:
    """End a socket that another thread waits in, which then fails, and closes it."""
    with suppress(OSError, AttributeError):  # it is closed, or was not opened
        connection.shutdown(socket.SHUT_RDWR)
