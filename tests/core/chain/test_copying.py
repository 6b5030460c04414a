"""Copies of records: immutable ones are passed, the others copied. Row 7."""

import datetime
import decimal
import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import RecordUncopyable
from headgate.core.chain.copying import Copier, are_immutable

atoms = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
)
immutables = st.recursive(atoms, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8)
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=10,
)


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Box:
    content: Any


def has_mutable(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(has_mutable, value))
    return isinstance(value, list | dict)


@given(st.lists(values, max_size=8))
def test_immutable_means_that_there_is_nothing_to_change(records: list[Any]) -> None:
    assert are_immutable(records) == (not any(map(has_mutable, records)))


@given(st.lists(immutables, max_size=8))
def test_what_nobody_can_change_is_passed_as_it_is(records: list[Any]) -> None:
    assert Copier("map").copy(records) is records


@given(st.lists(values, min_size=1, max_size=8))
def test_a_copy_is_equal_and_shares_nothing_that_can_be_changed(records: list[Any]) -> None:
    before = repr(records)
    copied = Copier("map").copy(records)
    assert copied == records
    if copied is not records:
        spoil(copied)
    assert repr(records) == before


def spoil(value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            spoil(item)
        value.append("spoiled")
    elif isinstance(value, dict):
        for item in value.values():
            spoil(item)
        value["spoiled"] = True
    elif isinstance(value, tuple):
        for item in value:
            spoil(item)


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2024, 1, 1),
        datetime.timedelta(1),
        decimal.Decimal("1.5"),
        uuid.UUID(int=3),
        range(3),
        frozenset({(2, "x")}),
        ((), ((),)),
    ],
    ids=repr,
)
def test_values_of_the_library_are_known_to_be_immutable(value: Any) -> None:
    assert are_immutable([value, 1])


@pytest.mark.parametrize("value", [Box([1]), Point(1, []), {1}, bytearray(b"x"), ([],)], ids=repr)
def test_everything_else_is_copied(value: Any) -> None:
    records = [1, value]
    copied = Copier("map").copy(records)
    assert copied is not records
    assert copied == records
    assert copied[1] is not value


def test_identity_within_a_bundle_survives_the_copy() -> None:
    shared = [1]
    one, two = Copier("map").copy([shared, shared])
    assert one is two


def test_a_record_that_cannot_be_copied_names_who_would_have_read_it() -> None:
    with pytest.raises(RecordUncopyable, match="operator 'double'.*object-reuse") as caught:
        Copier("double").copy([lambda: None])
    assert caught.value.operator == "double"
    assert caught.value.__cause__ is not None
