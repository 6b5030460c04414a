"""Room in the outputs: how many records a step may take so that it need not wait in its middle.

A step that waits for a buffer takes no mail and no checkpoint until a consumer has made room.
Law: a step takes no more than the free buffers of each output hold, going by the records that a
buffer has held lately, and at least one. What it cannot foresee, the pace sees afterwards.
"""

from collections.abc import Sequence

from headgate.core.egress.writer import RecordWriter


class OutputHeadroom:
    """Of all outputs of a task. Asked before each step, told after it."""

    def __init__(self, writers: Sequence[RecordWriter]) -> None:
        self._outputs = [
            _Output(writer) for writer in writers if writer.partition.kind.has_back_pressure
        ]
        self._taken = 0

    def fit(self, limit: int) -> int:
        """As many records of ``limit`` as there is room for."""
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
