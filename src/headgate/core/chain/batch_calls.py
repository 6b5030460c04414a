"""Calls in batches for one thread without an event loop, and the choice between the drivers."""

from collections.abc import Callable

from headgate.base.elements import Record
from headgate.base.figures import BatchFigures
from headgate.core.chain.async_calls import (
    AsyncCalls,
    AsyncWork,
    BatchWork,
    ImmediateCalls,
    run_at_once,
)
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.batch_scheduler import BatchScheduler, CallBatch


class ImmediateBatchCalls:
    """Makes the calls for all records when they are submitted, to their end.

    Waits take no time: its own clock goes on to the moment that is waited for.
    """

    def __init__(self, work: BatchWork, completed: Callable[[], None]) -> None:
        self._work = work
        self._scheduler = BatchScheduler(work)
        self._now_ms = 0.0
        self._done: list[PendingCall] = []
        self._open = True
        try:
            run_at_once(work.begin())
        except BaseException:
            self.close()
            raise

    def submit(self, slots: list[PendingCall]) -> None:
        scheduler = self._scheduler
        scheduler.submitted(slots, self._now_ms)
        expected = len(self._done) + len(slots)
        while True:
            begun, _ = scheduler.advance(self._now_ms)
            for batch in begun:
                self._call(batch)
            self._done += scheduler.take_answered()
            if len(self._done) == expected:
                return
            if not begun:
                assert scheduler.wake_ms is not None, "records wait for nothing"
                self._now_ms = max(self._now_ms, scheduler.wake_ms)

    def input_ended(self) -> None:
        """Nobody waits for more."""

    def figures(self) -> BatchFigures | None:
        return self._scheduler.figures(self._now_ms)

    def has_completed(self) -> bool:
        return bool(self._done)

    def take(self) -> list[PendingCall]:
        done, self._done = self._done, []
        return done

    def run(self, action: Callable[[], Record]) -> Record:
        return action()

    def close(self) -> None:
        if self._open:
            self._open = False
            run_at_once(self._work.end())

    def _call(self, batch: CallBatch) -> None:
        try:
            found = run_at_once(self._work.function.async_invoke_batch(batch.values()))
        except Exception as error:
            self._scheduler.failed(batch, error, self._now_ms)
        else:
            self._scheduler.succeeded(batch, found, self._now_ms)


def immediate_calls(work: AsyncWork | BatchWork, completed: Callable[[], None]) -> AsyncCalls:
    """Calls without an event loop."""
    if isinstance(work, BatchWork):
        return ImmediateBatchCalls(work, completed)
    return ImmediateCalls(work, completed)
