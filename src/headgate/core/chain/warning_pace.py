"""When to write to the log of what happens over and over: at once, then ever less often.

Law: the pauses double from a minute to an hour, and nothing that was counted is lost: the next line
has it, or the one at the end.
"""

import math
from typing import Final

FIRST_PAUSE_MS: Final = 60_000.0
LONGEST_PAUSE_MS: Final = 3_600_000.0


class WarningPace:
    """Of one kind of line."""

    def __init__(self) -> None:
        self._unwritten = 0
        self._pause_ms = FIRST_PAUSE_MS
        self._next_ms = -math.inf

    @property
    def has_begun(self) -> bool:
        """Whether there was a first line."""
        return self._next_ms > -math.inf

    def count(self, number: int, now_ms: float) -> int:
        """So many more; returns how many the line is about that is due now, 0: none is."""
        self._unwritten += number
        if now_ms < self._next_ms:
            return 0
        if self.has_begun:
            self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        self._next_ms = now_ms + self._pause_ms
        return self.rest()

    def rest(self) -> int:
        """How many no line was about yet; from now on they count as written."""
        rest, self._unwritten = self._unwritten, 0
        return rest
