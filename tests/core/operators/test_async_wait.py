"""The operator that waits: admits up to its capacity, waits for room, sends on what may go."""

from collections import deque
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle, LatencyMarker, StreamStatus, Watermark
from headgate.base.errors import StateBroken, UserFunctionFailed
from headgate.base.figures import AsyncFigures
from headgate.core.chain.user_function import PIECE
from headgate.core.operators.async_wait import AsyncWaitOperator, read_calls, write_calls
from headgate.functions.context import RuntimeContext
from headgate.functions.state import ValueStateDescriptor
from tests.core.chain.kit import KeptOutput, context, run
from tests.core.operators.kit import BOTH, AsyncBench, NumberAndSquare


@BOTH
def test_a_whole_life_without_an_event_loop(ordered: bool) -> None:
    function = NumberAndSquare()
    output = run(AsyncWaitOperator(function, 1000, 2, ordered), [Bundle([1, 2, 3], [7, 8, 9])])
    assert output.timed == [(1, 7), (1, 7), (2, 8), (4, 8), (3, 9), (9, 9)]
    assert function.heard == ["vertex", "closed"]


def test_records_are_begun_before_any_has_ended() -> None:
    bench = AsyncBench(capacity=3)
    bench.operator.process(Bundle([1, 2]), 0)
    bench.operator.process(Bundle([3]), 0)
    assert [slot.record for slot in bench.calls.under_way] == [1, 2, 3]
    assert bench.output.row == []


@BOTH
def test_no_more_than_the_capacity_is_under_way(ordered: bool) -> None:
    bench = AsyncBench(capacity=3, ordered=ordered)
    bench.operator.process(Bundle(list(range(10))), 0)
    assert bench.calls.most == 3
    assert bench.calls.waits == 7
    assert bench.output.row == [f"r{n}" for n in range(7)]


def test_figures_tell_how_full_the_queue_is_and_how_long_records_have_waited() -> None:
    clock = [100.0]
    bench = AsyncBench(capacity=2)
    bench.operator.context = replace(bench.operator.context, elapsed_ms=lambda: clock[0])
    bench.operator.process(Bundle([1, 2]), 0)
    assert bench.operator.async_calls() == AsyncFigures("op", 2, 2, 0.0)
    seen: list[AsyncFigures | None] = []

    def choose(count: int) -> int:
        clock[0] += 30
        seen.append(bench.operator.async_calls())
        clock[0] += 10
        return 0

    bench.calls.choose = choose
    bench.operator.process(Bundle([3, 4]), 0)
    assert seen == [AsyncFigures("op", 2, 2, 30.0), AsyncFigures("op", 2, 2, 70.0)]
    assert bench.operator.async_calls() == AsyncFigures("op", 2, 2, 80.0)
    bench.operator.finish()
    assert bench.operator.async_calls() == AsyncFigures("op", 2, 0, 80.0), "the end waits too"


def test_what_is_done_but_held_back_counts_into_the_capacity() -> None:
    bench = AsyncBench(capacity=3, ordered=True)
    bench.calls.choose = lambda count: count - 1  # the youngest call ends first
    bench.operator.process(Bundle(list(range(5))), 0)
    # For the fourth record all three had to end: the oldest was the last of them.
    assert bench.calls.waits == 3
    assert bench.output.row == ["r0", "r1", "r2"]


def test_ends_that_nobody_waited_for_come_by_mail() -> None:
    bench = AsyncBench(ordered=False)
    bench.operator.process(Bundle([1, 2], [5, 6]), 0)
    bench.calls.end(1)
    bench.calls.completed()
    assert bench.output.timed == [("r2", 6)]
    bench.calls.completed()
    assert bench.output.row == ["r2"]


@BOTH
def test_a_watermark_waits_for_the_records_before_it_and_holds_those_after(ordered: bool) -> None:
    bench = AsyncBench(ordered=ordered)
    bench.operator.process(Bundle([1]), 0)
    bench.operator.watermark_advanced(Watermark(10))
    bench.operator.process(Bundle([2]), 0)
    bench.calls.end(1)
    bench.calls.completed()
    assert bench.output.row == []
    bench.calls.end(0)
    bench.calls.completed()
    assert bench.output.row == ["r1", Watermark(10), "r2"]
    bench.operator.status_changed(StreamStatus(False))
    assert bench.output.row[-1] == StreamStatus(False)


def test_a_latency_marker_waits_for_nobody() -> None:
    bench = AsyncBench()
    bench.operator.process(Bundle([1]), 0)
    bench.operator.marker_received(LatencyMarker(1, 2, 3))
    assert bench.output.elements == [LatencyMarker(1, 2, 3)]


@BOTH
def test_the_end_waits_for_everything(ordered: bool) -> None:
    bench = AsyncBench(ordered=ordered)
    bench.operator.process(Bundle([1, 2]), 0)
    bench.operator.watermark_advanced(Watermark(99))
    bench.operator.end_input(0)
    bench.operator.finish()
    assert bench.output.row == ["r1", "r2", Watermark(99)]


@pytest.mark.parametrize("how", ["process", "finish", "mail"])
def test_an_error_of_a_call_is_raised_with_the_name_of_the_operator(how: str) -> None:
    bench = AsyncBench(capacity=2)
    bench.operator.process(Bundle([1, 2]), 0)
    error = ValueError("no")
    bench.calls.end(1, error)
    notice = {
        "process": lambda: bench.operator.process(Bundle([3]), 0),
        "finish": bench.operator.finish,
        "mail": bench.calls.completed,
    }[how]
    with pytest.raises(UserFunctionFailed, match="^operator 'op' failed: ValueError: no$") as found:
        notice()
    assert found.value.__cause__ is error
    assert bench.output.row == []


def test_many_results_leave_in_pieces() -> None:
    bench = AsyncBench(capacity=1)
    bench.operator.process(Bundle([1], [5]), 0)
    slot = bench.calls.under_way.pop()
    slot.results = list(range(PIECE + 1))
    bench.calls.ended.append(slot)
    bench.operator.finish()
    assert [len(bundle.records) for bundle in bench.output.bundles] == [PIECE, 1]
    assert bench.output.timed[-1] == (PIECE, 5)


def test_close_ends_the_calls_once_and_mails_find_nobody() -> None:
    bench = AsyncBench()
    bench.operator.process(Bundle([1]), 0)
    bench.operator.close()
    bench.operator.close()
    assert bench.calls.closed == 1
    bench.calls.end()
    bench.calls.completed()
    assert bench.output.row == []


def test_an_operator_that_was_never_opened_can_be_closed() -> None:
    function = NumberAndSquare()
    AsyncWaitOperator(function, 1000, 1, True).close()
    assert function.heard == []


def test_object_reuse_is_passed_on_to_the_calls() -> None:
    bench = AsyncBench()
    assert bench.calls.work.copies
    assert bench.calls.work.retry is None
    assert bench.calls.work.timeout_ms == 1000


def test_keyed_state_is_refused_with_the_name_of_the_operator() -> None:
    class WithState(NumberAndSquare):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_state(ValueStateDescriptor("seen", None))

    operator = AsyncWaitOperator(WithState(), 1000, 1, True)
    operator.set_up(KeptOutput())
    with pytest.raises(RuntimeError, match="'seen' was asked for by 'op': an AsyncFunction has no"):
        operator.open(context())


@given(
    st.lists(st.one_of(st.integers(1, 7), st.just("watermark")), max_size=12),
    st.integers(1, 5),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_every_record_comes_once_within_its_watermarks(
    script: list[Any], capacity: int, ordered: bool, random: Any
) -> None:
    bench = AsyncBench(capacity, ordered)
    bench.calls.choose = random.randrange
    expected: list[Any] = []
    for step in script:
        if step == "watermark":
            expected.append(Watermark(len(expected)))
            bench.operator.watermark_advanced(expected[-1])
        else:
            records = list(range(len(expected), len(expected) + step))
            expected += [f"r{n}" for n in records]
            bench.operator.process(Bundle(records), 0)
    bench.operator.finish()
    assert bench.calls.most <= capacity
    if ordered:
        assert [element for element in bench.output.row if isinstance(element, str)] == [
            element for element in expected if isinstance(element, str)
        ]
    assert sorted(map(str, bench.output.row)) == sorted(map(str, _kept(expected, bench)))
    for place, element in enumerate(bench.output.row):
        if isinstance(element, Watermark):
            before = set(map(str, expected[: expected.index(element)]))
            assert {r for r in bench.output.row[:place] if isinstance(r, str)} == {
                r for r in before if r.startswith("r")
            }


def _kept(expected: list[Any], bench: AsyncBench) -> list[Any]:
    """Of watermarks in a row the earlier ones may be left out; the last one never."""
    seen = [element for element in bench.output.row if isinstance(element, Watermark)]
    last = [element for element in expected if isinstance(element, Watermark)][-1:]
    assert seen[-1:] == last
    return [element for element in expected if isinstance(element, str) or element in seen]


notes = st.one_of(st.integers(0, 9).map(Watermark), st.booleans().map(StreamStatus))
pairs = st.tuples(st.tuples(st.integers(), st.integers()), st.none() | st.integers())
rows = st.lists(st.one_of(pairs, notes))


@given(rows)
def test_with_the_same_tasks_each_gets_back_its_own_in_order(row: list[Any]) -> None:
    other = write_calls([([1], [None], [])], deque())
    for subtask in range(2):
        left = [other, other]
        left[subtask] = write_calls([], deque(row))
        assert list(read_calls(left, subtask, 2)) == row


@given(st.lists(st.none() | rows, min_size=1, max_size=4), st.integers(1, 5))
def test_with_other_tasks_each_record_goes_to_one(tasks: list[Any], parallelism: int) -> None:
    if len(tasks) == parallelism:
        return
    left = [None if rows is None else write_calls([], deque(rows)) for rows in tasks]
    shares = [read_calls(left, subtask, parallelism) for subtask in range(parallelism)]
    records = [row for rows in tasks for row in rows or () if isinstance(row, tuple)]
    assert list(chain.from_iterable(shares)) == records


def test_what_waits_comes_after_what_is_under_way() -> None:
    held = [([1, 2], [5, None], [Watermark(9)]), ([3], [None], [])]
    data = write_calls(held, deque([(4, 7), Watermark(20)]))
    assert list(read_calls([data], 0, 1)) == [
        (1, 5),
        (2, None),
        Watermark(9),
        (3, None),
        (4, 7),
        Watermark(20),
    ]


def test_a_record_that_cannot_be_written_is_named_as_the_culprit() -> None:
    with pytest.raises(StateBroken, match="must be picklable, and async_invoke"):
        write_calls([([lambda: 0], [None], [])], deque())


def test_bytes_that_are_no_records_are_refused() -> None:
    with pytest.raises(StateBroken, match="cannot be read"):
        read_calls([b"nonsense"], 0, 1)
