"""Parts of what a task and a task manager report about themselves, as they travel to the driver.

Law: counts only grow within an attempt; everything else describes the moment of the report. Sums
stand for all channels of a gate or subpartitions of an output, so that a report stays small however
many there are. ``TaskFigures`` in ``messages`` puts the parts of a task together.
"""

from typing import Final

import msgspec

UNKNOWN: Final = -1
"""Instead of a size or a lag that nobody knows."""

LATENCY_BOUNDS_MS: Final = (
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0),
    *(1_000.0, 2_000.0, 5_000.0, 10_000.0, 30_000.0, 60_000.0),
)
"""Upper bounds of the buckets of a latency histogram; one more bucket takes what is above."""


class GateFigures(msgspec.Struct, frozen=True, array_like=True):
    """One input gate, all its channels together."""

    channels: int
    queued_buffers: int = 0
    """Arrived from other processes and not read yet."""
    queued_bytes: int = 0
    backlog: int = 0
    """Buffers that still wait at the producers, as far as the channels know."""
    credit: int = 0
    """Buffers that the producers may send before they are granted more."""
    exclusive_in_use: int = 0
    """Exclusive buffers that hold data."""
    exclusive_total: int = 0
    floating_in_use: int = 0
    """Floating buffers that hold data."""
    pool_size: int = 0
    """Floating buffers that the gate may have."""


class OutputFigures(msgspec.Struct, frozen=True, array_like=True):
    """One output of a task, all its subpartitions together; in the order of ``JobEdge.output``."""

    records: int
    bytes: int = 0
    buffers: int = 0
    queued_buffers: int = 0
    queued_bytes: int = 0
    pool_size: int = 0
    """Buffers that the output may have, without the overdraft."""
    pool_in_use: int = 0


class OperatorFigures(msgspec.Struct, frozen=True, array_like=True):
    """One operator of a chain."""

    name: str
    records_in: int = 0
    records_out: int = 0
    skipped: int = 0
    """Records that have failed and were left out, as the error policy says."""
    dead_letters: int = 0
    late: int = 0
    """Records, or rows of columns, that came too late and were dropped."""
    most_late_ms: int = 0
    """How much too late the latest of them came."""

    def plus(self, more: "OperatorFigures") -> "OperatorFigures":
        """With what another subtask or attempt has counted."""
        return OperatorFigures(
            more.name,
            self.records_in + more.records_in,
            self.records_out + more.records_out,
            self.skipped + more.skipped,
            self.dead_letters + more.dead_letters,
            self.late + more.late,
            max(self.most_late_ms, more.most_late_ms),
        )


class AsyncFigures(msgspec.Struct, frozen=True, array_like=True):
    """The queue of an operator with asynchronous calls."""

    operator: str
    capacity: int
    in_flight: int = 0
    """Calls that it holds, including those whose results have not left."""
    full_ms: float = 0.0
    """How long records have waited for a place in the queue."""


class BatchFigures(msgspec.Struct, frozen=True, array_like=True):
    """The calls of an operator that makes them in batches; all but ``in_flight`` only grow."""

    operator: str
    calls: int = 0
    """That have begun, with those that were made again."""
    records: int = 0
    """In these calls."""
    in_flight: int = 0
    """Calls that have begun and not ended."""
    throttled_ms: float = 0.0
    """How long a batch was ready while the rate limit, or the server, allowed no call."""
    refused: int = 0
    """Calls that the server has refused because there were too many."""
    retries: int = 0
    """Calls that the retry strategy has made again."""
    splits: int = 0
    """Failed batches that were halved."""
    failures: int = 0
    """Records without a result, all retries used."""
    cache_hits: int = 0
    """Records that were answered without a call of their own."""
    cache_misses: int = 0


class LatencyFigures(msgspec.Struct, frozen=True, array_like=True):
    """How long latency markers took from their sources to here."""

    counts: tuple[int, ...]
    """For each bound of ``LATENCY_BOUNDS_MS`` those up to it and above the one before; last, those
    above all bounds."""
    sum_ms: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)


class TaskManagerFigures(msgspec.Struct, frozen=True):
    """The process of one slot."""

    slot: int = 0
    host: str = ""
    pid: int = 0
    cores: int = 0
    """That the process may use; task managers of one host share them."""
    cpu_ms: float = 0.0
    """CPU time of all threads since the process began."""
    memory_bytes: int = UNKNOWN
    """Resident memory."""
    buffers: int = 0
    """Segments of the memory for exchanged data."""
    buffers_free: int = 0
