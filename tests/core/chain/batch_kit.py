"""A function whose batches the test answers, and a scheduler that it drives by hand."""

from typing import Any

from headgate.core.chain.async_calls import BatchSettings, BatchWork, Retry
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.batch_scheduler import BatchScheduler, CallBatch
from headgate.functions.async_functions import BatchAsyncFunction, Batching


class Negate(BatchAsyncFunction[Any, Any]):
    """Answers with the negative of each number; ``calls`` are the batches so far."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []

    async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
        self.calls.append(values)
        return [-value for value in values]

    def cost(self, value: Any) -> float:
        return value  # type: ignore[no-any-return]


def batch_work(
    function: Any = None, batching: Batching | None = None, retry: Any = None, **fields: Any
) -> BatchWork:
    settings = BatchSettings(
        batching or Batching(4), fields.pop("rate_limit", None), fields.pop("cache", None)
    )
    return BatchWork(
        function or Negate(),
        fields.pop("begin", lambda: None),
        fields.pop("end", lambda: None),
        fields.pop("timeout_ms", 1000.0),
        None if retry is None else Retry(retry),
        settings=settings,
        operator="embed",
        **fields,
    )


class Desk:
    """Time and batches in the test's hand."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        self.work = batch_work(*args, **fields)
        self.scheduler = BatchScheduler(self.work)
        self.now_ms = 0.0
        self.called: list[CallBatch] = []
        self.cancelled: list[CallBatch] = []
        self.answers: list[PendingCall] = []
        self.slots: list[PendingCall] = []

    def submit(self, *records: Any) -> list[PendingCall]:
        slots = [PendingCall(record, None) for record in records]
        self.slots += slots
        self.scheduler.submitted(slots, self.now_ms)
        self.advance()
        return slots

    def advance(self, ms: float = 0.0) -> None:
        self.now_ms += ms
        due = self.scheduler.advance(self.now_ms)
        for batch in due.cancel:
            self.called.remove(batch)
        self.cancelled += due.cancel
        self.called += due.begin
        self.answers += self.scheduler.take_answered()

    def wake(self) -> None:
        """Go on to the moment that the scheduler wants."""
        assert self.scheduler.wake_ms is not None
        self.advance(max(0.0, self.scheduler.wake_ms - self.now_ms))

    def values(self) -> list[list[Any]]:
        return [batch.values() for batch in self.called]

    def answer(self, found: Any = None, place: int = 0) -> None:
        batch = self.called.pop(place)
        found = [-value for value in batch.values()] if found is None else found
        self.scheduler.succeeded(batch, found, self.now_ms)
        self.advance()

    def fail(self, error: BaseException, place: int = 0) -> None:
        self.scheduler.failed(self.called.pop(place), error, self.now_ms)
        self.advance()

    def outcomes(self) -> dict[Any, Any]:
        """By record: its result, or the error's text."""
        return {
            slot.record: str(slot.error) if slot.results is None else slot.results[0]
            for slot in self.answers
        }
