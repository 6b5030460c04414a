"""How a task ends: it reads its input, is held by a savepoint that ends the job, or ends.

Law: at the end of its input a task stays until its checkpoints are written, and until one more is
complete if an operator needs that; it asks for that one, and again when it was aborted. While
it is held nothing reaches its operators; once it is stopped nothing ever does.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from headgate.base.errors import SettingsInvalid
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import Clock
from headgate.core.chain.outputs import Loan
from headgate.core.checkpoint.inputs import CheckpointedInputs
from headgate.core.checkpoint.outputs import CheckpointedOutputs
from headgate.core.checkpoint.snapshot import CheckpointPlan
from headgate.core.checkpoint.task_checkpoints import SavepointPhase, TaskCheckpoints
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.gate import Gate
from headgate.core.task.inputs import NetworkInput
from headgate.core.task.mailbox import URGENT, Mailbox
from headgate.core.task.operator_mail import OperatorMail
from headgate.core.task.processors import InputProcessor, Processor


class StopMode(Enum):
    """What a task does between mails."""

    READING = "its input"
    HELD = "nothing, until it is known how a savepoint went"
    ENDING = "it waits for checkpoints"


class TaskEnding:
    """Of one task; called on its thread, inside the baton."""

    def __init__(
        self,
        checkpoints: TaskCheckpoints | None,
        chain: Chain,
        processor: Processor,
        mail: OperatorMail,
        loan: Loan,
    ) -> None:
        self.mode = StopMode.READING
        self.stopped = False
        """A savepoint has ended the job: the operators do not learn that their input is over."""
        self.on_checkpoint_wanted: Callable[[], None] = lambda: None
        self._checkpoints = checkpoints
        self._chain = chain
        self._input = processor if isinstance(processor, InputProcessor) else None
        self._mail = mail
        self._loan = loan
        self._asked = False
        if checkpoints is not None:
            checkpoints.on_drain = self._drain
            checkpoints.on_phase = self._enter_phase

    def input_ended(self) -> None:
        """All inputs are read; the operators finish if they are to."""
        if not self.stopped:
            self._finish(())
        self.skip()

    def skip(self) -> None:
        """There is nothing to finish: the operators had before the run began."""
        self.mode = StopMode.ENDING
        if self._checkpoints is not None:
            self._checkpoints.input_ended()

    def checkpoint_aborted(self) -> None:
        """If the task waits for one, it wants another."""
        self._asked = False

    def may_end(self) -> bool:
        """Whether no checkpoint still needs the task, nor the task a checkpoint."""
        checkpoints = self._checkpoints
        if checkpoints is None:
            return True
        if checkpoints.is_writing:
            return False
        if self.stopped or checkpoints.is_blank or not self._chain.awaits_checkpoint:
            return True
        if not self._asked:
            self._asked = True
            with self._loan:
                self.on_checkpoint_wanted()
        return False

    def _finish(self, open_inputs: Sequence[int]) -> None:
        with self._loan:
            for number in open_inputs:
                self._chain.end_input(number)
            self._chain.finish()
        self._chain.seal()
        self._mail.drop()  # timers of those that have finished

    def _drain(self) -> None:
        """Event time has ended, and operators finish before the snapshot is taken."""
        self._finish(() if self._input is None else self._input.open_inputs)

    def _enter_phase(self) -> None:
        assert self._checkpoints is not None
        source = self._input
        match self._checkpoints.phase:
            case SavepointPhase.HELD:
                self.mode = StopMode.HELD
                self._mail.hold()
                if source is not None:
                    source.hold()
            case SavepointPhase.GOES_ON:
                self.mode = StopMode.READING
                self._mail.release()
                if source is not None:
                    source.go_on()
            case SavepointPhase.STOPPED:
                self.stopped = True
                self._mail.drop()
                self.mode = StopMode.ENDING if source is None else StopMode.READING
                if source is not None:
                    source.stop()


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
