"""States with a type: what is written is checked and brought into form, reading is left alone."""

from typing import Any

import pytest

from headgate.api.types.types import Types
from headgate.core.state.opening import TypedValue, check_for
from headgate.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from tests.core.state.kit import Lab, Named, Whole


@pytest.fixture
def lab() -> Lab:
    lab = Lab()
    lab.at("k")
    return lab


@pytest.mark.parametrize("kind", [Whole(), Named()])
def test_a_typed_value_refuses_none_and_says_what_to_do(lab: Lab, kind: Any) -> None:
    state = lab.open(ValueStateDescriptor("count", kind))
    state.update(1)
    with pytest.raises(
        TypeError, match=f"'count' has the type {kind} and does not take None; call"
    ):
        state.update(None)
    assert state.value() == 1
    state.clear()
    assert state.value() is None


def test_an_untyped_value_is_cleared_by_none(lab: Lab) -> None:
    state = lab.open(ValueStateDescriptor("count"))
    state.update(1)
    state.update(None)
    assert state.value() is None
    assert not isinstance(state, TypedValue)


def test_values_take_the_form_of_their_type(lab: Lab) -> None:
    state = lab.open(ValueStateDescriptor("count", Whole()))
    state.update(2.0)
    assert type(state.value()) is int
    with pytest.raises(TypeError, match="the state 'count' got a wrong value: 'x' is no whole"):
        state.update("x")
    assert state.value() == 2


def test_elements_are_checked_each(lab: Lab) -> None:
    state = lab.open(ListStateDescriptor("seen", Whole()))
    state.add(True)
    state.add_all([2.0, 3])
    assert [(value, type(value)) for value in state.get()] == [(1, int), (2, int), (3, int)]
    for write in (
        lambda: state.add(None),
        lambda: state.add_all([1, None]),
        lambda: state.update([1, "x"]),
    ):
        with pytest.raises(TypeError, match="the state 'seen'"):
            write()
    assert list(state.get()) == [1, 2, 3], "what is refused changes nothing"
    state.update([4.0])
    assert list(state.get()) == [4]
    state.clear()
    assert list(state.get()) == []


def test_names_and_values_of_a_map_are_checked(lab: Lab) -> None:
    state = lab.open(MapStateDescriptor("visits", Whole(), Whole()))
    state.put(1.0, 2.0)
    state[2] = None
    state.put_all({3: 3})
    assert dict(state.items()) == {1: 2, 2: None, 3: 3}
    assert {type(key) for key in state} == {int}
    with pytest.raises(TypeError, match="'visits' got a wrong value"):
        state.put("x", 1)
    with pytest.raises(TypeError, match="'visits' got a wrong value"):
        state.put(1, "x")
    with pytest.raises(TypeError, match="does not take None"):
        state.put(None, 1)
    del state[3]
    assert state.contains(1) and 3 not in state and not state.is_empty()
    state.clear()
    assert state.is_empty()


def test_a_map_finds_names_that_were_brought_into_form(lab: Lab) -> None:
    state = lab.open(MapStateDescriptor("by price", Types.FLOAT(), None))
    state.put(1.1, "x")
    (held,) = state.keys()
    assert held != 1.1, "32 bits"
    assert state.get(1.1) == state.get(held) == "x" and 1.1 in state
    state.remove(1.1)
    assert state.is_empty()


def test_one_side_of_a_map_may_have_no_type(lab: Lab) -> None:
    names = lab.open(MapStateDescriptor("names", Whole(), None))
    names.put(1.5, "anything")
    assert dict(names.items()) == {1: "anything"}
    values = lab.open(MapStateDescriptor("values", None, Whole()))
    values.put("anything", 1.5)
    assert dict(values.items()) == {"anything": 1}


def test_the_types_of_the_api_are_understood(lab: Lab) -> None:
    state = lab.open(ValueStateDescriptor("pair", Types.TUPLE([Types.STRING(), Types.LONG()])))
    state.update(["a", 1])
    assert state.value() == ("a", 1)
    with pytest.raises(TypeError, match="the state 'pair'"):
        state.update(("a", "b"))


def test_a_check_tells_what_to_write_in_place_of_none() -> None:
    check = check_for("s", Named(), "write 0")
    assert check("as it is") == "as it is"
    with pytest.raises(TypeError, match="'s' has the type Named and does not take None; write 0"):
        check(None)
