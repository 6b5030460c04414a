"""How many records a step may take, so that neither a slow function nor full outputs hold it up.

Until a step is over nothing is sent, no mail is read, no checkpoint is taken. Law: a step takes
about ``target_ms`` or one record, and no more than the free buffers of each output hold, going by
the records that a buffer has held lately. It rarely waits longer than ``WAIT_MS`` for buffers:
beyond what has once made it wait the pace grows slowly. Time in which threads of the worker waited
for a core does not count, nor does a wait until every other task of the worker had its turns:
shorter steps would only make more work for the cores.
"""

from collections.abc import Callable, Sequence
from typing import Final

from headgate.core.egress.writer import RecordWriter

STEP_MS: Final = 5.0
WAIT_MS: Final = 20.0
WAIT_ROUNDS: Final = 4
"""Readers in the same worker free a buffer when it is their turn; some turns free none."""
MOST_RECORDS: Final = 4096
FIRST_RECORDS: Final = 1  # nobody knows yet how slow the function is, or how large the records


class StepPace:
    """Learns how long a step took; says how many records the next one may take."""

    def __init__(
        self,
        target_ms: float = STEP_MS,
        runnable_ms: Callable[[], float] = lambda: 0.0,
        round_ms: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``runnable_ms``, ``round_ms``: see ``Clock``."""
        self.limit = FIRST_RECORDS
        self._target_ms = target_ms
        self._runnable_ms = runnable_ms
        self._round_ms = round_ms
        self._known_ms = 0.0  # that they had waited for a core when they were asked last
        self._records = 0
        self._held_up_at = MOST_RECORDS

    def step_took(self, elapsed_ms: float, records: int) -> None:
        """A step with so many records has ended."""
        self._records = records
        if elapsed_ms > self._target_ms:
            elapsed_ms -= self._waited_for_core_ms()
            if elapsed_ms > self._target_ms:
                self._fit(self._target_ms / elapsed_ms)
        elif records >= self.limit:
            self._grow()

    def held_up(self, waited_ms: float) -> None:
        """So long the last step, until all that it has made was written, waited for buffers."""
        if waited_ms > WAIT_MS:
            most_ms = max(WAIT_MS, WAIT_ROUNDS * self._round_ms())
            if waited_ms > most_ms:
                self._fit(most_ms / waited_ms)
                self._held_up_at = self.limit

    def _waited_for_core_ms(self) -> float:
        """Since this was asked last: if that is long ago, mostly in earlier steps."""
        known_ms, self._known_ms = self._known_ms, self._runnable_ms()
        return self._known_ms - known_ms

    def _fit(self, share: float) -> None:
        self.limit = max(1, min(self.limit, int(self._records * share)))

    def _grow(self) -> None:
        if self.limit < self._held_up_at:
            self.limit = min(self._held_up_at, self.limit * 2)
        elif self.limit < MOST_RECORDS:
            grown = self.limit + 1 + self.limit // 16
            self.limit = self._held_up_at = min(MOST_RECORDS, grown)


class OutputHeadroom:
    """Of all outputs of a task. Asked before each step, told after it."""

    def __init__(self, writers: Sequence[RecordWriter]) -> None:
        self._outputs = [
            _Output(writer) for writer in writers if writer.partition.kind.has_back_pressure
        ]
        self._taken = 0

    def fit(self, limit: int) -> int:
        """As many records of ``limit`` as the outputs can take."""
        for output in self._outputs:
            limit = output.fit(limit, self._taken)
        return limit

    def step_took(self, records: int) -> None:
        """A step has taken so many records."""
        self._taken += records


class _Output:
    def __init__(self, writer: RecordWriter) -> None:
        self._writer = writer
        self._pool = writer.partition.pool
        self._size = writer.partition.segment_bytes
        self._resizes = 0
        self._taken = 0
        self._buffers = 0
        self._per_buffer = 0.0  # nobody knows

    def fit(self, limit: int, taken: int) -> int:
        made = self._writer.buffers_out - self._buffers
        if made:  # and one may be begun
            self._per_buffer = (taken - self._taken) / (made + 1)
            self._taken, self._buffers = taken, self._writer.buffers_out
        if self._resizes != self._writer.resizes:
            self._look_at_sizes()
        if not self._per_buffer:
            return limit
        pool = self._pool
        free = pool.size + pool.overdraft - pool.lent
        return max(1, min(limit, int(free * self._per_buffer)))

    def _look_at_sizes(self) -> None:
        """Buffers are shorter or longer from now on."""
        self._resizes = self._writer.resizes
        size = min(self._writer.partition.segment_bytes, *self._writer.sizes)
        self._per_buffer *= size / self._size
        self._size = size
