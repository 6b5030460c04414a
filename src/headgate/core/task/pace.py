"""The pace: how many records a step may take, so that a slow function does not hold up the rest.

A bundle of a fast function takes microseconds, one of a slow function may take minutes; until it is
through nothing is sent, no mail is read, no checkpoint is taken. The same holds for a step that
must wait for buffers in its middle. Law: a step takes about ``target_ms`` or one record, and rarely
waits longer than ``WAIT_MS`` for buffers: beyond what has once made it wait it grows slowly.
"""

from typing import Final

STEP_MS: Final = 5.0
WAIT_MS: Final = 20.0
MOST_RECORDS: Final = 4096
FIRST_RECORDS: Final = 1  # nobody knows yet how slow the function is, or how large the records


class StepPace:
    """Told how long a step took; answers how many records the next one may take."""

    def __init__(self, target_ms: float = STEP_MS) -> None:
        self.limit = FIRST_RECORDS
        self._target_ms = target_ms
        self._records = 0
        self._held_up_at = MOST_RECORDS

    def step_took(self, elapsed_ms: float, records: int) -> None:
        """A step with so many records has ended."""
        self._records = records
        if elapsed_ms > self._target_ms:
            self._fit(self._target_ms / elapsed_ms)
        elif records >= self.limit:
            self._grow()

    def held_up(self, waited_ms: float) -> None:
        """So long the last step, until all that it has made was written, waited for buffers."""
        if waited_ms > WAIT_MS:
            self._fit(WAIT_MS / waited_ms)
            self._held_up_at = self.limit

    def _fit(self, share: float) -> None:
        self.limit = max(1, min(self.limit, int(self._records * share)))

    def _grow(self) -> None:
        if self.limit < self._held_up_at:
            self.limit = min(self._held_up_at, self.limit * 2)
        elif self.limit < MOST_RECORDS:
            grown = self.limit + 1 + self.limit // 16
            self.limit = self._held_up_at = min(MOST_RECORDS, grown)
