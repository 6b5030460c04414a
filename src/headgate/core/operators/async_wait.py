"""The operator that waits for asynchronous calls: many records in flight at once.

It admits records up to its capacity, waits in the middle of a bundle when it is full, and sends on
what its queue releases. Law: it holds at most ``capacity`` records, and none after the end of the
input; timestamps stay with their records. Records of an earlier run whose results had not left are
called again before anything new: with the old parallelism each task gets back its own, in order
and with the watermarks between them; with another one each record goes to one task, without
watermarks, which the sources emit anew.
"""

import pickle
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, cast

from msgspec import structs

from headgate.base.elements import Bundle, Record, StreamStatus, Watermark
from headgate.base.errors import StateBroken, UserFunctionFailed
from headgate.base.figures import AsyncFigures, BatchFigures
from headgate.base.moved import loads
from headgate.core.chain.async_calls import (
    AsyncCalls,
    AsyncWork,
    BatchSettings,
    BatchWork,
    Retry,
)
from headgate.core.chain.async_queue import (
    AsyncQueue,
    HeldCalls,
    OrderedQueue,
    PendingCall,
    TimeUpdate,
    UnorderedQueue,
)
from headgate.core.chain.context import OperatorContext, OperatorRuntimeContext
from headgate.core.chain.left_out import FailureStreak, bundle_without
from headgate.core.chain.snapshots import restored_parts
from headgate.core.chain.user_function import PIECE, StatefulOperator, UserFunction
from headgate.functions.async_functions import AsyncFunction, AsyncRetryStrategy, BatchAsyncFunction
from headgate.functions.context import SnapshotMoment

CALLS: Final = "calls"
"""The name of the part of the state that holds the records on their way."""

AnyAsyncFunction: TypeAlias = AsyncFunction[Record, Record] | BatchAsyncFunction[Record, Record]

PendingRecords: TypeAlias = "deque[tuple[Record, int | None] | TimeUpdate]"
"""Records with their timestamps, and updates between them, in order."""


class AsyncWaitOperator(StatefulOperator):
    """``async_invoke`` for each record, or ``async_invoke_batch`` for several at once."""

    def __init__(
        self,
        function: AnyAsyncFunction,
        timeout_ms: float,
        capacity: int,
        ordered: bool,
        retry: AsyncRetryStrategy[Record] | None = None,
        batches: BatchSettings | None = None,
    ) -> None:
        self._async_function = function
        method = "async_invoke" if batches is None else "async_invoke_batch"
        self._function: UserFunction = _RemoteFunction(function, method, self)
        self._timeout_ms = timeout_ms
        self._retry = retry
        self._batches = batches
        self._queue: AsyncQueue = OrderedQueue(capacity) if ordered else UnorderedQueue(capacity)
        self._calls: AsyncCalls | None = None
        self._pending: PendingRecords = deque()
        """Records of an earlier run that wait for room in the queue, and the updates after them."""
        self._failed_calls = 0
        """Calls in the queue whose records are left out when their turn comes."""
        self._last_batches: BatchFigures | None = None
        """Figures of calls in batches when the calls were closed."""
        self._name = ""
        self._full_ms = 0.0
        self._full_since_ms: float | None = None
        """Records wait for a place since then."""

    def async_calls(self) -> AsyncFigures | None:
        full_ms, since_ms = self._full_ms, self._full_since_ms
        if since_ms is not None:
            full_ms += self.context.elapsed_ms() - since_ms
        queue = self._queue
        return AsyncFigures(self._name, queue.capacity, queue.size, full_ms)

    def batch_calls(self) -> BatchFigures | None:
        calls = self._calls
        return self._last_batches if calls is None else calls.figures()

    def open(self, context: OperatorContext) -> None:
        self._name = context.operator
        self._streak = None if self.failures is None else self.failures.streak()
        super().open(context)
        states, task = restored_parts(context.restored, CALLS), context.task
        self._pending = read_calls(states, task.subtask, task.parallelism) if states else deque()
        self._calls = context.async_calls(self._work(context), self._completed)
        self._submit_pending(self._calls)

    def process(self, bundle: Bundle, number: int) -> None:
        records, times = bundle.records, bundle.timestamps
        calls, queue = self._calls, self._queue
        assert calls is not None
        while self._pending:
            self._await_place(calls)
        start, count = 0, len(records)
        while start < count:
            room = queue.capacity - queue.size
            if room == 0:
                self._await_place(calls)
                continue
            end = start + room
            calls.submit(queue.admit(records[start:end], times and times[start:end]))
            start = end
        self._collect(calls)

    def watermark_advanced(self, watermark: Watermark) -> None:
        self._time_updated(watermark)

    def status_changed(self, status: StreamStatus) -> None:
        self._time_updated(status)

    def finish(self) -> None:
        assert self._calls is not None
        self._calls.input_ended()
        while self._queue.size or self._pending:
            self._await_some(self._calls)

    def waiting(self) -> Mapping[str, bytes]:
        held = self._queue.held()
        return {CALLS: write_calls(held, self._pending)} if held or self._pending else {}

    def run(self, action: Callable[[], Record]) -> Record:
        """Call something of the user's function where it lives."""
        assert self._calls is not None
        return self._calls.run(action)

    def close(self) -> None:
        calls = self._calls
        if calls is not None:
            last = calls.figures()
            self._last_batches = None if last is None else structs.replace(last, in_flight=0)
            self._calls = None
            calls.close()

    def _work(self, context: OperatorContext) -> AsyncWork | BatchWork:
        """What the driver of the calls has to do."""
        function = self._async_function
        retry = None if self._retry is None else Retry(self._retry)
        begin, end, copies = self._begin, self._end, not self.reuses_objects
        if self._batches is None:
            single = cast("AsyncFunction[Record, Record]", function)
            return AsyncWork(single, begin, end, self._timeout_ms, retry, copies)
        return BatchWork(
            cast("BatchAsyncFunction[Record, Record]", function),
            begin,
            end,
            self._timeout_ms,
            retry,
            copies,
            self._batches,
            context.operator,
            context.task.parallelism,
            splits_failed=self._batches.batching.split_failed and self.failures is not None,
        )

    def _begin(self) -> object:
        runtime = _AsyncContext(self.context)
        self._function.initialize(self.context, runtime)
        begin = getattr(self._async_function, "open", None)
        return None if begin is None else begin(runtime)

    def _end(self) -> object:
        end = getattr(self._async_function, "close", None)
        return None if end is None else end()

    def _completed(self) -> None:
        """Calls have ended while the operator did not wait."""
        if self._calls is not None:
            self._collect(self._calls)

    def _await_place(self, calls: AsyncCalls) -> None:
        """The queue is full: records wait for a place."""
        self._full_since_ms = began_ms = self.context.elapsed_ms()
        try:
            self._await_some(calls)
        finally:
            self._full_since_ms = None
            self._full_ms += self.context.elapsed_ms() - began_ms

    def _await_some(self, calls: AsyncCalls) -> None:
        if not calls.has_completed():
            self.context.wait_until(calls.has_completed)
        self._collect(calls)

    def _collect(self, calls: AsyncCalls) -> None:
        """Take what has ended and send on what may go."""
        done = calls.take()
        for call in done:
            if call.error is not None:
                self._failed(call, call.error)
        if done:
            self._queue.completed(done)
            self._send()
            if self._pending:
                self._submit_pending(calls)
                self._send()

    def _failed(self, call: PendingCall, error: BaseException) -> None:
        """A call came to nothing, its timeout and its retries too; it keeps its place in line.

        Its record is left out when its turn comes: until then a checkpoint holds the record, and a
        new run calls it again.
        """
        if self.failures is not None and isinstance(error, Exception):
            self.failures.check(error)
            self._failed_calls += 1
            call.results = [_FailedCall(error, call.record)]
            return
        # Here, so that it does not matter where it was noticed: at the end, in a mail.
        raise UserFunctionFailed(self.context.operator, error) from error

    def _time_updated(self, update: TimeUpdate) -> None:
        if self._pending:
            if type(self._pending[-1]) is type(update):  # the later one says all
                self._pending.pop()
            self._pending.append(update)
        else:
            self._queue.time_updated(update)
            self._send()

    def _submit_pending(self, calls: AsyncCalls) -> None:
        """Begin what waits from before, as far as there is room; its results come by mail."""
        waiting, queue = self._pending, self._queue
        while waiting:
            first = waiting[0]
            if not isinstance(first, tuple):
                queue.time_updated(first)
                waiting.popleft()
                continue
            room = queue.capacity - queue.size
            if room == 0:
                return
            records: list[Record] = []
            times: list[int | None] = []
            while waiting and isinstance(first := waiting[0], tuple) and len(records) < room:
                records.append(first[0])
                times.append(first[1])
                waiting.popleft()
            calls.submit(queue.admit(records, times))

    def _send(self) -> None:
        output = self.output
        for element in self._queue.release():
            if isinstance(element, Watermark):
                output.emit_watermark(element)
            elif isinstance(element, StreamStatus):
                output.emit_status(element)
            else:
                if self._streak is not None:
                    element = self._without_failed(element, self._streak)
                records, times = element.records, element.timestamps
                for start in range(0, len(records), PIECE):
                    end = start + PIECE
                    output.collect(Bundle(records[start:end], times and times[start:end]))

    def _without_failed(self, bundle: Bundle, streak: FailureStreak) -> Bundle:
        """Results that may go; the policy takes calls among them that have failed."""
        if not self._failed_calls:
            streak.passed()
            return bundle
        failed = [
            place for place, record in enumerate(bundle.records) if type(record) is _FailedCall
        ]
        self._failed_calls -= len(failed)
        following, times = 0, bundle.timestamps
        for place in failed:
            if place > following:
                streak.passed()
            following = place + 1
            call = bundle.records[place]
            streak.failed(call.error, call.record, None if times is None else times[place])
        if following < len(bundle.records):
            streak.passed()
        return bundle_without(bundle, failed)


class _FailedCall(NamedTuple):
    """Stands in the queue for the results of a call."""

    error: Exception
    record: Record


class _RemoteFunction(UserFunction):
    """A function that lives in another thread: checkpoints call it there."""

    def __init__(
        self, function: AnyAsyncFunction, method: str, operator: AsyncWaitOperator
    ) -> None:
        super().__init__(function, method)
        self._operator = operator

    def snapshot(self, moment: SnapshotMoment) -> bytes | None:
        if self.states.is_empty and not hasattr(self.function, "snapshot_state"):
            return None
        take = super().snapshot
        found: bytes | None = self._operator.run(lambda: take(moment))
        return found

    def checkpoint_completed(self, checkpoint: int) -> None:
        if hasattr(self.function, "notify_checkpoint_complete"):
            tell = super().checkpoint_completed
            self._operator.run(lambda: tell(checkpoint))

    def checkpoint_aborted(self, checkpoint: int) -> None:
        if hasattr(self.function, "notify_checkpoint_aborted"):
            tell = super().checkpoint_aborted
            self._operator.run(lambda: tell(checkpoint))


class _AsyncContext(OperatorRuntimeContext):
    """Calls of several keys are on their way at once, so that there is no current key."""

    no_state = (
        "an AsyncFunction has no keyed state; keep it in a KeyedProcessFunction before or after it"
    )


def write_calls(held: Sequence[HeldCalls], waiting: PendingRecords) -> bytes:
    """What the queue holds, and what waits for it; raises StateBroken."""
    rows: list[tuple[Record, int | None] | TimeUpdate] = []
    for records, times, updates in held:
        rows += zip(records, times, strict=True)
        rows += updates
    rows += waiting
    try:
        return pickle.dumps(rows, 5)
    except Exception as error:
        raise StateBroken(
            f"records in asynchronous calls cannot be written to a checkpoint "
            f"({type(error).__name__}: {error}); records must be picklable, and async_invoke() "
            f"must not change them"
        ) from error


def read_calls(states: Sequence[bytes | None], subtask: int, parallelism: int) -> PendingRecords:
    """The records that this task calls again, out of all old tasks' states; raises StateBroken."""
    tasks = [[] if state is None else _rows(state) for state in states]
    if len(tasks) == parallelism:
        return deque(tasks[subtask])
    records = [row for rows in tasks for row in rows if isinstance(row, tuple)]
    count = len(records)
    return deque(records[count * subtask // parallelism : count * (subtask + 1) // parallelism])


def _rows(data: bytes) -> list[tuple[Record, int | None] | TimeUpdate]:
    try:
        rows = loads(data)
        if not isinstance(rows, list):
            raise TypeError(f"{type(rows).__name__} is no list")
        return rows
    except (Exception, SystemExit) as error:  # a pickle can raise anything
        raise StateBroken(
            f"records in asynchronous calls cannot be read ({type(error).__name__}: {error}); "
            f"their classes must still be there under their old names"
        ) from error
