"""The baton: at most one thread of a task manager touches the machines at a time.

Its holder runs steps, polls the sockets and fires timers. It is passed on in the order of asking;
if nobody asks, to the standby thread, so that the network is always served. A thread lends it while
it runs the user's code: if that takes long, the watchdog calls the baton in, and the thread asks
for it again before it touches anything. Law: exactly one holder at any time, until it is closed.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from headgate.base.errors import TaskCancelled

LONG_STEP_S: Final = 0.005
"""A loan that lasts one to two of these is called in."""

_QUIET_TICKS: Final = 2


class Turn:
    """One thread's place in the order. ``parked``: it gets the baton only after a ``wake``."""

    __slots__ = ("_go", "name", "parked", "thread")

    def __init__(self, name: str) -> None:
        self.name = name
        self.parked = False
        self.thread = 0
        """The thread that asked last with it."""
        self._go = threading.Lock()
        self._go.acquire()

    def wait(self) -> None:
        self._go.acquire()

    def go(self) -> None:
        self._go.release()


class Baton:
    """One per task manager. ``nudge`` must wake a holder that sleeps in the network."""

    def __init__(self, nudge: Callable[[], None]) -> None:
        self.holder: Turn | None = None
        self.standby: Turn | None = None
        self.asleep = False
        """Set by a holder that waits for the network; a thread that wants the baton nudges it."""
        self.called_in = 0
        self._nudge = nudge
        self._mutex = threading.Lock()
        self._queue: deque[Turn] = deque()
        self._loan: dict[Turn, None] = {}  # the holder, while its user's code runs
        self._loans = 0
        self._closed = False
        self._watchdog: Watchdog | None = None

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._queue)

    def take(self, turn: Turn) -> None:
        """Wait for the baton; raises TaskCancelled after the close."""
        turn.thread = threading.get_ident()
        with self._mutex:
            if self._closed:
                raise TaskCancelled(f"{turn.name} came after the task manager had closed")
            if self.holder is None:
                self.holder = turn
                return
            self._queue.append(turn)
        if self.asleep:
            self._nudge()
        self._wait(turn)

    def give(self, turn: Turn) -> None:
        """Pass it on: to the first in the queue, else to the standby."""
        with self._mutex:
            self._pass_on(turn)

    def yield_to_others(self, turn: Turn) -> None:
        """Pass it on and join the end of the queue; no effect if nobody waits."""
        if not self._queue:
            return
        with self._mutex:
            self._queue.append(turn)
            self._pass_on(turn)
        self._wait(turn)

    def park(self, turn: Turn) -> None:
        """Pass it on and sleep until ``wake``."""
        with self._mutex:
            turn.parked = True
            self._pass_on(turn)
        self._wait(turn)

    def wake(self, turn: Turn) -> None:
        """Queue a parked thread (called by the holder)."""
        if not turn.parked:
            return
        with self._mutex:
            if turn.parked:
                turn.parked = False
                self._queue.append(turn)

    def held_here(self) -> bool:
        """Whether the calling thread holds it."""
        holder = self.holder
        return holder is not None and holder.thread == threading.get_ident()

    def close(self, turn: Turn) -> bool:
        """The holder keeps it for good, later askers are refused; False if somebody waits."""
        with self._mutex:
            assert self.holder is turn
            self._closed = not self._queue
            return self._closed

    # Loans: the user's code runs, which may take long.

    def lend(self, turn: Turn) -> None:
        """The holder is about to run the user's code, which touches no machine."""
        assert self.holder is turn, f"{turn.name} lends a baton that it does not hold"
        self._loans += 1
        self._loan[turn] = None
        watchdog = self._watchdog
        if watchdog is not None and watchdog.dozing:
            watchdog.rouse()

    def regain(self, turn: Turn) -> None:
        """That code has returned: continue, or ask for the baton if it was called in."""
        # The loan is popped once, here or by the watchdog: a pop is atomic.
        if self._loan.pop(turn, turn) is turn:
            self.take(turn)

    def recover(self, turn: Turn) -> None:
        """Hold the baton after an error, whether it was lent, called in or neither."""
        if self._loan.pop(turn, turn) is turn:
            with self._mutex:
                if self.holder is turn:
                    return
            self.take(turn)

    def call_in(self) -> bool:
        """Pass the baton on while its holder runs the user's code."""
        with self._mutex:  # so that nobody sees the loan popped and the baton not passed on
            try:
                turn, _ = self._loan.popitem()
            except KeyError:
                return False
            self.called_in += 1
            self._pass_on(turn)
            return True

    def watch(self) -> "Watchdog":
        """Start the thread that calls in long loans."""
        self._watchdog = Watchdog(self)
        self._watchdog.start()
        return self._watchdog

    @property
    def loan_state(self) -> tuple[int, bool]:
        """How many loans there were, and whether one is open."""
        return self._loans, bool(self._loan)

    def _wait(self, turn: Turn) -> None:
        try:
            turn.wait()
        except BaseException:  # the main thread was interrupted: nobody may wait for it
            with self._mutex:
                if turn in self._queue:
                    self._queue.remove(turn)
                elif self.holder is turn:
                    turn.wait()
                    self._pass_on(turn)
                turn.parked = False
            raise

    def _pass_on(self, turn: Turn) -> None:
        assert self.holder is turn, f"{turn.name} gives a baton that it does not hold"
        self.holder = successor = self._queue.popleft() if self._queue else self.standby
        if successor is not None:
            successor.go()


class Watchdog(threading.Thread):
    """Checks every few milliseconds whether a loan is still open; dozes when there are none."""

    def __init__(self, baton: Baton) -> None:
        super().__init__(name="headgate-watchdog", daemon=True)
        self.dozing = False
        self._baton = baton
        self._stopping = False
        self._bell = threading.Event()

    def run(self) -> None:
        seen, quiet = (-1, False), 0
        while not self._stopping:
            self._bell.wait(None if self.dozing else LONG_STEP_S)
            self._bell.clear()
            self.dozing = False
            state = self._baton.loan_state
            if state == seen:
                quiet = 0 if state[1] and self._baton.call_in() else quiet + 1
            else:
                quiet = 0
            seen = state
            if quiet > _QUIET_TICKS:
                self.dozing, quiet = True, 0
                if self._baton.loan_state != state:  # lent before the lender could see us doze
                    self.dozing = False

    def rouse(self) -> None:
        self.dozing = False
        self._bell.set()

    def stop(self) -> None:
        self._stopping = True
        self._bell.set()
        self.join()
