"""The life of a task as tables: its states, and what it does while it runs until it ends.

States: created → deploying → running → finished, cancelled or failed. Law: a pair that is not in
LIFE is a bug; the three ends are for good. A failure while cancelling counts as cancelled, because
what is torn down may well fail; the first failure is kept.

A task that runs reads its input, is stopped by a savepoint that ends the job, or ends. It only
carries out what ``control.stopping`` has decided for all tasks. Law: at the end of its input a task
stays until its checkpoints are written, and until one more is complete if an operator needs that;
it asks for that one, and again when it was aborted. While it is held nothing reaches its operators;
once it is stopped nothing ever does. A pair that is not in COURSES is a bug.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from headgate.base.checkpoints import Stop
from headgate.base.events import CheckpointBarrier
from headgate.base.life_cycle import next_state
from headgate.base.messages import TaskState as TaskState
from headgate.core.chain.chain import Chain
from headgate.core.chain.outputs import Loan
from headgate.core.checkpoint.task_checkpoints import TaskCheckpoints
from headgate.core.task.operator_mail import OperatorMail
from headgate.core.task.processors import FinishedProcessor, InputProcessor, Processor


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


class Course(Enum):
    """What a task does between mails."""

    READING = "reads its input"
    HELD = "stands still, until it is known how a savepoint went that ends the job"
    STOPPED = "reads its input to the ends and drops it: the operators learn nothing more"
    ENDING = "waits for its checkpoints, and for one more if an operator needs that"
    LEAVING = "waits for its checkpoints to be written"


class CourseChange(Enum):
    """What moves a task from one course to the next."""

    BARRIER = "the barrier of a savepoint that ends the job"
    COMPLETE = "that savepoint is complete"
    ABORTED = "that savepoint was given up"
    END = "the input has ended"


COURSES: Final = {
    (Course.READING, CourseChange.BARRIER): Course.HELD,
    (Course.HELD, CourseChange.COMPLETE): Course.STOPPED,
    (Course.HELD, CourseChange.ABORTED): Course.READING,
    (Course.READING, CourseChange.END): Course.ENDING,
    (Course.STOPPED, CourseChange.END): Course.LEAVING,
}


class TaskEnding:
    """What one task does next; called on its thread, inside the baton. See ``StopListener``."""

    def __init__(
        self,
        checkpoints: TaskCheckpoints | None,
        chain: Chain,
        processor: Processor,
        mail: OperatorMail,
        loan: Loan,
        finished: bool = False,
    ) -> None:
        """``finished``: its operators had finished before the run began, and are not run."""
        self.course = Course.READING
        self.processor = processor
        """Reads the input now."""
        self.on_checkpoint_wanted: Callable[[], None] = lambda: None
        self._checkpoints = checkpoints
        self._chain = chain
        self._input = processor if isinstance(processor, InputProcessor) else None
        self._mail = mail
        self._loan = loan
        self._stops_with: CheckpointBarrier | None = None
        self._asked = False
        if finished:
            self.course, self.processor = Course.STOPPED, FinishedProcessor(processor)
        if checkpoints is not None:
            checkpoints.listener = self
            checkpoints.has_finished = checkpoints.is_blank = finished

    def input_ended(self) -> None:
        """All inputs are read; the operators finish if they are to."""
        if self.course is Course.READING:
            self._finish(())
        self._move(CourseChange.END)
        if self._checkpoints is not None:
            self._checkpoints.input_ended()

    def may_end(self) -> bool:
        """Whether no checkpoint still needs the task, nor the task a checkpoint."""
        checkpoints = self._checkpoints
        if checkpoints is None:
            return True
        if checkpoints.is_writing:
            return False
        if self.course is Course.LEAVING or not self._chain.awaits_checkpoint:
            return True
        if not self._asked:
            self._asked = True
            with self._loan:
                self.on_checkpoint_wanted()
        return False

    # What its checkpoints report (StopListener).

    def drain(self) -> None:
        self._finish(() if self._input is None else self._input.open_inputs)

    def suspend(self, barrier: CheckpointBarrier) -> None:
        self._stops_with = barrier
        self._move(CourseChange.BARRIER)
        self._mail.suspend()

    def completed(self, checkpoint: int) -> None:
        if self._stops_with is not None and self._stops_with.checkpoint == checkpoint:
            self._move(CourseChange.COMPLETE)
            self._mail.drop()
            self.processor = FinishedProcessor(self.processor)

    def aborted(self, checkpoint: int) -> None:
        self._asked = False  # if the task waits for one, it wants another
        stop = self._stops_with
        if stop is not None and stop.checkpoint == checkpoint and stop.stop is not Stop.DRAIN:
            self._stops_with = None  # a drained task cannot go on: the run fails
            self._move(CourseChange.ABORTED)
            self._mail.resume()

    def _finish(self, open_inputs: Sequence[int]) -> None:
        with self._loan:
            for number in open_inputs:
                self._chain.end_input(number)
            self._chain.finish()
        self._chain.seal()
        self._mail.drop()  # timers of those that have finished

    def _move(self, what: CourseChange) -> None:
        self.course = next_state(COURSES, self.course, what, "a task")
