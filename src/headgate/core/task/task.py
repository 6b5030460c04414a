"""The task: one parallel copy of a vertex, stepped by the thread that owns it.

Mails and the default action take turns (mailbox). Before it touches its input the task looks
whether its writers have a buffer; if not, or if no input is there, it suspends until it is woken.
Law: every operator, gate and writer is closed, however the task ends.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from functools import partial

from headgate.base.elements import MIN_WATERMARK_MS
from headgate.base.errors import TaskCancelled
from headgate.base.messages import UserFigure
from headgate.base.spilling import SpillRoom
from headgate.core.chain.async_calls import AsyncCalls, AsyncWork, ImmediateCalls, StartCalls
from headgate.core.chain.chain import Chain, OperatorStatistics
from headgate.core.chain.context import OperatorContext, TaskInfo
from headgate.core.chain.outputs import Loan, with_name
from headgate.core.chain.spec import OperatorSpec
from headgate.core.egress.partition import Wait, cannot_wait
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.gate import Gate
from headgate.core.state.backend import Backends
from headgate.core.state.memory import MemoryBackends
from headgate.core.task.figures import UserFigures
from headgate.core.task.latency import LatencyStatistics
from headgate.core.task.lifecycle import Happening, Lifecycle, TaskState
from headgate.core.task.mailbox import NORMAL, Lap, Mailbox, MailboxLoop
from headgate.core.task.processors import Clock, Flow, InputProcessor, Processor, SourceProcessor
from headgate.core.task.times import Doing, Spent, TaskTimes


class Progress(Enum):
    """How a step went."""

    MORE = "did something, and there may be more"
    IDLE = "nothing to do until woken"
    DONE = "finished for good"


@dataclass(frozen=True, slots=True)
class TaskStatistics:
    """A moment of a task."""

    state: TaskState
    spent: Spent
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int
    buffers_in: int
    buffers_out: int
    queued_in: int
    queued_out: int
    watermark_in_ms: int
    watermark_out_ms: int
    operators: tuple[OperatorStatistics, ...]
    latency: LatencyStatistics | None
    user: tuple[UserFigure, ...] = ()


class Task:
    """A machine with ``step`` and ``close``; the driver owns its thread and wakes it."""

    def __init__(
        self,
        info: TaskInfo,
        chain: Chain,
        processor: Processor,
        gates: Sequence[Gate],
        writers: Sequence[RecordWriter],
        loan: Loan,
        clock: Clock,
        wake: Callable[[], None],
        backends: Backends | None = None,
        async_calls: StartCalls = ImmediateCalls,
        wait: Wait = cannot_wait,
        spills: SpillRoom | None = None,
    ) -> None:
        self.name = info.name
        self.info = info
        self.lifecycle = Lifecycle(info.name)
        self.mailbox = Mailbox(wake)
        self.on_state: Callable[[TaskState, BaseException | None], None] = lambda state, error: None
        """Told of every new state, while the baton is lent."""
        self.on_time: Callable[[str, int | None], None] = lambda group, watermark_ms: None
        """Told how far event time is by a source that is aligned with a group; the same."""
        self._chain = chain
        self._processor = processor
        self._gates = gates
        self._writers = writers
        self._loan = loan
        self._clock = clock
        self._backends = backends or MemoryBackends()
        self._start_calls = async_calls
        self._wait = wait
        self._spills = spills
        self._times = TaskTimes(clock.now_ms())
        self._loop = MailboxLoop(self.mailbox, self._process)
        self._cancelled = False
        self._waits_since_ms = 0.0
        self._figures = UserFigures()

    def step(self) -> Progress:
        """One lap of the mailbox: the mails that are there, then one element of the input."""
        if self.lifecycle.state is TaskState.CREATED:
            self._start()
        if self._loop.suspended:
            self._look_again()
        match self._loop.lap():
            case Lap.WORKED:
                return Progress.MORE
            case Lap.SUSPENDED:
                return Progress.IDLE
            case Lap.CLOSED:
                return Progress.DONE

    def cancel(self) -> None:
        """It shall end; whoever owns its thread interrupts its waits."""
        self._cancelled = True
        if not self.lifecycle.state.has_ended:
            self.lifecycle.happened(Happening.CANCEL)

    def time_announced(self, group: str, watermark_ms: int | None) -> None:
        """The slowest source of a group is this far (called inside the baton)."""
        processor = self._processor
        if isinstance(processor, SourceProcessor):
            self.mailbox.put("alignment", lambda: processor.time_announced(group, watermark_ms))

    def waiting_for_buffer(self, waits: bool) -> None:
        """A writer has begun or ended to wait in the middle of a step."""
        now_ms = self._clock.now_ms()
        if waits:
            self._waits_since_ms = now_ms
        else:
            self._processor.waited_ms += now_ms - self._waits_since_ms
        self._times.turn_to(Doing.BACKPRESSURED if waits else Doing.BUSY, now_ms)

    def close(self, error: BaseException | None) -> None:
        """Close operators, then gates and writers; tell the last state. Always called, once."""
        failure = error
        self._loop.close()
        try:
            self._loan.lend()
            self._figures.read()
            self._chain.close()
            self._loan.regain()
        except BaseException as trouble:  # also a user's exit(): the rest is closed in any case
            self._loan.regain()
            failure = failure or trouble
        with ExitStack() as last:
            for writer in self._writers:
                last.callback(self._end_writer, writer, failure)
            last.callback(self._processor.close)
        self._times.turn_to(Doing.IDLE, self._clock.now_ms())
        state = self._end(failure)
        self._tell(state, self.lifecycle.failure)

    def statistics(self) -> TaskStatistics:
        """Asked inside the baton."""
        operators = tuple(self._chain.statistics())
        gates = [gate.statistics() for gate in self._gates]
        written = [writer.statistics() for writer in self._writers]
        inputs = self._processor.inputs if isinstance(self._processor, InputProcessor) else []
        latency = (
            self._processor.latencies.statistics()
            if isinstance(self._processor, InputProcessor)
            else None
        )
        return TaskStatistics(
            state=self.lifecycle.state,
            spent=self._times.spent(self._clock.now_ms()),
            records_in=sum(one.records_in for one in inputs),
            records_out=sum(one.records_out for one in written),
            bytes_in=sum(one.bytes_in for one in gates),
            bytes_out=sum(one.bytes_out for one in written),
            buffers_in=sum(one.buffers_in for one in gates),
            buffers_out=sum(one.buffers_out for one in written),
            queued_in=sum(one.queued for one in gates),
            queued_out=sum(writer.partition.queued for writer in self._writers),
            watermark_in_ms=min((one.watermark_ms for one in inputs), default=MIN_WATERMARK_MS),
            watermark_out_ms=min((one.watermark_ms for one in written), default=MIN_WATERMARK_MS),
            operators=operators,
            latency=latency,
            user=self._user_figures(),
        )

    def _user_figures(self) -> tuple[UserFigure, ...]:
        """As they were read last; they are read anew on the task's own thread, soon."""
        if self._figures.ask():
            self.mailbox.put("figures", self._read_figures, NORMAL)
        return self._figures.last

    def _read_figures(self) -> None:
        self._loan.lend()
        self._figures.read()
        self._loan.regain()

    def _start(self) -> None:
        self._move(Happening.DEPLOYED)
        self._times.turn_to(Doing.BUSY, self._clock.now_ms())
        self._loan.lend()
        self._chain.open(self._context_of)
        self._loan.regain()
        for gate in self._gates:
            gate.request_partitions()
        self._processor.start()
        self._move(Happening.STARTED)

    def _context_of(self, spec: OperatorSpec) -> OperatorContext:
        later = partial(self._mail_later, spec.name)
        return OperatorContext(
            spec.name,
            self.info,
            self._clock.wall_ms,
            later,
            spec.uid,
            self._backends,
            self._figures.group_of(spec.name, self._clock.wall_ms),
            partial(self._async_calls, spec.name),
            self._wait_until,
            held_up_ms=self._held_up_ms,
            tell_time=lambda group, watermark_ms: self.on_time(group, watermark_ms),
            spills=self._spills,
        )

    def _held_up_ms(self) -> float:
        return self._times.spent(self._clock.now_ms()).backpressured_ms

    def _mail_later(self, operator: str, delay_ms: float, action: Callable[[], None]) -> None:
        """An operator (outside) wants ``action`` to be run on its thread after a while."""

        def due() -> None:
            run = partial(self._run_mail, operator, action, "in a timer")
            self.mailbox.put("timer", run, NORMAL)

        self._loan.regain()
        self._clock.later(delay_ms, due)
        self._loan.lend()

    def _run_mail(self, operator: str, action: Callable[[], None], doing: str) -> None:
        self._loan.lend()
        with_name(operator, action, doing)
        self._loan.regain()
        self._chain.seal()

    def _async_calls(
        self, operator: str, work: AsyncWork, completed: Callable[[], None]
    ) -> AsyncCalls:
        """Calls of an operator; their driver tells inside the baton that some have ended."""
        mailed = False

        def run() -> None:
            nonlocal mailed
            mailed = False
            self._run_mail(operator, completed, "")

        def tell() -> None:
            nonlocal mailed
            if mailed:
                self.mailbox.notify()
            else:
                mailed = self.mailbox.put("ended calls", run, NORMAL)

        return self._start_calls(work, tell)

    def _wait_until(self, ready: Callable[[], bool]) -> None:
        """An operator (outside) cannot go on: what it has sent leaves, and others run."""
        self._loan.regain()
        self._chain.seal()
        self._wait(ready)
        self._loan.lend()

    def _look_again(self) -> None:
        if not self._can_write():
            return
        if self._processor.available():
            self._loop.resume()
            self._times.turn_to(Doing.BUSY, self._clock.now_ms())
        elif self._times.doing is Doing.BACKPRESSURED:  # a buffer has come, but no input
            self._times.turn_to(Doing.IDLE, self._clock.now_ms())

    def _can_write(self) -> bool:
        return all(writer.available() for writer in self._writers)

    def _process(self) -> bool:
        """The default action; says whether to go on."""
        if not self._can_write():
            self._times.turn_to(Doing.BACKPRESSURED, self._clock.now_ms())
            return False
        flow = self._processor.process()
        if flow is Flow.ENDED:
            self._complete()
            return False
        self._chain.seal()
        if flow is Flow.NOTHING:
            self._times.turn_to(Doing.IDLE, self._clock.now_ms())
            return False
        return True

    def _complete(self) -> None:
        self._loan.lend()
        self._chain.finish()
        self._loan.regain()
        self._chain.seal()
        for writer in self._writers:
            writer.finish()
        self._loop.close()

    def _end_writer(self, writer: RecordWriter, failure: BaseException | None) -> None:
        writer.close()
        if failure is not None:
            cause = failure if isinstance(failure, Exception) else None
            writer.partition.release(cause)

    def _end(self, failure: BaseException | None) -> TaskState:
        state = self.lifecycle.state
        if state.has_ended:
            return state
        if failure is None and state is TaskState.RUNNING:
            return self.lifecycle.happened(Happening.COMPLETED)
        if failure is None or isinstance(failure, TaskCancelled):
            state = self.lifecycle.happened(Happening.CANCEL)
            return state if state.has_ended else self.lifecycle.happened(Happening.CLEANED_UP)
        return self.lifecycle.failed(failure)

    def _move(self, what: Happening) -> None:
        if self._cancelled:
            raise TaskCancelled(f"task {self.name} was cancelled")
        self._tell(self.lifecycle.happened(what), None)

    def _tell(self, state: TaskState, error: BaseException | None) -> None:
        self._loan.lend()
        self.on_state(state, error)
        self._loan.regain()
