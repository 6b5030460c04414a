"""How a task ends: it reads its input, is held by a savepoint that ends the job, or ends.

It only carries out what ``control.stopping`` has decided for all tasks. Law: at the end of its
input a task stays until its checkpoints are written, and until one more is complete if an operator
needs that; it asks for that one, and again when it was aborted. While it is held nothing reaches
its operators; once it is stopped nothing ever does. A pair that is not in COURSES is a bug.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final

from headgate.base.checkpoints import Stop
from headgate.base.errors import SettingsInvalid
from headgate.base.events import CheckpointBarrier
from headgate.base.life_cycle import next_state
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import Clock
from headgate.core.chain.outputs import Loan
from headgate.core.checkpoint.inputs import CheckpointedInputs
from headgate.core.checkpoint.outputs import CheckpointedOutputs
from headgate.core.checkpoint.snapshot import CheckpointPlan
from headgate.core.checkpoint.task_checkpoints import TaskCheckpoints
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.gate import Gate
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.mailbox import URGENT, Mailbox
from headgate.core.task.operator_mail import OperatorMail
from headgate.core.task.processors import FinishedProcessor, InputProcessor, Processor


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
    """Of one task; called on its thread, inside the baton. See ``StopListener``."""

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

    def hold(self, barrier: CheckpointBarrier) -> None:
        self._stops_with = barrier
        self._move(CourseChange.BARRIER)
        self._mail.hold()

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
            self._mail.release()

    def _finish(self, open_inputs: Sequence[int]) -> None:
        with self._loan:
            for number in open_inputs:
                self._chain.end_input(number)
            self._chain.finish()
        self._chain.seal()
        self._mail.drop()  # timers of those that have finished

    def _move(self, what: CourseChange) -> None:
        self.course = next_state(COURSES, self.course, what, "a task")


def take_part(
    plan: CheckpointPlan,
    chain: Chain,
    inputs: Sequence[NetworkInput],
    gates: Sequence[Gate],
    writers: Sequence[RecordWriter],
    loan: Loan,
    clock: Clock,
    mailbox: Mailbox,
) -> TaskCheckpoints:
    """The checkpoints of a task; raises SettingsInvalid if its operators cannot have them."""
    if plan.enabled and plan.policy.exactly_once and chain.head.selection() is not None:
        name = chain.operators[0][0].name
        raise SettingsInvalid(
            "execution.checkpointing.mode",
            f"operator {name!r} chooses which of its inputs it reads, so that "
            f"barriers in the others would wait; use AT_LEAST_ONCE, or take no checkpoints",
        )
    incoming, outgoing = (
        CheckpointedInputs(inputs, gates),
        CheckpointedOutputs(writers, plan.policy),
    )
    urgent = partial(mailbox.put, priority=URGENT)
    return TaskCheckpoints(plan, chain, incoming, outgoing, loan, clock, urgent)
