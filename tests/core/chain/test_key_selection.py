"""Keys of a bundle: hashable whatever they are, and errors that name the selector."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import PathUnusable, UserFunctionFailed
from headgate.core.chain.key_selection import KeySelection, hashable
from headgate.core.state.freezing import Frozen

keys = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.booleans() | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)


@given(st.lists(keys, max_size=12))
def test_every_key_is_hashable_and_equal_keys_stay_equal(found: list[Any]) -> None:
    chosen = KeySelection(lambda record: record, "count").keys(found)
    assert len(dict.fromkeys(chosen)) <= len(found)
    for one, seen in zip(found, chosen, strict=True):
        assert (seen.key if isinstance(seen, Frozen) else seen) is one
        for other, other_seen in zip(found, chosen, strict=True):
            if one == other and type(one) is type(other):
                assert seen == other_seen


def test_plain_keys_are_taken_as_they_are() -> None:
    found = ["a", 1, None, b"c", 2.5, True]
    assert hashable(found) is found
    one, two = hashable([float("nan"), float("nan")])
    assert one is two, "which is all that a dictionary needs"
    tuples = [("a", 1), ("b", 2)]
    assert hashable(tuples) is tuples


class Plain:
    """Says nothing about equality."""


def test_objects_without_equality_go_by_what_they_hold() -> None:
    for one, two in [(Plain(), Plain()), ((1, Plain()), (1, Plain()))]:
        chosen, again = hashable([one, two])
        assert chosen == again
        assert isinstance(chosen, Frozen)


@pytest.mark.parametrize("error", [KeyError("name"), StopIteration(), SystemExit(3)])
def test_a_selector_that_fails_is_told_with_the_operator_on_the_keyed_stream(
    error: BaseException,
) -> None:
    def fail(record: object) -> None:
        raise error

    with pytest.raises(UserFunctionFailed, match="'count' failed when the key of a record was"):
        KeySelection(fail, "count").keys([1])


def test_a_key_that_cannot_be_frozen_is_told_too() -> None:
    class Odd:
        __hash__ = None  # type: ignore[assignment]

        def __reduce__(self) -> str:
            raise ValueError("not to be pickled")

    with pytest.raises(UserFunctionFailed, match="not to be pickled"):
        KeySelection(lambda record: Odd(), "count").keys([1])


def test_an_error_of_headgate_itself_stays_as_it_is() -> None:
    def fail(record: object) -> None:
        raise PathUnusable("keys.csv", "is missing")

    with pytest.raises(PathUnusable):
        KeySelection(fail, "count").keys([1])
