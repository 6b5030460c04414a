"""Operators with two inputs: a method of the function for each. Row 154."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle
from headgate.core.chain.tags import OutputTag
from headgate.core.chain.two_inputs import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoProcessOperator,
    TwoInputOperator,
)
from tests.core.chain.kit import KeptOutput, open_operator


class Both:
    """All methods of functions with two inputs, and a log."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def open(self, runtime_context: Any) -> None:
        self.log.append("open")

    def close(self) -> None:
        self.log.append("close")

    def map1(self, value: int) -> Any:
        return value if value else None

    def map2(self, value: int) -> Any:
        return str(value)

    def flat_map1(self, value: int) -> Iterator[int]:
        yield from (value, value)

    def flat_map2(self, value: int) -> Any:
        return None if value else [0]

    def process_element1(self, value: int, ctx: Any) -> Iterator[Any]:
        yield "one", value, ctx.timestamp(), ctx.get_current_key()

    def process_element2(self, value: int, ctx: Any) -> Iterator[Any]:
        yield OutputTag("two"), (value, ctx.timestamp(), ctx.get_current_key())


def feed(operator: TwoInputOperator, elements: list[tuple[int, int]]) -> KeptOutput:
    output = open_operator(operator)
    for number, value in elements:
        operator.process(Bundle([value], [value * 10]), number)
    operator.close()
    return output


arrivals = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), max_size=20)


@given(arrivals)
def test_each_input_has_its_own_map_and_none_is_dropped(elements: list[tuple[int, int]]) -> None:
    output = feed(CoMapOperator(Both()), elements)
    assert output.timed == [
        (str(value) if number else value, value * 10)
        for number, value in elements
        if number or value
    ]


@given(arrivals)
def test_each_input_has_its_own_flat_map(elements: list[tuple[int, int]]) -> None:
    output = feed(CoFlatMapOperator(Both()), elements)
    expected: list[tuple[int, int]] = []
    for number, value in elements:
        if number == 0:
            expected += [(value, value * 10)] * 2
        elif value == 0:
            expected.append((0, 0))
    assert output.timed == expected


def test_each_input_has_its_own_process_element() -> None:
    output = feed(CoProcessOperator(Both()), [(0, 1), (1, 2)])
    assert output.records == [("one", 1, 10, None)]
    assert output.side_records("two") == [(2, 20, None)]


def test_keys_are_taken_of_each_input_in_its_own_way() -> None:
    operator = KeyedCoProcessOperator(Both(), lambda v: v % 2, lambda v: f"k{v}")
    output = feed(operator, [(0, 3), (1, 4)])
    assert output.records == [("one", 3, 30, 1)]
    assert output.side_records("two") == [(4, 40, "k4")]


@pytest.mark.parametrize("make", [CoMapOperator, CoFlatMapOperator, CoProcessOperator])
def test_the_function_is_opened_and_closed_once(make: type[TwoInputOperator]) -> None:
    function = Both()
    operator = make(function)
    assert operator.inputs == 2
    open_operator(operator)
    operator.close()
    operator.close()
    assert function.log == ["open", "close"]


def test_what_is_not_iterable_names_the_method() -> None:
    class Wrong(Both):
        def flat_map2(self, value: int) -> Any:
            return 7

    operator = CoFlatMapOperator(Wrong())
    open_operator(operator)
    with pytest.raises(TypeError, match="flat_map2 must return an iterable"):
        operator.process(Bundle([1]), 1)
