"""How long barriers wait in their channels before they overtake the data that is in their way.

Law: both sides of a task, its inputs and its outputs, ask the same policy, so a barrier overtakes
on both from the same moment on. Times are wall-clock milliseconds: a barrier carries the moment at
which the Spark driver made it. Clocks differ, so a task never waits longer than the timeout from
when it has first seen the barrier, whatever the barrier says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.base.events import CheckpointBarrier

AT_ONCE: Final = float("-inf")


def _no_savepoint(barrier: CheckpointBarrier) -> bool:
    return not barrier.is_savepoint


@dataclass(frozen=True, slots=True)
class BarrierPolicy:
    """What a job says about its barriers."""

    exactly_once: bool = True
    """If not, channels are never blocked and nothing overtakes: records may count twice."""
    timeout_ms: int | None = None
    """How long barriers stay in order; None: always, 0: they overtake at once."""
    may_overtake: Callable[[CheckpointBarrier], bool] = _no_savepoint
    """Says no for savepoints: they hold no data in flight."""

    def overtakes_at_ms(self, barrier: CheckpointBarrier, seen_ms: float) -> float | None:
        """From when on a barrier that was first seen at ``seen_ms`` overtakes; None: never."""
        if not self.exactly_once or not self.may_overtake(barrier):
            return None
        if barrier.unaligned or self.timeout_ms == 0:
            return AT_ONCE
        if self.timeout_ms is None:
            return None
        return min(barrier.timestamp_ms, seen_ms) + self.timeout_ms
