"""Timers of one operator in one kind of time: which keys want to be called when.

Law: a timer is held once for each time, key and namespace, however often it was registered, and
fires once. Timers fire in the order of their times, those of the same time in the order in which
they were registered.
"""

import heapq
from collections.abc import Iterator
from typing import Final

from headgate.base.elements import Key
from headgate.core.state.cursor import Namespace
from headgate.core.state.tables import Held, Table

_STALE_TIMES: Final = 64
"""So many times without timers are not worth the work of removing them."""


class TimerQueue:
    """Keys are as the cursor holds them: hashable."""

    __slots__ = ("_table", "_times", "by_time")

    def __init__(self) -> None:
        self._times: list[int] = []
        """A heap; each time that has timers stands in it, others may."""
        self._table = Table(dict.copy)
        self.by_time = self._table.view
        """Time to its timers: a dictionary whose keys are pairs of key and namespace."""

    def __len__(self) -> int:
        return sum(map(len, self._table.entries.values()))

    def register(self, time_ms: int, key: Key, namespace: Namespace = None) -> None:
        """Nothing happens if it is there already."""
        timers = self.by_time.get(time_ms)
        if timers is None:
            self.by_time[time_ms] = {(key, namespace): None}
            heapq.heappush(self._times, time_ms)
        else:
            timers[key, namespace] = None

    def delete(self, time_ms: int, key: Key, namespace: Namespace = None) -> None:
        """Nothing happens if there is none."""
        timers = self.by_time.get(time_ms)
        if timers is not None:
            timers.pop((key, namespace), None)
            if not timers:
                del self.by_time[time_ms]
                if len(self._times) > 2 * len(self.by_time) + _STALE_TIMES:
                    self._times[:] = self.by_time
                    heapq.heapify(self._times)

    @property
    def next_ms(self) -> int | None:
        """The time of the first timer; None: there is none."""
        times = self._times
        while times:
            if times[0] in self.by_time:
                return times[0]
            heapq.heappop(times)
        return None

    def due(self, now_ms: int) -> Iterator[tuple[int, Key, Namespace]]:
        """Take out what is due, one by one; what is registered or deleted meanwhile counts."""
        while (first := self.next_ms) is not None and first <= now_ms:
            for timer in list(self.by_time[first]):
                if not self._times or self._times[0] != first:
                    break  # an earlier one was registered, or these were deleted
                timers = self.by_time.get(first, _NONE)
                if timer in timers:
                    del timers[timer]
                    if not timers:
                        del self.by_time[first]
                    yield first, *timer

    def items(self) -> Iterator[tuple[int, Key, Namespace]]:
        """All timers, in no given order; none may be added or removed meanwhile."""
        for time_ms, timers in self._table.entries.items():
            for key, namespace in timers:
                yield time_ms, key, namespace

    def forget_key(self, key: Key) -> None:
        """Delete all timers of a key; looks at those of all keys."""
        for time_ms, _, namespace in [timer for timer in self.items() if timer[1] == key]:
            self.delete(time_ms, key, namespace)

    def clear(self) -> None:
        """Delete all."""
        self._times.clear()
        self.by_time.clear()

    def freeze(self, number: int) -> Held:
        """What ``by_time`` holds now, for the snapshot of this number."""
        frozen = self._table.freeze(number)
        self.by_time = self._table.view
        return frozen

    def thaw(self, number: int) -> None:
        """The snapshot is closed."""
        self._table.thaw(number)
        self.by_time = self._table.view


_NONE: Final[dict[tuple[Key, Namespace], None]] = {}
