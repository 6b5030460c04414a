"""Reducing and aggregating: everything counts that was added, also what looks like nothing."""

from typing import Any

import pytest

from headgate.functions.state import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
)
from tests.core.state.kit import Lab, Sum, Whole


@pytest.fixture
def lab() -> Lab:
    lab = Lab()
    lab.at("k")
    return lab


class Larger:
    """A reduce function as a class."""

    def reduce(self, value: Any, other: Any) -> Any:
        return max(value, other)


def test_reducing_starts_with_the_first_value(lab: Lab) -> None:
    state = lab.open(ReducingStateDescriptor("max", Larger()))
    assert state.get() is None
    for value in (0, -1, 5, 3):
        state.add(value)
    assert state.get() == 5
    lab.at("other")
    assert state.get() is None
    lab.at("k")
    state.clear()
    assert state.get() is None


@pytest.mark.parametrize("nothing", [0, "", [], False])
def test_a_falsy_value_is_reduced_like_any_other(lab: Lab, nothing: Any) -> None:
    calls: list[Any] = []

    def keep(value: Any, other: Any) -> Any:
        calls.append((value, other))
        return value

    state = lab.open(ReducingStateDescriptor("s", keep))
    state.add(nothing)
    state.add(nothing)
    assert calls == [(nothing, nothing)] and state.get() == nothing


def test_none_is_a_value_where_there_is_no_type(lab: Lab) -> None:
    calls: list[Any] = []

    def keep(value: Any, other: Any) -> Any:
        calls.append((value, other))
        return other

    state = lab.open(ReducingStateDescriptor("s", keep))
    for value in (None, 1, None, 2):
        state.add(value)
    assert calls == [(None, 1), (1, None), (None, 2)] and state.get() == 2
    state.add(None)
    assert state.get() is None


def test_reduced_values_have_the_declared_type(lab: Lab) -> None:
    state = lab.open(ReducingStateDescriptor("s", lambda value, other: value + other / 2, Whole()))
    state.add(3.0)
    state.add(3)
    assert state.get() == 4 and type(state.get()) is int
    with pytest.raises(TypeError, match="the state 's' has the type Whole and does not take None"):
        state.add(None)
    with pytest.raises(TypeError, match="the state 's' got a wrong value"):
        state.add("x")
    assert state.get() == 4


def test_aggregating_gives_the_result_of_the_accumulator(lab: Lab) -> None:
    state = lab.open(AggregatingStateDescriptor("sum", Sum()))
    assert state.get() is None
    for value in (1, 2, 3):
        state.add(value)
    assert state.get() == 6
    state.clear()
    assert state.get() is None


class SharedStart(Sum):
    """Gives the same list to everybody, and changes it."""

    def __init__(self) -> None:
        self.start: list[int] = []

    def create_accumulator(self) -> list[int]:
        return self.start


@pytest.mark.parametrize("function", [Sum(), SharedStart()])
def test_no_two_keys_share_an_accumulator(function: Sum) -> None:
    lab = Lab(namespaced=True)
    state = lab.open(AggregatingStateDescriptor("sum", function))
    places = [(key, space) for key in "ab" for space in ("w1", "w2")]
    for number, (key, space) in enumerate(places):
        for _ in range(2):
            lab.at(key, space)
            state.add(10**number)
    for number, (key, space) in enumerate(places):
        lab.at(key, space)
        assert state.get() == 2 * 10**number


class Last:
    """An aggregate function whose accumulator is None until the second value."""

    def create_accumulator(self) -> None:
        return None

    def add(self, value: int, accumulator: Any) -> Any:
        return None if accumulator is None and value == 0 else (accumulator or 0) + value

    def get_result(self, accumulator: Any) -> Any:
        return "none yet" if accumulator is None else accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return (acc_a or 0) + (acc_b or 0)


def test_an_accumulator_may_be_none(lab: Lab) -> None:
    state = lab.open(AggregatingStateDescriptor("last", Last()))
    state.add(0)
    assert state.get() == "none yet"
    state.add(0)
    state.add(2)
    state.add(-2)
    assert state.get() == 0
    restored = lab.restored()
    restored.at("k")
    assert restored.open(AggregatingStateDescriptor("last", Last())).get() == 0


def test_an_accumulator_that_is_none_survives_a_snapshot(lab: Lab) -> None:
    lab.open(AggregatingStateDescriptor("last", Last())).add(0)
    restored = lab.restored()
    restored.at("k")
    assert restored.open(AggregatingStateDescriptor("last", Last())).get() == "none yet"


def test_accumulators_have_the_declared_type(lab: Lab) -> None:
    class Mean(Last):
        def add(self, value: Any, accumulator: Any) -> Any:
            return value

    state = lab.open(AggregatingStateDescriptor("mean", Mean(), Whole()))
    state.add(2.5)
    assert state.get() == 2
    with pytest.raises(TypeError, match="'mean' has the type Whole and does not take None"):
        state.add(None)
