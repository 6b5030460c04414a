"""Base classes of functions for windows: written as in PyFlink, and complete."""

from collections.abc import Iterable
from typing import Any

import pytest

from headgate.core.chain.context import OperatorRuntimeContext
from headgate.datastream import functions
from headgate.datastream.functions import (
    AggregateFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from headgate.datastream.window import TimeWindow
from tests.core.chain.kit import context


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("AggregateFunction", (tuple, list, float)),
        ("AllWindowFunction", (tuple, tuple, TimeWindow)),
        ("CoGroupFunction", (tuple, tuple, str)),
        ("FlatJoinFunction", (tuple, tuple, str)),
        ("JoinFunction", (tuple, tuple, str)),
        ("ProcessAllWindowFunction", (tuple, tuple, TimeWindow)),
        ("ProcessWindowFunction", (tuple, tuple, str, TimeWindow)),
        ("WindowFunction", (tuple, tuple, str, TimeWindow)),
    ],
)
def test_base_classes_take_types_and_want_their_methods(name: str, arguments: Any) -> None:
    base = getattr(functions, name)
    derived = type("Derived", (base,), {})
    assert base[arguments].__origin__ is base
    with pytest.raises(TypeError, match="abstract"):
        derived()


@pytest.mark.parametrize("base", [ProcessWindowFunction, ProcessAllWindowFunction])
def test_contexts_take_the_kind_of_window(base: Any) -> None:
    assert base.Context[TimeWindow].__origin__ is base.Context


class Longest(AggregateFunction[str, str, int]):
    def create_accumulator(self) -> str:
        return ""

    def add(self, value: str, accumulator: str) -> str:
        return max(value, accumulator, key=len)

    def get_result(self, accumulator: str) -> int:
        return len(accumulator)


def test_merge_need_not_be_written_where_nothing_merges() -> None:
    longest = Longest()
    assert longest.get_result(longest.add("abc", longest.create_accumulator())) == 3
    with pytest.raises(NotImplementedError, match=r"Longest has no merge\(acc_a, acc_b\)"):
        longest.merge("a", "b")


class Simple(ProcessWindowFunction[int, int, str, TimeWindow]):
    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[int],
    ) -> Iterable[int]:
        yield sum(elements)


def test_open_close_and_clear_may_be_left_out(runtime: RuntimeContext) -> None:
    simple, nowhere = Simple(), Nowhere()
    simple.open(runtime)
    assert list(simple.process("a", nowhere, [1, 2])) == [3]
    simple.clear(nowhere)
    simple.close()


class Nowhere(ProcessWindowFunction.Context[TimeWindow]):
    """A context that a user may write to try a function without any job."""

    def window(self) -> TimeWindow:
        return TimeWindow(0, 10)

    def current_processing_time(self) -> int:
        return 0

    def current_watermark(self) -> int:
        return 0

    def window_state(self) -> Any:
        return None

    def global_state(self) -> Any:
        return None


@pytest.fixture
def runtime() -> RuntimeContext:
    return OperatorRuntimeContext(context())
