"""Where a task's time goes: busy, back-pressured or idle.

Law: the three add up to the time since the start. The task says what it turns to and when.
"""

from dataclasses import dataclass
from enum import Enum


class Doing(Enum):
    """What a task's time is spent on."""

    BUSY = 0
    BACKPRESSURED = 1
    IDLE = 2


@dataclass(frozen=True, slots=True)
class Spent:
    """Milliseconds since the start."""

    busy_ms: float
    backpressured_ms: float
    idle_ms: float


class TaskTimes:
    """Adds up the time between turns."""

    def __init__(self, now_ms: float) -> None:
        self.doing = Doing.IDLE
        self._since_ms = now_ms
        self._spent_ms = [0.0, 0.0, 0.0]

    def turn_to(self, doing: Doing, now_ms: float) -> None:
        """From now on time is spent on this."""
        self._spent_ms[self.doing.value] += now_ms - self._since_ms
        self._since_ms = now_ms
        self.doing = doing

    def spent(self, now_ms: float) -> Spent:
        """With what is going on now counted in."""
        spent = list(self._spent_ms)
        spent[self.doing.value] += now_ms - self._since_ms
        return Spent(*spent)
