"""How long an attempt may take to start: its task managers to come, its tasks to open and restore.

Law: from ``begun`` until ``ended`` there is a deadline; before it comes, people are told now and
then who is waited for.
"""

from typing import Final

FIRST_REMINDER_MS: Final = 60_000
NEXT_REMINDER_MS: Final = 300_000


class StartWatch:
    """Of one run; attempts follow each other."""

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self._by_ms: float | None = None
        self._remind_at_ms = 0.0

    @property
    def next_deadline_ms(self) -> float | None:
        """When to ask again; None: nothing is waited for."""
        return None if self._by_ms is None else min(self._by_ms, self._remind_at_ms)

    def begun(self, now_ms: float) -> None:
        """Something new is waited for."""
        self._by_ms = now_ms + self.timeout_ms
        self._remind_at_ms = now_ms + FIRST_REMINDER_MS

    def ended(self) -> None:
        """It has come, or nobody waits any more. Idempotent."""
        self._by_ms = None

    def is_over(self, now_ms: float) -> bool:
        """Whether it has taken too long."""
        return self._by_ms is not None and self._by_ms <= now_ms

    def reminds(self, now_ms: float) -> bool:
        """Whether people should be told now who is waited for."""
        if self._by_ms is None or now_ms < self._remind_at_ms:
            return False
        self._remind_at_ms = now_ms + NEXT_REMINDER_MS
        return True
