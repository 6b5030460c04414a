"""From descriptor to state: one object for a name, and nothing around it that was not asked for."""

import copy
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.types.basic_types import EXACT
from headgate.api.types.types import BasicTypeInfo, Types
from headgate.core.state.cursor import Cursor
from headgate.core.state.memory import PlainList, PlainMap, PlainValue
from headgate.core.state.opening import TypedMap, check_for
from headgate.core.state.ttl import TtlValue
from headgate.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueState,
    ValueStateDescriptor,
)
from headgate.functions.time import Time
from tests.core.state.kit import Lab, Sum, Whole

DESCRIPTORS: list[tuple[StateDescriptor, type]] = [
    (ValueStateDescriptor("s"), ValueState),
    (ListStateDescriptor("s"), ListState),
    (MapStateDescriptor("s"), MapState),
    (ReducingStateDescriptor("s", max), ReducingState),
    (AggregatingStateDescriptor("s", Sum()), AggregatingState),
]


@pytest.mark.parametrize(("descriptor", "kind"), DESCRIPTORS)
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("ttl", [False, True])
def test_a_descriptor_opens_a_state_of_its_kind(
    descriptor: StateDescriptor, kind: type, typed: bool, ttl: bool
) -> None:
    descriptor = copy.copy(descriptor)
    descriptor.type_info = Whole() if typed else None
    if ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    lab = Lab()
    state = lab.open(descriptor)
    assert isinstance(state, kind)
    lab.at("k")
    state.clear()


@pytest.mark.parametrize(("descriptor", "kind"), DESCRIPTORS)
def test_the_same_name_gives_the_same_state(descriptor: Any, kind: type) -> None:
    lab = Lab()
    assert lab.open(descriptor) is lab.open(descriptor)


@pytest.mark.parametrize(("descriptor", "_"), DESCRIPTORS)
@pytest.mark.parametrize(("other", "__"), DESCRIPTORS)
def test_a_name_cannot_be_two_kinds(descriptor: Any, other: Any, _: type, __: type) -> None:
    if descriptor is other:
        return
    lab = Lab()
    lab.open(descriptor)
    clash = f"'s' is a {descriptor.kind} state already .*{other.kind} state"
    with pytest.raises(ValueError, match=clash):
        lab.open(other)


@pytest.mark.parametrize(
    "make",
    [
        ValueStateDescriptor,
        ListStateDescriptor,
        lambda name, kind: MapStateDescriptor(name, kind, Types.INT()),
        lambda name, kind: MapStateDescriptor(name, Types.INT(), kind),
        lambda name, kind: ReducingStateDescriptor(name, max, kind),
        lambda name, kind: AggregatingStateDescriptor(name, Sum(), kind),
    ],
)
def test_a_name_has_one_type(make: Any) -> None:
    lab = Lab()
    state = lab.open(make("s", Types.INT()))
    assert lab.open(make("s", Types.INT())) is state, "an equal descriptor, made anew"
    for other in (Types.STRING(), None):
        with pytest.raises(ValueError, match=r"state 's' has the type Types.INT\(\).*already"):
            lab.open(make("s", other))


def test_a_bare_descriptor_gives_the_state_of_the_backend() -> None:
    lab = Lab()
    assert type(lab.open(ValueStateDescriptor("v"))) is PlainValue
    assert type(lab.open(ListStateDescriptor("l"))) is PlainList
    assert type(lab.open(MapStateDescriptor("m"))) is PlainMap


def test_a_time_to_live_that_is_disabled_is_none() -> None:
    lab = Lab()
    builder = StateTtlConfig.new_builder(Time.seconds(1))
    descriptor = ValueStateDescriptor("v")
    descriptor.enable_time_to_live(
        builder.set_update_type(StateTtlConfig.UpdateType.Disabled).build()
    )
    assert type(lab.open(descriptor)) is PlainValue
    other = ValueStateDescriptor("w")
    other.enable_time_to_live(builder.update_ttl_on_read_and_write().build())
    assert type(lab.open(other)) is TtlValue


def test_state_of_windows_goes_by_the_namespace() -> None:
    lab = Lab(namespaced=True)
    state = lab.open(ValueStateDescriptor("v", Whole()))
    lab.at("k", "w1")
    state.update(1)
    lab.at("k", "w2")
    assert state.value() is None


def test_typed_state_with_time_to_live_has_both() -> None:
    lab = Lab()
    descriptor = ValueStateDescriptor("v", Whole())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(10)).build())
    state = lab.open(descriptor)
    lab.at("k")
    state.update(1.0)
    with pytest.raises(TypeError, match="'v' got a wrong value"):
        state.update("x")
    assert state.value() == 1
    lab.now_ms += 10
    assert state.value() is None


class Name(str):
    """A text of a class of its own."""


class Level(int):
    """A number of a class of its own."""


@given(
    st.sampled_from(sorted(EXACT)),
    st.one_of(
        st.integers(-(2**70), 2**70),
        st.integers(-(2**8), 2**8),
        st.sampled_from([127, 128, -129, 2**31, -(2**31), 2**63, True, 1.0, math.nan, "a", b"a"]),
        st.sampled_from([Name("a"), Level(5), Level(2**40), [1], (1,)]),
        st.floats(),
        st.text(),
    ),
)
def test_a_value_that_fits_as_it_is_is_checked_as_any_other(name: str, value: Any) -> None:
    declared = BasicTypeInfo(name)
    check = check_for("x", declared)
    assert check is not None
    try:
        expected = repr(declared.coerced(value)), type(declared.coerced(value))
    except TypeError:
        with pytest.raises(TypeError, match="the state 'x' got a wrong value"):
            check(value)
    else:
        assert (repr(check(value)), type(check(value))) == expected


@pytest.mark.parametrize("declared", [Types.DOUBLE(), Types.FLOAT()])
def test_all_nan_are_one_key_of_a_map(declared: Any) -> None:
    cursor = Cursor()
    cursor.key = "any"
    held = PlainMap({}, cursor)
    pages = TypedMap(held, check_for("x", declared, is_key=True), None)
    for number, nan in enumerate([float("nan"), float("nan"), np.float64("nan")]):
        assert (pages.get(nan), pages.contains(nan)) == (number or None, number > 0)
        pages.put(nan, number + 1)
    pages.put(1.5, "other")
    assert len(list(pages.keys())) == 2
    pages.remove(float("nan"))
    assert list(pages.keys()) == [1.5]
