"""Asynchronous calls in batches in simulated jobs, by the scheduler that real workers use.

The function is called when its batch begins, in no time; the outcome comes after a while, in any
order, inside the baton, and none after the close. Time is that of the simulation.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from headgate.base.elements import Record
from headgate.base.figures import BatchFigures
from headgate.core.chain.async_calls import BatchWork, run_at_once
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.batch_scheduler import BatchScheduler, CallBatch
from headgate.sim.worker import SimWorker

NO_TIMEOUT_MS: Final = 1e9
"""Simulated calls do not time out: a worker may be frozen for any time."""


class SimBatchCalls:
    """Calls of one operator; what the loop's thread would do happens in timers of the worker."""

    def __init__(
        self,
        worker: SimWorker,
        name: str,
        random: Random,
        delays_ms: Sequence[float],
        work: BatchWork,
        tell: Callable[[], None],
    ) -> None:
        self._worker = worker
        self._what = f"batch of {name}"
        self._random = random
        self._delays_ms = delays_ms
        self._work = work
        self._tell = tell
        self._scheduler = BatchScheduler(work)
        self._wake_ms: float | None = None
        self._has_notified = self._closed = False
        self._ended: list[PendingCall] = []
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

    def has_completed(self) -> bool:
        return bool(self._ended)

    def take(self) -> list[PendingCall]:
        self._has_notified = False
        taken, self._ended = self._ended, []
        return taken

    def run(self, action: Callable[[], Record]) -> Record:
        return action()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            run_at_once(self._work.end())

    @property
    def _now_ms(self) -> float:
        return self._worker.clock.now_ms

    def _soon(self, call: Callable[[], None]) -> None:
        """In the order in which it was said: the thread takes one after the other."""
        self._worker.later(0, self._what, call)

    def _submitted(self, slots: list[PendingCall]) -> None:
        self._scheduler.submitted(slots, self._now_ms)
        self._advance()

    def _advance(self) -> None:
        if self._closed:
            return
        scheduler = self._scheduler
        for batch in scheduler.advance(self._now_ms).begin:
            ended = self._call(batch)
            self._worker.later(self._random.choice(self._delays_ms), self._what, ended)
        self._ended += scheduler.take_answered()
        if self._ended and not self._has_notified:
            self._has_notified = True
            self._tell()
        wake_ms = scheduler.wake_ms
        if wake_ms is None or wake_ms - self._now_ms > NO_TIMEOUT_MS / 2:
            return
        if self._wake_ms is None or wake_ms < self._wake_ms:
            self._wake_ms = wake_ms
            self._worker.later(max(0.0, wake_ms - self._now_ms), self._what, self._wake)

    def _wake(self) -> None:
        self._wake_ms = None
        self._advance()

    def _call(self, batch: CallBatch) -> Callable[[], None]:
        try:
            found = run_at_once(self._work.function.async_invoke_batch(batch.values()))
        except Exception as error:
            return partial(self._over, partial(self._scheduler.failed, batch, error))
        return partial(self._over, partial(self._scheduler.succeeded, batch, found))

    def _over(self, report: Callable[[float], None]) -> None:
        if not self._closed:
            report(self._now_ms)
            self._advance()
