"""The operator that waits for asynchronous calls: many records in flight at once.

It admits records up to its capacity, waits in the middle of a bundle when there is no room, and
sends on what its queue lets go. Law: what is held is at most ``capacity`` records, and nothing is
left when the input has ended. Timestamps stay with their records.
"""

from headgate.base.elements import Bundle, StreamStatus, Watermark
from headgate.base.errors import UserFunctionFailed
from headgate.core.chain.async_calls import (
    AsyncCalls,
    AsyncGuest,
    AsyncWork,
    Retry,
    RetryStrategy,
)
from headgate.core.chain.async_queue import AsyncQueue, OrderedQueue, UnorderedQueue
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.operators import PIECE
from headgate.core.chain.runtime import RuntimeContext


class AsyncWaitOperator(Operator):
    """``async_invoke(value)`` for each record; what it answers is sent on when it is there."""

    def __init__(
        self,
        function: AsyncGuest,
        timeout_ms: float,
        capacity: int,
        ordered: bool,
        retry: RetryStrategy | None = None,
    ) -> None:
        self._function = function
        self._timeout_ms = timeout_ms
        self._retry = retry
        self._queue: AsyncQueue = OrderedQueue(capacity) if ordered else UnorderedQueue(capacity)
        self._calls: AsyncCalls | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        work = AsyncWork(
            self._function,
            self._begin,
            self._end,
            self._timeout_ms,
            None if self._retry is None else Retry(self._retry),
            copies=not self.reuses_objects,
        )
        self._calls = context.async_calls(work, self._completed)

    def process(self, bundle: Bundle, number: int) -> None:
        records, times = bundle.records, bundle.timestamps
        calls, queue = self._calls, self._queue
        assert calls is not None
        start, count = 0, len(records)
        while start < count:
            room = queue.capacity - queue.size
            if room == 0:
                self._await_some(calls)
                continue
            end = start + room
            calls.submit(queue.admit(records[start:end], times and times[start:end]))
            start = end
        self._collect(calls)

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._queue.noted(watermark)
        self._send()

    def status_changed(self, status: StreamStatus) -> None:
        self._queue.noted(status)
        self._send()

    def finish(self) -> None:
        assert self._calls is not None
        while self._queue.size:
            self._await_some(self._calls)

    def close(self) -> None:
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.close()

    def _begin(self) -> object:
        begin = getattr(self._function, "open", None)
        return None if begin is None else begin(_AsyncContext(self.context))

    def _end(self) -> object:
        end = getattr(self._function, "close", None)
        return None if end is None else end()

    def _completed(self) -> None:
        """Calls have ended, and nobody waited for them."""
        if self._calls is not None:
            self._collect(self._calls)

    def _await_some(self, calls: AsyncCalls) -> None:
        if not calls.has_completed():
            self.context.wait_until(calls.has_completed)
        self._collect(calls)

    def _collect(self, calls: AsyncCalls) -> None:
        """Take what has ended and send on what may go."""
        done = calls.take()
        for slot in done:
            if slot.error is not None:
                # Here, so that it does not matter where it was noticed: at the end, in a mail.
                raise UserFunctionFailed(self.context.operator, slot.error) from slot.error
        if done:
            self._queue.completed(done)
            self._send()

    def _send(self) -> None:
        output = self.output
        for element in self._queue.release():
            if isinstance(element, Watermark):
                output.emit_watermark(element)
            elif isinstance(element, StreamStatus):
                output.emit_status(element)
            else:
                records, times = element.records, element.timestamps
                for start in range(0, len(records), PIECE):
                    end = start + PIECE
                    output.collect(Bundle(records[start:end], times and times[start:end]))


class _AsyncContext(RuntimeContext):
    """Calls of several keys are on their way at once, so that there is no current key."""

    no_state = (
        "an AsyncFunction has no keyed state; keep it in a KeyedProcessFunction before or behind it"
    )
