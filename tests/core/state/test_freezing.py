"""Keys as dictionary keys: equal keys are equal when frozen, whatever they are made of."""

import copy
import math
import pickle
import random
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from headgate.core.state.keys import Frozen, freeze, key_bytes, stable_hash
from tests.core.state.kit import key_atoms, keys


class Unhashable:
    """An object that can be compared but not hashed."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


@given(keys)
def test_a_frozen_key_is_found_again_by_an_equal_one(key: Any) -> None:
    assert {freeze(key): 1}[freeze(reordered(copy.deepcopy(key)))] == 1


def reordered(key: Any) -> Any:
    """An equal key that was put together in another order, of other objects."""
    if isinstance(key, dict):
        items = list(key.items())
        random.Random(1).shuffle(items)
        return {str(name): reordered(value) for name, value in items}
    if isinstance(key, set):
        return dict.fromkeys(sorted(key, reverse=True)).keys() | set()
    if isinstance(key, list | tuple):
        return type(key)(map(reordered, key))
    return key


@given(keys, keys)
def test_different_keys_stay_apart(key: Any, other: Any) -> None:
    assert (freeze(key) == freeze(other)) == (key == other)


@given(keys, keys)
def test_keys_that_are_equal_when_frozen_have_the_same_key_group(key: Any, other: Any) -> None:
    if freeze(key) == freeze(other):
        assert stable_hash(key) == stable_hash(other)


@given(key_atoms)
def test_what_can_be_hashed_is_its_own_key(key: Any) -> None:
    assert freeze(key) is key
    assert freeze((key,)) == (key,)


NANS = [
    *(float("nan"), -float("nan"), np.float64("nan"), np.float32("nan"), np.longdouble("nan")),
    *(Decimal("nan"), Decimal("sNaN"), complex("nan"), complex(1, float("nan"))),
    *(np.complex64("nan"), np.datetime64("NaT"), np.timedelta64("NaT")),
]


@pytest.mark.parametrize("nan", NANS)
def test_all_nan_are_one_key(nan: Any) -> None:
    for wrap in (lambda key: key, lambda key: (1, key), lambda key: ((key,), 1), lambda key: [key]):
        key, other = wrap(math.nan), wrap(nan)
        assert {freeze(key): 1}[freeze(other)] == 1
        assert freeze(key) != freeze(wrap(1.5))
        assert stable_hash(key) == stable_hash(other)
        assert key_bytes(key) == key_bytes(freeze(other))


@dataclass(frozen=True)
class Place:
    x: float
    y: float = 0.0


def test_objects_that_hold_nan_in_the_same_place_are_one_key() -> None:
    for key, other in [
        (Place(float("nan")), Place(float("nan"))),
        ((1, Place(float("nan"))), (1, Place(-float("nan")))),
        (frozenset({float("nan"), 1}), frozenset({float("nan"), 1})),
        ({"a": float("nan")}, {"a": float("nan")}),
    ]:
        assert {freeze(key): 1}[freeze(other)] == 1
        assert stable_hash(key) == stable_hash(other)
        assert key_bytes(freeze(key)) == key_bytes(freeze(other))
    assert freeze(Place(float("nan"))) != freeze(Place(float("nan"), 1.0))


def test_a_frozen_key_is_stored_without_its_form() -> None:
    frozen = freeze({"a": [1]})
    again = pickle.loads(pickle.dumps(frozen, 5))
    assert again == frozen
    assert again.key == frozen.key


def test_the_same_text_twice_equals_two_texts() -> None:
    text = "x" * 3
    assert freeze([text, text]) == freeze(["xxx", "".join(["x", "xx"])])


def test_a_class_is_a_key_like_any_other() -> None:
    assert freeze(int) is int
    assert freeze(Unhashable) is Unhashable


def test_objects_that_cannot_be_hashed_go_by_what_they_hold() -> None:
    assert freeze(Unhashable(1)) == freeze(Unhashable(1))
    assert freeze(Unhashable(1)) != freeze(Unhashable(2))


class Plain:
    """An object whose class says nothing about equality."""

    def __init__(self, value: int) -> None:
        self.value = value


def test_objects_that_are_equal_to_themselves_only_go_by_what_they_hold() -> None:
    for wrap in (lambda key: key, lambda key: (1, key), lambda key: (1, (key, None))):
        assert freeze(wrap(Plain(1))) == freeze(wrap(Plain(1)))
        assert freeze(wrap(Plain(1))) != freeze(wrap(Plain(2)))
        assert stable_hash(wrap(Plain(1))) == stable_hash(wrap(Plain(1)))


@pytest.mark.parametrize("key", [None, ..., len, reordered, Enum, (1, (None, int))])
def test_what_comes_back_as_the_same_object_is_its_own_key(key: Any) -> None:
    assert freeze(key) is key


def test_the_key_itself_is_kept() -> None:
    frozen = freeze([1, 2])
    assert isinstance(frozen, Frozen)
    assert frozen.key == [1, 2]
    assert repr(frozen) == "Frozen([1, 2])"
    assert frozen != [1, 2]
