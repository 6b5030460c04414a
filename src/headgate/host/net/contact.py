"""What a worker needs to reach the driver and to prove itself.

It travels with the Spark job, but its secret need not (``without_secret``): what Spark serves to
anybody must not hold it.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Final

from headgate.base.errors import PeerUnproven
from headgate.base.ids import PeerName
from headgate.base.messages import Address, ControlTimes
from headgate.base.settings import ExchangeSettings, LogSettings, StateSettings


@dataclass(frozen=True, slots=True)
class DriverContact:
    """How to reach the driver of one job. ``repr`` omits the secret, so that no log gets it."""

    address: Address
    job: str
    secret: bytes = field(repr=False)
    settings: ExchangeSettings = field(default_factory=ExchangeSettings)
    times: ControlTimes = field(default_factory=ControlTimes)
    stage: str = ""
    """Which execution of the job this is: Spark's stage for a DataFrame, else the attempt."""
    heap_bytes: int = 0
    """The worker's other memory, of which the exchange takes its fraction."""
    segments: int | None = None
    """What the exchange gets, as the job needs it; None: by that fraction alone."""
    python_path: tuple[str, ...] = ()
    """Where the driver finds modules, if the worker is on the same machine."""
    state: StateSettings = field(default_factory=StateSettings)
    logs: LogSettings = field(default_factory=LogSettings)

    @property
    def driver(self) -> str:
        """The driver's address, for messages."""
        return f"{self.address[0]}:{self.address[1]}"

    def without_secret(self) -> "DriverContact":
        return replace(self, secret=b"")

    def with_secret(self, secret: bytes) -> "DriverContact":
        """For a worker that has got the secret in another way."""
        return replace(self, secret=secret)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """While this process is a task manager of the job, its sinks can look the secret up."""
        with _lock:
            _secrets.setdefault(self.job, []).append(self.secret)
        try:
            yield
        finally:
            with _lock:
                _secrets[self.job].pop()
                if not _secrets[self.job]:
                    del _secrets[self.job]

    def adopt_path(self) -> None:
        """Let this process import what the driver can import, the user's modules included."""
        sys.path += [place for place in self.python_path if place not in sys.path]


_lock: Final = threading.Lock()
_secrets: Final[dict[str, list[bytes]]] = {}
"""Secrets of the jobs that this process is a task manager of, once per task manager."""


def secret_of_job(job: str) -> bytes:
    """The secret of a job that this process works for; raises PeerUnproven."""
    with _lock:
        if job not in _secrets:
            raise PeerUnproven(PeerName("this process"), f"it is no task manager of job {job!r}")
        return _secrets[job][-1]


def local_path(address: Address) -> tuple[str, ...]:
    """The module path for workers that reach the driver by loopback; else none."""
    if not _is_loopback(address[0]):
        return ()
    return tuple(os.path.abspath(place) for place in sys.path)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name, possibly of any machine
        return host == "localhost"
