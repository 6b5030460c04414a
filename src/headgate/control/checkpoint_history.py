"""The checkpoints that a job has, over all its attempts, and which of them are retained.

Law: numbers only grow; of complete checkpoints the newest are retained, savepoints are their
owner's and never dropped. ``latest`` is where a failed job goes on: the newest complete checkpoint,
or the savepoint that it was started from or stopped with, if that is newer.

``CheckpointLog`` is what people see of them: counts, and the newest records. Law: each one that has
begun ends once, stored or aborted, and counts cover all attempts of the job. Of those that have
ended ``KEPT`` are kept, and of their parts ``PARTS_KEPT``; the newest keeps its parts however many
they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from headgate.base.checkpoints import Metadata
from headgate.base.job_records import CheckpointRecord
from headgate.base.recovery_settings import Retention
from headgate.control.effects import DropCheckpoint, StoreCheckpoint
from headgate.control.life_cycle import JobState
from headgate.control.pending_checkpoint import PendingCheckpoint

KEPT: Final = 20
PARTS_KEPT: Final = 20_000
"""The parts of 20 checkpoints of 1,000 tasks."""


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
    last: CheckpointRecord | None


class CheckpointLog:
    """Lives as long as its job; the coordinator of each attempt enters what it begins and ends."""

    def __init__(self) -> None:
        self._triggered = self._completed = self._failed = 0
        self._last: CheckpointRecord | None = None
        self._pending: dict[int, PendingCheckpoint] = {}
        self._ended: dict[int, CheckpointRecord] = {}  # in the order of their ends

    def begun(self, pending: PendingCheckpoint) -> None:
        """A checkpoint or savepoint is triggered."""
        self._triggered += not pending.is_savepoint
        self._pending[pending.checkpoint] = pending

    def stored(self, pending: PendingCheckpoint, now_ms: float) -> None:
        """It is complete."""
        self._completed += not pending.is_savepoint
        self._last = self._end(pending, "completed", "", now_ms)

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

    def _end(
        self, pending: PendingCheckpoint, status: str, problem: str, now_ms: float
    ) -> CheckpointRecord:
        del self._pending[pending.checkpoint]
        ended = self._ended[pending.checkpoint] = _record_of(pending, status, problem, now_ms)
        if len(self._ended) > KEPT:
            del self._ended[min(self._ended)]  # the oldest, though it may be the last to end
        room = PARTS_KEPT
        for number, record in reversed(list(self._ended.items())):
            room -= len(record.parts)
            if room < 0 and number != pending.checkpoint and record.parts:
                self._ended[number] = structs.replace(record, parts=())
        return ended


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


class CheckpointHistory:
    """Lives as long as the job; each run's coordinator enters what it has completed."""

    def __init__(
        self,
        retained: int = 1,
        found: Iterable[Metadata] = (),
        origin: StoreCheckpoint | None = None,
        next_id: int = 1,
    ) -> None:
        """``found``: complete checkpoints of the job that there are already; ``origin``: the one
        that the job is told to start from; ``next_id``: above those that were aborted, too.
        """
        assert retained >= 1, f"{retained} checkpoints are to be kept"
        self.log = CheckpointLog()
        self._retained = retained
        self._origin = origin
        self.complete = sorted(found, key=lambda metadata: metadata.checkpoint)
        newest = StoreCheckpoint(self.complete[-1]) if self.complete else None
        self.latest = origin or newest
        starts = [start.metadata.checkpoint for start in (origin, newest) if start is not None]
        self._next = max(next_id, max(starts, default=0) + 1)

    @property
    def next_id(self) -> int:
        """The number of the next checkpoint."""
        return self._next

    def new_id(self) -> int:
        """A number that no checkpoint of the job had before."""
        self._next += 1
        return self._next - 1

    def completed(self, metadata: Metadata) -> list[DropCheckpoint]:
        """A checkpoint is stored; what is too old now, perhaps itself."""
        if self.latest is not None and metadata.checkpoint < self.latest.metadata.checkpoint:
            return [DropCheckpoint(metadata)]
        self.complete.append(metadata)
        self.latest = StoreCheckpoint(metadata)
        old = self.complete[: -self._retained]
        del self.complete[: -self._retained]
        return [DropCheckpoint(metadata) for metadata in old]

    def stopped_with(self, savepoint: StoreCheckpoint) -> None:
        """The job ends with this savepoint: what its sinks have prepared is committed."""
        self.latest = savepoint

    def damaged(self, checkpoint: int, begins_anew: bool = False) -> bool:
        """It cannot be read: go on from the next older one; False: there is none.

        It stays where it is, for people to look at. What the job was started from counts only if
        it ``begins_anew``: sinks have committed all since then.
        """
        if self.latest is None or self.latest.metadata.checkpoint > checkpoint:
            return self.latest is not None
        self.complete = [m for m in self.complete if m.checkpoint < checkpoint]
        older = [StoreCheckpoint(metadata) for metadata in self.complete]
        origin = self._origin if begins_anew else None
        if origin is not None and origin.metadata.checkpoint < checkpoint:
            older.append(origin)
        self.latest = max(older, key=lambda stored: stored.metadata.checkpoint, default=None)
        return self.latest is not None


def retains_checkpoints(state: JobState, retention: Retention) -> bool:
    """Whether checkpoints stay when their job has ended like this for good.

    A job that has failed keeps its checkpoints in any case.
    """
    assert state.has_ended, f"the job is {state.value}"
    keeps_cancelled = retention is Retention.RETAIN_ON_CANCELLATION
    return state is JobState.FAILED or (state is JobState.CANCELLED and keeps_cancelled)
