"""The life of a job run, as a table: created → deploying → running → finished, cancelled or failed.

Law: a pair that is not in TRANSITIONS is a bug; the three ends are final. What fails while a run is
cancelled is cancelled with it; a run that is cancelled while it fails still ends as failed. A run
that has produced enough rows is cancelled, too, but has finished then. A failed run may restart in
its task managers: until it is deployed again it is RESTARTING.
"""

from enum import Enum
from typing import Final


class JobState(Enum):
    """How far a run has come."""

    CREATED = "created"
    DEPLOYING = "deploying"
    RUNNING = "running"
    CANCELLING = "cancelling"
    FAILING = "failing"
    RESTARTING = "restarting"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        return self in (JobState.FINISHED, JobState.CANCELLED, JobState.FAILED)

    @property
    def is_ending(self) -> bool:
        return self in (JobState.CANCELLING, JobState.FAILING)


class RunTransition(Enum):
    """What moves a run from one state to the next."""

    DEPLOYED = "the first tasks were sent to their task manager"
    STARTED = "all task managers are there and their tasks run"
    COMPLETED = "every task has finished, or has ended after enough rows"
    CANCEL = "somebody wants it to end"
    FAILURE = "a task failed or a task manager was lost"
    CLEANED_UP = "every deployed task has ended, or had time enough to"
    RESTART = "every deployed task has ended, and they are to be deployed once more"
    GIVEN_UP = "nobody waits for it any more"


TRANSITIONS: Final = {
    (JobState.CREATED, RunTransition.DEPLOYED): JobState.DEPLOYING,
    (JobState.CREATED, RunTransition.CANCEL): JobState.CANCELLING,
    (JobState.CREATED, RunTransition.FAILURE): JobState.FAILING,
    (JobState.CREATED, RunTransition.GIVEN_UP): JobState.CANCELLED,
    (JobState.DEPLOYING, RunTransition.DEPLOYED): JobState.DEPLOYING,
    (JobState.DEPLOYING, RunTransition.STARTED): JobState.RUNNING,
    (JobState.DEPLOYING, RunTransition.COMPLETED): JobState.FINISHED,
    (JobState.DEPLOYING, RunTransition.CANCEL): JobState.CANCELLING,
    (JobState.DEPLOYING, RunTransition.FAILURE): JobState.FAILING,
    (JobState.DEPLOYING, RunTransition.GIVEN_UP): JobState.CANCELLED,
    (JobState.RUNNING, RunTransition.DEPLOYED): JobState.RUNNING,
    (JobState.RUNNING, RunTransition.COMPLETED): JobState.FINISHED,
    (JobState.RUNNING, RunTransition.CANCEL): JobState.CANCELLING,
    (JobState.RUNNING, RunTransition.FAILURE): JobState.FAILING,
    (JobState.RUNNING, RunTransition.GIVEN_UP): JobState.CANCELLED,
    (JobState.CANCELLING, RunTransition.CANCEL): JobState.CANCELLING,
    (JobState.CANCELLING, RunTransition.FAILURE): JobState.CANCELLING,
    (JobState.CANCELLING, RunTransition.CLEANED_UP): JobState.CANCELLED,
    (JobState.CANCELLING, RunTransition.COMPLETED): JobState.FINISHED,
    (JobState.CANCELLING, RunTransition.GIVEN_UP): JobState.CANCELLED,
    (JobState.FAILING, RunTransition.CANCEL): JobState.FAILING,
    (JobState.FAILING, RunTransition.FAILURE): JobState.FAILING,
    (JobState.FAILING, RunTransition.CLEANED_UP): JobState.FAILED,
    (JobState.FAILING, RunTransition.RESTART): JobState.RESTARTING,
    (JobState.FAILING, RunTransition.GIVEN_UP): JobState.FAILED,
    (JobState.RESTARTING, RunTransition.DEPLOYED): JobState.DEPLOYING,
    (JobState.RESTARTING, RunTransition.CANCEL): JobState.CANCELLING,
    (JobState.RESTARTING, RunTransition.FAILURE): JobState.FAILING,
    (JobState.RESTARTING, RunTransition.GIVEN_UP): JobState.CANCELLED,
}
