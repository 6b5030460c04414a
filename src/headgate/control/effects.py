"""What a run and its checkpoint coordinator want done; whoever drives them does it, in order."""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from headgate.base.checkpoints import Metadata, SubtaskState
from headgate.base.messages import Failure, OfRun, Shutdown
from headgate.control.life_cycle import JobState
from headgate.control.split_assignment import PlannedSource


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to the task manager of this slot."""

    slot: int
    message: OfRun | Shutdown


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Write the metadata; answer with ``stored`` or ``store_failed``, whatever happens."""

    metadata: Metadata
    directory: str = ""
    """The savepoint's own folder; empty: the job's folder for checkpoints."""
    ends_job: bool = False
    """Sinks commit with this savepoint: no later driver may go on from an older checkpoint."""


@dataclass(frozen=True, slots=True)
class DropCheckpoint:
    """Delete a stored checkpoint, its metadata first; files of others that are kept stay."""

    metadata: Metadata
    directory: str = ""


@dataclass(frozen=True, slots=True)
class DiscardStates:
    """Delete what these tasks have written for a checkpoint that was aborted."""

    checkpoint: int
    states: tuple[SubtaskState, ...]
    directory: str = ""


@dataclass(frozen=True, slots=True)
class FailRun:
    """End the run as failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class SavepointDone:
    """Answer whoever wanted a savepoint in this directory; without an error, it is there."""

    directory: str
    checkpoint: int | None
    error: str = ""


CheckpointEffect: TypeAlias = (
    Send | StoreCheckpoint | DropCheckpoint | DiscardStates | FailRun | SavepointDone
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run has ended: FINISHED, CANCELLED with a reason, or FAILED with the root cause."""

    state: JobState
    failure: Failure | None = None
    task: str = ""
    """The task that failed, if it was one."""
    slot: int | None = None
    """Whose task manager was lost or could not start; None: it was a task, or all of them."""
    reason: str = ""
    """Why it was cancelled; of a failure after restarts, why there is no other one."""
    restart_in_ms: float | None = None
    """After so long the job is to begin anew, with a new run; None: this is its end."""

    @property
    def is_own_failure(self) -> bool:
        """Whether a task failed by itself, not because of others or with its process."""
        failure = self.failure
        return bool(self.task) and failure is not None and not failure.is_consequence

    @property
    def problem(self) -> str:
        """Why the run has not finished, in words; nothing if it has."""
        if self.state is JobState.FINISHED:
            return ""
        if self.failure is None:
            return f"the run was {self.state.value}: {self.reason}"
        message, frames = self.failure.message, self.failure.frames
        return f"{message}\n\n{frames}" if frames else message


@dataclass(frozen=True, slots=True)
class StartDiscovery:
    """Look for splits of a source on a thread of its own, until ``EndDiscovery``.

    Report what is found, with ``splits_discovered``; or that the first look has failed, with
    ``discovery_failed``.
    """

    run: str
    source: PlannedSource


@dataclass(frozen=True, slots=True)
class EndDiscovery:
    """Look for no more splits of any source; close their enumerators, without waiting for them."""


@dataclass(frozen=True, slots=True)
class Replan:
    """Plan the next attempt; answer with ``planned`` or ``plan_failed``, whatever happens."""


@dataclass(frozen=True, slots=True)
class Warn:
    """Log a warning; the job goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """An attempt has ended, and the run goes on with another one."""

    outcome: Outcome
    """How the attempt has ended, with the root cause."""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run is over; only answers of the storage and to those who wait for it may follow."""

    outcome: Outcome


Effect: TypeAlias = (
    Send
    | StartDiscovery
    | EndDiscovery
    | Replan
    | Warn
    | AttemptFailed
    | RunEnded
    | StoreCheckpoint
    | DropCheckpoint
    | DiscardStates
    | SavepointDone
)


class FailureRank(IntEnum):
    """How well a failure explains the end of a run; the lowest explains best."""

    OWN = 0
    LOSS = 1
    CONSEQUENCE = 2


def failure_of(error: Exception, *, is_final: bool = False) -> Failure:
    """An error that the driver has found by itself, as a failure."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    return Failure(kind, str(error), is_final=is_final)


def rank_of(failure: Failure) -> FailureRank:
    """The rank of a failure that a task has reported."""
    return FailureRank.CONSEQUENCE if failure.is_consequence else FailureRank.OWN
