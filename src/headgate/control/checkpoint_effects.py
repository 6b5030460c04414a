"""What the coordinator of checkpoints wants done; whoever drives it carries it out, in order."""

from dataclasses import dataclass
from typing import TypeAlias

from headgate.base.checkpoints import CheckpointOptions, Metadata, SubtaskState


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Tell the task of this slot to begin the checkpoint.

    A source takes it at once. A task with inputs gets this only if all its producers have finished:
    it takes it when all its channels have ended, unless it has taken it already.
    """

    slot: int
    task: str
    checkpoint: int
    options: CheckpointOptions


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Write the metadata; answer with ``stored`` or ``store_failed``, whatever happens."""

    metadata: Metadata
    directory: str = ""
    """Of a savepoint, its own; empty: the job's folder for checkpoints."""
    ends_job: bool = False
    """Sinks commit with this savepoint: no later driver may go on from an older checkpoint."""


@dataclass(frozen=True, slots=True)
class CompleteCheckpoint:
    """Tell all tasks: what was prepared for this checkpoint and earlier ones is to be committed."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """Tell all tasks: this checkpoint comes to nothing."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete a stored checkpoint, its metadata first; files of others that are kept stay."""

    metadata: Metadata
    directory: str = ""


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete what these tasks have written for a checkpoint that came to nothing."""

    checkpoint: int
    states: tuple[SubtaskState, ...]
    directory: str = ""


@dataclass(frozen=True, slots=True)
class FailRun:
    """End the run as failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class SavepointDone:
    """Tell who wanted a savepoint in this directory; without an error, it is there."""

    directory: str
    checkpoint: int | None
    error: str = ""


CheckpointEffect: TypeAlias = (
    TriggerCheckpoint
    | StoreCheckpoint
    | CompleteCheckpoint
    | AbortCheckpoint
    | Drop
    | Discard
    | FailRun
    | SavepointDone
)
