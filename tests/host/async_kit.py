"""Asynchronous calls on a real event loop, without the task that makes them."""

from typing import Any

from headgate.base.figures import BatchFigures
from headgate.core.chain.async_calls import AsyncWork, BatchWork
from headgate.core.chain.async_queue import PendingCall
from headgate.host.worker.async_calls import LoopCalls
from tests.host.rig import eventually


class DrivenCalls:
    """Drives calls as a task does; counts how often the task would be notified."""

    def __init__(self, work: AsyncWork | BatchWork) -> None:
        self.notified = 0
        self.function: Any = work.function
        self.calls = LoopCalls(lambda call: call(), "test", work, self._notify)

    def _notify(self) -> None:
        self.notified += 1

    def submit(self, *records: Any) -> list[PendingCall]:
        slots = [PendingCall(record, None) for record in records]
        self.calls.submit(slots)
        return slots

    def take(self, count: int) -> list[PendingCall]:
        taken: list[PendingCall] = []

        def enough() -> bool:
            taken.extend(self.calls.take())
            return len(taken) >= count

        eventually(enough, f"{count} answers")
        return taken

    def figures(self) -> BatchFigures:
        figures = self.calls.figures()
        assert figures is not None
        return figures

    def __enter__(self) -> "DrivenCalls":
        return self

    def __exit__(self, *error: Any) -> None:
        self.calls.close()
