"""The checkpoints that a job has, over all its attempts, which of them are retained, and figures.

Law: numbers only grow; of complete checkpoints the newest are retained, savepoints are their
owner's and never dropped. ``latest`` is where a failed job goes on: the newest complete checkpoint,
or the savepoint that it was started from or stopped with, if that is newer.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.base.checkpoints import CheckpointKind, Metadata
from headgate.base.recovery_settings import Retention
from headgate.control.effects import DropCheckpoint, StoreCheckpoint
from headgate.control.life_cycle import JobState
from headgate.control.pending_checkpoint import PendingCheckpoint


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
        self._retained = retained
        self._origin = origin
        self.complete = sorted(found, key=lambda metadata: metadata.checkpoint)
        newest = StoreCheckpoint(self.complete[-1]) if self.complete else None
        self.latest = origin or newest
        starts = [start.metadata.checkpoint for start in (origin, newest) if start is not None]
        self._next = max(next_id, max(starts, default=0) + 1)

    @property
    def next_id(self) -> int:
        """Of the checkpoint to come."""
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
    """Counts of one run, without savepoints, and the last one that was stored."""

    triggered: int
    completed: int
    failed: int
    pending: int
    last: CheckpointSummary | None


def summary_of(pending: PendingCheckpoint, now_ms: float) -> CheckpointSummary:
    """Of a checkpoint that was stored now."""
    metadata, figures = pending.metadata, pending.figures
    assert metadata is not None, f"checkpoint {pending.checkpoint} was not stored"
    return CheckpointSummary(
        checkpoint=pending.checkpoint,
        kind=metadata.kind,
        took_ms=now_ms - pending.began_ms,
        state_bytes=metadata.state_bytes,
        in_flight_bytes=sum(task.in_flight_bytes for task in figures),
        align_ms=max((task.align_ms for task in figures), default=0.0),
        sync_ms=max((task.sync_ms for task in figures), default=0.0),
        async_ms=max((task.async_ms for task in figures), default=0.0),
        unaligned=metadata.unaligned,
    )
