"""How far a task has come: a word that the task itself and the driver share."""

from enum import Enum


class TaskState(Enum):
    """How far a task has come; the table of its steps is in ``core/task/lifecycle``."""

    CREATED = "created"
    DEPLOYING = "deploying"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        return self in (TaskState.FINISHED, TaskState.CANCELLED, TaskState.FAILED)
