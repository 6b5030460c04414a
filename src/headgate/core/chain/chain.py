"""The operator chain: all operators of one task and the outputs between them.

Built from its tail: first the output an operator writes to, then the operator. Law: operators are
opened from the tail to the head (nobody sends to a closed one), finished from the head to the tail,
and each is closed exactly once, whatever happened before.
"""

from collections.abc import Callable, Iterator, Sequence

from headgate.base.elements import Bundle, LatencyMarker, StreamStatus, Watermark
from headgate.base.errors import raise_user_error
from headgate.base.figures import UNKNOWN, AsyncFigures, BatchFigures, OperatorFigures
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.left_out import RecordFailures
from headgate.core.chain.operator import Operator, Output, PolledOperator, PollResult
from headgate.core.chain.outputs import (
    ChainedOutput,
    CountingOutput,
    Loan,
    NetworkOutput,
    PassedNone,
    RecordCopyingOutput,
    choose_output,
    run_user_code,
    typed,
)
from headgate.core.chain.spec import ChainSpec, OperatorSpec, ToNetwork, ToOperator
from headgate.core.egress.writer import RecordWriter
from headgate.core.state.reading import StateReader
from headgate.functions.error_policy import OnError


class Chain:
    """The operators of one task. All methods but ``seal`` run user code."""

    def __init__(self, spec: ChainSpec, writers: Sequence[RecordWriter], loan: Loan) -> None:
        self._spec = spec
        self.writers = writers
        self._loan = loan
        self._inputs: dict[int, ChainedOutput] = {}
        self._counts: dict[int, CountingOutput] = {}
        self._built: dict[int, Operator] = {}
        self.network_outputs: list[NetworkOutput] = []
        self._head_in = 0
        self._passed_none = PassedNone()
        self.head = self._build(0)
        self.operators = [(spec.operators[at], self._built[at]) for at in sorted(self._built)]
        """Head first."""
        self._name = spec.operators[0].name
        self._closed = False

    def open(
        self,
        context_of: Callable[[OperatorSpec], OperatorContext],
        opens: Callable[[OperatorSpec], bool] = lambda spec: True,
    ) -> None:
        """Open the operators, the tail first; ``opens`` may leave some out."""
        for spec, operator in reversed(self.operators):
            if not opens(spec):
                continue
            context = context_of(spec)
            if operator.failures is not None:
                operator.failures.open(context)
            run_user_code(spec.name, lambda: operator.open(context), "in open()")  # noqa: B023

    def process(self, bundle: Bundle, number: int) -> None:
        """Records of one input, to the head."""
        self._head_in += len(bundle)
        try:
            self.head.process(bundle, number)
        except (Exception, SystemExit) as error:
            raise_user_error(error, self._name)

    def poll_source(self, limit: int) -> PollResult:
        """Let the source at the head send what it has."""
        assert isinstance(self.head, PolledOperator)
        try:
            return self.head.poll(limit)
        except (Exception, SystemExit) as error:
            raise_user_error(error, self._name)

    @property
    def records_out_of_head(self) -> int:
        return self._counts[0].records_out

    def watermark_advanced(self, watermark: Watermark) -> None:
        run_user_code(self._name, lambda: self.head.watermark_advanced(watermark))

    def status_changed(self, status: StreamStatus) -> None:
        run_user_code(self._name, lambda: self.head.status_changed(status))

    def marker_received(self, marker: LatencyMarker) -> None:
        run_user_code(self._name, lambda: self.head.marker_received(marker))

    def end_input(self, number: int) -> None:
        """Input ``number`` of the head has ended."""
        run_user_code(self._name, lambda: self.head.end_input(number), "at the end of its input")

    def finish(self) -> None:
        """All inputs have ended: every operator, head first, sends what it had kept back."""
        for spec, operator in self.operators:
            if operator is not self.head:
                run_user_code(spec.name, lambda: operator.end_input(0), "at the end of its input")  # noqa: B023
            run_user_code(spec.name, operator.finish, "at the end of its input")

    @property
    def awaits_checkpoint(self) -> bool:
        """Whether an operator that has finished needs one more before it is closed."""
        return any(operator.awaits_checkpoint for _, operator in self.operators)

    def seal(self) -> None:
        """Hand what waits to the writers (inside the baton)."""
        for output in self.network_outputs:
            output.seal()

    def close(self) -> None:
        """Close every operator; raises the first error after all were closed. Idempotent."""
        if self._closed:
            return
        self._closed = True
        first: BaseException | None = None
        for spec, operator in reversed(self.operators):
            try:
                run_user_code(spec.name, operator.close, "in close()")
            except BaseException as error:  # also a user's exit()
                first = first or error
            for counted in (operator.failures, operator.late):
                if counted is not None:
                    counted.close()
        if first is not None:
            raise first

    def figures(self) -> list[OperatorFigures]:
        """What each operator has received, sent and left out, head first."""
        return [
            OperatorFigures(
                spec.name,
                self._head_in if index == 0 else self._inputs[index].records_in,
                self._counts[index].records_out,
                *_left_out(operator),
            )
            for index, (spec, operator) in enumerate(self.operators)
        ]

    @property
    def watermark_ms(self) -> int:
        """The latest watermark that any operator has sent."""
        return max(count.watermark_ms for count in self._counts.values())

    def async_calls(self) -> Iterator[AsyncFigures]:
        """Figures of operators that make asynchronous calls, head first."""
        for _, operator in self.operators:
            figures = operator.async_calls()
            if figures is not None:
                yield figures

    def batch_calls(self) -> Iterator[BatchFigures]:
        """Figures of operators that make calls in batches, head first."""
        for _, operator in self.operators:
            figures = operator.batch_calls()
            if figures is not None:
                yield figures

    def state_bytes(self) -> int:
        """About how much state the operators have in all; UNKNOWN: none of them knows."""
        sizes = [operator.state_bytes() for _, operator in self.operators]
        known = [size for size in sizes if size is not None]
        return sum(known) if known else UNKNOWN

    def state_reader(self, uid: str) -> StateReader | None:
        """What reads the keyed state of an operator; None: it has none, or there is no such one."""
        for spec, operator in self.operators:
            if spec.uid == uid:
                return operator.state_reader()
        return None

    def _build(self, index: int) -> Operator:
        spec = self._spec.operators[index]
        outputs = [(self._output_to(spec, to), to.selected) for to in spec.outputs]
        chosen = choose_output(outputs, spec.selectors, self._spec.object_reuse, spec.name)
        counting = CountingOutput(chosen)
        operator = spec.make()
        operator.reuses_objects = self._spec.object_reuse
        operator.failures = failures = _failures_of(spec, typed(counting, spec.types))
        streak = None if failures is None else failures.streak()
        inside = self._stays_inside(spec)
        operator.set_up(typed(counting, spec.types, streak, self._passed_none, inside))
        self._counts[index] = counting
        self._built[index] = operator
        return operator

    def _stays_inside(self, spec: OperatorSpec) -> bool:
        """Whether the main records of an operator go to chained functions and key_by only."""
        main = [to for to in spec.outputs if to.tag is None]
        return bool(main) and all(map(self._takes_none, main))

    def _takes_none(self, to: ToOperator | ToNetwork) -> bool:
        if isinstance(to, ToOperator):
            return bool(self._spec.operators[to.operator].outputs)  # it is no sink
        return self.writers[to.partition].is_keyed

    def _output_to(self, spec: OperatorSpec, to: ToOperator | ToNetwork) -> Output:
        alone = len(spec.outputs) == 1
        if isinstance(to, ToOperator):
            # What an operator sends belongs to its one receiver; several need a copy each.
            shares = self._spec.object_reuse or alone
            make = ChainedOutput if shares else RecordCopyingOutput
            name = self._spec.operators[to.operator].name
            output = make(self._build(to.operator), name, to.input, to.tag)
            self._inputs[to.operator] = output
            return output
        writer = self.writers[to.partition]
        writer.hands_over = alone
        network = NetworkOutput(writer, spec.name, self._loan, to.tag)
        self.network_outputs.append(network)
        return network


def _failures_of(spec: OperatorSpec, output: Output) -> RecordFailures | None:
    """What becomes of records that an operator fails for; None: the job fails.

    ``output`` takes the dead letters: those that do not fit the type of their tag are an error.
    """
    policy = spec.on_error
    if policy.on_error is OnError.FAIL:
        return None
    are_read = any(to.tag == policy.tag for to in spec.outputs) and policy.tag is not None
    return RecordFailures(policy, spec.name, output, are_read)


def _left_out(operator: Operator) -> tuple[int, int, int, int]:
    failures, late = operator.failures, operator.late
    failed = (0, 0) if failures is None else (failures.skipped, failures.dead_letters)
    return (*failed, *((0, 0) if late is None else (late.count, late.most_ms)))
