"""A log that unproven peers cannot flood: of many lines a few are written, the rest is counted."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

LINES: Final = 10
"""Per level and period; the number of further lines is logged at the end of the period."""
PERIOD_MS: Final = 10_000.0


class ThrottledLog:
    """Wraps one logger. ``later`` calls back after so many milliseconds."""

    def __init__(
        self, log: logging.Logger, later: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self._log = log
        self._later = later
        self._lines: Counter[int] = Counter()  # in this period, by level
        self._last: dict[int, str] = {}  # the last line not written, by level

    def log(self, level: int, line: str) -> None:
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
        """At the end of the period, or of everything: report what was not written."""
        lines, self._lines = self._lines, Counter()
        last, self._last = self._last, {}
        for level, line in last.items():
            more = lines[level] - LINES
            self._log.log(
                level, "%d more such lines in %g s, the last: %s", more, PERIOD_MS / 1000, line
            )
