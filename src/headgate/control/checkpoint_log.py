"""The checkpoints and savepoints of a job as people look at them: counts, and the newest ones.

Law: each one that has begun ends once, stored or aborted, and counts cover all attempts of the job.
Of those that have ended ``KEPT`` are kept, and of their parts ``PARTS_KEPT``; the newest keeps its
parts however many they are.
"""

from dataclasses import dataclass
from typing import Final

from msgspec import structs

from headgate.base.checkpoints import CheckpointKind
from headgate.base.job_records import CheckpointRecord
from headgate.control.pending_checkpoint import PendingCheckpoint

KEPT: Final = 20
PARTS_KEPT: Final = 20_000
"""Those of 20 checkpoints of 1,000 tasks."""


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """Figures of a checkpoint that is stored."""

    checkpoint: int
    kind: CheckpointKind
    took_ms: float
    state_bytes: int
    in_flight_bytes: int
    align_ms: float
    """Of the slowest task; so are the next two."""
    sync_ms: float
    async_ms: float
    unaligned: bool


@dataclass(frozen=True, slots=True)
class CheckpointStatistics:
    """Counts of the job, without savepoints, and the last one that was stored.

    A checkpoint that ends with its attempt, or because a newer one was complete first, has not
    failed.
    """

    triggered: int
    completed: int
    failed: int
    pending: int
    last: CheckpointSummary | None


class CheckpointLog:
    """Lives as long as its job; the coordinator of each attempt enters what it begins and ends."""

    def __init__(self) -> None:
        self._triggered = self._completed = self._failed = 0
        self._last: CheckpointSummary | None = None
        self._pending: dict[int, PendingCheckpoint] = {}
        self._ended: dict[int, CheckpointRecord] = {}  # in the order of their ends

    def begun(self, pending: PendingCheckpoint) -> None:
        """A checkpoint or savepoint is triggered."""
        self._triggered += not pending.is_savepoint
        self._pending[pending.checkpoint] = pending

    def stored(self, pending: PendingCheckpoint, now_ms: float) -> None:
        """It is complete."""
        self._completed += not pending.is_savepoint
        self._last = _summary_of(pending, now_ms)
        self._end(pending, "completed", "", now_ms)

    def aborted(
        self, pending: PendingCheckpoint, reason: str, now_ms: float, *, counts: bool
    ) -> None:
        """It will never be complete; ``counts``: as a failure."""
        self._failed += counts and not pending.is_savepoint
        self._end(pending, "failed", reason, now_ms)

    def statistics(self) -> CheckpointStatistics:
        pending = sum(not pending.is_savepoint for pending in self._pending.values())
        return CheckpointStatistics(
            self._triggered, self._completed, self._failed, pending, self._last
        )

    def records(self, now_ms: float) -> list[CheckpointRecord]:
        """The newest, pending or ended, the newest first; ``path`` is that of savepoints only."""
        pending = [_record_of(p, "in_progress", "", now_ms) for p in self._pending.values()]
        found = [*self._ended.values(), *pending]
        found.sort(key=lambda record: record.checkpoint, reverse=True)
        return found[:KEPT]

    def check(self) -> None:
        """The law, as far as one moment shows it."""
        assert len(self._ended) <= KEPT
        parts = [len(record.parts) for record in self._ended.values()]
        assert sum(parts) <= max(PARTS_KEPT, parts[-1] if parts else 0)
        assert not self._ended.keys() & self._pending.keys()
        counts = self.statistics()
        assert counts.triggered >= counts.completed + counts.failed + counts.pending

    def _end(self, pending: PendingCheckpoint, status: str, problem: str, now_ms: float) -> None:
        del self._pending[pending.checkpoint]
        self._ended[pending.checkpoint] = _record_of(pending, status, problem, now_ms)
        if len(self._ended) > KEPT:
            del self._ended[min(self._ended)]  # the oldest, though it may be the last to end
        room = PARTS_KEPT
        for number, record in reversed(list(self._ended.items())):
            room -= len(record.parts)
            if room < 0 and number != pending.checkpoint and record.parts:
                self._ended[number] = structs.replace(record, parts=())


def _record_of(
    pending: PendingCheckpoint, status: str, problem: str, now_ms: float
) -> CheckpointRecord:
    metadata, parts = pending.metadata, tuple(pending.parts.values())
    written = sum(part.state_bytes for part in parts)
    return CheckpointRecord(
        checkpoint=pending.checkpoint,
        kind=pending.options.kind.value,
        status=status,
        triggered_at_ms=pending.options.triggered_ms,
        took_ms=now_ms - pending.began_ms,
        state_bytes=written if metadata is None else metadata.state_bytes,
        in_flight_bytes=sum(part.in_flight_bytes for part in parts),
        unaligned=any(part.unaligned for part in parts),
        path=pending.options.directory,
        problem=problem,
        tasks=pending.asked,
        parts=parts,
    )


def _summary_of(pending: PendingCheckpoint, now_ms: float) -> CheckpointSummary:
    metadata, parts = pending.metadata, pending.parts.values()
    assert metadata is not None, f"checkpoint {pending.checkpoint} was not stored"
    return CheckpointSummary(
        checkpoint=pending.checkpoint,
        kind=metadata.kind,
        took_ms=now_ms - pending.began_ms,
        state_bytes=metadata.state_bytes,
        in_flight_bytes=sum(part.in_flight_bytes for part in parts),
        align_ms=max((part.align_ms for part in parts), default=0.0),
        sync_ms=max((part.sync_ms for part in parts), default=0.0),
        async_ms=max((part.async_ms for part in parts), default=0.0),
        unaligned=metadata.unaligned,
    )
