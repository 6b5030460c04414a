"""The rate at which calls may begin: token buckets, and pauses that the server asks for.

Law of a bucket: in any time t it gives out at most ``capacity + rate * t``. An amount that exceeds
the capacity leaves when the bucket is full, and those after it wait until the rest has come in
too. While the server has asked for a pause nothing begins.
"""

from typing import Final

FIRST_PAUSE_MS: Final = 1_000.0
MOST_PAUSE_MS: Final = 60_000.0
"""Pauses after refusals that do not say how long; each is twice the one before."""
LEAST_WAIT_MS: Final = 0.001
"""Shorter waits are not worth a timer, and could be lost in rounding."""


class TokenBucket:
    """Fills at a rate, up to its capacity; it begins full."""

    __slots__ = ("_at_ms", "_capacity", "_rate", "_tokens")

    def __init__(self, per_second: float, capacity: float) -> None:
        self._rate = per_second / 1000
        self._capacity = capacity
        self._tokens = capacity
        self._at_ms: float | None = None

    def wait_ms(self, amount: float, now_ms: float) -> float:
        """How long until this amount may be taken; 0: now."""
        if self._at_ms is not None:
            passed_ms = max(0.0, now_ms - self._at_ms)
            self._tokens = min(self._capacity, self._tokens + passed_ms * self._rate)
        self._at_ms = now_ms
        missing = min(amount, self._capacity) - self._tokens
        return 0.0 if missing <= LEAST_WAIT_MS * self._rate else missing / self._rate

    def take(self, amount: float) -> None:
        """After ``wait_ms`` was 0 for it."""
        self._tokens -= amount


class RateLimiter:
    """Asked before each call. ``None``: no limit of that kind."""

    def __init__(
        self, requests_per_second: float | None, cost_per_second: float | None, burst_ms: float
    ) -> None:
        self._requests = _bucket(requests_per_second, burst_ms, least=1.0)
        self._cost = _bucket(cost_per_second, burst_ms, least=0.0)
        self._paused_until_ms: float | None = None
        self._pause_ms = FIRST_PAUSE_MS

    def wait_ms(self, cost: float, now_ms: float) -> float:
        """How long until a call of this cost may begin; 0: now."""
        wait_ms = 0.0
        if self._paused_until_ms is not None:
            wait_ms = max(0.0, self._paused_until_ms - now_ms)
        if self._requests is not None:
            wait_ms = max(wait_ms, self._requests.wait_ms(1.0, now_ms))
        if self._cost is not None:
            wait_ms = max(wait_ms, self._cost.wait_ms(cost, now_ms))
        return wait_ms

    def take(self, cost: float) -> None:
        """A call of this cost begins; after ``wait_ms`` was 0 for it."""
        if self._requests is not None:
            self._requests.take(1.0)
        if self._cost is not None:
            self._cost.take(cost)

    def refused(self, retry_after_ms: float | None, now_ms: float) -> None:
        """The server wants fewer calls; None: it did not say how long to pause."""
        until_ms = now_ms + (self._pause_ms if retry_after_ms is None else retry_after_ms)
        is_paused = self._paused_until_ms is not None and now_ms < self._paused_until_ms
        if retry_after_ms is None:
            if is_paused:  # one of several calls that were refused together
                return
            self._pause_ms = min(2 * self._pause_ms, MOST_PAUSE_MS)
        if self._paused_until_ms is None or until_ms > self._paused_until_ms:
            self._paused_until_ms = until_ms

    def accepted(self) -> None:
        """The server has answered a call."""
        self._pause_ms = FIRST_PAUSE_MS


def _bucket(per_second: float | None, burst_ms: float, least: float) -> TokenBucket | None:
    if per_second is None:
        return None
    return TokenBucket(per_second, max(least, per_second * burst_ms / 1000))
