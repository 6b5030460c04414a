"""The thread of a task (``ExecutionThread``): a greenlet that steps it as the real runner does.

A task that rests goes on only if somebody wakes it, so a lost wake-up shows as a stall. Where the
real watchdog may call in a loan, the thread lets others run, by chance; time that the user's code
takes passes while the baton is lent. Threads and descriptors that wake a source are timers; what
they report comes a moment later.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Protocol

from headgate.base.errors import TaskCancelled
from headgate.base.extras import install_command
from headgate.core.chain.context import Clock
from headgate.core.chain.outputs import Loan
from headgate.core.task.task import StepResult, TaskServices
from headgate.sim.jobs.calls import start_calls
from headgate.sim.jobs.scenario import Delays
from headgate.sim.worker import CheckFailed, SimWorker

try:
    from greenlet import GreenletExit, getcurrent, greenlet
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError(f"the simulator needs greenlet: {install_command('sim')}") from error


class Stepped(Protocol):
    """A task, as far as its thread knows it."""

    def step(self) -> StepResult: ...

    def close(self, error: BaseException | None) -> None: ...


class SimThread:
    """One task's thread. ``called_in`` is the share of its loans that others make use of."""

    def __init__(
        self,
        name: str,
        worker: SimWorker,
        random: Random,
        called_in: float,
        delays: Delays,
    ) -> None:
        self.name = name
        self.worker = worker
        self.waits_for = "its start"
        self.cancelled = False
        self.is_over = False
        self.error: BaseException | None = None
        self.task: Stepped | None = None
        self.loan = SimLoan(self, random, called_in)
        self.services = TaskServices(
            self.loan,
            Clock(lambda: worker.clock.now_ms, lambda: worker.clock.wall_ms, self._later),
            self.wake,
            self.wait,
            partial(start_calls, worker, name, random, delays.answer),
            spills=worker.spills,
            post=self._post,
            start_watch=self._start_watch,
            linger_ms=delays.linger_ms,
            is_cancelled=lambda: self.cancelled,
        )
        self._watch: SimWatch | None = None
        self._readable: set[int] = set()
        self._random = random
        self._delays = delays
        self._woken = True
        self._ready = False
        self._killed = False
        self._greenlet: Any = None

    # The world's side.

    @property
    def is_alive(self) -> bool:
        return self.task is not None and not self.is_over

    @property
    def cpu_ms(self) -> float:
        """No thread of its own, so none."""
        return 0.0

    @property
    def runnable_ms(self) -> float:
        return 0.0

    @property
    def is_runnable(self) -> bool:
        return self._ready and not self.is_over and not self.worker.frozen

    def start(self, task: Stepped) -> None:
        """From now on it can be stepped."""
        self.task = task
        self._ready = True
        self._greenlet = greenlet(self._run)

    def step(self) -> None:
        """Run until it lets others have their turn; raises what is a bug."""
        self._greenlet.switch()

    def wake(self) -> None:
        """There may be something to do."""
        self._woken = self._ready = True

    def cancel(self) -> None:
        """Let the next wait raise, as the real thread does."""
        self.cancelled = True
        self.wake()

    def kill(self) -> None:
        """Forget it in the middle of whatever it does."""
        self.is_over = self._killed = True
        if self._greenlet is not None and not self._greenlet.dead:
            with suppress(Exception):
                self._greenlet.throw()

    def is_readable(self, descriptor: int) -> bool:
        return descriptor in self._readable

    # The task's side.

    def wait(self, ready: Callable[[], bool]) -> None:
        """Return when ``ready`` says so; it is asked again only when somebody wakes the task."""
        if self.loan.is_lent:
            raise CheckFailed(f"{self.name} waits for a buffer while its baton is lent")
        while True:
            self._woken = False
            if self.cancelled:
                raise TaskCancelled(f"task {self.name} was cancelled")
            if ready():
                return
            if self._random.random() < 0.3:  # the network is polled once more
                self.let_others_run("the network")
            if not self._woken:
                self._rest("a buffer to write to")

    def let_others_run(self, what: str) -> None:
        """Others have a turn before it goes on."""
        self._ready = True
        self._switch(what)

    def _post(self, call: Callable[[], None]) -> None:
        self.worker.later(self._random.choice(self._delays.post), f"wake of {self.name}", call)

    def _start_watch(self, ready: Callable[[int], None]) -> "SimWatch":
        self._watch = SimWatch(self, ready)
        return self._watch

    def _later(self, delay_ms: float, call: Callable[[], None]) -> None:
        if self.loan.is_lent and getcurrent() is self._greenlet:  # not a timer that sets the next
            raise CheckFailed(f"{self.name} sets a timer while its baton is lent")
        self.worker.later(delay_ms, f"timer of {self.name}", call)

    def _rest(self, what: str) -> None:
        self._ready = False
        self._switch(what)

    def _switch(self, what: str) -> None:
        if self._killed:
            return
        self.waits_for = what
        getcurrent().parent.switch()
        self.waits_for = "nothing"

    def _run(self) -> None:
        task = self.task
        assert task is not None
        try:
            self._step_until_done(task)
        except (AssertionError, GreenletExit):
            raise
        except BaseException as error:
            self.error = error
        self.loan.is_lent = False  # the runner recovers the baton, wherever the error was
        task.close(self.error)
        self.is_over = True

    def _step_until_done(self, task: Stepped) -> None:
        while not self.cancelled:
            self._woken = False
            progress = task.step()
            if progress is StepResult.DONE:
                return
            if progress is StepResult.IDLE and not self._woken and not self.cancelled:
                self._rest("input, output or mail")
            else:
                self.let_others_run("its turn")
        raise TaskCancelled(f"task {self.name} was cancelled")


class SimWatch:
    """Implements ``DescriptorWatch``; the thread knows which of the numbers are readable."""

    def __init__(self, thread: SimThread, ready: Callable[[int], None]) -> None:
        self._thread = thread
        self._ready = ready
        self._watched: list[int] = []
        self._number = 0
        """The number of the watch: reports of earlier ones come too late."""

    def begin(self, descriptors: Sequence[int]) -> Sequence[int]:
        if self._watched:
            raise CheckFailed(f"{self._thread.name} watches descriptors, and others before")
        self._watched = list(descriptors)
        for descriptor in descriptors:
            self.written(descriptor)
        return ()

    def end(self) -> None:
        self._watched = []
        self._number += 1

    def written(self, descriptor: int) -> None:
        """The loop sees it with its next poll, if it is still readable then."""
        if descriptor in self._watched and self._thread.is_readable(descriptor):
            what = f"descriptor of {self._thread.name}"
            self._thread.worker.later(0, what, partial(self._report, descriptor, self._number))

    def _report(self, descriptor: int, number: int) -> None:
        if number == self._number:
            self._ready(descriptor)


class SimLoan(Loan):
    """Lends the baton; by chance it was called in, and the task has to wait for its turn."""

    def __init__(self, thread: SimThread, random: Random, called_in: float) -> None:
        self.is_lent = False
        self._thread = thread
        self._random = random
        self._called_in = called_in

    def lend(self) -> None:
        if self.is_lent:
            raise CheckFailed(f"{self._thread.name} lends a baton that it does not hold")
        self.is_lent = True

    def regain(self) -> None:
        if self.is_lent:
            self.is_lent = False
            if self._random.random() < self._called_in:
                self._thread.let_others_run("the baton")
