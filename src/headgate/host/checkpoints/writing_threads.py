"""A few threads of a task manager that write state beside the work of its tasks.

Law: work is begun in the order it came, each piece once; with ``close`` what has come is done and
the threads have ended. A storage that does not answer holds them up, never the process: they are
daemons.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

log = logging.getLogger(__name__)

WRITERS: Final = 4
"""As many snapshots of a task manager are written at a time."""
CLOSE_S: Final = 10.0
"""At the end of a task manager, for what is under way."""
WRITER_NAMES: Final = tuple(f"headgate-checkpoint-writer-{number}" for number in range(WRITERS))

Work: TypeAlias = Callable[[], None]


class WriterPool:
    """Started one by one as there is work for them; those that take no checkpoints have none."""

    def __init__(self) -> None:
        self._queue: deque[Work] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False
        self._changed = threading.Condition(threading.Lock())

    def submit(self, work: Work) -> bool:
        """From any thread, never waits; False: there are no threads any more."""
        with self._changed:
            if self._closed:
                return False
            if self._idle <= len(self._queue) and len(self._threads) < WRITERS:
                self._start_one()
            self._queue.append(work)
            self._changed.notify()
            return True

    def withdraw(self, work: Work) -> bool:
        """It is not wanted any more; False: it was begun."""
        with self._changed:
            if work in self._queue:
                self._queue.remove(work)
                return True
            return False

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Do what has come, then end; says whether that was done in time. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        held_up = [thread.name for thread in self._threads if thread.is_alive()]
        if held_up:
            log.error("%s wait for a storage that does not answer", ", ".join(held_up))
        return not held_up

    def _start_one(self) -> None:
        name = WRITER_NAMES[len(self._threads)]
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _serve(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except BaseException:  # also a user's exit() while its state is pickled
                log.exception("state could not be written")
            del work  # it holds a snapshot

    def _next(self) -> Work | None:
        with self._changed:
            self._idle += 1
            while not self._queue and not self._closed:
                self._changed.wait()
            self._idle -= 1
            return self._queue.popleft() if self._queue else None
