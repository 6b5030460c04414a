"""Asynchronous calls of a simulated task: the answers come after a while, in any order.

The function itself is called at once, without an event loop; what is simulated is the way back. Law
as for the real ones: each answer is reported inside the baton, and none comes after the close.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from headgate.base.elements import Record
from headgate.core.chain.async_calls import AsyncWork, ImmediateCalls
from headgate.core.chain.async_queue import PendingCall
from headgate.sim.worker import SimWorker

DELAYS_MS: Final = (0.0, 0.1, 1.0, 20.0)


class SimCalls:
    """Calls of one operator."""

    def __init__(
        self,
        worker: SimWorker,
        name: str,
        random: Random,
        work: AsyncWork,
        tell: Callable[[], None],
    ) -> None:
        self._worker = worker
        self._what = f"call of {name}"
        self._random = random
        self._tell = tell
        self._has_notified = self._closed = False
        self._ended: list[PendingCall] = []
        self._calls = ImmediateCalls(work, lambda: None)

    def submit(self, slots: list[PendingCall]) -> None:
        self._calls.submit(slots)
        for slot in self._calls.take():
            delay_ms = self._random.choice(DELAYS_MS)
            self._worker.later(delay_ms, self._what, partial(self._answered, slot))

    def has_completed(self) -> bool:
        return bool(self._ended)

    def take(self) -> list[PendingCall]:
        self._has_notified = False
        taken, self._ended = self._ended, []
        return taken

    def run(self, action: Callable[[], Record]) -> Record:
        return action()

    def close(self) -> None:
        self._closed = True
        self._calls.close()

    def _answered(self, slot: PendingCall) -> None:
        if self._closed:
            return
        self._ended.append(slot)
        if not self._has_notified:
            self._has_notified = True
            self._tell()
