"""Operators with an error policy: what fails is left out, and the rest goes on without it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.types.types import Types
from headgate.base.elements import Bundle, Watermark
from headgate.base.errors import ConnectorError, UserFunctionFailed
from headgate.core.chain.async_queue import PendingCall
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.chain.user_function import PIECE
from headgate.core.chain.watermarks import TimePlan, silent
from headgate.core.operators.async_wait import AsyncWaitOperator
from headgate.core.operators.broadcast import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from headgate.core.operators.interval_join import Interval, IntervalJoinOperator
from headgate.core.operators.one_input import (
    FilterOperator,
    FlatMapOperator,
    KeyedProcessOperator,
    MapOperator,
    ProcessOperator,
)
from headgate.core.operators.reduce import AggregateOperator, ReduceOperator
from headgate.core.operators.sinks import (
    SinkFunctionOperator,
    SinkOperator,
    TwoPhaseSinkOperator,
)
from headgate.core.operators.sorted_input import SortedInput
from headgate.core.operators.source import SourceOperator
from headgate.core.operators.timestamps import TimestampsOperator
from headgate.core.operators.two_inputs import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoProcessOperator,
)
from headgate.functions.context import SnapshotMoment, TimeDomain
from headgate.functions.error_policy import DeadLetter, ErrorPolicy, FailedTimer
from headgate.functions.sink import (
    CommittingSinkWriter,
    Sink,
    SinkWriter,
    TwoPhaseCommittingSink,
)
from headgate.functions.source import Source, SplitReader
from headgate.functions.state import ValueStateDescriptor
from tests.core.chain.kit import context, open_operator
from tests.core.operators.failing_kit import DEAD, TolerantRun
from tests.core.operators.kit import BOTH, NumberAndSquare, ScriptedCalls

pytestmark = pytest.mark.usefixtures("inlining")


def odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError(f"{value} is even")
    return value


class Bytes(Source):
    """Numbers of one digit, as bytes; a poll for each split."""

    def splits(self, parallelism: int) -> Sequence[object]:
        return []

    def open(self, split: object, position: object, context: OperatorContext) -> "BytesReader":
        assert isinstance(split, bytes)
        return BytesReader(split, context)


class BytesReader(SplitReader):
    def __init__(self, data: bytes, context: OperatorContext) -> None:
        self._data: bytes | None = data
        self._malformed = context.malformed

    def poll(self, limit: int) -> list[int] | None:
        data, self._data = self._data, None
        if data is None:
            return None
        found = []
        for byte in data:
            try:
                found.append(int(bytes([byte])))
            except ValueError as error:
                self._malformed(bytes([byte]), error)
        return found

    def position(self) -> object:
        return self._data


def test_a_source_reports_bytes_that_are_no_record_and_goes_on() -> None:
    run = TolerantRun(SourceOperator(Bytes(), (b"1a2", b"b")))
    operator = run.operator
    assert isinstance(operator, SourceOperator)
    while operator.splits:
        operator.poll(10)
    assert run.records == [1, 2]
    assert [letter.raw for letter in run.letters] == [b"a", b"b"]
    assert run.letters[0].reason.startswith("invalid literal for int()")


def test_without_a_policy_malformed_bytes_fail_the_source() -> None:
    operator = SourceOperator(Bytes(), (b"1a2",))
    open_operator(operator)
    with pytest.raises(ValueError, match="invalid literal"):
        operator.poll(10)


def extract(value: int, time_ms: int) -> Any:
    return "soon" if value == 3 else odd(value) * 10


def test_records_without_a_time_are_left_out_of_a_timed_stream() -> None:
    run = TolerantRun(TimestampsOperator(TimePlan(silent, extract, interval_ms=0)))
    run.process(1, 2, 3, 5)
    run.process(2)
    assert run.output.timed == [(1, 10), (5, 50)]
    assert run.rejected == [2, 3, 2]


def test_map_sends_results_with_the_times_of_their_records() -> None:
    run = TolerantRun(MapOperator(odd))
    run.process(1, 2, 3, times=[10, 20, 30])
    run.process(4)
    run.process(5)
    assert run.output.timed == [(1, 10), (3, 30), (5, None)]
    assert [(letter.record, letter.timestamp_ms) for letter in run.letters] == [(2, 20), (4, None)]


@pytest.mark.parametrize("record", [3, [3]])
def test_filter_leaves_out_what_it_fails_for(record: Any) -> None:
    def wanted(value: Any) -> bool:
        return (value if isinstance(value, int) else value[0] if value else 1 // 0) > 2

    run = TolerantRun(FilterOperator(wanted))
    run.process(1, [], record, None, times=[1, 2, 3, 4])
    assert run.output.timed == [(record, 3)]
    assert run.rejected == [[], None]


def test_flat_map_sends_nothing_of_a_record_that_fails_in_the_middle() -> None:
    def spread(value: int) -> Any:
        yield value
        yield odd(value)

    run = TolerantRun(FlatMapOperator(spread))
    run.process(1, 2, 3, times=[1, 2, 3])
    assert run.output.timed == [(1, 1), (1, 1), (3, 3), (3, 3)]
    assert run.rejected == [2]


def test_flat_map_leaves_sent_what_filled_a_whole_piece() -> None:
    def spread(value: int) -> Any:
        yield from range(PIECE + 10)
        odd(value)

    run = TolerantRun(FlatMapOperator(spread))
    run.process(1, 2, times=[1, 2])
    run.process(3)
    kept, sent = PIECE + 10, PIECE - 10  # the piece began with ten of the record before
    assert len(run.records) == kept + sent + kept
    assert run.rejected == [2]


def test_skipped_records_are_counted() -> None:
    run = TolerantRun(MapOperator(odd), ErrorPolicy.SKIP)
    run.process(*range(10))
    assert run.records == [1, 3, 5, 7, 9]
    assert run.failures.skipped == 5 and not run.output.side
    assert isinstance(run.lines[0][1], ValueError)


def test_key_selectors_that_fail_leave_the_record_out() -> None:
    run = TolerantRun(MapOperator(lambda value: value, key_of=odd))
    run.operator.process(Bundle([1, 2, 3], [1, 2, 3]), 0)
    assert run.output.timed == [(1, 1), (3, 3)]
    assert run.rejected == [2]


class Yielding:
    """Yields each number twice; even ones fail between the two."""

    def process_element(self, value: int, ctx: Any) -> Any:
        yield value
        yield odd(value)


class Returning:
    """The same with a list: nothing is sent before the failure."""

    def process_element(self, value: int, ctx: Any) -> Any:
        return [value, odd(value)]


@pytest.mark.parametrize("function", [Yielding(), Returning()])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("times", [None, [10, 20, 30, 40]])
def test_process_functions_send_nothing_of_what_they_fail_for(
    function: object, keyed: bool, times: Any
) -> None:
    operator: Operator = ProcessOperator(function)
    if keyed:
        operator = KeyedProcessOperator(function, lambda value: value)
    run = TolerantRun(operator)
    run.process(1, 2, 3, 4, times=times)
    run.process(6)
    run.process(5)
    stamps = [None, None] if times is None else [10, 30]
    assert run.output.timed == [
        *[(1, stamps[0])] * 2,
        *[(3, stamps[1])] * 2,
        *[(5, None)] * 2,
    ]
    assert run.rejected == [2, 4, 6]


def test_a_tag_without_a_value_is_the_failure_of_its_record() -> None:
    class Tagging:
        def process_element(self, value: int, ctx: Any) -> Any:
            yield DEAD if value == 2 else (DEAD, value)

    for reuse in (True, False):
        run = TolerantRun(ProcessOperator(Tagging()), reuse=reuse)
        run.process(1, 2, 3)
        found = run.output.side_records(DEAD.tag_id)
        assert [value.record if isinstance(value, DeadLetter) else value for value in found] == [
            2,
            1,
            3,
        ]


class Timers:
    """Counts in state, fires at each record's time; timers at 20 fail after the first value."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(ctx.timestamp())
        if value[1] == "fail":
            raise ValueError("no")

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), timestamp
        if timestamp == 20:
            raise ValueError("not at 20")


def test_a_timer_that_fails_becomes_a_letter_with_its_key_and_time() -> None:
    run = TolerantRun(KeyedProcessOperator(Timers(), lambda value: value[0]))
    run.process(("a", 1), ("b", 2), ("a", 3), times=[10, 20, 30])
    run.operator.watermark_advanced(Watermark(40))
    assert run.output.timed == [(("a", 10), 10), (("a", 30), 30)]
    (letter,) = run.letters
    assert letter.record == FailedTimer("b", 20, TimeDomain.EVENT_TIME)
    assert letter.timestamp_ms == 20


def test_state_that_was_changed_before_the_failure_stays_changed() -> None:
    run = TolerantRun(KeyedProcessOperator(Timers(), lambda value: value[0]))
    run.process(("a", 1), ("a", "fail"), times=[10, 11])
    operator = run.operator
    assert isinstance(operator, KeyedProcessOperator)
    function = operator._function.function
    assert isinstance(function, Timers) and function.count.value() == 2


def test_an_error_of_an_operator_downstream_fails_the_job_in_spite_of_the_policy() -> None:
    run = TolerantRun(FlatMapOperator(lambda value: [value] * PIECE))

    def refuse(bundle: Bundle) -> None:
        raise UserFunctionFailed("behind", ValueError("no"))

    run.output.collect = refuse  # type: ignore[method-assign]
    with pytest.raises(UserFunctionFailed, match="behind"):
        run.process(1)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("operator", [MapOperator, FilterOperator, FlatMapOperator])
def test_what_ends_a_process_is_never_left_out(operator: Any, error: BaseException) -> None:
    def fail(value: int) -> int:
        raise error

    with pytest.raises(type(error)):
        TolerantRun(operator(fail)).process(1)


def add(first: int, second: int) -> int:
    odd(second)
    return first + second


@pytest.mark.parametrize("reuse", [True, False])
def test_a_reduced_value_stays_as_it_was(reuse: bool) -> None:
    run = TolerantRun(ReduceOperator(add, lambda value: value % 10 // 5, False), reuse=reuse)
    run.process(1, 2, 3, 5, 7, times=[1, 2, 3, 4, 5])
    assert run.output.timed == [(1, 1), (4, 3), (5, 4), (12, 5)]
    assert run.rejected == [2]


def test_an_aggregation_of_a_field_that_is_missing_leaves_the_record_out() -> None:
    run = TolerantRun(AggregateOperator("sum", "n", lambda record: record["k"], False))
    run.process({"k": 1, "n": 2}, {"k": 1}, {"n": 1}, {"k": 1, "n": 3})
    assert run.records == [{"k": 1, "n": 2}, {"k": 1, "n": 5}]
    assert run.rejected == [{"k": 1}, {"n": 1}]


class Both:
    """Both sides fail for even numbers."""

    def map1(self, value: int) -> int:
        return odd(value)

    def map2(self, value: int) -> int:
        return -odd(value)

    def flat_map1(self, value: int) -> Any:
        yield odd(value)

    def flat_map2(self, value: int) -> Any:
        yield -odd(value)

    def process_element1(self, value: int, ctx: Any) -> Any:
        yield odd(value)

    def process_element2(self, value: int, ctx: Any) -> Any:
        yield -odd(value)

    def process_element(self, value: int, ctx: Any) -> Any:
        yield odd(value)

    def process_broadcast_element(self, value: int, ctx: Any) -> Any:
        yield -odd(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: CoMapOperator(Both()),
        lambda: CoFlatMapOperator(Both(), (lambda value: value, lambda value: value)),
        lambda: CoProcessOperator(Both()),
        lambda: KeyedCoProcessOperator(Both(), lambda value: value, lambda value: value),
        lambda: BroadcastProcessOperator(Both()),
        lambda: KeyedBroadcastProcessOperator(Both(), lambda value: value),
    ],
)
def test_both_inputs_go_on_after_what_fails(make: Any) -> None:
    run = TolerantRun(make())
    run.process(1, 2, 3, times=[1, 2, 3])
    run.process(4, 5, number=1, times=[4, 5])
    assert run.output.timed == [(1, 1), (3, 3), (-5, 5)]
    assert run.rejected == [2, 4]


def test_a_pair_that_fails_is_left_out_and_its_records_meet_others() -> None:
    class Join:
        def process_element(self, left: int, right: int, ctx: Any) -> Any:
            yield odd(left * right)

    operator = IntervalJoinOperator(Join(), lambda value: 0, lambda value: 0, Interval(-9, 9))
    run = TolerantRun(operator)
    run.process(1, 2, times=[1, 1])
    run.process(3, 4, number=1, times=[2, 2])
    assert run.records == [3]
    assert run.rejected == [(2, 3), (1, 4), (2, 4)]


@BOTH
def test_asynchronous_calls_that_fail_keep_their_place_in_line(ordered: bool) -> None:
    class Call:
        async def async_invoke(self, value: int) -> list[int]:
            return [odd(value)]

        def timeout(self, value: int) -> list[int]:
            return []

    run = TolerantRun(AsyncWaitOperator(Call(), 1000, 2, ordered))  # type: ignore[arg-type]
    run.process(1, 2, 3, 4, 5, times=[1, 2, 3, 4, 5])
    run.operator.watermark_advanced(Watermark(5))
    assert run.output.timed == [(1, 1), (3, 3), (5, 5)]
    assert [(letter.record, letter.timestamp_ms) for letter in run.letters] == [(2, 2), (4, 4)]
    assert run.output.elements == [Watermark(5)]
    run.operator.close()


@BOTH
def test_a_failed_call_that_waits_for_its_turn_is_called_again_after_a_restore(
    ordered: bool,
) -> None:
    """Its letter leaves with its turn, so that it is in the checkpoint or behind it, never both."""
    scripted: list[ScriptedCalls] = []

    def start(work: Any, completed: Any) -> ScriptedCalls:
        scripted.append(ScriptedCalls(work, completed))
        return scripted[-1]

    within = replace(context(), async_calls=start)
    function: Any = NumberAndSquare()
    run = TolerantRun(AsyncWaitOperator(function, 1000, 4, ordered), within=within)
    run.process(1, times=[1])
    run.operator.watermark_advanced(Watermark(1))
    run.process(2, 3, times=[2, 3])
    (calls,) = scripted
    calls.end(1, ValueError("no"))
    calls.completed()
    assert run.letters == []
    held = run.operator.snapshot(SnapshotMoment(1, 0))
    restored = OperatorRestored(plain=(held.plain,))
    again = TolerantRun(
        AsyncWaitOperator(function, 1000, 4, ordered), within=replace(within, restored=restored)
    )
    for operator, made in ((run, calls), (again, scripted[1])):
        while made.under_way:
            is_bad = made.under_way[0].record == 2
            made.end(0, ValueError("no") if is_bad else None)
            made.completed()
        assert operator.rejected == [2]
        assert sorted(operator.records) == ["r1", "r3"]
        operator.operator.close()


def test_an_exit_in_an_asynchronous_call_fails_the_job() -> None:
    run = TolerantRun(AsyncWaitOperator(NumberAndSquare(), 1000, 2, True))  # type: ignore[arg-type]
    call = PendingCall(1, None)
    operator = run.operator
    assert isinstance(operator, AsyncWaitOperator)
    with pytest.raises(UserFunctionFailed):
        operator._failed(call, SystemExit(1))
    operator.close()


@pytest.mark.parametrize("plain", [True, False])
def test_a_sink_function_goes_on_after_what_it_fails_for(plain: bool) -> None:
    written: list[tuple[int, int]] = []

    class Write:
        def invoke(self, value: int, context: Any) -> None:
            written.append((odd(value), context.timestamp()))

    function = (lambda value: written.append((odd(value), 10 * value))) if plain else Write()
    run = TolerantRun(SinkFunctionOperator(function))
    run.process(1, 2, 3, times=[10, 20, 30])
    assert written == [(1, 10), (3, 30)]
    assert [(letter.record, letter.timestamp_ms) for letter in run.letters] == [(2, 20)]


class OddSink(Sink):
    """Names the even ones that it cannot write; 0 fails the whole batch."""

    def __init__(self) -> None:
        self.written: list[int] = []

    def create_writer(self, context: Any) -> SinkWriter:
        sink = self

        class Writer(SinkWriter):
            def write(self, records: list[int]) -> None:
                for record in records:
                    if record == 0:
                        raise OSError("no")
                    try:
                        sink.written.append(odd(record))
                    except ValueError as error:
                        context.malformed(record, error)

        return Writer()


def test_a_writer_names_the_record_that_it_cannot_write() -> None:
    sink = OddSink()
    run = TolerantRun(SinkOperator(sink))
    run.process(1, 2, 3)
    assert sink.written == [1, 3] and run.rejected == [2]


@pytest.mark.parametrize("record", ["x" * 100_000, b"x" * 100_000, bytearray(b"x"), ""])
def test_a_record_of_text_or_bytes_that_cannot_be_written_is_whole_in_its_letter(
    record: Any,
) -> None:
    class Refusing(Sink):
        def create_writer(self, context: Any) -> SinkWriter:
            class Writer(SinkWriter):
                def write(self, records: list[Any]) -> None:
                    for each in records:
                        context.malformed(each, ValueError("no"))

            return Writer()

    run = TolerantRun(SinkOperator(Refusing()))
    run.process(record)
    (letter,) = run.letters
    assert (letter.record, letter.raw, letter.cut) == (record, None, "")


def test_a_batch_that_fails_without_a_culprit_fails_the_job_with_a_sentence() -> None:
    with pytest.raises(ConnectorError, match=r"Writer has failed to write 2 records \(OSError"):
        TolerantRun(SinkOperator(OddSink())).process(1, 0)


def test_what_a_two_phase_sink_rejects_when_it_flushes_goes_before_the_barrier() -> None:
    class Late(TwoPhaseCommittingSink):
        def create_writer(self, context: Any) -> CommittingSinkWriter:
            class Writer(CommittingSinkWriter):
                def __init__(self) -> None:
                    self.waiting: list[int] = []

                def write(self, records: list[int]) -> None:
                    self.waiting += records

                def flush(self) -> None:
                    for record in self.waiting:
                        context.malformed(record, ValueError("late"))
                    self.waiting = []

                def prepare_commit(self, moment: Any) -> list[Any]:
                    return []

            return Writer()

        def create_committer(self, context: Any) -> Any:
            class Nothing:
                def close(self) -> None:
                    """It has nothing."""

            return Nothing()

    run = TolerantRun(TwoPhaseSinkOperator(Late()))
    run.process(1)
    run.operator.before_barrier(SnapshotMoment(1, 0))
    assert run.rejected == [1]
    run.operator.snapshot(SnapshotMoment(1, 0))
    assert run.rejected == [1]
    run.operator.close()


def test_a_batch_of_keys_leaves_out_what_has_no_key() -> None:
    make = partial(MapOperator, lambda value: value, odd)
    run = TolerantRun(SortedInput(make, (odd,)))
    run.process(3, 2, 1)
    run.operator.finish()
    assert sorted(run.records) == [1, 3] and run.rejected == [2]
    run.operator.close()


def keyed_even(value: int) -> int:
    return value // 10


failing = st.lists(st.lists(st.integers(0, 99), max_size=8), max_size=6)


@given(failing, st.sets(st.integers(0, 99)), st.booleans(), st.booleans())
def test_whatever_fails_records_and_letters_are_the_input_in_order(
    bundles: list[list[int]], bad: set[int], keyed: bool, timed: bool
) -> None:
    def check(value: int) -> int:
        if value in bad:
            raise ValueError(value)
        return value

    class Process:
        def process_element(self, value: int, ctx: Any) -> Any:
            yield check(value)

    key_of = keyed_even if keyed else None
    operators: list[Operator] = [
        MapOperator(check, key_of),
        FlatMapOperator(lambda value: [check(value)], key_of),
        FilterOperator(lambda value: check(value) >= 0, key_of),
        KeyedProcessOperator(Process(), keyed_even) if keyed else ProcessOperator(Process()),
        CoMapOperator(_CheckBoth(check)),
        TimestampsOperator(TimePlan(silent, lambda value, _: check(value) + 1, interval_ms=0)),
    ]
    for operator in operators:
        run = TolerantRun(operator)
        for values in bundles:
            run.process(*values, times=values if timed else None)
        sent = [value for values in bundles for value in values]
        assert run.records == [value for value in sent if value not in bad]
        assert run.rejected == [value for value in sent if value in bad]
        if timed:
            assert all(letter.timestamp_ms == letter.record for letter in run.letters)


class _CheckBoth:
    def __init__(self, check: Any) -> None:
        self.map1 = self.map2 = check
