"""Timers of one operator in one kind of time: which keys want to be called when.

Law: a timer is held once for each time, key and namespace, however often it was registered, and
fires once. Timers fire in the order of their times, those of the same time in the order in which
they were registered. Times are put in order when one of them may be due: most timers that a record
moves, as those of sessions are, are deleted before that.
"""

import heapq
from collections.abc import Collection, Iterator
from typing import Final, TypeAlias

from headgate.base.elements import Key, Record
from headgate.core.state.cursor import NO_KEY, Namespace
from headgate.core.state.tables import Held, Table

_STALE_TIMES: Final = 64
"""So many times without timers are not worth the work of removing them."""

_FEW: Final = 8
"""Times are put into the heap one by one if there are so many times more in it."""

Timer: TypeAlias = tuple[Key, Namespace]


class TimerQueue:
    """Keys are as the cursor holds them: hashable."""

    __slots__ = ("_by_time", "_deleted", "_new", "_table", "_times")

    def __init__(self) -> None:
        self._times: list[int] = []
        """A heap; each time that has timers stands in it or among the new ones, others may."""
        self._new: list[int] = []
        self._deleted = 0
        """So many times may stand there for nothing."""
        self._table = Table(_copied)
        self._by_time = self._table.view
        """Time to its timer; if there are several, to a dictionary that has them as keys."""

    def __len__(self) -> int:
        return sum(len(timers_of(held)) for held in self._table.entries.values())

    def register(self, time_ms: int, key: Key, namespace: Namespace = None) -> None:
        """Nothing happens if it is there already."""
        timers = self._by_time.get(time_ms)
        if timers is None:
            if key is NO_KEY:
                timers = {key: None}  # it says that there is none
            self._by_time[time_ms] = (key, namespace)
            self._new.append(time_ms)
        elif type(timers) is dict:
            timers[key, namespace] = None
        else:
            several = {timers: None}
            several[key, namespace] = None
            if len(several) > 1:
                self._by_time[time_ms] = several

    def delete(self, time_ms: int, key: Key, namespace: Namespace = None) -> None:
        """Nothing happens if there is none."""
        by_time = self._by_time
        timers = by_time.get(time_ms)
        if timers is None:
            return
        if type(timers) is dict:
            timers.pop((key, namespace), None)
            if timers:
                return
        elif (timers[0] is not key or timers[1] is not namespace) and (
            (key, namespace) not in {timers}  # some keys can be compared by a dictionary only
        ):
            return
        del by_time[time_ms]
        self._deleted += 1
        if self._deleted > _STALE_TIMES and self._deleted > len(by_time):
            self._deleted = 0
            self._times.clear()
            self._new[:] = by_time

    def has(self, time_ms: int, key: Key, namespace: Namespace) -> bool:
        """Whether this timer is registered."""
        timers = self._by_time.get(time_ms)
        return timers is not None and self._has(timers, (key, namespace))

    def _has(self, timers: Record, timer: Timer) -> bool:
        if type(timers) is dict:
            return timer in timers
        return timer in {timers}

    @property
    def next_ms(self) -> int | None:
        """The time of the first timer; None: there is none."""
        if self._new:
            self._order()
        times = self._times
        while times:
            if times[0] in self._by_time:
                return times[0]
            heapq.heappop(times)
        return None

    def _order(self) -> None:
        """Put the new times into the heap, but for those without timers."""
        times, by_time = self._times, self._by_time
        found = [time_ms for time_ms in self._new if time_ms in by_time]
        self._new.clear()
        if len(found) * _FEW < len(times):
            for time_ms in found:
                heapq.heappush(times, time_ms)
        else:
            times += found
            heapq.heapify(times)

    def due(self, now_ms: int) -> Iterator[tuple[int, Key, Namespace]]:
        """Take out what is due, one by one; what is registered or deleted meanwhile counts."""
        while (first := self.next_ms) is not None and first <= now_ms:
            for timer in list(timers_of(self._by_time[first])):
                if self._new:
                    self._order()
                if not self._times or self._times[0] != first:
                    break  # an earlier one was registered, or these were deleted
                timers = self._by_time.get(first)
                if timers is not None and self._has(timers, timer):
                    if type(timers) is dict:
                        del timers[timer]
                    if type(timers) is not dict or not timers:
                        del self._by_time[first]
                    yield first, *timer

    def items(self) -> Iterator[tuple[int, Key, Namespace]]:
        """All timers, in no given order; none may be added or removed meanwhile."""
        for time_ms, timers in self._table.entries.items():
            for key, namespace in timers_of(timers):
                yield time_ms, key, namespace

    def forget_key(self, key: Key) -> None:
        """Delete all timers of a key; looks at those of all keys."""
        for time_ms, _, namespace in [timer for timer in self.items() if timer[1] == key]:
            self.delete(time_ms, key, namespace)

    def clear(self) -> None:
        """Delete all."""
        self._times.clear()
        self._new.clear()
        self._by_time.clear()

    def freeze(self, number: int) -> Held:
        """What the queue holds now, for the snapshot of this number."""
        frozen = self._table.freeze(number)
        self._by_time = self._table.view
        return frozen

    def thaw(self, number: int) -> None:
        """The snapshot is closed."""
        self._table.thaw(number)
        self._by_time = self._table.view


def timers_of(held: Record) -> Collection[Timer]:
    """The timers of one time, as a queue or its snapshot holds them."""
    return held if type(held) is dict else (held,)


def _copied(held: Record) -> Record:
    return held.copy() if type(held) is dict else held
