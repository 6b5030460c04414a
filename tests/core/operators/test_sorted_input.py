"""Batch on a keyed stream: key by key, time by time, and nothing of a key is left behind."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import (
    MAX_WATERMARK_MS,
    MIN_WATERMARK_MS,
    Bundle,
    StreamStatus,
    Watermark,
)
from headgate.base.errors import UserFunctionFailed
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import Operator
from headgate.core.operators.broadcast import KeyedBroadcastProcessOperator
from headgate.core.operators.one_input import KeyedProcessOperator
from headgate.core.operators.sorted_input import PIECE, SortedInput
from headgate.core.operators.two_inputs import KeyedCoProcessOperator
from headgate.core.state.memory import MemoryBackends
from headgate.functions.context import TaskInfo
from headgate.functions.state import ListStateDescriptor, MapStateDescriptor
from headgate.sim.worker import MemorySpills
from tests.core.chain.kit import NOW_MS, KeptOutput, context, open_operator, run


def first(record: Any) -> Any:
    return record[0]


class RecordingOperator(Operator):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.story: list[Any] = []

    def process(self, bundle: Bundle, number: int) -> None:
        self.story.append((number, bundle.records, bundle.timestamps))

    def key_ended(self) -> None:
        self.story.append("key ended")

    def end_input(self, number: int) -> None:
        self.story.append(f"end of {number}")

    def finish(self) -> None:
        self.story.append("finished")

    def close(self) -> None:
        self.story.append("closed")


class RecordingTwoInputOperator(RecordingOperator):
    inputs = 2


def test_records_come_key_by_key_in_the_order_of_their_times() -> None:
    inner = RecordingOperator()
    run(
        SortedInput(lambda: inner, (first,)),
        [Bundle([("b", 1), ("a", 2)], [5, 9]), Bundle([("b", 3), ("a", 4)], [4, 9])],
    )
    assert inner.story == [
        (0, [("b", 3), ("b", 1)], [4, 5]),
        "key ended",
        (0, [("a", 2), ("a", 4)], [9, 9]),
        "key ended",
        "end of 0",
        "finished",
        "closed",
    ]


def test_both_inputs_of_a_key_are_merged_by_time() -> None:
    inner = RecordingTwoInputOperator()
    operator = SortedInput(lambda: inner, (first, first))
    assert operator.inputs == 2
    open_operator(operator)
    operator.process(Bundle([("a", 1), ("a", 2), ("a", 3)], [10, 30, 31]), 0)
    operator.process(Bundle([("a", 4)], [20]), 1)
    operator.finish()
    assert inner.story[:4] == [
        (0, [("a", 1)], [10]),
        (1, [("a", 4)], [20]),
        (0, [("a", 2), ("a", 3)], [30, 31]),
        "key ended",
    ]


def test_records_without_a_time_come_first_and_have_none() -> None:
    inner = RecordingOperator()
    operator = SortedInput(lambda: inner, (first,))
    open_operator(operator)
    operator.process(Bundle([("a", 1), ("a", 2)], [3, None]), 0)
    operator.process(Bundle([("a", 3)]), 0)
    operator.finish()
    assert inner.story[:2] == [(0, [("a", 2), ("a", 3)], None), (0, [("a", 1)], [3])]


def test_a_key_with_many_records_comes_in_pieces() -> None:
    inner = RecordingOperator()
    operator = SortedInput(lambda: inner, (lambda record: None,))
    open_operator(operator)
    operator.process(Bundle(list(range(PIECE + 1))), 0)
    operator.finish()
    assert [len(records) for _, records, _ in inner.story[:2]] == [PIECE, 1]
    assert inner.story[2] == "key ended"


def test_nothing_is_told_before_the_end_and_only_the_last_watermark_goes_on() -> None:
    inner = RecordingOperator()
    operator = SortedInput(lambda: inner, (first,))
    output = open_operator(operator)
    operator.process(Bundle([("a", 1)], [1]), 0)
    operator.watermark_advanced(Watermark(50))
    operator.status_changed(StreamStatus(False))
    operator.watermark_advanced(Watermark(MAX_WATERMARK_MS))
    operator.end_input(0)
    assert inner.story == [] and output.elements == []
    operator.finish()
    assert output.elements == [Watermark(MAX_WATERMARK_MS)]


def test_keys_that_cannot_be_hashed_are_keys() -> None:
    inner = RecordingOperator()
    operator = SortedInput(lambda: inner, (first,))
    open_operator(operator)
    operator.process(Bundle([([1], 1), ({"x"}, 2), ([1], 3)]), 0)
    operator.finish()
    assert [part[1] for part in inner.story if isinstance(part, tuple)] == [
        [([1], 1), ([1], 3)],
        [({"x"}, 2)],
    ]


def test_an_error_of_the_selector_names_the_operator() -> None:
    operator = SortedInput(RecordingOperator, (lambda record: record.nothing,))
    open_operator(operator, within=context("sums"))
    with pytest.raises(UserFunctionFailed, match="'sums'.*key of a record was selected"):
        operator.process(Bundle([1]), 0)
    operator.close()


class Watching:
    """A process function that tells watermarks, its state and its timers."""

    def open(self, runtime_context: Any) -> None:
        self.kept = runtime_context.get_list_state(ListStateDescriptor("kept"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        timers = ctx.timer_service()
        assert timers.current_watermark() == MIN_WATERMARK_MS
        self.kept.add(value[1])
        timers.register_event_time_timer(100 + value[1])
        timers.register_processing_time_timer(NOW_MS + 1)
        yield value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        timers = ctx.timer_service()
        assert timers.current_watermark() == MAX_WATERMARK_MS
        yield ctx.get_current_key(), timestamp, list(self.kept.get())
        if timestamp == NOW_MS + 1:
            timers.register_processing_time_timer(timestamp + 1)  # would go on for ever
            timers.register_event_time_timer(500)


def test_timers_fire_at_the_end_of_their_key_and_its_state_is_gone() -> None:
    operator = SortedInput(lambda: KeyedProcessOperator(Watching(), first), (first,))
    output = run(operator, [Bundle([("b", 7), ("a", 5), ("b", 6)], [1, 1, 0])])
    assert output.timed == [
        (("b", 6), 0),
        (("b", 7), 1),
        (("b", 106, [6, 7]), 106),
        (("b", 107, [6, 7]), 107),
        (("b", NOW_MS + 1, [6, 7]), NOW_MS + 1),
        (("b", 500, [6, 7]), 500),
        (("a", 5), 1),
        (("a", 105, [5]), 105),
        (("a", NOW_MS + 1, [5]), NOW_MS + 1),
        (("a", 500, [5]), 500),
    ]


class Pairing:
    """Keeps the left side; the right side asks for it."""

    def open(self, runtime_context: Any) -> None:
        self.left = runtime_context.get_list_state(ListStateDescriptor("left"))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.left.add(value[1])

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield (*value, list(self.left.get()))


def test_two_inputs_meet_in_the_order_of_their_times() -> None:
    operator = SortedInput(lambda: KeyedCoProcessOperator(Pairing(), first, first), (first, first))
    output = open_operator(operator)
    operator.process(Bundle([("a", "late"), ("b", "other")], [9, 0]), 0)
    operator.process(Bundle([("a", "asks"), ("b", "asks")], [5, 5]), 1)
    operator.process(Bundle([("a", "early")], [1]), 0)
    operator.finish()
    operator.close()
    assert output.records == [("a", "asks", ["early"]), ("b", "asks", ["other"])]


RULES = MapStateDescriptor("rules")


class Ruled:
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield (*value, dict(ctx.get_broadcast_state(RULES).items()))

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(RULES).put(*value)
        yield value


def test_an_input_without_keys_is_processed_as_it_comes_before_the_others() -> None:
    operator = SortedInput(lambda: KeyedBroadcastProcessOperator(Ruled(), first), (first, None))
    output = open_operator(operator)
    operator.process(Bundle([("b", 1)]), 0)
    operator.process(Bundle([("x", 1)]), 1)
    operator.process(Bundle([("a", 2)]), 0)
    operator.process(Bundle([("y", 2)]), 1)
    assert output.records == [("x", 1), ("y", 2)]
    operator.finish()
    operator.close()
    rules = {"x": 1, "y": 2}
    assert output.records[2:] == [("b", 1, rules), ("a", 2, rules)]


class NoBackends(MemoryBackends):
    def keyed(self, operator: str, groups: range, max_parallelism: int) -> Any:
        raise AssertionError("state of one key at a time needs no files")


def within(spills: MemorySpills) -> OperatorContext:
    info = TaskInfo("job", "vertex", 0, 1)
    return OperatorContext("op", info, lambda: NOW_MS, backends=NoBackends(), spills=spills)


def test_state_lives_in_memory_whatever_backend_the_job_has() -> None:
    operator = SortedInput(lambda: KeyedProcessOperator(Watching(), first), (first,))
    open_operator(operator, within=within(MemorySpills()))
    operator.close()


def test_what_was_spilled_is_given_back_also_when_a_function_fails() -> None:
    class Failing(Watching):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            raise ZeroDivisionError

    spills = MemorySpills()
    operator = SortedInput(lambda: KeyedProcessOperator(Failing(), first), (first,), 1)
    open_operator(operator, within=within(spills))
    operator.process(Bundle([("a", 1)]), 0)
    operator.process(Bundle([("b", 1)]), 0)
    assert spills.open_now == 2
    with pytest.raises(ZeroDivisionError):
        operator.finish()
    operator.close()
    assert spills.open_now == 0


def test_what_was_spilled_is_given_back_also_when_the_end_of_a_function_fails() -> None:
    class Failing(RecordingOperator):
        def close(self) -> None:
            raise ZeroDivisionError

    spills = MemorySpills()
    operator = SortedInput(Failing, (first,), 1)
    open_operator(operator, within=within(spills))
    operator.process(Bundle([("a", 1)]), 0)
    assert spills.open_now == 1
    with pytest.raises(ZeroDivisionError):
        operator.close()
    assert spills.open_now == 0


@given(
    bundles=st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers()), max_size=6),
        max_size=8,
    ),
    limit_bytes=st.sampled_from([1, 400, 10**6]),
)
def test_each_key_gets_its_records_by_time_however_little_memory_there_is(
    bundles: list[list[tuple[int, int, int]]], limit_bytes: int
) -> None:
    inner = RecordingOperator()
    spills = MemorySpills()
    operator = SortedInput(lambda: inner, (first,), limit_bytes)
    output: KeptOutput = open_operator(operator, within=within(spills))
    expected = defaultdict(list)
    for rows in bundles:
        operator.process(Bundle(rows, [time_ms for _, time_ms, _ in rows]), 0)
        for row in rows:
            expected[row[0]].append(row)
    operator.finish()
    operator.close()
    assert spills.open_now == 0 and output.bundles == []
    found: list[list[Any]] = [[]]
    for part in inner.story:
        if part == "key ended":
            found.append([])
        elif isinstance(part, tuple):
            found[-1] += part[1]
    by_time = [sorted(rows, key=lambda row: row[1]) for rows in expected.values()]
    assert sorted(found[:-1]) == sorted(by_time)
