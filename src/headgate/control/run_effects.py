"""What a run wants done, and how it has ended; whoever drives it carries the effects out, in order.

Those that concern the storage (``StoreCheckpoint``, ``Drop``, ``Discard``) and savepoints are the
coordinator's of checkpoints, passed on.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from headgate.base.messages import Failure, OfRun, Shutdown
from headgate.control.checkpoint_effects import Discard, Drop, SavepointDone, StoreCheckpoint
from headgate.control.life_cycle import JobState


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run has ended: FINISHED, CANCELLED with a reason, or FAILED with the root cause."""

    state: JobState
    failure: Failure | None = None
    task: str = ""
    """The task that failed, if it was one."""
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
        trace = self.failure.traceback.rstrip()
        return f"{self.failure.message}\n\n{trace}" if trace else self.failure.message


@dataclass(frozen=True, slots=True)
class Send:
    """Tell the task manager of this slot."""

    slot: int
    message: OfRun | Shutdown


@dataclass(frozen=True, slots=True)
class Replan:
    """Plan the next attempt; answer with ``planned`` or ``plan_failed``, whatever happens."""


@dataclass(frozen=True, slots=True)
class Warn:
    """Somebody should know this, though the job goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run is over; nothing follows but what is owed to the storage and to who waits for it."""

    outcome: Outcome


Effect: TypeAlias = (
    Send | Replan | Warn | RunEnded | StoreCheckpoint | Drop | Discard | SavepointDone
)


class Rank(IntEnum):
    """How well a failure explains the end of a run; the least is the best."""

    OWN = 0
    LOSS = 1
    CONSEQUENCE = 2


def failure_of(error: Exception, *, is_final: bool = False) -> Failure:
    """An error that a machine of the driver has found by itself."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    return Failure(kind, str(error), is_final=is_final)


def rank_of(failure: Failure) -> Rank:
    """Of what a task tells."""
    return Rank.CONSEQUENCE if failure.is_consequence else Rank.OWN
