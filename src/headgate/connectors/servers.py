"""A server that connectors talk to, and work on it that is tried again while its trouble may pass.

Law: the work is idempotent or knows what an earlier attempt has done; waits grow, have some chance
in them, so that many tasks do not come back at once, and end at a deadline, or with the task if
``sleep`` is that of its context. No message shows a password; trouble that may pass is
ServerUnready, which restarts the job; all other trouble fails it, with a sentence on what to check.
"""

import random
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from headgate.base.errors import ConnectorError, HeadgateError, ServerUnready
from headgate.connectors.libraries import clause
from headgate.connectors.paths import refused_scheme, split_url

RECONNECT_S: Final = 20.0
"""How long a lost server is tried again before the job is restarted."""
FIRST_WAIT_S: Final = 0.05
LONGEST_WAIT_S: Final = 2.0

LOOK_S: Final = 0.1
"""Between two looks whether the task was cancelled, where a client waits by its own means."""

Result = TypeVar("Result")
Sleep: TypeAlias = Callable[[float], object]
"""``ConnectorContext.sleep``; with 0 seconds it only raises if the task was cancelled."""


def repeat(
    work: Callable[[], Result],
    may_pass: Callable[[Exception], bool],
    within_s: float | None = None,
    longest_s: float = LONGEST_WAIT_S,
    sleep: Sleep = time.sleep,
) -> Result:
    """What ``work`` returns; raises its last error if that may not pass, or not in time.

    ``within_s``: None stands for ``RECONNECT_S``; ``longest_s``: the longest wait between two
    attempts.
    """
    deadline = time.monotonic() + (RECONNECT_S if within_s is None else within_s)
    attempt = 0
    while True:
        try:
            return work()
        except Exception as error:
            wait_s = backoff_s(attempt, longest_s)
            if not may_pass(error) or time.monotonic() + wait_s > deadline:
                raise
        attempt += 1
        sleep(wait_s)


def backoff_s(attempt: int, longest_s: float = LONGEST_WAIT_S) -> float:
    """How long to wait after failed attempt number ``attempt``, from 0: half of it by chance."""
    full_s = min(longest_s, FIRST_WAIT_S * 2.0 ** min(attempt, 30))
    return float(full_s * random.uniform(0.5, 1.0))


def shut_down(connection: Any) -> None:
    """End a socket that another thread waits in, which then fails, and closes it."""
    with suppress(OSError, AttributeError):  # it is closed, or was not opened
        connection.shutdown(socket.SHUT_RDWR)


class MessageServer(ABC):
    """Where messages come from or go to; it travels to the tasks."""

    user: str
    """Who talks to it, for messages: the source or the sink."""
    login = "user, password and rights"
    """What to check if the server denies access."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Without user and password."""

    @abstractmethod
    def is_denied(self, error: Exception) -> bool:
        """Wrong credentials, or missing rights."""

    @abstractmethod
    def may_pass(self, error: Exception) -> bool:
        """Whether another attempt may go well."""

    def refusal(self, error: Exception, text: str) -> Exception | None:
        """An error of ours that says more than ``text`` does; None: there is none."""
        return None

    def problem(self, error: Exception, doing: str) -> Exception:
        """What to raise for an error of the client that it met while ``doing``."""
        if isinstance(error, HeadgateError):
            return error
        text = f"{self.user}: {doing}: {self.address}: {clause(error) or type(error).__name__}"
        if self.is_denied(error):
            return ConnectorError(f"{text}; check {self.login}")
        if self.may_pass(error):
            return ServerUnready(f"{text}; check the address, and that the server runs and is well")
        return self.refusal(error, text) or ConnectorError(text)

    def repeated(self, doing: str, work: Callable[[], Result], sleep: Sleep = time.sleep) -> Result:
        """What ``work`` returns, which is called again while its trouble may pass."""
        return self.asked(doing, lambda: repeat(work, self.may_pass, sleep=sleep))

    def asked(self, doing: str, work: Callable[[], Result]) -> Result:
        """What ``work`` returns, called once: for what is found out at the start."""
        try:
            return work()
        except Exception as error:
            problem = self.problem(error, doing)
            if problem is error:
                raise
            raise problem from error


@dataclass(frozen=True)
class UrlServer(MessageServer):
    """One that is found by a URL, in which there may be a password."""

    user: str
    url: str = field(repr=False)

    ports: ClassVar[Mapping[str, int]]
    """The port for each scheme, where the URL names none."""

    def __post_init__(self) -> None:
        if split_url(self.user, self.url).scheme not in self.ports:
            scheme, port = next(iter(self.ports.items()))
            raise refused_scheme(self.user, self.ports, f"{scheme}://localhost:{port}")

    @property
    def address(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.hostname or 'localhost'}:{parts.port or self.ports[parts.scheme]}"
