"""The event loop: polls sockets, fires timers, flushes connections with something to send.

It has no thread. The holder of the baton calls ``poll``: without waiting between two steps, or
waiting when there is nothing else to do. Law: all of it runs inside the baton, except ``nudge`` and
``post``.

``LoopWatch`` watches the descriptors of an idle source. A reader, or a thread of its library, may
close its descriptor at any moment, and the system may give the number to a connection of this loop.
So the watch registers a duplicate of its own, which it closes when it ends.
"""

import errno
import heapq
import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Final, Protocol

from headgate.base.errors import ConnectorError

log = logging.getLogger(__name__)

READ: Final = select.POLLIN
WRITE: Final = select.POLLOUT
FINE_WAIT_MS: Final = 5.0
FD_SETSIZE: Final = 1024
"""``select`` takes no higher descriptor."""
LONGEST_WAIT_MS: Final = 24 * 60 * 60 * 1000.0
"""A poll cannot wait for more than a month, whatever the user's timers."""


class Pollable(Protocol):
    """Something with a file descriptor."""

    def ready(self, mask: int) -> None: ...


class Flushable(Protocol):
    """Something that may have bytes to send."""

    def flush(self) -> None: ...


def now_ms() -> float:
    """The clock of all deadlines."""
    return time.monotonic_ns() / 1e6


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Loop:
    """``transport`` is ``epoll``, ``poll`` (any Unix) or ``auto``."""

    def __init__(self, transport: str = "auto") -> None:
        use_epoll = transport == "epoll" or (transport == "auto" and hasattr(select, "epoll"))
        self._epoll = select.epoll() if use_epoll else None
        self._poll = None if use_epoll else select.poll()
        self._pollables: dict[int, Pollable] = {}
        self._dirty: list[Flushable] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._posted: deque[Callable[[], None]] = deque()
        self._number = count()
        self._nudged, self._nudger = socket.socketpair()
        self._nudged.setblocking(False)
        self._nudger.setblocking(False)
        self._register(self._nudged.fileno(), READ)
        # Sources' threads nudge also after the end, when the descriptor may be another's.
        self._nudging = threading.RLock()
        self.closed = False
        self.hurried = False
        """A thread was woken: the current poll must not wait."""

    def poll(self, wait_ms: float | None = 0) -> None:
        """Flush, fire due timers, then poll the sockets; wait up to ``wait_ms`` (None: long)."""
        self.hurried = False
        if self._dirty:
            self._flush()
        if self._timers:
            wait_ms = 0 if self._fire() else self._until_next_timer(wait_ms)
        if self._dirty or self.hurried:
            wait_ms = 0
        for fd, mask in self._wait(wait_ms):
            pollable = self._pollables.get(fd)
            if pollable is not None:
                self._guard(lambda pollable=pollable, mask=mask: pollable.ready(mask))  # type: ignore[misc]
            elif fd == self._nudged.fileno():
                with suppress(BlockingIOError):
                    self._nudged.recv(4096)
                while self._posted:
                    self._guard(self._posted.popleft())
        if self._dirty:
            self._flush()

    def later(self, delay_ms: float, call: Callable[[], None]) -> None:
        """Call back after this time, from inside a poll."""
        heapq.heappush(self._timers, (now_ms() + delay_ms, next(self._number), call))

    def mark_dirty(self, flushable: Flushable) -> None:
        """Flush it at the next poll."""
        self._dirty.append(flushable)

    def nudge(self) -> None:
        """Wake the thread that waits in ``poll``; from any thread."""
        with self._nudging, suppress(BlockingIOError, OSError):
            self._nudger.send(b"\0")

    def post(self, call: Callable[[], None]) -> None:
        """Call back inside the baton, soon; from any thread."""
        self._posted.append(call)
        self.nudge()

    def add(self, fd: int, pollable: Pollable, mask: int = READ) -> None:
        self._register(fd, mask)
        self._pollables[fd] = pollable

    def change(self, fd: int, mask: int) -> None:
        (self._epoll or self._poll).modify(fd, mask)  # type: ignore[union-attr]

    def remove(self, fd: int) -> None:
        if self._pollables.pop(fd, None) is not None:
            (self._epoll or self._poll).unregister(fd)  # type: ignore[union-attr]

    def close(self) -> None:
        self.closed = True
        self._timers.clear()
        self._nudged.close()
        with self._nudging:
            self._nudger.close()
        if self._epoll is not None:
            self._epoll.close()

    def _register(self, fd: int, mask: int) -> None:
        (self._epoll or self._poll).register(fd, mask)  # type: ignore[union-attr]

    def _wait(self, wait_ms: float | None) -> list[tuple[int, int]]:
        if self._epoll is not None:
            if wait_ms is not None and 0 < wait_ms < FINE_WAIT_MS:
                return self._wait_finely(wait_ms)
            return self._epoll.poll(-1 if wait_ms is None else wait_ms / 1000)
        assert self._poll is not None
        return self._poll.poll(None if wait_ms is None else wait_ms)

    def _wait_finely(self, wait_ms: float) -> list[tuple[int, int]]:
        """epoll rounds up to whole milliseconds; a flush that is due in 0.2 cannot wait for 1."""
        assert self._epoll is not None
        if self._epoll.fileno() < FD_SETSIZE:
            select.select([self._epoll], [], [], wait_ms / 1000)
            wait_ms = 0
        return self._epoll.poll(wait_ms / 1000)

    def _until_next_timer(self, wait_ms: float | None) -> float | None:
        if not self._timers:
            return wait_ms
        until = min(max(0.0, self._timers[0][0] - now_ms()), LONGEST_WAIT_MS)
        return until if wait_ms is None else min(wait_ms, until)

    def _fire(self) -> bool:
        now, fired = now_ms(), False
        while self._timers and self._timers[0][0] <= now:
            fired = True
            self._guard(heapq.heappop(self._timers)[2])
        return fired

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for flushable in dirty:
            self._guard(flushable.flush)

    def _guard(self, call: Callable[[], None]) -> None:
        """A bug in one connection or timer must not stop the others."""
        try:
            call()
        except Exception:
            log.exception("a handler of the exchange loop failed")


class LoopWatch:
    """See ``DescriptorWatch``; ``ready`` is called once, from inside a poll of the loop."""

    def __init__(self, loop: Loop, ready: Callable[[int], None]) -> None:
        self._loop = loop
        self._ready = ready
        self._copies: list[int] = []

    def begin(self, descriptors: Sequence[int]) -> Sequence[int]:
        assert not self._copies, "the last watch has not ended"
        return [fd for fd in descriptors if not self._add(fd)]

    def end(self) -> None:
        copies, self._copies = self._copies, []
        for copy in copies:
            if not self._loop.closed:
                self._loop.remove(copy)
            os.close(copy)

    def _add(self, fd: int) -> bool:
        try:
            copy = os.dup(fd)
        except (OSError, OverflowError):  # it is closed, or the process has too many
            return False
        try:
            self._loop.add(copy, _Watched(self._ready, fd))
        except OSError as error:
            os.close(copy)
            if error.errno != errno.EPERM:
                return False
            raise ConnectorError(
                f"fileno() of its reader returned the descriptor {fd} of a file or folder, which "
                f"cannot be watched; return that of a socket, a pipe or the like, or None"
            ) from error
        self._copies.append(copy)
        return True


class _Watched:
    """A descriptor, as the loop sees it; errors and hang-ups are for the reader to find."""

    def __init__(self, ready: Callable[[int], None], fd: int) -> None:
        self._ready = ready
        self._fd = fd

    def ready(self, mask: int) -> None:
        self._ready(self._fd)
