"""The life of a task, as a table: created → deploying → running → finished, cancelled or failed.

Law: a pair that is not in LIFE is a bug; the three ends are for good. A failure while cancelling
counts as cancelled, because what is torn down may well fail; the first failure is kept.
"""

from enum import Enum
from typing import Final

from headgate.base.life_cycle import next_state
from headgate.base.messages import TaskState as TaskState


class TaskTransition(Enum):
    """What moves a task from one state to the next."""

    DEPLOYED = "its partitions and gates are being set up"
    STARTED = "all operators are open"
    COMPLETED = "the input has ended and everything is written"
    CANCEL = "somebody wants it to end"
    CLEANED_UP = "everything is closed"
    FAILURE = "an exception"


LIFE: Final = {
    (TaskState.CREATED, TaskTransition.DEPLOYED): TaskState.DEPLOYING,
    (TaskState.CREATED, TaskTransition.CANCEL): TaskState.CANCELLED,
    (TaskState.CREATED, TaskTransition.FAILURE): TaskState.FAILED,
    (TaskState.DEPLOYING, TaskTransition.STARTED): TaskState.RUNNING,
    (TaskState.DEPLOYING, TaskTransition.CANCEL): TaskState.CANCELLING,
    (TaskState.DEPLOYING, TaskTransition.FAILURE): TaskState.FAILED,
    (TaskState.RUNNING, TaskTransition.COMPLETED): TaskState.FINISHED,
    (TaskState.RUNNING, TaskTransition.CANCEL): TaskState.CANCELLING,
    (TaskState.RUNNING, TaskTransition.FAILURE): TaskState.FAILED,
    (TaskState.CANCELLING, TaskTransition.CANCEL): TaskState.CANCELLING,
    (TaskState.CANCELLING, TaskTransition.COMPLETED): TaskState.CANCELLED,
    (TaskState.CANCELLING, TaskTransition.CLEANED_UP): TaskState.CANCELLED,
    (TaskState.CANCELLING, TaskTransition.FAILURE): TaskState.CANCELLED,
    (TaskState.FINISHED, TaskTransition.CANCEL): TaskState.FINISHED,
    (TaskState.CANCELLED, TaskTransition.CANCEL): TaskState.CANCELLED,
    (TaskState.FAILED, TaskTransition.CANCEL): TaskState.FAILED,
}


class Lifecycle:
    """The state of one task, and the failure that ended it."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.state = TaskState.CREATED
        self.failure: BaseException | None = None

    def happened(self, what: TaskTransition) -> TaskState:
        self.state = next_state(LIFE, self.state, what, f"task {self.task}")
        return self.state

    def failed(self, error: BaseException) -> TaskState:
        """An exception reached the task; after its end it changes nothing."""
        if self.state.has_ended:
            return self.state
        state = self.happened(TaskTransition.FAILURE)
        if state is TaskState.FAILED:
            self.failure = error
        return state
