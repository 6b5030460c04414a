"""What a test asks the broker to do wrong, at which request, and how often."""

from dataclasses import dataclass
from typing import Any

ACTIONS = ("drop-before", "drop-after", "error", "hold", "delay")


@dataclass
class Fault:
    """``drop-before`` and ``drop-after`` close the connection without an answer, before or after
    the request was carried out; ``error`` answers with ``code``; ``hold`` waits until the test
    releases it, then carries the request out; ``delay`` does so by itself after ``ms``.
    """

    api: str
    action: str
    code: int = 0
    ms: int = 0
    times: int = 1
    skip: int = 0
    """So many such requests are let through first."""
    client: str = ""
    """Only of clients whose ``client.id`` begins so."""


class Faults:
    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self.hit: list[str] = []
        """APIs and actions, in order."""

    def plan(self, **fields: Any) -> None:
        fault = Fault(**fields)
        if fault.action not in ACTIONS:
            raise ValueError(f"{fault.action!r} is none of {', '.join(ACTIONS)}")
        self._faults.append(fault)

    def clear(self) -> None:
        self._faults.clear()
        self.hit.clear()

    def due(self, api: str, client: str) -> Fault | None:
        for fault in self._faults:
            if fault.api == api and client.startswith(fault.client):
                if fault.skip > 0:
                    fault.skip -= 1
                    return None
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
                self.hit.append(f"{api} {fault.action}")
                return fault
        return None
