"""What a task does by default: process its inputs, or poll its source.

A processor takes one element inside the baton, lends the baton, runs the chain with it and takes
the baton back. Law: user code never runs inside, machines are never touched outside. Several inputs
take turns; an operator may select which of them it reads.

Until a step is over nothing is sent, no mail is read and no checkpoint is taken. Law of the pace: a
step takes about ``target_ms`` or one record, and no more than the free buffers of each output hold,
going by the records that a buffer has held lately. It rarely waits longer than ``WAIT_MS`` for
buffers: beyond what has once made it wait the pace grows slowly. Time in which threads of the
worker waited for a core does not count, nor does a wait until every other task of the worker had
its turns: shorter steps would only make more work for the cores.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from enum import Enum
from math import inf
from typing import Final, Protocol

from headgate.base.elements import Bundle, LatencyMarker, Watermark
from headgate.base.errors import ConnectorError, raise_user_error
from headgate.base.messages import ForSources
from headgate.core.chain.chain import Chain
from headgate.core.chain.context import Clock
from headgate.core.chain.operator import PollResult
from headgate.core.chain.outputs import Loan
from headgate.core.egress.writer import RecordWriter
from headgate.core.ingress.valve import InputTimes, Outcome
from headgate.core.operators.source import SourceOperator
from headgate.core.task.idling import SourceIdling
from headgate.core.task.inputs import (
    InputEnded,
    NetworkInput,
    Nothing,
    PollAgain,
    Taken,
    TimeAdvanced,
)
from headgate.core.task.statistics import Latencies

STEP_MS: Final = 5.0
WAIT_MS: Final = 20.0
WAIT_ROUNDS: Final = 4
"""Readers in the same worker free a buffer when it is their turn; some turns free none."""
MOST_RECORDS: Final = 4096
FIRST_RECORDS: Final = 1  # nobody knows yet how slow the function is, or how large the records


class StepPace:
    """Learns how long a step took; says how many records the next one may take."""

    def __init__(
        self,
        target_ms: float = STEP_MS,
        runnable_ms: Callable[[], float] = lambda: 0.0,
        round_ms: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``runnable_ms``, ``round_ms``: see ``Clock``."""
        self.limit = FIRST_RECORDS
        self._target_ms = target_ms
        self._runnable_ms = runnable_ms
        self._round_ms = round_ms
        self._known_ms = 0.0  # that they had waited for a core when they were asked last
        self._records = 0
        self._held_up_at = MOST_RECORDS

    def step_took(self, elapsed_ms: float, records: int) -> None:
        """A step with so many records has ended."""
        self._records = records
        if elapsed_ms > self._target_ms:
            elapsed_ms -= self._waited_for_core_ms()
            if elapsed_ms > self._target_ms:
                self._fit(self._target_ms / elapsed_ms)
        elif records >= self.limit:
            self._grow()

    def held_up(self, waited_ms: float) -> None:
        """So long the last step, until all that it has made was written, waited for buffers."""
        if waited_ms > WAIT_MS:
            most_ms = max(WAIT_MS, WAIT_ROUNDS * self._round_ms())
            if waited_ms > most_ms:
                self._fit(most_ms / waited_ms)
                self._held_up_at = self.limit

    def _waited_for_core_ms(self) -> float:
        """Since this was asked last: if that is long ago, mostly in earlier steps."""
        known_ms, self._known_ms = self._known_ms, self._runnable_ms()
        return self._known_ms - known_ms

    def _fit(self, share: float) -> None:
        self.limit = max(1, min(self.limit, int(self._records * share)))

    def _grow(self) -> None:
        if self.limit < self._held_up_at:
            self.limit = min(self._held_up_at, self.limit * 2)
        elif self.limit < MOST_RECORDS:
            grown = self.limit + 1 + self.limit // 16
            self.limit = self._held_up_at = min(MOST_RECORDS, grown)


class OutputHeadroom:
    """How many records the outputs of a task can take. Asked before each step, told after it."""

    def __init__(self, writers: Sequence[RecordWriter]) -> None:
        self._outputs = [
            _Output(writer) for writer in writers if writer.partition.kind.has_back_pressure
        ]
        self._taken = 0

    def fit(self, limit: int) -> int:
        """The number of records, at most ``limit``, that the outputs can take."""
        for output in self._outputs:
            limit = output.fit(limit, self._taken)
        return limit

    def step_took(self, records: int) -> None:
        """A step has taken so many records."""
        self._taken += records


class _Output:
    def __init__(self, writer: RecordWriter) -> None:
        self._writer = writer
        self._pool = writer.partition.pool
        self._size = writer.partition.segment_bytes
        self._resizes = 0
        self._taken = 0
        self._buffers = 0
        self._per_buffer = 0.0  # nobody knows

    def fit(self, limit: int, taken: int) -> int:
        made = self._writer.buffers_out - self._buffers
        if made:  # and one may be begun
            self._per_buffer = (taken - self._taken) / (made + 1)
            self._taken, self._buffers = taken, self._writer.buffers_out
        if self._resizes != self._writer.resizes:
            self._follow_sizes()
        if not self._per_buffer:
            return limit
        pool = self._pool
        free = pool.size + pool.overdraft - pool.lent
        return max(1, min(limit, int(free * self._per_buffer)))

    def _follow_sizes(self) -> None:
        """Buffers are shorter or longer from now on."""
        self._resizes = self._writer.resizes
        size = min(self._writer.partition.segment_bytes, *self._writer.sizes)
        self._per_buffer *= size / self._size
        self._size = size


class InputStatus(Enum):
    """How a call of a processor ended."""

    MORE = "go on"
    NOTHING = "nothing now; somebody will wake the task"
    ENDED = "the input has ended"


class Processor(Protocol):
    """The default action of a task."""

    waited_ms: float
    """Time since the last step began that went by while a writer had no buffer."""

    def process(self) -> InputStatus: ...

    def available(self) -> bool: ...

    def close(self) -> None: ...


class InputProcessor:
    """For tasks that read from others: one input, two, or many."""

    def __init__(self, chain: Chain, inputs: list[NetworkInput], loan: Loan, clock: Clock) -> None:
        self.inputs = inputs
        self.latencies = Latencies(clock.now_ms)
        self._chain = chain
        self._loan = loan
        self._clock = clock
        self._times = InputTimes(len(inputs))
        self._pace = StepPace(runnable_ms=clock.runnable_ms, round_ms=clock.round_ms)
        self._headroom = OutputHeadroom(chain.writers)
        self.waited_ms = 0.0
        self._unfinished = len(inputs)
        self._turn = 0

    def available(self) -> bool:
        selected = self._selected()
        return any(self.inputs[number].available() for number in selected)

    def process(self) -> InputStatus:
        """Take one element of the next input that has one, and run the chain with it."""
        self._pace.held_up(self.waited_ms)
        self.waited_ms = 0.0
        limit = self._headroom.fit(self._pace.limit)
        for source in self._in_turn():
            taken = source.take(limit)
            self._turn = source.number + 1  # the input just read comes last
            if isinstance(taken, Nothing):
                continue
            return self._run_taken(source.number, taken)
        return InputStatus.NOTHING

    @property
    def open_inputs(self) -> list[int]:
        """Numbers of the inputs that have not ended."""
        return [source.number for source in self.inputs if not source.ended]

    def close(self) -> None:
        with ExitStack() as all_of_them:  # whatever one of them raises, the others are closed
            for source in reversed(self.inputs):
                all_of_them.callback(source.close)

    def _run_taken(self, number: int, taken: Taken) -> InputStatus:
        match taken:
            case Bundle():
                self._run(taken, number)
            case TimeAdvanced(outcome):
                self._run_times(number, outcome)
            case LatencyMarker():
                self.latencies.measured(self._clock.wall_ms() - taken.marked_ms)
                with self._loan:
                    self._chain.marker_received(taken)
            case InputEnded():
                return self._input_ended(number)
            case PollAgain() | Nothing():
                pass
        return InputStatus.MORE

    def _run(self, bundle: Bundle, number: int) -> None:
        now_ms = self._clock.now_ms
        began = now_ms()
        self._loan.lend()
        self._chain.process(bundle, number)
        elapsed_ms = now_ms() - began - self.waited_ms  # without the wait for the baton
        self._loan.regain()
        self._pace.step_took(elapsed_ms, len(bundle))
        self._headroom.step_took(len(bundle))

    def _run_times(self, number: int, outcome: Outcome) -> None:
        for element in self._times.advanced(number, outcome):
            with self._loan:
                if isinstance(element, Watermark):
                    self._chain.watermark_advanced(element)
                else:
                    self._chain.status_changed(element)

    def _input_ended(self, number: int) -> InputStatus:
        self._unfinished -= 1
        with self._loan:
            self._chain.end_input(number)
        return InputStatus.MORE if self._unfinished else InputStatus.ENDED

    def _in_turn(self) -> list[NetworkInput]:
        inputs = self.inputs
        if len(inputs) == 1:
            return inputs
        selected = self._selected()
        first = self._turn % len(inputs)
        order = [*range(first, len(inputs)), *range(first)]
        return [inputs[number] for number in order if number in selected]

    def _selected(self) -> Collection[int]:
        """What the operator wants to read; what has ended is not read again."""
        wanted = self._chain.head.selection()
        open_inputs = self.open_inputs
        chosen = [number for number in open_inputs if wanted is None or number in wanted]
        return chosen or open_inputs  # a selection of ended inputs only means the others


class SourceProcessor:
    """For source tasks: polls the source operator; when it has nothing, its idling says when."""

    def __init__(
        self,
        chain: Chain,
        loan: Loan,
        clock: Clock,
        idling: SourceIdling,
        marker: tuple[float, int, int] | None = None,
    ) -> None:
        """``marker``: interval of latency markers in ms, operator id and subtask to put in them."""
        assert isinstance(chain.head, SourceOperator)
        self._source = chain.head
        self._chain = chain
        self._loan = loan
        self._clock = clock
        self.idling = idling
        self._pace = StepPace(runnable_ms=clock.runnable_ms, round_ms=clock.round_ms)
        self._headroom = OutputHeadroom(chain.writers)
        self.waited_ms = 0.0
        self._marker = marker
        self._mark_at_ms = inf if marker is None else clock.now_ms() + marker[0]

    def available(self) -> bool:
        return self.idling.due

    def process(self) -> InputStatus:
        """Poll once."""
        self.idling.poll_begins()
        now_ms = self._clock.now_ms
        began, before = now_ms(), self._chain.records_out_of_head
        self._pace.held_up(self.waited_ms)
        self.waited_ms = 0.0
        limit = self._headroom.fit(self._pace.limit)
        self._loan.lend()
        if began >= self._mark_at_ms:
            self._mark(began)
        polled = self._chain.poll_source(limit)
        elapsed_ms = now_ms() - began - self.waited_ms  # without the wait for the baton
        self._loan.regain()
        taken = self._chain.records_out_of_head - before
        self._pace.step_took(elapsed_ms, taken)
        self._headroom.step_took(taken)
        if polled is PollResult.RECORDS:
            self.idling.records_came()
            return InputStatus.MORE
        if polled is PollResult.ENDED:
            return InputStatus.ENDED
        return InputStatus.NOTHING if self._rest(polled) else InputStatus.MORE

    def obey(self, order: ForSources) -> None:
        """The driver has splits, or knows how far others are; a source that waits may go on."""
        self._source.obey(order)
        self.idling.become_due()

    def close(self) -> None:
        self.idling.close()

    def _rest(self, polled: PollResult) -> bool:
        """Wait for what makes the source due; False: it is due."""
        if polled is PollResult.PAUSED:
            return self.idling.rest(inf)
        source = self._source
        wait_ms = source.wait_ms
        if self._mark_at_ms < inf:  # markers go out also while there are no records
            wait_ms = min(wait_ms, self._mark_at_ms - self._clock.now_ms())
        try:
            return self.idling.rest(wait_ms, source.descriptors)
        except ConnectorError as error:
            raise_user_error(error, source.context.operator)

    def _mark(self, now_ms: float) -> None:
        assert self._marker is not None
        interval_ms, operator, subtask = self._marker
        self._mark_at_ms = now_ms + interval_ms
        self._source.output.emit_marker(LatencyMarker(self._clock.wall_ms(), operator, subtask))


class FinishedProcessor:
    """For a task with operators that get nothing more: reads to the ends and drops all of it.

    They had finished before the run began, or a savepoint has ended the job.
    """

    def __init__(self, inner: Processor) -> None:
        self.waited_ms = 0.0
        self._inner = inner
        self._inputs = inner.inputs if isinstance(inner, InputProcessor) else []

    def available(self) -> bool:
        """Also if there is nothing left to read: the end is still to be reported."""
        unfinished = [source for source in self._inputs if not source.ended]
        return not unfinished or any(source.available() for source in unfinished)

    def process(self) -> InputStatus:
        """Take one element of each input."""
        flow = InputStatus.NOTHING
        for source in self._inputs:
            if not source.ended and not isinstance(source.take(_MANY), Nothing):
                flow = InputStatus.MORE
        return InputStatus.ENDED if all(source.ended for source in self._inputs) else flow

    def close(self) -> None:
        self._inner.close()


_MANY: Final = 4096
