"""A server that connectors talk to, which is asked again while its trouble may pass.

Law: no message shows a password; trouble that may pass is ServerUnready, which restarts the job;
all other trouble fails it, with a sentence on what to check.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar
from urllib.parse import urlsplit

from headgate.base.errors import ConnectorError, HeadgateError, ServerUnready
from headgate.connectors.paths import refused_scheme, split_url
from headgate.connectors.retries import Sleep, repeat
from headgate.connectors.wording import clause

Result = TypeVar("Result")


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
    """Of each scheme, where the URL names none."""

    def __post_init__(self) -> None:
        if split_url(self.user, self.url).scheme not in self.ports:
            scheme, port = next(iter(self.ports.items()))
            raise refused_scheme(self.user, self.ports, f"{scheme}://localhost:{port}")

    @property
    def address(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.hostname or 'localhost'}:{parts.port or self.ports[parts.scheme]}"
