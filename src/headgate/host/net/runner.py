"""The thread of a task, and how it shares the baton.

A task is a machine with ``step``. Its runner steps it as long as there is something to do, polls
the network in between without waiting, and yields the baton when its time slice is over. With
nothing to do it waits in the network itself, or parks if another thread wants the baton.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Final, Protocol

from headgate.base.errors import TaskCancelled
from headgate.core.chain.outputs import Loan
from headgate.core.task.task import StepResult
from headgate.host.net.baton import Baton, Turn
from headgate.host.net.loop import Loop, now_ms

log = logging.getLogger(__name__)

POLL_EVERY_MS: Final = 0.5
SLICE_MS: Final = 1.0
SCHEDSTAT_BYTES: Final = 128


class Stepper(Protocol):
    """A task, as its runner sees it."""

    name: str

    def step(self) -> StepResult:
        """Process one bundle; called on the task's own thread, inside the baton."""

    def close(self, error: BaseException | None) -> None:
        """Release everything; always called, with the error if the task failed."""


class TaskThread:
    """How a task's thread waits, for the network or for its turn."""

    def __init__(self, name: str, baton: Baton, loop: Loop) -> None:
        self.turn = Turn(name)
        self.cancelled = False
        self._baton = baton
        self._loop = loop
        self._woken = False
        self._end = threading.Event()
        self._interrupts: list[Callable[[], None]] = []

    def wake(self) -> None:
        """There may be work (called inside the baton)."""
        self._woken = self._loop.hurried = True
        self._baton.wake(self.turn)

    def cancel(self) -> None:
        """Let the next wait raise TaskCancelled (called inside the baton)."""
        self.cancelled = True
        self._end.set()
        self.wake()
        for interrupt in list(self._interrupts):
            self._interrupt(interrupt)

    def sleep(self, seconds: float) -> None:
        """Wait while the user's code runs, outside the baton; any thread may."""
        if self._end.wait(seconds):
            raise TaskCancelled(f"task {self.turn.name} was cancelled")

    def when_cancelled(self, interrupt: Callable[[], None]) -> None:
        """Call this at the cancellation, perhaps twice; any thread may, outside the baton."""
        self._interrupts.append(interrupt)
        if self._end.is_set():
            self._interrupt(interrupt)

    def _interrupt(self, interrupt: Callable[[], None]) -> None:
        try:
            interrupt()
        except Exception:
            log.exception("an interrupt of a wait of task %s failed", self.turn.name)

    def wait(self, ready: Callable[[], bool]) -> None:
        """Return when ``ready`` holds; meanwhile others run and the network is served."""
        while True:
            self._woken = False
            if self.cancelled:
                raise TaskCancelled(f"task {self.turn.name} was cancelled")
            if ready():
                return
            self._loop.poll(0)
            if not self._woken:
                self.rest()

    def rest(self) -> None:
        """Nothing to do: let another thread run, or sleep in the network."""
        baton = self._baton
        if baton.wanted:
            baton.park(self.turn)
            return
        baton.asleep = True
        try:
            if not baton.wanted:
                self._loop.poll(None)
        finally:
            baton.asleep = False

    @property
    def woken(self) -> bool:
        return self._woken

    def expect_wake(self) -> None:
        """Forget earlier wakes; check the input once more before resting."""
        self._woken = False


class Runner:
    """Runs one task on a thread of its own until it is done, fails or is cancelled.

    The thread has the context variables of whoever made the runner.
    """

    def __init__(self, task_thread: TaskThread, baton: Baton, loop: Loop, task: Stepper) -> None:
        self.task = task
        self.task_thread = task_thread
        self.error: BaseException | None = None
        self.steps = 0
        self._baton = baton
        self._loop = loop
        self._cpu_clock: int | None = None  # of the thread, while it runs
        self._cpu_ms = 0.0  # of a thread that has ended
        self._runnable_ms = 0.0  # as it was read last
        self.thread = threading.Thread(
            target=copy_context().run,
            name=f"headgate-{task.name}",
            args=(self._run,),
            daemon=True,
        )

    def start(self) -> None:
        self.thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end; raises what the task raised."""
        self.thread.join(timeout_s)
        if self.thread.is_alive():
            raise TimeoutError(f"task {self.task.name} did not end within {timeout_s} s")
        if self.error is not None:
            raise self.error

    def ends_within(self, timeout_s: float) -> bool:
        """Wait for the end, however it comes; returns whether it came."""
        self.thread.join(timeout_s)
        return not self.thread.is_alive()

    @property
    def is_alive(self) -> bool:
        return self.thread.is_alive()

    @property
    def cpu_ms(self) -> float:
        """CPU time of the thread; 0 where the platform does not tell it to others."""
        clock = self._cpu_clock
        if clock is None:
            return self._cpu_ms
        try:
            return time.clock_gettime(clock) * 1000
        except OSError:  # it has ended just now
            return self._cpu_ms

    @property
    def runnable_ms(self) -> float:
        """How long the thread has waited for a core; 0 where the platform does not tell."""
        with suppress(OSError, ValueError, IndexError):  # not Linux, or the thread has ended
            self._runnable_ms = waited_ns(str(self.thread.native_id)) / 1e6
        return self._runnable_ms

    def _run(self) -> None:
        if hasattr(time, "pthread_getcpuclockid"):
            self._cpu_clock = time.pthread_getcpuclockid(threading.get_ident())
        try:
            self._run_task()
        finally:
            self._cpu_ms, self._cpu_clock = time.thread_time() * 1000, None

    def _run_task(self) -> None:
        baton, turn = self._baton, self.task_thread.turn
        try:
            baton.take(turn)
            self._step_until_done()
        except BaseException as error:
            self.error = error
        try:
            baton.recover(turn)
        except TaskCancelled:  # the task manager has closed; no other thread is left
            self._close_task()
            return
        try:
            self._close_task()
            self._loop.poll(0)
        finally:
            baton.give(turn)

    def _close_task(self) -> None:
        try:
            self.task.close(self.error)
        except BaseException as error:
            log.exception("task %s could not be closed", self.task.name)
            self.error = self.error or error

    def _step_until_done(self) -> None:
        task_thread, baton, loop, step = self.task_thread, self._baton, self._loop, self.task.step
        polled = slice_start = now_ms()
        while not task_thread.cancelled:
            task_thread.expect_wake()
            progress = step()
            self.steps += 1
            if progress is StepResult.DONE:
                return
            now = now_ms()
            if progress is StepResult.IDLE:
                loop.poll(0)
                if not task_thread.woken and not task_thread.cancelled:
                    task_thread.rest()
                    slice_start = now_ms()
                polled = now_ms()
            elif now - polled > POLL_EVERY_MS:
                loop.poll(0)
                polled = now
            if now - slice_start > SLICE_MS and baton.wanted:
                baton.yield_to_others(task_thread.turn)
                slice_start = polled = now_ms()
        raise TaskCancelled(f"task {self.task.name} was cancelled")


def waited_ns(thread: str) -> int:
    """How long a thread of this process has waited for a core, by its number in the system."""
    file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)  # thrice as fast as open()
    try:
        return int(os.read(file, SCHEDSTAT_BYTES).split()[1])
    finally:
        os.close(file)


class BatonLoan(Loan):
    """Lends the baton of a task's thread while the user's code runs."""

    __slots__ = ("_baton", "_lent", "_turn")

    def __init__(self, baton: Baton, turn: Turn) -> None:
        self._baton = baton
        self._turn = turn
        self._lent = False

    def lend(self) -> None:
        self._baton.lend(self._turn)
        self._lent = True

    def regain(self) -> None:
        if self._lent:
            self._lent = False
            self._baton.regain(self._turn)
