"""Asynchronous calls for one thread without an event loop, single or in batches."""

from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

from headgate.base.elements import Record
from headgate.base.figures import BatchFigures
from headgate.core.chain.async_calls import AsyncCalls, AsyncWork, BatchWork
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.batch_scheduler import BatchScheduler, CallBatch

_Work = TypeVar("_Work", bound=AsyncWork | BatchWork)


class CallsAtOnce(Generic[_Work]):
    """Base: makes the calls to their end when records are submitted."""

    def __init__(self, work: _Work, completed: Callable[[], None]) -> None:
        self._work = work
        self._done: list[PendingCall] = []
        self._open = True
        try:
            run_at_once(work.begin())
        except BaseException:
            self.close()
            raise

    def submit(self, slots: list[PendingCall]) -> None:
        raise NotImplementedError

    def input_ended(self) -> None:
        """Nobody waits for more."""

    def figures(self) -> BatchFigures | None:
        return None

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


class ImmediateCalls(CallsAtOnce[AsyncWork]):
    """A call for each record; no timeouts, no pauses before retries."""

    def submit(self, slots: list[PendingCall]) -> None:
        for slot in slots:
            try:
                slot.results = self._work.results_of(self._call(slot.record))
            except Exception as error:
                slot.error = error
        self._done += slots

    def _call(self, record: Record) -> Record:
        attempt, retry = 1, self._work.retry
        while True:
            found: Record = None
            error: Exception | None = None
            try:
                found = run_at_once(self._work.function.async_invoke(record))
            except Exception as trouble:
                error = trouble
            if retry is None or retry.pause_ms(attempt, found, error) is None:
                if error is not None:
                    raise error
                return found
            attempt += 1


class ImmediateBatchCalls(CallsAtOnce[BatchWork]):
    """Waits take no time: its own clock goes on to the moment that is waited for."""

    def __init__(self, work: BatchWork, completed: Callable[[], None]) -> None:
        self._scheduler = BatchScheduler(work)
        self._now_ms = 0.0
        super().__init__(work, completed)

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

    def figures(self) -> BatchFigures | None:
        return self._scheduler.figures(self._now_ms)

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


def run_at_once(started: Record) -> Record:
    """Step a coroutine to its end; what waits for the world cannot run without an event loop."""
    if not isinstance(started, Coroutine):
        return started
    try:
        while True:
            waits_for = started.send(None)
            if waits_for is not None:
                raise RuntimeError(f"there is no event loop here, and a call waits: {waits_for!r}")
    except StopIteration as end:
        return end.value
    finally:
        started.close()
