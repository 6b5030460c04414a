"""Calls for batches of records on an event loop; ``BatchScheduler`` says which and when.

Law: all methods but ``figures`` are for the loop's thread. A call that has timed out is cancelled,
and what comes of it later is dropped.
"""

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from typing import Final

from headgate.base.elements import Record
from headgate.base.figures import BatchFigures
from headgate.core.chain.async_calls import BatchWork
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.batch_scheduler import BatchScheduler, CallBatch

log = logging.getLogger(__name__)

BEAT_S: Final = 0.25
BLOCKED_S: Final = 1.0
"""A loop that is late by so much was blocked; a beat tells while calls are in flight."""
SILENT_S: Final = 60.0
"""Between two lines of the log about that."""


class BatchCaller:
    """``answered`` takes records that have their outcome; tasks run in copies of ``context``."""

    def __init__(
        self,
        work: BatchWork,
        loop: asyncio.AbstractEventLoop,
        context: Context,
        answered: Callable[[list[PendingCall]], None],
    ) -> None:
        self._work = work
        self._loop = loop
        self._context = context
        self._answered = answered
        self._function = type(work.function).__name__
        self._scheduler = BatchScheduler(work)
        self._running: dict[CallBatch, asyncio.Task[None]] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._silent_until = 0.0

    def begin(self, slots: list[PendingCall]) -> None:
        """Call the function for these, in batches."""
        self._scheduler.submitted(slots, self._now_ms())
        self._advance()

    def input_ended(self) -> None:
        """No record follows."""
        self._scheduler.input_ended()
        self._advance()

    def figures(self) -> BatchFigures:
        """Figures of all calls so far; for any thread."""
        return self._scheduler.figures(self._now_ms())

    def stop(self) -> None:
        """Answer no more."""
        self._running.clear()
        for handle in (self._timer, self._soon, self._beat):
            if handle is not None:
                handle.cancel()

    def _now_ms(self) -> float:
        return self._loop.time() * 1000

    def _advance(self) -> None:
        """Do what the scheduler says, and come back when it wants."""
        loop, scheduler = self._loop, self._scheduler
        self._soon = None
        due = scheduler.advance(self._now_ms())
        for batch in due.cancel:
            task = self._running.pop(batch)
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            task.cancel()
        for batch in due.begin:
            self._running[batch] = loop.create_task(self._call(batch))
        if due.begin and self._beat is None:
            self._start_beat()
        answered = scheduler.take_answered()
        if answered:
            self._answered(answered)
        wake = None if scheduler.wake_ms is None else scheduler.wake_ms / 1000
        if self._timer is not None:
            if self._timer.when() == wake:
                return
            self._timer.cancel()
        self._timer = None if wake is None else self._at(wake, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._advance()

    async def _call(self, batch: CallBatch) -> None:
        found: Record = None
        error: BaseException | None = None
        try:
            found = await self._work.function.async_invoke_batch(batch.values())
        except asyncio.CancelledError as cancelled:
            error = RuntimeError(
                f"a call of async_invoke_batch() of {self._function} was cancelled"
            )
            error.__cause__ = cancelled
        except BaseException as trouble:  # also a user's exit(): it must not end the loop
            error = trouble
        if self._running.pop(batch, None) is None:  # it is too late
            return
        if error is None:
            self._scheduler.succeeded(batch, found, self._now_ms())
        else:
            self._scheduler.failed(batch, error, self._now_ms())
        if self._soon is None:  # not here: new tasks would inherit this one's context variables
            self._soon = self._loop.call_soon(self._advance, context=self._context)

    def _at(self, when: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_at(when, call, context=self._context)

    # Whether the function blocks the loop.

    def _start_beat(self) -> None:
        self._beat = self._at(self._loop.time() + BEAT_S, self._check_beat)

    def _check_beat(self) -> None:
        assert self._beat is not None
        now = self._loop.time()
        late_s = now - self._beat.when()
        self._beat = None
        if late_s > BLOCKED_S and now >= self._silent_until:
            self._silent_until = now + SILENT_S
            log.warning(
                "operator %r: %s has blocked its event loop for %.1f s, so that no call went on "
                "and no timeout was kept; await in async_invoke_batch(), and pass blocking calls "
                "to asyncio.get_running_loop().run_in_executor(None, call)",
                self._work.operator,
                self._function,
                late_s,
            )
        if self._running:
            self._start_beat()
