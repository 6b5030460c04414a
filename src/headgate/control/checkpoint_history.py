"""The checkpoints that a job has, over all its attempts, and which of them are retained.

Law: numbers only grow; of complete checkpoints the newest are retained, savepoints are their
owner's and never dropped. ``latest`` is where a failed job goes on: the newest complete checkpoint,
or the savepoint that it was started from or stopped with, if that is newer.
"""

from collections.abc import Iterable

from headgate.base.checkpoints import Metadata
from headgate.base.recovery_settings import Retention
from headgate.control.checkpoint_log import CheckpointLog
from headgate.control.effects import DropCheckpoint, StoreCheckpoint
from headgate.control.life_cycle import JobState


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
