"""When a source that had nothing is polled again: woken, by a descriptor, or by the clock.

Law: a wake that comes after a poll has begun leads to another poll; however many come, an idle
source is roused once, and at most every half millisecond: a thread that brings record after record
would spend its time on waking. A descriptor is watched only while the source is idle. One that is
readable again and again while polls find nothing is left to the clock for a while, so that no
reader keeps a core busy.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Final, Protocol, TypeAlias

from headgate.core.chain.context import Clock

FUTILE_MS: Final = 1.0
"""A descriptor that is readable sooner than this after an empty poll promises too much …"""
MOST_FUTILE: Final = 8
"""… and if that has happened so often in a row …"""
PAUSE_MS: Final = 10.0
"""… the source is polled by the clock before the descriptor is watched again."""

LINGER_MS: Final = 0.5
"""For so long after a wake the next one waits, and costs the thread that calls it nothing."""

SLACK_MS: Final = 0.05
"""A timer that is there already serves deadlines that are sooner by no more than this."""

Post: TypeAlias = Callable[[Callable[[], None]], None]
"""Runs a callback inside the baton, soon; may be called from any thread."""


class DescriptorWatch(Protocol):
    """Watches descriptors for one source; used inside the baton."""

    def begin(self, descriptors: Sequence[int]) -> Sequence[int]:
        """Watch these until one is readable, which is reported once.

        Returns those that cannot be watched now, such as closed ones. Raises ConnectorError for a
        descriptor that can never be.
        """

    def end(self) -> None:
        """Watch none; does nothing if none is watched."""


StartWatch: TypeAlias = Callable[[Callable[[int], None]], DescriptorWatch]
"""Makes a watch that reports, inside the baton, which descriptor is readable."""


def post_at_once(call: Callable[[], None]) -> None:
    """For drivers with a single thread."""
    call()


class NothingWatched:
    """For drivers without descriptors: sources are polled by the clock."""

    def __init__(self, ready: Callable[[int], None]) -> None:
        """Nothing is ever ready."""

    def begin(self, descriptors: Sequence[int]) -> Sequence[int]:
        return descriptors

    def end(self) -> None:
        """None is watched."""


class SourceIdling:
    """Decides when one source task is polled; all but ``wake`` is called inside the baton."""

    def __init__(
        self,
        clock: Clock,
        rouse: Callable[[], None],
        post: Post = post_at_once,
        start_watch: StartWatch = NothingWatched,
        linger_ms: float = LINGER_MS,
    ) -> None:
        """``rouse`` steps the task again if it rests; ``linger_ms``: see ``LINGER_MS``."""
        self.due = True
        """Whether the source is to be polled."""
        self._clock = clock
        self._rouse = rouse
        self._post = post
        self._start_watch = start_watch
        self._shortest_ms = linger_ms
        self._watch: DescriptorWatch | None = None
        self._watches = False
        self._watched_ms = 0.0
        self._futile: dict[int, int] = {}
        """Descriptor → how often in a row it promised too much."""
        self._sleeps = False
        """A wake is to be posted: nobody would notice it otherwise."""
        self._lingers_until_ms = -inf
        self._linger_ms = inf
        """Until then it does not sleep, and wakes are noticed by the clock; inf: it does."""
        self._deadline_ms = inf
        self._timers: list[float] = []
        """When those that are set fire; each is sooner than those before it."""
        self._closed = False

    def wake(self) -> None:
        """Poll again; from any thread, at any time, also after the end."""
        # No lock: this writes `due` and reads `_sleeps`, `rest` writes `_sleeps` and reads `due`.
        # Whichever comes last sees what the other has written.
        self.due = True
        if self._sleeps:
            self._sleeps = False
            self._post(self._woken)

    def become_due(self) -> None:
        """Poll again, for a reason that is known inside the baton."""
        self.due = True
        if not self._closed:
            self._rouse()

    def poll_begins(self) -> None:
        """What wakes the source from here on leads to another poll."""
        self._sleeps = self.due = False
        self._deadline_ms = self._linger_ms = inf
        if self._watches:
            self._end_watch()

    def records_came(self) -> None:
        """The poll has found something, and there may be more."""
        self.due = True
        if self._futile:
            self._futile.clear()

    def rest(self, wait_ms: float, descriptors: Sequence[int] = ()) -> bool:
        """The poll has found nothing; False: the source was woken meanwhile, or does not wait."""
        if wait_ms <= 0:
            self.due = True
            return False
        now_ms = self._clock.now_ms()
        if descriptors:
            wait_ms = min(wait_ms, self._begin_watch(descriptors, now_ms))
        self._deadline_ms = now_ms + wait_ms
        if now_ms < self._lingers_until_ms:
            self._linger_ms = self._lingers_until_ms
        else:
            self._sleeps = True
        self._set_timer(now_ms)
        return not self.due

    def close(self) -> None:
        """The task ends: rouse it no more."""
        self._closed = True
        self._sleeps = False
        if self._watches:
            self._end_watch()

    def _woken(self) -> None:
        self._lingers_until_ms = self._clock.now_ms() + self._shortest_ms
        self.become_due()

    # Descriptors.

    def _begin_watch(self, descriptors: Sequence[int], now_ms: float) -> float:
        """Watch those that keep their promises; returns how long the others may wait."""
        futile, honest, wait_ms = self._futile, [], inf
        for descriptor in dict.fromkeys(descriptors):
            if futile.get(descriptor, 0) < MOST_FUTILE:
                honest.append(descriptor)
            else:
                futile[descriptor] = MOST_FUTILE - 1  # after the pause it is given another chance
                wait_ms = PAUSE_MS
        if honest:
            if self._watch is None:
                self._watch = self._start_watch(self._readable)
            self._watches, self._watched_ms = True, now_ms
            if self._watch.begin(honest):
                wait_ms = PAUSE_MS
        return wait_ms

    def _readable(self, descriptor: int) -> None:
        is_soon = self._clock.now_ms() - self._watched_ms < FUTILE_MS
        self._futile[descriptor] = self._futile.get(descriptor, 0) + 1 if is_soon else 0
        self._end_watch()
        self.become_due()

    def _end_watch(self) -> None:
        assert self._watch is not None
        self._watches = False
        self._watch.end()

    # The clock.

    def _set_timer(self, now_ms: float) -> None:
        due_ms = min(self._deadline_ms, self._linger_ms)
        if due_ms < inf and (not self._timers or self._timers[-1] > due_ms + SLACK_MS):
            self._timers.append(due_ms)
            self._clock.later(due_ms - now_ms, partial(self._fired, due_ms))

    def _fired(self, due_ms: float) -> None:
        self._timers.remove(due_ms)
        if self._closed:
            return
        now_ms = self._clock.now_ms()
        if now_ms >= self._deadline_ms:
            self._deadline_ms = self._linger_ms = inf
            self.become_due()
            return
        if now_ms >= self._linger_ms:
            self._linger_ms = inf
            self._sleeps = True
            if self.due:  # woken meanwhile
                self._sleeps = False
                self._woken()
        self._set_timer(now_ms)
