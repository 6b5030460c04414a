"""What functions of windows can do: state, side outputs, a life of their own; folded values."""

from collections.abc import Iterable
from typing import Any, ClassVar

import pytest

from headgate.base.errors import UserFunctionFailed
from headgate.common import Row
from headgate.datastream import (
    AggregateFunction,
    OutputTag,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
)
from headgate.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from headgate.functions.state import ValueStateDescriptor
from tests.windows.jobs import Program, at, keyed
from tests.windows.reference import Mark, Timed

TEN = TumblingEventTimeWindows(10)
FIRINGS = ValueStateDescriptor("firings")
TAG = OutputTag("big")


def add(total: Timed, added: Timed) -> Timed:
    return Timed(total.key, total.value + added.value, total.time)


class Counting(ProcessWindowFunction[Timed, Any, str, Any]):
    """Counts its firings, by window and by key."""

    def __init__(self) -> None:
        self.cleared: list[Any] = []

    def process(self, key: str, context: Any, elements: Iterable[Timed]) -> Iterable[Any]:
        counts = []
        for store in (context.window_state(), context.global_state()):
            state = store.get_state(FIRINGS)
            state.update((state.value() or 0) + 1)
            counts.append(state.value())
        yield context.window().end, *counts

    def clear(self, context: Any) -> None:
        state = context.window_state().get_state(FIRINGS)
        self.cleared.append((context.window().end, state.value()))
        state.clear()


@pytest.mark.parametrize("folded", [False, True])
def test_state_is_kept_for_a_window_or_for_all_windows_of_a_key(
    program: Program, folded: bool
) -> None:
    story = [*at(0), Mark(10), Timed("a", 1, 5), Mark(20), Timed("a", 2, 15), Timed("b", 3, 17)]
    windows = keyed(program.env, *story).window(TEN).allowed_lateness(5)
    counting = Counting()
    results = windows.reduce(add, counting) if folded else windows.process(counting)
    assert program.run(results.set_parallelism(1)) == [
        (10, 1, 1),
        (10, 2, 2),
        (20, 1, 3),
        (20, 1, 1),
    ]
    assert sorted(counting.cleared) == [(10, 2), (20, 1), (20, 1)]


def test_windows_that_merge_have_no_state_of_a_window(program: Program) -> None:
    windows = keyed(program.env, *at(0)).window(EventTimeSessionWindows(5)).process(Counting())
    with pytest.raises(UserFunctionFailed, match="use global_state"):
        program.run(windows)


class Sorting(ProcessWindowFunction[Timed, Any, str, Any]):
    def process(self, key: str, context: Any, elements: Iterable[Timed]) -> Iterable[Any]:
        for element in elements:
            yield (TAG, element.value) if element.value > 1 else element.value


def test_a_function_of_windows_has_side_outputs(program: Program) -> None:
    results = keyed(program.env, *at(0, 1, 2, 3)).window(TEN).process(Sorting())
    assert program.run(results, results.get_side_output(TAG)) == [[0, 1], [2, 3]]


class Watched(ProcessWindowFunction[Timed, Any, str, Any]):
    """Writes down its life, for all its copies in this process."""

    lives: ClassVar[list[str]] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.lives.append(f"open {runtime_context.get_number_of_parallel_subtasks()}")

    def close(self) -> None:
        self.lives.append("close")

    def process(self, key: str, context: Any, elements: Iterable[Timed]) -> Iterable[Any]:
        return []


def test_functions_are_opened_and_closed_once_in_each_task(program: Program) -> None:
    Watched.lives.clear()
    windows = keyed(program.env, *at(0, 11)).window(TEN)
    program.run(windows.process(Watched()).set_parallelism(1))
    assert Watched.lives == ["open 1", "close"]


class Opened(ReduceFunction[Timed]):
    """Needs what it makes in ``open``."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.plus = runtime_context.get_number_of_parallel_subtasks()

    def reduce(self, value1: Timed, value2: Timed) -> Timed:
        return Timed(value1.key, value1.value + value2.value + self.plus, 0)


def test_a_reduce_function_of_windows_is_opened_too(program: Program) -> None:
    windows = keyed(program.env, *at(0, 1, 2)).window(TEN).reduce(Opened()).set_parallelism(1)
    assert [result.value for result in program.run(windows)] == [0 + 1 + 2 + 2]


ROWS = [("a", 3, "x"), ("a", 1, "y"), ("a", 5, "z"), ("a", 1, "v"), ("a", 5, "w")]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("sum", ("a", 15, "x")),
        ("min", ("a", 1, "x")),
        ("max", ("a", 5, "x")),
        ("min_by", ("a", 1, "y")),
        ("max_by", ("a", 5, "z")),
    ],
)
def test_built_in_folds_are_by_one_field(program: Program, method: str, expected: Any) -> None:
    rows = keyed(program.env, *at(0, 1, 2, 3, 4)).map(lambda record: ROWS[record.value])
    windows = rows.set_parallelism(1).key_by(lambda row: row[0]).window(TEN)
    assert program.run(getattr(windows, method)(1)) == [expected]


def test_a_field_of_a_row_has_a_name(program: Program) -> None:
    records = keyed(program.env, *at(0, 1, 2)).map(
        lambda record: Row(key=record.key, n=record.value)
    )
    windows = records.set_parallelism(1).key_by(lambda row: row.key).window(TEN)
    assert program.run(windows.sum("n")) == [Row(key="a", n=3)]


class Growing(AggregateFunction[Timed, list[int], list[int]]):
    """Gives its accumulator away, which it changes afterwards."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Timed, accumulator: list[int]) -> list[int]:
        accumulator.append(value.value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        return accumulator


@pytest.mark.parametrize("size", [10, 30])
def test_results_that_were_sent_do_not_change_when_a_window_fires_again(
    program: Program, size: int
) -> None:
    story = [*at(0), Mark(size), Timed("a", 1, 1), Timed("a", 2, 2)]
    windows = keyed(program.env, *story).window(TumblingEventTimeWindows(size))
    results = windows.allowed_lateness(100).aggregate(Growing())
    assert program.run(results) == [[0], [0, 1], [0, 1, 2]]


def test_accumulators_are_not_shared_by_keys_or_windows(program: Program) -> None:
    story = [Timed(key, number, number) for number, key in enumerate("abab" * 6)]
    results = keyed(program.env, *story).window(TEN).aggregate(Growing())
    assert sorted(program.run(results)) == [
        [0, 2, 4, 6, 8],
        [1, 3, 5, 7, 9],
        [10, 12, 14, 16, 18],
        [11, 13, 15, 17, 19],
        [20, 22],
        [21, 23],
    ]


def test_a_fold_that_returns_nothing_is_told_so(program: Program) -> None:
    windows = keyed(program.env, *at(0, 1)).window(TEN).reduce(lambda total, added: None)
    with pytest.raises(UserFunctionFailed, match="reduce function returned None"):
        program.run(windows)
    windows = keyed(program.env, *at(0, 1)).window(TEN).process(NotIterable())
    with pytest.raises(UserFunctionFailed, match="must return an iterable"):
        program.run(windows)


class NotIterable(ProcessWindowFunction[Timed, Any, str, Any]):
    def process(self, key: str, context: Any, elements: Iterable[Timed]) -> Any:
        return 5


def test_an_error_names_the_operator(program: Program) -> None:
    windows = keyed(program.env, *at(0, 1)).window(TEN).reduce(lambda total, added: 1 / 0)
    with pytest.raises(UserFunctionFailed, match="my sums") as failed:
        program.run(windows.name("my sums"))
    assert "division by zero" in str(failed.value)
