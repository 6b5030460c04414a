"""The life of a task, as a table: created → deploying → running → finished, cancelled or failed.

Law: a pair that is not in LIFE is a bug; the three ends are for good. A failure while cancelling
counts as cancelled, because what is torn down may well fail; the first failure is kept.
"""

from enum import Enum
from typing import Final

from headgate.base.states import TaskState as TaskState


class Happening(Enum):
    """What moves a task from one state to the next."""

    DEPLOYED = "its partitions and gates are being set up"
    STARTED = "all operators are open"
    COMPLETED = "the input has ended and everything is written"
    CANCEL = "somebody wants it to end"
    CLEANED_UP = "everything is closed"
    FAILURE = "an exception"


LIFE: Final = {
    (TaskState.CREATED, Happening.DEPLOYED): TaskState.DEPLOYING,
    (TaskState.CREATED, Happening.CANCEL): TaskState.CANCELLED,
    (TaskState.CREATED, Happening.FAILURE): TaskState.FAILED,
    (TaskState.DEPLOYING, Happening.STARTED): TaskState.RUNNING,
    (TaskState.DEPLOYING, Happening.CANCEL): TaskState.CANCELLING,
    (TaskState.DEPLOYING, Happening.FAILURE): TaskState.FAILED,
    (TaskState.RUNNING, Happening.COMPLETED): TaskState.FINISHED,
    (TaskState.RUNNING, Happening.CANCEL): TaskState.CANCELLING,
    (TaskState.RUNNING, Happening.FAILURE): TaskState.FAILED,
    (TaskState.CANCELLING, Happening.CANCEL): TaskState.CANCELLING,
    (TaskState.CANCELLING, Happening.COMPLETED): TaskState.CANCELLED,
    (TaskState.CANCELLING, Happening.CLEANED_UP): TaskState.CANCELLED,
    (TaskState.CANCELLING, Happening.FAILURE): TaskState.CANCELLED,
    (TaskState.FINISHED, Happening.CANCEL): TaskState.FINISHED,
    (TaskState.CANCELLED, Happening.CANCEL): TaskState.CANCELLED,
    (TaskState.FAILED, Happening.CANCEL): TaskState.FAILED,
}


class Lifecycle:
    """The state of one task, and the failure that ended it."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.state = TaskState.CREATED
        self.failure: BaseException | None = None

    def happened(self, what: Happening) -> TaskState:
        """Move on; a step that LIFE does not know is a bug of the caller."""
        state = LIFE.get((self.state, what))
        assert state is not None, f"task {self.task}: {what.name} while {self.state.value}"
        self.state = state
        return state

    def failed(self, error: BaseException) -> TaskState:
        """An exception reached the task; after its end it changes nothing."""
        if self.state.has_ended:
            return self.state
        state = self.happened(Happening.FAILURE)
        if state is TaskState.FAILED:
            self.failure = error
        return state
