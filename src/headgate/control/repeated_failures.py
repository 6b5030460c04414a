"""Failures that come again and again: the same operator, the same error, the same record.

Such a job makes no progress, and tells nobody why if it is restarted for ever. Law: a failure that
is the same for the ``limit``-th time is the last one. What names no record counts only as long as
no checkpoint was completed in between; a long quiet time begins anew.
"""

import re
from dataclasses import dataclass
from typing import Final

from headgate.base.messages import Failure

KEPT: Final = 64
"""Different failures that are remembered; the one that came longest ago is forgotten first."""

_NEAR: Final = 2
"""Checkpoints that may come before a record that is met again: a new attempt begins shortly before
it. After more of them it is another record that looks the same."""
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class _Seen:
    times: int
    completed: int
    at_ms: float


class RepeatedFailures:
    """Of one job, over all its attempts."""

    def __init__(self, limit: int, quiet_ms: float) -> None:
        self._limit = limit
        self._quiet_ms = quiet_ms
        self._seen: dict[tuple[str, ...], _Seen] = {}

    def failed(self, failure: Failure, completed: int, now_ms: float) -> str:
        """Why there is to be no other attempt; nothing: this failure does not say so.

        ``completed``: checkpoints of the job so far.
        """
        if not failure.traceback or failure.is_consequence or failure.is_outside:
            return ""  # not of the job's own code, or of what may be well again soon
        place = _identity(failure)
        before = self._seen.pop(place, None)
        goes_on = before is not None and (
            now_ms - before.at_ms < self._quiet_ms
            and completed - before.completed <= (_NEAR if failure.record else 0)
        )
        times = before.times + 1 if before is not None and goes_on else 1
        self._seen[place] = _Seen(times, completed, now_ms)
        if len(self._seen) > KEPT:
            del self._seen[next(iter(self._seen))]
        if times < self._limit:
            return ""
        where = "at the same record" if failure.record else "without a checkpoint in between"
        return (
            f"it has failed {times} times in the same way {where}, and "
            f"restart-strategy.max-identical-failures is {self._limit}"
        )


def _identity(failure: Failure) -> tuple[str, ...]:
    """A record says where it was; otherwise the message has to."""
    message = "" if failure.record else _ADDRESS.sub("", failure.message)
    return failure.operator, failure.kind, failure.record, message
