"""The global pool: one per task manager, holds every segment that nobody else holds.

Law: free + given to local pools + claimed == total, and the sum of all minima and claims never
exceeds the total, so every pool can always have its minimum. What lies beyond the minima is shared
out anew whenever a pool comes or goes, or a claim is made (``share_out`` states the rule).
"""

from collections import deque
from dataclasses import dataclass

from headgate.base.errors import InsufficientBuffers, PoolDestroyed
from headgate.core.buffers.buffer import Home, Segment
from headgate.core.buffers.local_pool import LocalPool


@dataclass(slots=True)
class _Claim:
    home: Home
    missing: int


class GlobalPool:
    """Gives segments to local pools by their size, and to claimants for good."""

    def __init__(self, segments: list[Segment]) -> None:
        self.total = len(segments)
        self.free: deque[Segment] = deque(segments)
        self.pools: list[LocalPool] = []
        self.claimed = 0
        self.closed = False
        self._claims: deque[_Claim] = deque()
        self._waiting: deque[LocalPool] = deque()

    def create_pool(
        self, who: str, minimum: int, maximum: int | None = None, overdraft: int = 0
    ) -> LocalPool:
        """A pool that always gets ``minimum`` and never more than ``maximum`` (None: no bound)."""
        if self.closed:
            raise PoolDestroyed(f"no pool for {who}: the task manager is shutting down")
        assert maximum is None or minimum <= maximum, (who, minimum, maximum)
        self._admit(who, minimum)
        pool = LocalPool(self, who, minimum, self.total if maximum is None else maximum, overdraft)
        self.pools.append(pool)
        self._redistribute()
        pool.reserve()
        return pool

    def pool_destroyed(self, pool: LocalPool) -> None:
        """A local pool has ended; its share goes to the others."""
        self.pools.remove(pool)
        if pool in self._waiting:
            self._waiting.remove(pool)
        self._redistribute()

    def claim(self, who: str, home: Home, count: int) -> None:
        """Set ``count`` segments aside for ``home``; they are handed over now or as they return."""
        if self.closed:
            raise PoolDestroyed(f"no buffers for {who}: the task manager is shutting down")
        self._admit(who, count)
        self.claimed += count
        if count:
            self._claims.append(_Claim(home, count))
        self._redistribute()

    def unclaim(self, home: Home, segments: list[Segment]) -> None:
        """``home`` gives these back, and does not want what it may still be owed."""
        owed = [claim for claim in self._claims if claim.home is home]
        for claim in owed:
            self._claims.remove(claim)
        self.claimed -= len(segments) + sum(claim.missing for claim in owed)
        assert self.claimed >= 0, "more segments were given back than claimed"
        for segment in segments:
            self.segment_returned(segment)
        self._redistribute()

    def rehome(self, home: Home, heir: Home) -> None:
        """What ``home`` is still owed goes to ``heir``; what it has it hands over itself."""
        for claim in self._claims:
            if claim.home is home:
                claim.home = heir

    def try_take(self) -> Segment | None:
        """A free segment for a local pool, or None."""
        return self.free.pop() if self.free else None

    def wait(self, pool: LocalPool) -> None:
        """Tell ``pool`` when a segment has come back."""
        self._waiting.append(pool)

    def segment_returned(self, segment: Segment) -> None:
        """A freed segment goes to claimants first, then to waiting pools, then to the shelf."""
        if self._claims:
            claim = self._claims[0]
            claim.missing -= 1
            if claim.missing == 0:
                self._claims.popleft()
            claim.home.segment_returned(segment)
            return
        while self._waiting:
            if self._waiting.popleft().segment_offered(segment):
                return
        self.free.append(segment)

    def close(self) -> None:
        """Refuse new pools and claims; segments still out come back through their homes."""
        self.closed = True

    @property
    def required(self) -> int:
        """What is promised: the minima of all pools and all claims."""
        return self.claimed + sum(pool.minimum for pool in self.pools)

    def check(self) -> None:
        """Assert the law; what destroyed pools still have out must be nothing for it to hold."""
        owed = sum(claim.missing for claim in self._claims)
        held = minima = sizes = 0
        for pool in self.pools:
            pool.check()
            held += pool.held
            minima += pool.minimum
            sizes += pool.size
        assert len(self.free) + held + self.claimed - owed <= self.total
        assert minima + self.claimed <= self.total
        assert sizes + self.claimed <= self.total
        assert len({segment.index for segment in self.free}) == len(self.free)

    def _admit(self, who: str, count: int) -> None:
        required = self.required
        if required + count > self.total:
            raise InsufficientBuffers(who, count, self.total - required, self.total)

    def _redistribute(self) -> None:
        rest = self.total - self.required
        for pool, size in zip(self.pools, share_out(self.pools, rest), strict=True):
            pool.size = size
        for pool in list(self.pools):  # not before all know their size: what one returns, one takes
            pool.settle()
        while self._claims and self.free:
            self.segment_returned(self.free.popleft())


def share_out(pools: list[LocalPool], rest: int) -> list[int]:
    """The size of each pool: its minimum, and a part of ``rest`` by what it can still take.

    A pool's part is in proportion to ``min(rest, maximum - minimum)``. Running integer arithmetic
    over the sum so far leaves no segment over. With no rest, every pool has its minimum.
    """
    capacities = [min(rest, pool.maximum - pool.minimum) for pool in pools]
    capacity = sum(capacities)
    if rest == 0 or capacity == 0:
        return [pool.minimum for pool in pools]
    to_share = min(rest, capacity)
    sizes, seen, shared = [], 0, 0
    for pool, part in zip(pools, capacities, strict=True):
        seen += part
        mine = to_share * seen // capacity - shared
        shared += mine
        sizes.append(pool.minimum + mine)
    return sizes
