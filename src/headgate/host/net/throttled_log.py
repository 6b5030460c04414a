"""A log that strangers cannot fill: of many lines of a level a few are written, others counted."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

LINES: Final = 10
"""Of a level, in one period; how many there were above that is told when the period is over."""
PERIOD_MS: Final = 10_000.0


class ThrottledLog:
    """Lines of one logger. ``later`` calls back after so many milliseconds."""

    def __init__(
        self, log: logging.Logger, later: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self._log = log
        self._later = later
        self._lines: Counter[int] = Counter()  # in this period, by level
        self._last: dict[int, str] = {}  # of those that were not written

    def log(self, level: int, line: str) -> None:
        """Write the line, or count it."""
        if not self._log.isEnabledFor(level):
            return
        if not self._lines:
            self._later(PERIOD_MS, self.flush)
        self._lines[level] += 1
        if self._lines[level] <= LINES:
            self._log.log(level, "%s", line)
        else:
            self._last[level] = line

    def flush(self) -> None:
        """The period is over, or the end has come: tell what was not written."""
        lines, self._lines = self._lines, Counter()
        last, self._last = self._last, {}
        for level, line in last.items():
            more = lines[level] - LINES
            self._log.log(
                level, "%d more such lines in %g s, the last: %s", more, PERIOD_MS / 1000, line
            )
