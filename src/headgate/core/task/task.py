"""The task: one parallel copy of a vertex, stepped by the thread that owns it.

Mails and the default action take turns (mailbox). Before it touches its input the task looks
whether its writers have a buffer; if not, or if no input is there, it suspends until it is woken.
At the end of its input it waits for its checkpoints to be written, and for one more if an operator
needs that. Law: every operator, gate and writer is closed, however the task ends.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Protocol

from msgspec import structs

from headgate.base.elements import MAX_WATERMARK_MS, StreamStatus, Watermark
from headgate.base.errors import SettingsInvalid, TaskCancelled
from headgate.base.figures import UNKNOWN
from headgate.base.inspections import ReadState
from headgate.base.messages import ForTasks, OnCheckpoints, TaskFigures, TaskState
from headgate.base.spilling import SpillRoom
from headgate.core.chain.async_calls import StartCalls
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import Clock, OperatorContext
from headgate.core.chain.immediate_calls import immediate_calls
from headgate.core.chain.outputs import Loan
from headgate.core.chain.spec import OperatorSpec
from headgate.core.checkpoint.inputs import CheckpointedInputs, give_back
from headgate.core.checkpoint.outputs import CheckpointedOutputs
from headgate.core.checkpoint.restored import FRESH, TaskRestored
from headgate.core.checkpoint.snapshot import CheckpointPlan
from headgate.core.checkpoint.task_checkpoints import TaskCheckpoints
from headgate.core.egress.partition import Wait, cannot_wait
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.gate import Gate
from headgate.core.state.backend import Backends
from headgate.core.state.memory import MemoryBackends
from headgate.core.state.reading import StateReader
from headgate.core.task.debloating import BufferSizes
from headgate.core.task.idling import LINGER_MS, NothingWatched, Post, StartWatch, post_at_once
from headgate.core.task.inspection import AnswerRead, StateReads, WaitingInputs
from headgate.core.task.life_cycle import Course, Lifecycle, TaskEnding, TaskTransition
from headgate.core.task.mailbox import NORMAL, URGENT, Lap, Mailbox, MailboxLoop
from headgate.core.task.operator_mail import OperatorMail
from headgate.core.task.processors import (
    InputProcessor,
    InputStatus,
    Processor,
    SourceProcessor,
)
from headgate.core.task.statistics import OwnFigures, TaskActivity, TaskTimes, figures_of
from headgate.functions.context import TaskInfo


class StepResult(Enum):
    """How a step went."""

    MORE = "did something, and there may be more"
    IDLE = "nothing to do until woken"
    DONE = "finished for good"


@dataclass(frozen=True, slots=True)
class TaskServices:
    """For one task; used inside the baton, unless it is said otherwise."""

    loan: Loan
    """Lends the baton of the task's thread while user code runs."""
    clock: Clock
    wake: Callable[[], None]
    """Steps the task again if it rests."""
    wait: Wait = cannot_wait
    """Waits in the middle of a step; meanwhile other tasks run."""
    async_calls: StartCalls = immediate_calls
    backends: Backends = field(default_factory=MemoryBackends)
    spills: SpillRoom | None = None
    warn: Callable[[str, BaseException | None], None] = lambda text, error: None
    """Writes a line to the log, with the traceback of an error."""
    post: Post = post_at_once
    """Runs a callback inside the baton, soon; any thread may call it."""
    start_watch: StartWatch = NothingWatched
    """Watches descriptors for a source."""
    is_cancelled: Callable[[], bool] = lambda: False
    sleep: Callable[[float], None] = lambda seconds: None
    """Waits while user code runs; raises TaskCancelled."""
    when_cancelled: Callable[[Callable[[], None]], None] = lambda call: None
    """These three are used outside the baton, by any thread."""
    linger_ms: float = LINGER_MS
    """How long after a wake of a source the next one waits; 0: where that costs nothing."""


class TaskListener(Protocol):
    """Learns what becomes of the tasks of a run; called on their threads, while the baton is lent.

    The first argument of each call is the id of the task.
    """

    def state_changed(self, task: str, state: TaskState, error: BaseException | None) -> None:
        """A task has reached another state; ``error``: why it failed."""

    def time_reported(self, task: str, group: str, watermark_ms: int | None) -> None:
        """How far event time is in a source that is aligned with a group."""

    def splits_wanted(self, task: str, count: int, held: int) -> None:
        """A source wants so many more splits; ``held``: those that it has not read yet."""

    def source_time_reported(
        self, task: str, received: int, watermark_ms: int, rests: bool
    ) -> None:
        """How far a source is whose splits the driver hands out."""

    def checkpoint_declined(self, task: str, checkpoint: int, reason: str, subsumed: bool) -> None:
        """A task takes no part in a checkpoint; ``subsumed``: a newer one has reached it."""

    def checkpoint_wanted(self, task: str) -> None:
        """A task needs one more complete checkpoint before it can end."""


@dataclass(frozen=True, slots=True)
class TaskParts:
    """What a task is made of; see ``core.task.assembly``."""

    chain: Chain
    processor: Processor
    gates: Sequence[Gate]
    writers: Sequence[RecordWriter]
    sizes: BufferSizes | None = None


class Task:
    """A machine with ``step`` and ``close``; the driver owns its thread and wakes it."""

    def __init__(
        self,
        task: str,
        info: TaskInfo,
        parts: TaskParts,
        services: TaskServices,
        listener: TaskListener,
        checkpoints: CheckpointPlan | None = None,
        restored: TaskRestored | None = None,
    ) -> None:
        """``task`` is its id in the job, which ``listener`` is told."""
        self.id = task
        self.name = info.name
        self.info = info
        self.lifecycle = Lifecycle(info.name)
        self.mailbox = Mailbox(services.wake)
        self._listener = listener
        self._chain = chain = parts.chain
        self._processor = processor = parts.processor
        self._inputs = processor.inputs if isinstance(processor, InputProcessor) else []
        self._gates = parts.gates
        self._writers = parts.writers
        self._wake_source = (
            processor.idling.wake if isinstance(processor, SourceProcessor) else lambda: None
        )
        self._loan = services.loan
        self._clock = services.clock
        self._services = services
        self._operator_mail = OperatorMail(
            chain,
            services.loan,
            services.clock,
            self.mailbox,
            services.async_calls,
            services.wait,
        )
        self._sizes = parts.sizes
        self._times = TaskTimes(services.clock.now_ms())
        self._loop = MailboxLoop(self.mailbox, self._process)
        self._cancelled = False
        self._waits_since_ms = 0.0
        self._figures = OwnFigures(chain)
        self._reads = StateReads(chain, self.mailbox, services.loan, services.clock.now_ms)
        self._plan = checkpoints
        self._restored = restored or FRESH
        self._checkpoints = None if checkpoints is None else self._take_part(checkpoints)
        self._ending = TaskEnding(
            self._checkpoints,
            chain,
            processor,
            self._operator_mail,
            services.loan,
            self._restored.finished,
        )
        self._ending.on_checkpoint_wanted = partial(listener.checkpoint_wanted, task)

    def step(self) -> StepResult:
        """One lap of the mailbox: the mails that are there, then one element of the input."""
        if self.lifecycle.state is TaskState.CREATED:
            self._start()
        if self._loop.suspended:
            self._resume_if_possible()
        match self._loop.lap():
            case Lap.WORKED:
                return StepResult.MORE
            case Lap.SUSPENDED:
                return StepResult.IDLE
            case Lap.CLOSED:
                return StepResult.DONE

    def cancel(self) -> None:
        """It shall end; whoever owns its thread interrupts its waits."""
        self._cancelled = True
        if not self.lifecycle.state.has_ended:
            self.lifecycle.happened(TaskTransition.CANCEL)

    def obey(self, order: ForTasks) -> str:
        """An order of the driver (called inside the baton); why it cannot be obeyed, or nothing.

        It is carried out by mail. All are urgent: what the driver sends first takes effect first,
        so that a split is in the state of the task or in that of the driver, and never in both.
        """
        if isinstance(order, OnCheckpoints):
            if self._checkpoints is None:
                return "the job takes no checkpoints"
            if self.lifecycle.state in (TaskState.FAILED, TaskState.CANCELLED):
                return ""  # its end is on the way to the driver, and says why: a refusal would not
            act = partial(self._checkpoints.obey, order)
        elif isinstance(self._processor, SourceProcessor):
            act = partial(self._processor.obey, order)
        else:
            return ""
        self.mailbox.put(type(order).__name__, act, URGENT)
        return ""

    # Checkpoints: asked inside the baton.

    def commits_too_long(self, timeout_ms: float) -> int | None:
        """The checkpoint that its operators have been committing for longer than this."""
        taking = self._checkpoints
        if taking is None or taking.committing is None:
            return None
        checkpoint, since_ms = taking.committing
        return checkpoint if self._clock.now_ms() - since_ms > timeout_ms else None

    def waiting_for_buffer(self, waits: bool) -> None:
        """A writer has begun or ended to wait in the middle of a step."""
        now_ms = self._clock.now_ms()
        if waits:
            self._waits_since_ms = now_ms
        else:
            self._processor.waited_ms += now_ms - self._waits_since_ms
        doing = TaskActivity.HARD_BACKPRESSURED if waits else TaskActivity.BUSY
        self._times.turn_to(doing, now_ms)

    def close(self, error: BaseException | None) -> None:
        """Close operators, then gates and writers; tell the last state. Always called, once."""
        failure = error
        self._loop.close()
        if self._sizes is not None:
            self._sizes.close()
        try:
            with ExitStack() as first:
                first.callback(self._close_operators)
                if self._checkpoints is not None:
                    self._checkpoints.close()
        except BaseException as trouble:  # also a user's exit(): the rest is closed in any case
            self._loan.regain()
            failure = failure or trouble
        try:
            with ExitStack() as last:
                for writer in self._writers:
                    last.callback(self._end_writer, writer, failure)
                last.callback(self._processor.close)
        except BaseException as trouble:  # of a disk, mostly: the driver learns of it as well
            failure = failure or trouble
        self._times.turn_to(TaskActivity.IDLE, self._clock.now_ms())
        state = self._end(failure)
        self._reads.close(f"it is {state.value}")
        self._tell(state, self.lifecycle.failure)

    def _close_operators(self) -> None:
        with self._loan:
            self._figures.read()
            self._chain.close()

    @property
    def activity(self) -> TaskActivity:
        """What it is at; may be asked from any thread, at any moment."""
        return self._times.doing

    def waiting_inputs(self) -> WaitingInputs:
        """What waits in front of it, to be looked at (inside the baton)."""
        return WaitingInputs(self._chain.head, self._inputs, self._gates)

    def read_state(self, question: ReadState, answer: AnswerRead) -> None:
        """Read keyed state; asked inside the baton, answered there between two bundles."""
        self._reads.ask(question, answer)

    def state_reader(self, uid: str) -> StateReader | None:
        """What reads the keyed state of an operator, between two steps; None: it has none."""
        return self._chain.state_reader(uid)

    def figures(self) -> TaskFigures:
        """Asked inside the baton; what only its own thread can read is read anew, soon."""
        processor, taking = self._processor, self._checkpoints
        if self._figures.ask():
            self.mailbox.put("figures", self._read_figures, NORMAL)
        figures = figures_of(
            self.lifecycle.state,
            self._times.spent(self._clock.now_ms()),
            self._chain,
            self._inputs,
            self._gates,
            self._writers,
            latencies=processor.latencies if isinstance(processor, InputProcessor) else None,
            own=self._figures,
            sizes=self._sizes,
        )
        if taking is None:
            return figures
        state_bytes = figures.state_bytes
        return structs.replace(
            figures,
            commit_ms=taking.committed_ms,
            state_bytes=taking.state_bytes if state_bytes == UNKNOWN else state_bytes,
        )

    def take_warnings(self) -> list[str]:
        """About figures that could not be read; each is returned once (asked inside the baton)."""
        return self._figures.take_warnings()

    def _read_figures(self) -> None:
        with self._loan:
            self._figures.read()

    def _start(self) -> None:
        self._move(TaskTransition.DEPLOYED)
        self._times.turn_to(TaskActivity.BUSY, self._clock.now_ms())
        restored = self._restored
        for number, subpartition, parts in restored.outputs:
            self._writers[number].restore(subpartition, parts)
        if restored is not FRESH:  # what is on its way may end idle, and nobody here knows of that
            for writer in self._writers:
                writer.emit_element(StreamStatus(active=True))
        with self._loan:
            self._chain.open(self._context_of, restored.opens)
            self._figures.opened()
        give_back(restored, self._inputs, self._gates)
        for gate in self._gates:
            gate.request_partitions()
        self._move(TaskTransition.STARTED)
        if self._sizes is not None:
            self._sizes.start(self._with_data_ms, self._clock.runnable_ms)

    def _context_of(self, spec: OperatorSpec) -> OperatorContext:
        mail = self._operator_mail
        return OperatorContext(
            spec.name,
            self.info,
            self._clock.wall_ms,
            partial(mail.later, spec.name),
            spec.uid,
            self._services.backends,
            self._figures.group_of(spec.name, self._clock.wall_ms),
            partial(mail.calls, spec.name),
            mail.wait_until,
            held_up_ms=self._held_up_ms,
            elapsed_ms=self._clock.now_ms,
            tell_time=partial(self._listener.time_reported, self.id),
            wake=self._wake_source,
            want_splits=partial(self._listener.splits_wanted, self.id),
            tell_source_time=partial(self._listener.source_time_reported, self.id),
            spills=self._services.spills,
            restored=self._restored.operators.get(spec.uid),
            checkpoints=self._plan is not None and self._plan.enabled,
            key_type=spec.key_type,
            record_type=spec.record_type,
            is_cancelled=self._services.is_cancelled,
            sleep=self._services.sleep,
            when_cancelled=self._services.when_cancelled,
            warn=self._services.warn,
            definitions=spec.definitions,
        )

    def _with_data_ms(self) -> float:
        """Back pressure counts: what waits in front of the task waits for that too."""
        spent = self._times.spent(self._clock.now_ms())
        return spent.busy_ms + spent.backpressured_ms

    def _held_up_ms(self) -> float:
        return self._times.spent(self._clock.now_ms()).backpressured_ms

    def _resume_if_possible(self) -> None:
        if not self._is_reading:
            self._times.turn_to(TaskActivity.IDLE, self._clock.now_ms())
            if self._may_end():
                self._loop.resume()
            return
        if not self._can_write():
            return
        if self._ending.processor.available():
            self._loop.resume()
            self._times.turn_to(TaskActivity.BUSY, self._clock.now_ms())
        elif (
            self._times.doing is TaskActivity.SOFT_BACKPRESSURED
        ):  # a buffer has come, but no input
            self._times.turn_to(TaskActivity.IDLE, self._clock.now_ms())

    @property
    def _is_reading(self) -> bool:
        return self._ending.course in (Course.READING, Course.STOPPED)

    def _may_end(self) -> bool:
        return self._ending.course is not Course.HELD and self._ending.may_end()

    def _can_write(self) -> bool:
        return all(writer.available() for writer in self._writers)

    def _process(self) -> bool:
        """The default action; says whether to go on."""
        if not self._is_reading:
            if self._may_end():
                self._end_outputs()
            return False
        if not self._can_write():
            self._times.turn_to(TaskActivity.SOFT_BACKPRESSURED, self._clock.now_ms())
            return False
        flow = self._ending.processor.process()
        if flow is InputStatus.ENDED:
            self._input_ended()
            return True
        self._chain.seal()
        if flow is InputStatus.NOTHING:
            for writer in self._writers:
                writer.rested()
            self._times.turn_to(TaskActivity.IDLE, self._clock.now_ms())
            return False
        return True

    def _input_ended(self) -> None:
        if self._restored.finished:
            for writer in self._writers:
                writer.emit_element(Watermark(MAX_WATERMARK_MS))
        self._ending.input_ended()

    def _end_outputs(self) -> None:
        for writer in self._writers:
            writer.finish()
        self._loop.close()

    def _take_part(self, plan: CheckpointPlan) -> TaskCheckpoints:
        """Its checkpoints; raises SettingsInvalid if its operators cannot have them."""
        chain = self._chain
        if plan.enabled and plan.policy.exactly_once and chain.head.selection() is not None:
            raise SettingsInvalid(
                "execution.checkpointing.mode",
                f"operator {chain.operators[0][0].name!r} chooses which of its inputs it reads, "
                f"so that barriers in the others would wait; use AT_LEAST_ONCE, or take no "
                f"checkpoints",
            )
        taking = TaskCheckpoints(
            plan,
            chain,
            CheckpointedInputs(self._inputs, self._gates),
            CheckpointedOutputs(self._writers, plan.policy),
            self._loan,
            self._clock,
            partial(self.mailbox.put, priority=URGENT),
        )
        taking.on_declined = partial(self._listener.checkpoint_declined, self.id)
        return taking

    def _end_writer(self, writer: RecordWriter, failure: BaseException | None) -> None:
        try:
            writer.close()
        finally:
            if failure is not None:
                cause = failure if isinstance(failure, Exception) else None
                writer.partition.release(cause)

    def _end(self, failure: BaseException | None) -> TaskState:
        state = self.lifecycle.state
        if state.has_ended:
            return state
        if failure is None and state is TaskState.RUNNING:
            return self.lifecycle.happened(TaskTransition.COMPLETED)
        if failure is None or isinstance(failure, TaskCancelled):
            state = self.lifecycle.happened(TaskTransition.CANCEL)
            return state if state.has_ended else self.lifecycle.happened(TaskTransition.CLEANED_UP)
        return self.lifecycle.failed(failure)

    def _move(self, what: TaskTransition) -> None:
        if self._cancelled:
            raise TaskCancelled(f"task {self.name} was cancelled")
        self._tell(self.lifecycle.happened(what), None)

    def _tell(self, state: TaskState, error: BaseException | None) -> None:
        with self._loan:
            self._listener.state_changed(self.id, state, error)
