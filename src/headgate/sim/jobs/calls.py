"""Asynchronous calls in simulated jobs, of single records and of batches.

A function is called at once, without an event loop; the answer comes after a while, in any order,
inside the baton, and none comes after the close. Batches are formed by the scheduler that real
workers use. Time is that of the simulation: what the loop's thread would do happens in timers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from headgate.base.elements import Record
from headgate.base.figures import BatchFigures
from headgate.core.chain.async_calls import AsyncCalls, AsyncWork, BatchWork
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.batch_scheduler import BatchScheduler, CallBatch
from headgate.core.chain.immediate_calls import ImmediateCalls, run_at_once
from headgate.sim.worker import SimWorker

NO_TIMEOUT_MS: Final = 1e9
"""Simulated calls do not time out: a worker may be frozen for any time."""


class SimCalls(ABC):
    """Calls of one operator. Answers wait here until the task takes them."""

    def __init__(
        self,
        worker: SimWorker,
        what: str,
        random: Random,
        delays_ms: Sequence[float],
        notify: Callable[[], None],
    ) -> None:
        """``what``: the label of timers; ``notify``: called when there is something to take."""
        self.worker = worker
        self.what = what
        self.is_closed = False
        self._random = random
        self._delays_ms = delays_ms
        self._notify = notify
        self._has_notified = False
        self._answered: list[PendingCall] = []

    @abstractmethod
    def submit(self, slots: list[PendingCall]) -> None: ...

    @abstractmethod
    def input_ended(self) -> None: ...

    @abstractmethod
    def figures(self) -> BatchFigures | None: ...

    @abstractmethod
    def close(self) -> None: ...

    def has_completed(self) -> bool:
        return bool(self._answered)

    def take(self) -> list[PendingCall]:
        self._has_notified = False
        taken, self._answered = self._answered, []
        return taken

    def run(self, action: Callable[[], Record]) -> Record:
        return action()

    def answer_later(self, answer: Callable[[], None]) -> None:
        """Call back after one of the delays."""
        self.worker.later(self._random.choice(self._delays_ms), self.what, answer)

    def answered(self, slots: list[PendingCall]) -> None:
        """These have an answer, which the task is to take."""
        self._answered += slots
        if self._answered and not self._has_notified:
            self._has_notified = True
            self._notify()


class SimSingleCalls(SimCalls):
    """A call for each record."""

    def __init__(
        self,
        worker: SimWorker,
        name: str,
        random: Random,
        delays_ms: Sequence[float],
        work: AsyncWork,
        notify: Callable[[], None],
    ) -> None:
        super().__init__(worker, f"call of {name}", random, delays_ms, notify)
        self._calls = ImmediateCalls(work, lambda: None)

    def submit(self, slots: list[PendingCall]) -> None:
        self._calls.submit(slots)
        for slot in self._calls.take():
            self.answer_later(partial(self._arrived, slot))

    def input_ended(self) -> None:
        """No call waits for more records."""

    def figures(self) -> BatchFigures | None:
        return None

    def close(self) -> None:
        self.is_closed = True
        self._calls.close()

    def _arrived(self, slot: PendingCall) -> None:
        if not self.is_closed:
            self.answered([slot])


class SimBatchCalls(SimCalls):
    """A call for each batch of records."""

    def __init__(
        self,
        worker: SimWorker,
        name: str,
        random: Random,
        delays_ms: Sequence[float],
        work: BatchWork,
        notify: Callable[[], None],
    ) -> None:
        super().__init__(worker, f"batch of {name}", random, delays_ms, notify)
        self._work = work
        self._scheduler = BatchScheduler(work)
        self._wake_ms: float | None = None
        try:
            run_at_once(work.begin())
        except BaseException:
            self.close()
            raise

    def submit(self, slots: list[PendingCall]) -> None:
        self._soon(partial(self._submitted, slots))

    def input_ended(self) -> None:
        self._scheduler.input_ended()
        self._soon(self._advance)

    def figures(self) -> BatchFigures | None:
        return self._scheduler.figures(self._now_ms)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            run_at_once(self._work.end())

    @property
    def _now_ms(self) -> float:
        return self.worker.clock.now_ms

    def _soon(self, call: Callable[[], None]) -> None:
        """Call back in the order of these requests: the thread takes one after the other."""
        self.worker.later(0, self.what, call)

    def _submitted(self, slots: list[PendingCall]) -> None:
        self._scheduler.submitted(slots, self._now_ms)
        self._advance()

    def _advance(self) -> None:
        if self.is_closed:
            return
        scheduler = self._scheduler
        for batch in scheduler.advance(self._now_ms).begin:
            self.answer_later(self._call(batch))
        self.answered(scheduler.take_answered())
        wake_ms = scheduler.wake_ms
        if wake_ms is None or wake_ms - self._now_ms > NO_TIMEOUT_MS / 2:
            return
        if self._wake_ms is None or wake_ms < self._wake_ms:
            self._wake_ms = wake_ms
            self.worker.later(max(0.0, wake_ms - self._now_ms), self.what, self._wake)

    def _wake(self) -> None:
        self._wake_ms = None
        self._advance()

    def _call(self, batch: CallBatch) -> Callable[[], None]:
        try:
            found = run_at_once(self._work.function.async_invoke_batch(batch.values()))
        except Exception as error:
            return partial(self._ended, partial(self._scheduler.failed, batch, error))
        return partial(self._ended, partial(self._scheduler.succeeded, batch, found))

    def _ended(self, report: Callable[[float], None]) -> None:
        if not self.is_closed:
            report(self._now_ms)
            self._advance()


def start_calls(
    worker: SimWorker,
    name: str,
    random: Random,
    delays_ms: Sequence[float],
    work: AsyncWork | BatchWork,
    notify: Callable[[], None],
) -> AsyncCalls:
    """The calls of an operator."""
    if isinstance(work, BatchWork):
        return SimBatchCalls(worker, name, random, delays_ms, work, notify)
    return SimSingleCalls(worker, name, random, delays_ms, work, notify)
