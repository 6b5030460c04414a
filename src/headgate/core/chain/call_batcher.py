"""Records that wait for a call, and how many of them the next batch takes.

Law: batches keep the order of the records, and each record is in one of them. A batch has at most
``max_records`` records, and costs at most ``max_cost`` unless it is a single record. It is due once
it can take no more, once its first record has waited ``max_wait_ms``, or once no record follows.
"""

import math
from collections import deque
from typing import TypeAlias

from headgate.core.chain.async_queue import PendingCall

PricedCall: TypeAlias = tuple[PendingCall, float]
"""A record on its way, and what it costs."""


class CallBatcher:
    """The records of the next batch are counted as they come, so that each is looked at once."""

    def __init__(self, max_records: int, max_wait_ms: float, max_cost: float = math.inf) -> None:
        self._max_records = max_records
        self._max_wait_ms = max_wait_ms
        self._max_cost = max_cost
        self._waiting: deque[tuple[PricedCall, float]] = deque()
        """With the time until which they wait for others."""
        self._count = 0
        """Records of the next batch."""
        self._is_full = False
        self.cost = 0.0
        """Of the next batch."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, calls: list[PricedCall], now_ms: float) -> None:
        """These wait for their batch from now on."""
        until_ms = now_ms + self._max_wait_ms
        self._waiting.extend((call, until_ms) for call in calls)
        if not self._is_full:
            self._fill()

    def input_ended(self) -> None:
        """No record follows, so that none waits for others."""
        self._max_wait_ms = -math.inf
        self._waiting = deque((call, -math.inf) for call, _ in self._waiting)

    def due_ms(self) -> float | None:
        """When the next batch is due; it may be in the past. None: there is no record."""
        if not self._waiting:
            return None
        return -math.inf if self._is_full else self._waiting[0][1]

    def take(self) -> list[PricedCall]:
        """The next batch, whether it is due or not."""
        taken = [self._waiting.popleft()[0] for _ in range(self._count)]
        self._count, self.cost, self._is_full = 0, 0.0, False
        self._fill()
        return taken

    def check(self) -> None:
        """The law; for tests."""
        assert self._count <= min(self._max_records, len(self._waiting))
        assert bool(self._count) == bool(self._waiting)
        assert self.cost <= self._max_cost or self._count == 1
        assert self._is_full or self._count == len(self._waiting)

    def _fill(self) -> None:
        waiting, count, cost = self._waiting, self._count, self.cost
        for place in range(count, min(len(waiting), self._max_records)):
            more = cost + waiting[place][0][1]
            if more > self._max_cost and count:
                self._is_full = True
                break
            count, cost = count + 1, more
        self._is_full = self._is_full or count == self._max_records or cost >= self._max_cost
        self._count, self.cost = count, cost
