"""Emission by value: what a function keeps and changes later was sent as it was then. Row 7."""

import datetime
import decimal
import enum
import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import Bundle
from headgate.base.errors import RecordUncopyable
from headgate.base.values import are_immutable, own, own_all
from headgate.core.chain.emission import Copier, is_immutable, is_pure
from tests.core.chain.kit import immutables, spoil, values


@dataclass
class Order:
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Slotted:
    items: list[int]


class Guarded:
    """Not what its ``__dict__`` holds: it says itself how it is pickled."""

    def __init__(self, items: list[int]) -> None:
        self.items = items

    def __reduce__(self) -> Any:
        return Guarded, (list(self.items),)


class Colour(enum.Enum):
    RED = 1


@given(values)
def test_an_own_value_is_equal_and_shares_nothing_that_can_be_changed(value: Any) -> None:
    before = repr(value)
    mine = own(value)
    assert mine == value
    spoil(mine)
    assert repr(value) == before


@given(immutables)
def test_what_nobody_can_change_stays_as_it_is(value: Any) -> None:
    assert own(value) is value


@given(st.lists(values, max_size=6))
def test_many_are_made_own_as_one_is(records: list[Any]) -> None:
    owned = own_all(records)
    assert owned == records
    if owned is not records:
        spoil(owned)
    assert own_all([1, "x"]) == [1, "x"]


@pytest.mark.parametrize("make", [Order, Slotted, Guarded])
def test_objects_are_copied_with_what_they_hold(make: Any) -> None:
    value = make([1])
    mine = own(value)
    assert type(mine) is make
    assert mine is not value
    mine.items.append(2)
    assert value.items == [1]


@pytest.mark.parametrize("value", [Colour.RED, Order, abs, len])
def test_things_that_are_one_of_a_kind_stay_so(value: Any) -> None:
    assert own(value) is value


def test_a_class_can_say_how_it_is_made_own() -> None:
    class Odd:
        def __init__(self, items: list[int]) -> None:
            self.items = items

        def __headgate_own__(self) -> "Odd":
            return Odd([*self.items, 99])

    assert own(Odd([1])).items == [1, 99]


def test_pure_functions_are_recognised_and_doubtful_ones_are_not() -> None:
    kept: list[int] = []
    assert is_pure(lambda record: (record[0], len(record), 1))
    assert not is_pure(lambda record: kept)
    assert not is_pure(lambda record, default=kept: default)
    assert not is_pure(lambda record: GLOBAL)
    assert not is_pure(Order)
    assert not is_pure(Growing().map)
    assert not is_pure(lambda record: [kept for _ in record])


GLOBAL: list[int] = []


class Growing:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[int] = []

    def map(self, value: int) -> Any:
        self.kept.append(value)
        return self.kept


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
    bundle = Bundle(records)
    assert Copier("map").copy(bundle) is bundle


@given(st.lists(values, min_size=1, max_size=8))
def test_a_copy_is_equal_and_shares_nothing_that_can_be_changed(records: list[Any]) -> None:
    before = repr(records)
    copied = Copier("map").copy(Bundle(records)).records
    assert copied == records
    if copied is not records:
        spoil(copied)
    assert repr(records) == before


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


def test_batches_and_tables_of_arrow_are_passed_as_they_are() -> None:
    import pyarrow

    batch, table = pyarrow.record_batch({"n": [1]}), pyarrow.table({"n": [1]})
    assert are_immutable([batch, table, (1, (batch,))])
    assert not are_immutable([batch, []])
    assert own(batch) is batch
    records = [batch, (table, 1)]
    assert own_all(records) is records
    assert own((batch, [1]))[0] is batch


@pytest.mark.parametrize("value", [Box([1]), Point(1, []), {1}, bytearray(b"x"), ([],)], ids=repr)
def test_everything_else_is_copied(value: Any) -> None:
    records = [1, value]
    copied = Copier("map").copy(Bundle(records)).records
    assert copied is not records
    assert copied == records
    assert copied[1] is not value


def test_identity_within_a_bundle_survives_the_copy() -> None:
    shared = [1]
    first, second = Copier("map").copy(Bundle([shared, shared])).records
    assert first is second


def test_a_record_that_cannot_be_copied_names_who_would_have_read_it() -> None:
    with pytest.raises(RecordUncopyable, match="operator 'double'.*object-reuse") as caught:
        Copier("double").copy(Bundle([lambda: None]))
    assert caught.value.operator == "double"
    assert caught.value.__cause__ is not None


@given(st.lists(values, max_size=4), st.lists(values, max_size=4))
def test_a_bundle_that_grows_is_looked_at_anew(first: list[Any], second: list[Any]) -> None:
    bundle = Bundle(list(first))
    assert is_immutable(bundle) == are_immutable(first)
    bundle.add(Bundle(second))
    assert is_immutable(bundle) == are_immutable(first + second)
    bundle.records = second
    assert is_immutable(bundle) == are_immutable(second)
