"""Asynchronous calls of one operator on an event loop of their own, in a thread of their own.

All of the user's function runs there: ``open``, the coroutines, ``timeout`` and ``close``. Records
come over many at a time, and so do the results go back. Law: each call has one answer, that of the
coroutine or that of ``timeout``, whichever comes first; with ``close`` every coroutine, the loop
and the thread have ended. ``SingleCaller`` makes a call for each record, ``BatchCaller`` one for
several, as its ``BatchScheduler`` says.
"""

import asyncio
import inspect
import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import Context, copy_context
from typing import Final, Generic, TypeVar

from headgate.base.elements import Record
from headgate.base.figures import BatchFigures
from headgate.core.chain.async_calls import AsyncWork, BatchWork
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.batch_scheduler import BatchScheduler, CallBatch
from headgate.core.chain.log_facts import facts_here, log_always_with

log = logging.getLogger(__name__)

_Called = TypeVar("_Called")
"""What a call is for: one record, or a batch."""

CANCEL_ROUNDS: Final = 3
CANCEL_S: Final = 1.0
"""A coroutine that goes on after its cancellation is cancelled again after so long."""
BEAT_S: Final = 0.25
BLOCKED_S: Final = 1.0
"""A loop that is late by so much was blocked; a beat tells while calls are in flight."""
SILENT_S: Final = 60.0
"""Between two lines of the log about that."""


class LoopCalls:
    """``post`` runs a callback inside the baton; ``notify`` is such a callback, of the task."""

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        name: str,
        work: AsyncWork | BatchWork,
        notify: Callable[[], None],
    ) -> None:
        self._post = post
        self._notify = notify
        self._work = work
        self._function = type(work.function).__name__
        # Between the threads: lists of slots there and back, each announced once until it was read.
        self._given: deque[list[PendingCall]] = deque()
        self._begin_scheduled = False
        self._ended: deque[list[PendingCall]] = deque()
        self._task_notified = False
        # Of the loop's thread alone.
        self._fresh: list[PendingCall] = []
        self._failure: BaseException | None = None
        self._stopping = False
        self._opened = threading.Event()
        self._log_facts = facts_here(sys._getframe(1))  # the operator is on the stack
        self._context = copy_context()
        self._context.run(log_always_with, self._log_facts)
        self._loop = asyncio.new_event_loop()
        self._caller = self._make_caller(work)
        self._thread = threading.Thread(
            target=self._context.copy().run,
            name=f"headgate-async-{name}",
            args=(self._live,),
            daemon=True,
        )
        try:
            self._thread.start()
        except BaseException:
            self._loop.close()
            raise
        self._opened.wait()
        if self._failure is not None:
            self.close()

    def _make_caller(self, work: AsyncWork | BatchWork) -> "SingleCaller | BatchCaller":
        if isinstance(work, BatchWork):
            return BatchCaller(work, self._loop, self._context, self._answered)
        return SingleCaller(work, self._loop, self._answered)

    # The task's side.

    def submit(self, slots: list[PendingCall]) -> None:
        self._given.append(slots)
        if not self._begin_scheduled:
            self._begin_scheduled = True
            self._loop.call_soon_threadsafe(self._begin_calls, context=self._context)

    def input_ended(self) -> None:
        # After the slots that were submitted.
        self._loop.call_soon_threadsafe(self._caller.input_ended, context=self._context)

    def figures(self) -> BatchFigures | None:
        return self._caller.figures()

    def has_completed(self) -> bool:
        return bool(self._ended)

    def take(self) -> list[PendingCall]:
        self._task_notified = False  # first: the task is notified of what comes from now on
        taken: list[PendingCall] = []
        while self._ended:
            taken += self._ended.popleft()
        return taken

    def run(self, action: Callable[[], Record]) -> Record:
        """Wait until the loop's thread has called this, between steps of coroutines."""
        done = threading.Event()
        found: list[Record] = []
        errors: list[BaseException] = []

        def act() -> None:
            try:
                found.append(action())
            except BaseException as error:  # also a user's exit(): it must not end the loop
                errors.append(error)
            finally:
                done.set()

        self._loop.call_soon_threadsafe(act, context=self._context)
        done.wait()
        if errors:
            raise errors[0]
        return found[0]

    def close(self) -> None:
        """Wait for the thread; raises what ``open`` or ``close`` of the function has raised."""
        if not self._stopping:
            self._stopping = True
            if self._failure is None:
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # The life of the loop.

    def _live(self) -> None:
        loop = self._loop
        executor = ThreadPoolExecutor(
            thread_name_prefix="headgate-async-blocking",
            initializer=log_always_with,
            initargs=(self._log_facts,),
        )
        loop.set_default_executor(executor)
        with ExitStack() as last:
            last.callback(self._opened.set)
            last.callback(asyncio.set_event_loop, None)
            last.callback(loop.close)
            last.callback(executor.shutdown, cancel_futures=True)
            last.callback(self._end_generators)
            last.callback(self._settle, self._work.end)
            last.callback(self._end_tasks)
            self._settle(self._work.begin)
            if self._failure is not None:
                return
            self._opened.set()
            while not self._stopping:  # a user's function may stop the loop, but not end it
                loop.run_forever()

    def _settle(self, call: Callable[[], object]) -> None:
        """Call the user's ``open`` or ``close``; there the loop is set but does not run."""
        asyncio.set_event_loop(self._loop)
        try:
            found = call()
            if inspect.isawaitable(found):
                self._loop.run_until_complete(_awaited(found))
        except BaseException as error:
            if self._failure is None:
                self._failure = error

    def _end_tasks(self) -> None:
        """Cancel what still runs, and what the function has started beside its calls."""
        self._caller.stop()
        tasks = asyncio.all_tasks(self._loop)
        for _ in range(CANCEL_ROUNDS):
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            _, tasks = self._loop.run_until_complete(asyncio.wait(tasks, timeout=CANCEL_S))
        if tasks:
            log.error("%d coroutines of %s ignore their cancellation", len(tasks), self._function)

    def _end_generators(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    # Calls, on the loop's thread.

    def _begin_calls(self) -> None:
        self._begin_scheduled = False
        slots: list[PendingCall] = []
        while self._given:
            slots += self._given.popleft()
        self._caller.begin(slots)

    def _answered(self, slots: list[PendingCall]) -> None:
        if not self._fresh:  # after all that is ready now: many answers in one hand-over
            self._loop.call_soon(self._hand_over)
        self._fresh += slots

    def _hand_over(self) -> None:
        fresh, self._fresh = self._fresh, []
        self._ended.append(fresh)
        if not self._task_notified:
            self._task_notified = True
            self._post(self._notify)


class _Caller(ABC, Generic[_Called]):
    """Makes calls on the loop's thread; ``answered`` takes records that have their outcome.

    Law: a call that has timed out is cancelled, and its later result is dropped.
    """

    def __init__(
        self,
        function: object,
        loop: asyncio.AbstractEventLoop,
        answered: Callable[[list[PendingCall]], None],
    ) -> None:
        self._loop = loop
        self._answered = answered
        self._function = type(function).__name__
        self._running: dict[_Called, asyncio.Task[None]] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def begin(self, slots: list[PendingCall]) -> None:
        """Call the function for these."""

    def input_ended(self) -> None:
        """No record follows."""

    def figures(self) -> BatchFigures | None:
        """Figures of all calls so far, of batches only; for any thread."""
        return None

    def stop(self) -> None:
        """Answer no more."""
        self._running.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _cancel(self, called: _Called) -> None:
        task = self._running.pop(called)
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        task.cancel()


class SingleCaller(_Caller[PendingCall]):
    """A call for each record, each with the same timeout."""

    def __init__(
        self,
        work: AsyncWork,
        loop: asyncio.AbstractEventLoop,
        answered: Callable[[list[PendingCall]], None],
    ) -> None:
        super().__init__(work.function, loop, answered)  # calls run in the order of their deadlines
        self._work = work

    def begin(self, slots: list[PendingCall]) -> None:
        loop, running, call = self._loop, self._running, self._call
        due = loop.time() + self._work.timeout_ms / 1000
        for slot in slots:
            slot.due = due
            running[slot] = loop.create_task(call(slot))
        if self._timer is None:
            self._timer = loop.call_at(due, self._expire)

    async def _call(self, slot: PendingCall) -> None:
        results: list[Record] | None = None
        error: BaseException | None = None
        try:
            if self._work.retry is None:
                found = await self._work.function.async_invoke(slot.record)
            else:
                found = await self._call_again(slot.record)
            results = self._work.results_of(found)
        except asyncio.CancelledError as cancelled:
            error = RuntimeError(f"a call of async_invoke() of {self._function} was cancelled")
            error.__cause__ = cancelled
        except BaseException as trouble:  # also a user's exit(): it must not end the loop
            error = trouble
        if self._running.pop(slot, None) is not None:  # else it is too late
            self._answer(slot, results, error)

    async def _call_again(self, record: Record) -> Record:
        retry, invoke = self._work.retry, self._work.function.async_invoke
        assert retry is not None
        attempt = 1
        while True:
            found: Record = None
            error: Exception | None = None
            try:
                found = await invoke(record)
            except Exception as trouble:
                error = trouble
            pause_ms = retry.pause_ms(attempt, found, error)
            if pause_ms is None:
                if error is not None:
                    raise error
                return found
            await asyncio.sleep(pause_ms / 1000)
            attempt += 1

    def _expire(self) -> None:
        """Answer by ``timeout`` what has taken too long; the oldest calls come first."""
        self._timer = None
        now = self._loop.time()
        expired: list[PendingCall] = []
        for slot in self._running:
            if slot.due > now:
                self._timer = self._loop.call_at(slot.due, self._expire)
                break
            expired.append(slot)
        for slot in expired:
            self._cancel(slot)
            try:
                results = self._work.results_of(self._work.function.timeout(slot.record))
            except BaseException as error:
                self._answer(slot, None, error)
            else:
                self._answer(slot, results, None)

    def _answer(
        self, slot: PendingCall, results: list[Record] | None, error: BaseException | None
    ) -> None:
        slot.results, slot.error = results, error
        self._answered([slot])


async def _awaited(found: Record) -> Record:
    return await found


class BatchCaller(_Caller[CallBatch]):
    """A call for several records; tasks run in copies of ``context``."""

    def __init__(
        self,
        work: BatchWork,
        loop: asyncio.AbstractEventLoop,
        context: Context,
        answered: Callable[[list[PendingCall]], None],
    ) -> None:
        super().__init__(work.function, loop, answered)
        self._work = work
        self._context = context
        self._scheduler = BatchScheduler(work)
        self._soon: asyncio.Handle | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._silent_until = 0.0

    def begin(self, slots: list[PendingCall]) -> None:
        self._scheduler.submitted(slots, self._now_ms())
        self._advance()

    def input_ended(self) -> None:
        self._scheduler.input_ended()
        self._advance()

    def figures(self) -> BatchFigures:
        return self._scheduler.figures(self._now_ms())

    def stop(self) -> None:
        super().stop()
        for handle in (self._soon, self._beat):
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
            self._cancel(batch)
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
