"""The records of simulated jobs, and observations of where they went.

A record is a list, so that functions can change it: key, value, line, number, path, padding. The
line and the number in it tell where it comes from; the path is the tasks that it has passed. Law:
records of one line that have taken the same path arrive in the order of their numbers.
"""

from collections import Counter
from typing import Final, TypeAlias

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS

Item: TypeAlias = tuple[int, int, str, tuple[int, ...]]
"""What makes a record what it is: key, value, line and number."""

KEY: Final = 0
VALUE: Final = 1
LINE: Final = 2
NUMBER: Final = 3
PATH: Final = 4
PADDING: Final = 5


def make_record(
    item: Item, path: tuple[tuple[int, int], ...] = (), padding: bytes = b""
) -> "list[object]":
    return [*item, path, padding]


def item_of(record: "list[object]") -> Item:
    """The record without its way."""
    key, value, line, number = record[:PATH]
    assert isinstance(key, int) and isinstance(value, int) and isinstance(line, str)
    assert isinstance(number, tuple)
    return key, value, line, number


ATTEMPT_STEP: Final = 1000
"""Paths name subtasks of attempts: this many for each."""


def _attempt_of(record: "list[object]") -> int:
    """In which the record has begun its way."""
    path = record[PATH]
    assert isinstance(path, tuple)
    return int(path[0][1]) // ATTEMPT_STEP if path else 0


class Observations:
    """What the functions of a run have seen."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.records_read = 0
        self.arrived: dict[int, Counter[Item]] = {}
        """At each sink."""
        self.opened: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self.watermarks: dict[str, int] = {}
        """Of each watcher, by its place."""
        self.failed: list[str] = []
        """Where a function has failed because the scenario says so."""
        self.unordered_before = 0
        """What is on its way since earlier attempts is in no order: tasks were not as many."""
        self._last: dict[tuple[str, object, object], object] = {}

    def passed(self, where: str, record: "list[object]") -> None:
        """A record has come to a function."""
        self.records_read += 1
        if self.unordered_before and _attempt_of(record) < self.unordered_before:
            return
        way = (where, record[LINE], record[PATH])
        number, last = record[NUMBER], self._last.get(way)
        if last is not None and not last < number:  # type: ignore[operator]
            self.problems.append(f"{where}: {record[:PADDING]} came after {last}")
        self._last[way] = number

    def sunk(self, node: int, record: "list[object]") -> None:
        """A record has come to its end."""
        self.arrived.setdefault(node, Counter())[item_of(record)] += 1

    def watermark_seen(self, where: str, watermark_ms: int) -> None:
        if watermark_ms <= self.watermarks.get(where, MIN_WATERMARK_MS):
            self.problems.append(f"{where}: event time went back to {watermark_ms}")
        self.watermarks[where] = watermark_ms

    def time_seen(self, where: str, timestamp: int | None) -> None:
        """A record with this timestamp came, and no idle stream excuses lateness."""
        watermark_ms = self.watermarks.get(where, MIN_WATERMARK_MS)
        if timestamp is not None and timestamp <= watermark_ms < MAX_WATERMARK_MS:
            self.problems.append(f"{where}: {timestamp} came after watermark {watermark_ms}")

    def check_closed(self, dead: list[str]) -> None:
        """Everything that was opened was closed, once; ``dead`` are places of lost workers."""
        for where, count in self.opened.items():
            if where.split(":")[0] not in dead and (count != 1 or self.closed[where] != 1):
                self.problems.append(
                    f"{where} was opened {count} times and closed {self.closed[where]} times"
                )
