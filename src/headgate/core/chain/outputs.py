"""The outputs of a chain: to the next operator, to the network, to several of these, and wrappers.

Chained outputs call the next operator directly, on the same thread, one bundle at a time; the
output that leads to an operator wraps the errors of its user function. With object reuse off, an
output to one of several receivers copies the records; with object reuse on the receivers share
the values, and only the bundle around them is copied, as in Flink.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn, TypeAlias

from headgate.base.elements import (
    MIN_WATERMARK_MS,
    Bundle,
    LatencyMarker,
    Record,
    StreamStatus,
    Watermark,
)
from headgate.base.errors import raise_user_error
from headgate.base.fields import FieldShape
from headgate.core.chain.emission import Copier
from headgate.core.chain.left_out import FailureStreak, attempt, without
from headgate.core.chain.operator import Operator, Output
from headgate.core.chain.spec import OutputTypes, Selector
from headgate.core.egress.writer import STAGED_RECORDS, RecordWriter
from headgate.core.loops.steps import Step


class Loan(ABC):
    """The right to touch machines, given away while user code runs, and taken back.

    ``with loan:`` lends it for a block and regains it afterwards, unless the block fails: then the
    runner of the task recovers it. What runs for each bundle calls ``lend`` and ``regain`` itself,
    which takes two thirds of the time.
    """

    __slots__ = ()

    @abstractmethod
    def lend(self) -> None: ...

    @abstractmethod
    def regain(self) -> None:
        """Does nothing if it was not lent."""

    def __enter__(self) -> None:
        self.lend()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.regain()


class ChainedOutput:
    """Leads to the next operator of the chain and hands on the same records (object reuse)."""

    def __init__(
        self, operator: Operator, name: str, number: int = 0, tag: str | None = None
    ) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.records_in = 0
        """Records that the operator has received."""
        self.operator = operator
        self._name = name
        self._number = number
        self._tag = tag

    def step(self) -> Step | None:
        """The operator as a part of the loop that gives its records; None: it has its own."""
        if type(self) is not ChainedOutput or self._tag is not None:
            return None
        return self.operator.as_step(self._again)

    def _again(self, record: Record) -> NoReturn:
        """A step has failed in a loop: let the operator fail, which knows how to say it."""
        failure = sys.exc_info()[1]
        assert failure is not None, "nothing has failed"
        try:
            self.collect(Bundle([record]))
        except BaseException as error:
            raised: BaseException | None = error
            while raised is not None:
                if raised.__context__ is failure:
                    raised.__context__ = None
                raised = raised.__cause__
            raise
        raise_user_error(failure, self._name)

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        """Whether the operator uses records that are taken apart as they are."""
        return self._tag is None and self.operator.takes_fields(shape, count)

    def collect(self, bundle: Bundle) -> None:
        if self._tag is None:
            self._hand_on(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        if tag == self._tag:
            self._hand_on(bundle)

    def emit_watermark(self, watermark: Watermark) -> None:
        self.watermark_ms = watermark.timestamp_ms
        run_user_code(self._name, lambda: self.operator.watermark_advanced(watermark))

    def emit_status(self, status: StreamStatus) -> None:
        run_user_code(self._name, lambda: self.operator.status_changed(status))

    def emit_marker(self, marker: LatencyMarker) -> None:
        run_user_code(self._name, lambda: self.operator.marker_received(marker))

    def _hand_on(self, bundle: Bundle) -> None:
        self.records_in += len(bundle)
        try:
            self.operator.process(bundle, self._number)
        except (Exception, SystemExit) as error:
            raise_user_error(error, self._name)


class RecordCopyingOutput(ChainedOutput):
    """Copies records that can be changed, then hands them on (object reuse off, the default)."""

    def __init__(
        self, operator: Operator, name: str, number: int = 0, tag: str | None = None
    ) -> None:
        super().__init__(operator, name, number, tag)
        self._copier = Copier(name)

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        return False

    def _hand_on(self, bundle: Bundle) -> None:
        super()._hand_on(self._copier.copy(bundle))


Coerce: TypeAlias = Callable[[list[Record]], list[Record]]
"""From the records of a bundle to what the declared type makes of them."""


class NetworkOutput:
    """The last output of a chain: hands records that pass its tag to the record writer.

    While user code runs the writer must not be touched, so bundles wait in a list; ``seal`` at the
    end of a step writes them, and so does a list with as many records as the writer lets wait.
    """

    def __init__(self, writer: RecordWriter, name: str, loan: Loan, tag: str | None = None) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self._writer = writer
        self._name = name
        self._loan = loan
        self._tag = tag
        self._markers = 0
        self._waiting: list[Bundle] = []
        self._records_waiting = 0

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        """Whether records with so many fields stay apart."""
        return self._tag is None and self._writer.takes_fields(shape, count)

    def collect(self, bundle: Bundle) -> None:
        if self._tag is None:
            self._stage(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        if tag == self._tag:
            self._stage(bundle)

    def emit_watermark(self, watermark: Watermark) -> None:
        self.watermark_ms = watermark.timestamp_ms
        self._inside(lambda: self._writer.emit_element(watermark))

    def emit_status(self, status: StreamStatus) -> None:
        self._inside(lambda: self._writer.emit_element(status))

    def emit_marker(self, marker: LatencyMarker) -> None:
        """To one channel, each in turn: sent to all, markers would multiply at each stage."""
        channel = (marker.subtask + self._markers) % self._writer.channels
        self._markers += 1
        self._inside(lambda: self._writer.emit_element(marker, channel))

    def seal(self) -> None:
        """Write what waits (called inside, at the end of a step)."""
        self._write_waiting()
        self._write(self._writer.seal)

    def _stage(self, bundle: Bundle) -> None:
        self._waiting.append(bundle.copy())  # other outputs may have the bundle, too
        self._records_waiting += len(bundle)
        if self._records_waiting >= STAGED_RECORDS:
            self._inside(lambda: None)

    def _inside(self, action: Callable[[], None]) -> None:
        self._loan.regain()
        self._write_waiting()
        self._write(action)
        self._loan.lend()

    def _write_waiting(self) -> None:
        waiting, self._waiting, self._records_waiting = self._waiting, [], 0
        for bundle in waiting:
            self._write(partial(self._writer.emit_bundle, bundle))

    def _write(self, action: Callable[[], None]) -> None:
        run_user_code(
            self._name, action, "when its records were routed by key or partitioner, or pickled"
        )


class BroadcastingOutput:
    """Every record to every inner output, also to none."""

    def __init__(self, outputs: Sequence[Output]) -> None:
        self.watermark_ms = MIN_WATERMARK_MS
        self.outputs = list(outputs)

    def collect(self, bundle: Bundle) -> None:
        for output in self.outputs:
            output.collect(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        for output in self.outputs:
            output.collect_side(tag, bundle)

    def emit_watermark(self, watermark: Watermark) -> None:
        self.watermark_ms = watermark.timestamp_ms
        for output in self.outputs:
            output.emit_watermark(watermark)

    def emit_status(self, status: StreamStatus) -> None:
        for output in self.outputs:
            output.emit_status(status)

    def emit_marker(self, marker: LatencyMarker) -> None:
        """To all: every way is measured."""
        for output in self.outputs:
            output.emit_marker(marker)


class BundleCopyingBroadcastingOutput(BroadcastingOutput):
    """Gives each receiver but the last a copy of the bundle (object reuse on)."""

    def collect(self, bundle: Bundle) -> None:
        for output in self.outputs[:-1]:
            output.collect(bundle.copy())
        for output in self.outputs[-1:]:
            output.collect(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        for output in self.outputs[:-1]:
            output.collect_side(tag, bundle.copy())
        for output in self.outputs[-1:]:
            output.collect_side(tag, bundle)


class DirectedOutput(BroadcastingOutput):
    """Each record to the outputs that were selected by one of the names its selectors give it.

    Outputs without a selection get every record.
    """

    def __init__(
        self,
        outputs: Sequence[tuple[Output, frozenset[str] | None]],
        selectors: Sequence[Selector],
        name: str = "",
    ) -> None:
        """``name``: of the operator whose outputs they are."""
        super().__init__([output for output, _ in outputs])
        self._name = name
        self._selections = [selected for _, selected in outputs]
        self._selectors = list(selectors)

    def collect(self, bundle: Bundle) -> None:
        names = [self._names_of(record) for record in bundle.records]
        for output, selected in zip(self.outputs, self._selections, strict=True):
            if selected is None:
                self._hand_on(output, bundle)
                continue
            chosen = [not selected.isdisjoint(some) for some in names]
            if all(chosen):
                self._hand_on(output, bundle)
            elif any(chosen):
                output.collect(select(bundle, chosen))

    def _hand_on(self, output: Output, bundle: Bundle) -> None:
        output.collect(bundle)

    def _names_of(self, record: Record) -> set[str]:
        names: set[str] = set()
        try:
            for selector in self._selectors:
                names.update(selector(record))
        except Exception as error:
            raise_user_error(error, self._name, "when the outputs of a record were selected")
        return names


class BundleCopyingDirectedOutput(DirectedOutput):
    """Gives each receiver of all records its own copy of the bundle (object reuse on)."""

    def _hand_on(self, output: Output, bundle: Bundle) -> None:
        output.collect(bundle.copy())


def choose_output(
    outputs: Sequence[tuple[Output, frozenset[str] | None]],
    selectors: Sequence[Selector],
    object_reuse: bool,
    name: str = "",
) -> Output:
    """One output without selector: itself. Otherwise broadcasting, or directed by the selectors."""
    if selectors:
        directed: Callable[..., Output] = (
            BundleCopyingDirectedOutput if object_reuse else DirectedOutput
        )
        return directed(outputs, selectors, name)
    if len(outputs) == 1:
        return outputs[0][0]
    inner = [output for output, _ in outputs]
    return BundleCopyingBroadcastingOutput(inner) if object_reuse else BroadcastingOutput(inner)


def takes_fields(output: Output, shape: FieldShape, count: int) -> bool:
    """Whether it is of use to take such records apart for this output; others ask for records."""
    takes: Callable[[FieldShape, int], bool] | None = getattr(output, "takes_fields", None)
    return takes is not None and takes(shape, count)


def select(bundle: Bundle, chosen: Sequence[bool]) -> Bundle:
    """The records of a bundle that were chosen, with their timestamps."""
    records = [record for record, wanted in zip(bundle.records, chosen, strict=True) if wanted]
    if bundle.timestamps is None:
        return Bundle(records)
    times = [time for time, wanted in zip(bundle.timestamps, chosen, strict=True) if wanted]
    return Bundle(records, times)


class CountingOutput:
    """Wraps any output and counts the records of the main output and of all side outputs."""

    def __init__(self, inner: Output) -> None:
        self.records_out = 0
        self.inner = inner

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        return takes_fields(self.inner, shape, count)

    @property
    def watermark_ms(self) -> int:
        return self.inner.watermark_ms

    @watermark_ms.setter
    def watermark_ms(self, watermark_ms: int) -> None:
        self.inner.watermark_ms = watermark_ms

    def collect(self, bundle: Bundle) -> None:
        self.records_out += len(bundle)
        self.inner.collect(bundle)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        self.records_out += len(bundle)
        self.inner.collect_side(tag, bundle)

    def emit_watermark(self, watermark: Watermark) -> None:
        self.inner.emit_watermark(watermark)

    def emit_status(self, status: StreamStatus) -> None:
        self.inner.emit_status(status)

    def emit_marker(self, marker: LatencyMarker) -> None:
        self.inner.emit_marker(marker)


@dataclass(frozen=True, slots=True)
class Trail:
    """The maps and filters that follow an operator and can be steps of its loop."""

    output: Output
    """Behind the last of them."""
    steps: tuple[Step, ...] = ()
    passed: tuple[tuple[CountingOutput, ChainedOutput], ...] = ()
    """The outputs that lead to each of them."""

    def holds(self) -> bool:
        """Whether the steps are still what they were."""
        return all(step.holds() for step in self.steps)

    def count(self, sent: int, refused: Iterable[int]) -> None:
        """Count what has passed the outputs between the steps.

        ``sent``: after the last step; ``refused``: by each of the filters, in order.
        """
        rest = [*refused]
        for step, (counting, chained) in zip(
            reversed(self.steps), reversed(self.passed), strict=True
        ):
            sent += rest.pop() if step.is_filter else 0
            counting.records_out += sent
            chained.records_in += sent


MOST_STEPS: Final = 8


def trail_from(output: Output) -> Trail:
    """The steps downstream of an output while each operator has one receiver and no other types."""
    steps: list[Step] = []
    passed: list[tuple[CountingOutput, ChainedOutput]] = []
    while len(steps) < MOST_STEPS and type(output) is CountingOutput:
        chained = output.inner
        step = chained.step() if isinstance(chained, ChainedOutput) else None
        if step is None or not isinstance(chained, ChainedOutput):
            break
        steps.append(step)
        passed.append((output, chained))
        output = chained.operator.output
    return Trail(output, tuple(steps), tuple(passed))


class PassedNone:
    """Whether a typed output of a chain has let None pass to the next operator of the chain."""

    __slots__ = ("has_passed",)

    def __init__(self) -> None:
        self.has_passed = False

    def letting(self, coerce: Coerce) -> Coerce:
        """Coerces all records but None."""

        def coerced(records: list[Record]) -> list[Record]:
            try:
                return coerce(records)
            except TypeError:
                there = [record for record in records if record is not None]
                if len(there) == len(records):
                    raise
                rest = iter(coerce(there))
                self.has_passed = True
                return [None if record is None else next(rest) for record in records]

        return coerced

    def refusing(self, coerce: Coerce) -> Coerce:
        """For records that were coerced before: they are again once None has passed."""
        return lambda records: coerce(records) if self.has_passed else records


class TypedOutput:
    """Coerces records to the declared types before any receiver, chained or remote, sees them.

    Law: a record that does not fit raises TypeError inside the operator that emits it, or is left
    out as the operator's error policy says; an output without a type is not checked. None fits
    every type on its way to a chained function or through key_by, as in PyFlink, and no type on
    another way to other tasks or to a sink.
    """

    def __init__(
        self,
        inner: Output,
        types: OutputTypes,
        streak: FailureStreak | None = None,
        passed: PassedNone | None = None,
        is_inside: bool = False,
    ) -> None:
        """``streak``: of the operator's error policy; None: the job fails.

        ``passed``: shared by the outputs of a chain; None: None fits no type. ``is_inside``: the
        main records go to functions of the same chain, or through key_by, only.
        """
        self._inner = inner
        self._streak = streak
        self._coerce = _main_coercer(types, passed, is_inside)
        self._fields = None
        if types.main is not None and not types.is_kept:
            self._fields = types.main.fields_coercer()
        self._side_coercers = {tag: declared.coercer() for tag, declared in types.sides}

    @property
    def watermark_ms(self) -> int:
        return self._inner.watermark_ms

    @watermark_ms.setter
    def watermark_ms(self, watermark_ms: int) -> None:
        self._inner.watermark_ms = watermark_ms

    def takes_fields(self, shape: FieldShape, count: int) -> bool:
        """Whether records of this shape may fit the type, and stay apart."""
        coercer = self._fields
        if coercer is None or not coercer.takes(shape, count):
            return self._coerce is None and takes_fields(self._inner, shape, count)
        return takes_fields(self._inner, coercer.shape, coercer.count)

    def collect(self, bundle: Bundle) -> None:
        if self._coerce is not None:
            bundle = self._apart(bundle) or self._coerced(bundle, self._coerce)
        self._inner.collect(bundle)

    def _apart(self, bundle: Bundle) -> Bundle | None:
        """The coerced records as fields; None: nobody takes these, or not all records fit."""
        coercer = self._fields
        if coercer is None or not takes_fields(self._inner, coercer.shape, coercer.count):
            return None
        fields = bundle.fields
        coerce = coercer.of_records
        coerced = coerce(bundle.records) if fields is None else coercer.of_fields(fields)
        if coerced is None:
            return None
        if self._streak is not None:
            self._streak.passed()
        return Bundle.of_fields(coerced, bundle.timestamps)

    def collect_side(self, tag: str, bundle: Bundle) -> None:
        coerce = self._side_coercers.get(tag)
        if coerce is not None:
            bundle = self._coerced(bundle, coerce)
        self._inner.collect_side(tag, bundle)

    @property
    def coerces(self) -> bool:
        """Whether it does anything."""
        return self._coerce is not None or bool(self._side_coercers)

    def _coerced(self, bundle: Bundle, coerce: Coerce) -> Bundle:
        if self._streak is None:
            return Bundle(coerce(bundle.records), bundle.timestamps)
        try:
            records = coerce(bundle.records)
            self._streak.passed()
            return Bundle(records, bundle.timestamps)
        except Exception:  # each alone, to learn which ones do not fit
            found, failed = attempt(
                iter(bundle.records),
                lambda records: (coerce([record])[0] for record in records),
                bundle,
                self._streak,
            )
            times = bundle.timestamps
            return Bundle(found, None if times is None else without(times, failed))

    def emit_watermark(self, watermark: Watermark) -> None:
        self._inner.emit_watermark(watermark)

    def emit_status(self, status: StreamStatus) -> None:
        self._inner.emit_status(status)

    def emit_marker(self, marker: LatencyMarker) -> None:
        self._inner.emit_marker(marker)


def _main_coercer(types: OutputTypes, passed: PassedNone | None, is_inside: bool) -> Coerce | None:
    """What is done to records of the main output; None: nothing."""
    if types.main is None:
        return None
    watched = passed if types.passes_none else None
    if types.is_kept:
        return None if watched is None or is_inside else watched.refusing(types.main.coercer())
    coerce = types.main.coercer()
    return watched.letting(coerce) if watched is not None and is_inside else coerce


def typed(
    output: Output,
    types: OutputTypes | None,
    streak: FailureStreak | None = None,
    passed: PassedNone | None = None,
    is_inside: bool = False,
) -> Output:
    """What an operator with these types writes to: the output itself if nothing is to be done."""
    if types is None or (not types.sides and types.main is None):
        return output
    found = TypedOutput(output, types, streak, passed, is_inside)
    return found if found.coerces else output


def run_user_code(operator: str, action: Callable[[], None], doing: str = "") -> None:
    """Run an operator's code; its errors get the operator's name."""
    try:
        action()
    except (Exception, SystemExit) as error:
        raise_user_error(error, operator, doing)
