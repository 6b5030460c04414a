"""Tasks of the simulation: each is a greenlet that the world steps.

A task runs until it pauses (there is more to do), rests (until woken) or ends. As in the real
driver, a resting task goes on only if somebody wakes it, so a lost wake-up shows as a stall.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from headgate.base.errors import TaskCancelled
from headgate.base.extras import install_command
from headgate.sim.worker import SimWorker

try:
    from greenlet import getcurrent, greenlet
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError(f"the simulator needs greenlet: {install_command('sim')}") from error


class Fate(Enum):
    """How a task stands."""

    WAITING = "not started"
    RUNNING = "running"
    FINISHED = "finished"
    QUIT = "closed early by itself"
    CANCELLED = "cancelled"
    FAILED = "failed"
    LOST = "lost with its worker"


OVER = (Fate.FINISHED, Fate.QUIT, Fate.CANCELLED, Fate.FAILED, Fate.LOST)


class PlannedFailure(Exception):
    """A user's function that fails, because the scenario says so."""


class SimTask:
    """One task. ``program`` is its work, ``clean_up`` gives back what it holds, always called."""

    def __init__(
        self,
        name: str,
        worker: SimWorker,
        program: Callable[["SimTask"], Fate],
        clean_up: Callable[[BaseException | None], None],
    ) -> None:
        self.name = name
        self.worker = worker
        self.fate = Fate.WAITING
        self.error: BaseException | None = None
        self.cancelled = False
        self.waits_for = "its start"
        self._program = program
        self._clean_up = clean_up
        self._woken = True
        self._greenlet: Any = None

    # The world's side.

    @property
    def is_over(self) -> bool:
        return self.fate in OVER

    @property
    def is_runnable(self) -> bool:
        return self._woken and self.fate is Fate.RUNNING and not self.worker.frozen

    def start(self) -> None:
        """From now on it can be stepped."""
        if self.fate is Fate.WAITING:
            self.fate = Fate.RUNNING
            self._greenlet = greenlet(self._run)

    def step(self) -> None:
        """Run until it pauses, rests or ends; raises what is a bug."""
        self._greenlet.switch()

    def wake(self) -> None:
        """There may be something to do."""
        self._woken = True

    def cancel(self) -> None:
        """Let it end: at once if it has not started, else at its next pause or rest."""
        if self.is_over:
            return
        self.cancelled = True
        self._woken = True
        if self.fate is Fate.WAITING:
            self.fate = Fate.CANCELLED
            self._clean_up(TaskCancelled(f"task {self.name} was cancelled before it started"))

    def lose(self) -> None:
        """Its worker has died."""
        if not self.is_over:
            self.kill()
            self.fate = Fate.LOST

    def kill(self) -> None:
        """Forget it in the middle of whatever it does."""
        if self._greenlet is not None and not self._greenlet.dead:
            self._clean_up = lambda error: None
            self._greenlet.throw()

    # The program's side.

    def begin_step(self) -> None:
        """Forget earlier wakes; those from here on keep the next rest from resting."""
        self._woken = False

    def pause(self) -> None:
        """The end of a step: others may run."""
        self._woken = True
        self._switch("its turn")

    def rest(self, what: str) -> None:
        """Nothing to do until woken, unless that has happened since the step began."""
        self._switch("its turn" if self._woken else what)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Return when the condition holds; it is looked at again when somebody wakes the task."""
        while True:
            self._woken = False
            if self.cancelled:
                raise TaskCancelled(f"task {self.name} was cancelled")
            if condition():
                self._woken = True
                return
            if not self._woken:
                self._switch("a buffer to write to")

    def sleep(self, delay_ms: float) -> None:
        """Take a while."""
        until = self.worker.clock.now_ms + delay_ms
        self.worker.later(delay_ms, f"sleep of {self.name}", self.wake)
        while self.worker.clock.now_ms < until:
            self._woken = False
            self._switch("its sleep")

    def _switch(self, what: str) -> None:
        self.waits_for = what
        getcurrent().parent.switch()
        self.waits_for = "nothing"
        if self.cancelled:
            raise TaskCancelled(f"task {self.name} was cancelled")

    def _run(self) -> None:
        try:
            fate = self._program(self)
        except AssertionError:
            raise  # a law is broken: the run ends here
        except Exception as error:
            self.error = error
            fate = Fate.FAILED
            if isinstance(error, TaskCancelled) and self.cancelled:
                fate = Fate.CANCELLED
        self._clean_up(self.error)
        self.fate = fate
