"""Descriptors: names, kinds and types, as PyFlink spells them."""

import pickle
from typing import Any

import pytest

from headgate.api.types.types import Types
from headgate.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tests.core.state.kit import Named, Sum, Whole


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_state_needs_a_name(name: Any) -> None:
    with pytest.raises(ValueError, match="a state needs a text"):
        ValueStateDescriptor(name, Whole())


@pytest.mark.parametrize("kind", [int, Types.INT, "int"])
def test_what_is_easily_taken_for_a_type_is_refused(kind: Any) -> None:
    for make in (
        lambda: ValueStateDescriptor("v", kind),
        lambda: ListStateDescriptor("v", kind),
        lambda: MapStateDescriptor("v", kind, Whole()),
        lambda: MapStateDescriptor("v", Whole(), kind),
        lambda: ReducingStateDescriptor("v", max, kind),
        lambda: AggregatingStateDescriptor("v", Sum(), kind),
    ):
        with pytest.raises(TypeError, match=r"'v' was given the type .*; give one such as"):
            make()


@pytest.mark.parametrize("function", [5, None, Sum, Sum()], ids=["5", "none", "class", "object"])
def test_a_reducing_state_needs_a_function_of_two(function: Any) -> None:
    with pytest.raises(TypeError, match="the reducing state 'r' was given .*ReduceFunction or"):
        ReducingStateDescriptor("r", function)


@pytest.mark.parametrize("function", [5, max, Sum], ids=["5", "callable", "class"])
def test_an_aggregating_state_needs_an_object_of_an_aggregate_function(function: Any) -> None:
    with pytest.raises(TypeError, match="the aggregating state 'a' was given .*AggregateFunction"):
        AggregatingStateDescriptor("a", function)


def test_descriptors_take_the_arguments_of_pyflink() -> None:
    value = ValueStateDescriptor("v", value_type_info=Whole())
    assert value.get_name() == value.name == "v" and isinstance(value.type_info, Whole)
    assert value.ttl_config is None
    elements = ListStateDescriptor("l", elem_type_info=Whole())
    assert isinstance(elements.type_info, Whole)
    items = MapStateDescriptor("m", key_type_info=Named(), value_type_info=Whole())
    assert isinstance(items.key_type_info, Named) and isinstance(items.type_info, Whole)
    reducing = ReducingStateDescriptor("r", reduce_function=max, type_info=Whole())
    assert reducing.get_reduce_function() is max
    aggregate = Sum()
    folding = AggregatingStateDescriptor("a", agg_function=aggregate, state_type_info=Whole())
    assert folding.get_agg_function() is aggregate
    assert repr(folding) == "AggregatingStateDescriptor('a')"


def test_descriptors_travel_with_their_function() -> None:
    again = pickle.loads(pickle.dumps(MapStateDescriptor("m", Named(), Whole())))
    assert again.name == "m" and isinstance(again.key_type_info, Named)
