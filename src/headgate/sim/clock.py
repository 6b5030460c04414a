"""The virtual clock: time moves only when the world says so.

Timers fire in the order of their time; those of the same moment in the order they were set. So two
runs of the same seed fire them alike.
"""

import heapq
from collections.abc import Callable
from itertools import count


class Clock:
    """Milliseconds since the start of the run, and what is to happen later."""

    def __init__(self, epoch_ms: int = 0) -> None:
        """``epoch_ms``: what the clock on the wall shows at the start of the run."""
        self.now_ms = 0.0
        self._epoch_ms = epoch_ms
        self._timers: list[tuple[float, int, str, Callable[[], None]]] = []
        self._number = count()

    def later(self, delay_ms: float, label: str, call: Callable[[], None]) -> None:
        """Set a timer; ``label`` is what the trace shows when it fires."""
        assert delay_ms >= 0, (label, delay_ms)
        heapq.heappush(self._timers, (self.now_ms + delay_ms, next(self._number), label, call))

    @property
    def wall_ms(self) -> int:
        """Milliseconds since 1970, as users' functions see the time."""
        return self._epoch_ms + int(self.now_ms)

    @property
    def next_ms(self) -> float | None:
        """The time of the next timer; None: there is none."""
        return self._timers[0][0] if self._timers else None

    @property
    def is_due(self) -> bool:
        """Whether a timer's time has come."""
        return bool(self._timers) and self._timers[0][0] <= self.now_ms

    def pop_due(self) -> tuple[str, Callable[[], None]]:
        """The timer that fires next."""
        _, _, label, call = heapq.heappop(self._timers)
        return label, call

    def advance(self, delay_ms: float) -> None:
        """Something took this long."""
        self.now_ms += delay_ms

    def jump(self) -> bool:
        """Go to the next timer; False if there is none."""
        if not self._timers:
            return False
        self.now_ms = max(self.now_ms, self._timers[0][0])
        return True
