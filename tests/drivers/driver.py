"""What a scenario asks of a driver. It moves the machines of core; a scenario says what they do.

A new driver needs one class with these methods and one line in `conftest.py`.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from headgate.base.elements import Record
from headgate.base.events import Event


class Writing(Protocol):
    """A task that writes records to one partition and ends it."""

    written: int


class Reading(Protocol):
    """A task that reads channels to their end."""

    received: list[list[Record]]
    """What came, for each channel in order."""

    events: list[Event]


class Driver(Protocol):
    """Two task managers, ``here`` and ``there``, named by 0 and 1."""

    def write(
        self, where: int, partition: str, records: Iterable[Record], *, lanes: int = 1
    ) -> Writing:
        """Start a task that writes; an iterable that raises is a task that fails."""

    def read(
        self, where: int, partition: str, lanes: list[int], *, source: int, held: bool = False
    ) -> Reading:
        """Start a task that reads lanes of a partition of the task manager ``source``."""

    def let_go(self, reading: Reading) -> None:
        """Let a reader begin that was held."""

    def run_until(self, condition: Callable[[], bool], what: str) -> None:
        """Let things happen until the condition holds; fail if it never does."""

    def run_until_still(self, progress: Callable[[], int]) -> None:
        """Let things happen until the number does not change any more."""

    def outcome(self, task: Writing | Reading) -> BaseException | None:
        """Let things happen until the task has ended; None if it was done, else its error."""

    def free_segments(self, where: int) -> int: ...

    total_segments: int
    segment_bytes: int
