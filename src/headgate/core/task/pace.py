"""The pace: how many records a step may take, so that a slow function does not hold up the rest.

A bundle of a fast function takes microseconds, one of a slow function may take minutes; until it is
through nothing is sent, no mail is read. Law: a step takes about ``target_ms`` or one record.
"""

from typing import Final

STEP_MS: Final = 5.0
MOST_RECORDS: Final = 4096
FIRST_RECORDS: Final = 1  # nobody knows yet how slow the function is, or how large the records


class Pace:
    """Told how long a step took; answers how many records the next one may take."""

    def __init__(self, target_ms: float = STEP_MS) -> None:
        self.limit = FIRST_RECORDS
        self._target_ms = target_ms

    def step_took(self, elapsed_ms: float, records: int) -> None:
        """A step with so many records has ended."""
        if elapsed_ms > self._target_ms:
            fitting = int(records * self._target_ms / elapsed_ms)
            self.limit = max(1, min(self.limit, fitting))
        elif self.limit < MOST_RECORDS and records >= self.limit:
            self.limit = min(MOST_RECORDS, self.limit * 2)
