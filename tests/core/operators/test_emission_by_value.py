"""Every operator sends what its function returned at that moment, whatever it returned before.

The function follows a script: values that nobody can change, and one list that grows at each call,
bare or inside something else. What it has returned is written down at once; that must arrive.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle
from headgate.core.chain.operator import Operator
from headgate.core.operators.one_input import (
    FilterOperator,
    FlatMapOperator,
    KeyedProcessOperator,
    MapOperator,
    ProcessOperator,
)
from headgate.core.operators.reduce import ReduceOperator
from headgate.core.operators.two_inputs import CoFlatMapOperator, CoMapOperator, CoProcessOperator
from headgate.core.window.contents import make_fold
from headgate.core.window.spec import Aggregated
from headgate.functions.function import OutputTag
from tests.core.chain.kit import cut, run
from tests.core.operators.failing_kit import TolerantRun

pytestmark = pytest.mark.usefixtures("inlining")

KINDS = ("number", "pair", "list", "list in pair", "list in triple", "list in dict", "object")
scripts = st.lists(st.sampled_from(KINDS), max_size=60)
turning = st.builds(
    lambda plain, rest: ["pair"] * plain + rest,
    st.integers(0, 200),
    st.lists(st.sampled_from(KINDS), max_size=20),
)
sizes = st.lists(st.integers(1, 90), max_size=6)


@dataclass
class Holder:
    items: list[int]


class Scripted:
    """Returns what the script says and writes down what that was, before it changes."""

    def __init__(self, script: list[str]) -> None:
        self.script = iter(script)
        self.kept: list[int] = []
        self.holder = Holder(self.kept)
        self.returned: list[Any] = []

    def next(self) -> Any:
        self.kept.append(len(self.kept))
        made = {
            "number": len(self.kept),
            "pair": ("key", len(self.kept)),
            "list": self.kept,
            "list in pair": ("key", self.kept),
            "list in triple": (1, (2, self.kept), 3),
            "list in dict": {"key": self.kept},
            "object": self.holder,
        }[next(self.script)]
        self.returned.append(copy.deepcopy(made))
        return made

    def map(self, value: Any) -> Any:
        return self.next()

    map1 = map2 = map

    def flat_map(self, value: Any) -> Iterator[Any]:
        yield self.next()

    flat_map1 = flat_map2 = flat_map

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.next()

    process_element1 = process_element2 = process_element

    def reduce(self, first: Any, second: Any) -> Any:
        return self.next()

    def get_result(self, accumulator: Any) -> Any:
        return self.next()

    create_accumulator = add = merge = None


class Doubly(Scripted):
    """Yields once more what it has kept, changed in between."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.next()
        self.kept.append(-1)
        self.returned.append(copy.deepcopy(self.kept))
        yield self.kept


OPERATORS: list[Callable[[Any], Operator]] = [
    MapOperator,
    FlatMapOperator,
    ProcessOperator,
    lambda function: KeyedProcessOperator(function, lambda record: 0),
    CoMapOperator,
    CoFlatMapOperator,
    CoProcessOperator,
]


@pytest.mark.parametrize("make", OPERATORS)
@given(script=scripts | turning, cuts=sizes)
def test_what_was_returned_is_what_was_sent(
    make: Callable[[Any], Operator], script: list[str], cuts: list[int]
) -> None:
    function = Scripted(script)
    output = run(make(function), cut(list(range(len(script))), cuts))
    assert output.records == function.returned


@given(script=scripts | turning, cuts=sizes, keyed=st.booleans())
def test_what_was_yielded_beside_others_is_what_was_sent(
    script: list[str], cuts: list[int], keyed: bool
) -> None:
    function = Doubly(script)
    operator: Operator = ProcessOperator(function)
    if keyed:
        operator = KeyedProcessOperator(function, lambda record: 0)
    output = run(operator, cut(list(range(len(script))), cuts))
    assert output.records == function.returned


@pytest.mark.parametrize("make", OPERATORS)
@given(script=scripts | turning, cuts=sizes)
def test_with_an_error_policy_it_is_the_same(
    make: Callable[[Any], Operator], script: list[str], cuts: list[int]
) -> None:
    function = Scripted(script)
    tolerant = TolerantRun(make(function))
    for bundle in cut(list(range(len(script))), cuts):
        tolerant.process(*bundle.records)
    assert tolerant.records == function.returned


@given(script=scripts | turning, cuts=sizes)
def test_a_running_reduce_sends_what_was_returned(script: list[str], cuts: list[int]) -> None:
    function = Scripted(script)
    bundles = cut([0] * (len(script) + 1), cuts)
    output = run(ReduceOperator(function, lambda record: "key", False), bundles)
    assert output.records == [0, *function.returned]


@given(script=scripts | turning)
def test_results_of_windows_are_what_was_returned(script: list[str]) -> None:
    function = Scripted(script)
    fold = make_fold(Aggregated(function), copies=True)  # type: ignore[arg-type]
    assert fold.answers([0] * len(script)) == function.returned


@given(script=scripts | turning, cuts=sizes)
def test_side_outputs_get_what_was_returned(script: list[str], cuts: list[int]) -> None:
    side = OutputTag("side")

    class Tagging(Scripted):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield (side, self.next()) if value % 2 else self.next()

    function = Tagging(script)
    output = run(ProcessOperator(function), cut(list(range(len(script))), cuts))
    assert output.records == function.returned[::2]
    assert output.side_records("side") == function.returned[1::2]


def test_a_map_that_turns_to_a_growing_list_spoils_no_record_of_the_bundle() -> None:
    function = Scripted(["pair"] * 40 + ["list"] * 3)
    output = run(MapOperator(function), [Bundle(list(range(43)))])
    assert output.records[40:] == [list(range(41)), list(range(42)), list(range(43))]


@pytest.mark.parametrize("timed", [False, True])
def test_a_filter_that_changes_records_it_has_kept_does_not_change_what_was_sent(
    timed: bool,
) -> None:
    class Spoiling:
        def __init__(self) -> None:
            self.before: list[list[int]] = []

        def filter(self, value: list[int]) -> bool:
            for kept in self.before:
                kept.append(-1)
            self.before.append(value)
            return value[0] != 1

    times: list[int | None] | None = [10, 20, 30] if timed else None
    output = run(FilterOperator(Spoiling()), [Bundle([[0], [1], [2]], times)])
    assert output.timed == [([0], 10 if timed else None), ([2], 30 if timed else None)]


class Sticky:
    """A record whose own operators keep state: pure functions of it may return the same twice."""

    shared: list[int] = []  # noqa: RUF012 - that is the point

    def __add__(self, number: int) -> list[int]:
        self.shared.append(number)
        return self.shared

    def __getitem__(self, index: int) -> list[int]:
        return self + index


@pytest.mark.parametrize("function", [lambda record: record + 1, lambda record: (record[1], 1)])
def test_a_function_without_names_is_not_trusted_with_operators_of_others(function: Any) -> None:
    Sticky.shared.clear()
    output = run(MapOperator(function), [Bundle([Sticky(), Sticky(), Sticky()])])
    found = [record[0] if isinstance(record, tuple) else record for record in output.records]
    assert found == [[1], [1, 1], [1, 1, 1]]


def test_accumulators_that_are_the_same_object_are_not_shared_by_keys() -> None:
    class Sharing:
        start: list[int] = []  # noqa: RUF012 - that is the point

        def create_accumulator(self) -> list[int]:
            return self.start

        def add(self, value: int, accumulator: list[int]) -> list[int]:
            accumulator.append(value)
            return accumulator

        def get_result(self, accumulator: list[int]) -> list[int]:
            return accumulator

        def merge(self, first: list[int], second: list[int]) -> list[int]:
            return first + second

    entries: dict[Any, Any] = {}
    fold = make_fold(Aggregated(Sharing()), copies=True)
    fold.add_all([(1, "a", entries), (2, "b", entries)])
    assert entries == {"a": [1], "b": [2]}
