"""Tumbling and sliding windows by the clock, whole bundles at a time.

All records of a bundle belong to the moment at which it came. One mail at a time tells when the
next window is over. Law: a window fires once, when the clock has passed it; those that are open at
the end of the input never fire.
"""

import heapq
from functools import partial
from itertools import repeat

from headgate.base.elements import Bundle, Key
from headgate.core.chain.operator import Output
from headgate.core.state.backend import KeyedBackend
from headgate.core.window.general import Parts
from headgate.core.window.sliced import OPEN, SlicedKeeper
from headgate.core.window.spec import WindowPlan
from headgate.functions.assigners import (
    SlidingProcessingTimeWindows,
    TumblingProcessingTimeWindows,
)
from headgate.functions.triggers import ProcessingTimeTrigger


def can_clock(plan: WindowPlan, backend: KeyedBackend) -> bool:
    """Whether these windows can be kept so, in this backend."""
    return (
        not plan.batch  # there, windows fire with their key's timers
        and type(plan.assigner) in (TumblingProcessingTimeWindows, SlidingProcessingTimeWindows)
        and type(plan.trigger) is ProcessingTimeTrigger
        and plan.evictor is None
        and backend.direct(OPEN) is not None
    )


class ClockKeeper(SlicedKeeper):
    """See ``Keeper``."""

    def __init__(self, parts: Parts, output: Output) -> None:
        super().__init__(parts, output)
        self._lateness_ms = 0
        self._context = parts.context
        self._awaited_ms: int | None = None
        """When the mail comes that is on its way; None: none is."""
        self._closed = False
        if len(self._open) > 1:  # beside the namespace None: windows from before a restart
            self._look_up()
            self._await_next()

    def process(self, bundle: Bundle, keys: list[Key]) -> None:
        now_ms = self._context.now_ms()
        pane = now_ms - (now_ms - self._offset_ms) % self._pane_ms
        self._cursor.key = keys[-1]
        if self._size_ms == self._slide_ms:
            self._fold.into_one(bundle.records, keys, repeat(self.entries_from(pane)))
        else:
            self._fold.into_many(bundle.records, keys, repeat(self.entries_of_pane(pane)))
        self._await_next()

    def advance(self, watermark_ms: int) -> None:
        self._timers.watermark_advanced(watermark_ms)

    def close(self) -> None:
        self._closed = True

    def _await_next(self) -> None:
        if self._due and (self._awaited_ms is None or self._due[0][0] < self._awaited_ms):
            self._awaited_ms = self._due[0][0]
            delay_ms = max(0, self._awaited_ms + 1 - self._context.now_ms())
            self._context.later(delay_ms, partial(self._look, self._awaited_ms))

    def _look(self, awaited_ms: int) -> None:
        """Fire what is over; called as a mail, perhaps a little early."""
        if self._closed or awaited_ms != self._awaited_ms:
            return
        self._awaited_ms = None
        now_ms = self._context.now_ms()
        while self._due and self._due[0][0] < now_ms:
            _, window = heapq.heappop(self._due)
            if window in self._open:
                self._fire(window)
        self._answers.flush()
        self._await_next()
