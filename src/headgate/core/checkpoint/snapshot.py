"""What a task hands to the storage, and how it learns that it was written.

The driver of the task brings ``StartWriting``: it writes in the background and tells the
coordinator (acknowledged or declined). Law: ``done`` is called once for each snapshot, however its
writing ended; its operators' snapshots are closed on the task's thread, then or when the task ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headgate.base.events import CheckpointBarrier
from headgate.core.chain.snapshots import OperatorSnapshot
from headgate.core.checkpoint.barrier_policy import BarrierPolicy


@dataclass(frozen=True, slots=True)
class NamedSnapshot:
    """Of one operator of the chain."""

    uid: str
    name: str
    taken: OperatorSnapshot


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """The operators of a task at one moment, in the order of its chain."""

    barrier: CheckpointBarrier
    """As it was taken: ``unaligned`` says whether it has overtaken."""
    operators: tuple[NamedSnapshot, ...]
    sync_ms: float
    """How long the task stood still for it."""
    finished: bool = False
    """Its operators had finished: they are not to be run again, only to commit what they hold."""


@dataclass(frozen=True, slots=True)
class ChannelData:
    """What was in flight in one channel of a gate (input) or subpartition (output)."""

    is_input: bool
    index: int
    """Of the gate or the partition, among those of the task."""
    channel: int
    """Of the channel or the subpartition."""
    parts: Sequence[bytes]


class SnapshotWriting(Protocol):
    """One snapshot on its way to the storage. Called on the task's thread, inside the baton."""

    def complete(self, in_flight: Sequence[ChannelData], align_ms: float) -> None:
        """All data in flight are known: write them behind the operators, and end."""

    def abort(self) -> None:
        """Given up: nothing of it stays. Idempotent; ``done`` still comes."""


StartWriting: TypeAlias = Callable[[TaskSnapshot, Callable[[], None]], SnapshotWriting]
"""Begins to write; the second argument is ``done``, to be called inside the baton."""


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """How a task takes checkpoints."""

    policy: BarrierPolicy
    start_writing: StartWriting
    enabled: bool = True
    """Whether the clock takes them, too; savepoints can always be taken."""
    incremental: bool = False
    """Checkpoints may name files of earlier ones; savepoints never do."""
