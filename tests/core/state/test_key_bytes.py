"""Keys as bytes."""

import datetime
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.state.keys import freeze, key_bytes


class Word(str):
    pass


@dataclass(frozen=True)
class Point:
    x: int
    y: float


@pytest.mark.parametrize(
    "equal",
    [
        (1, 1.0, True, Decimal(1), Fraction(1)),
        (0.5, Decimal("0.5"), Fraction(1, 2)),
        (0, -0.0, False),
        ("a", Word("a")),
        (("a", 1), (Word("a"), 1.0)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2, 3}, frozenset({3, 2, 1})),
        (Point(1, 2.0), Point(1.0, 2)),  # type: ignore[arg-type]
        (b"a", bytearray(b"a")),
        (datetime.date(2024, 1, 2), datetime.date(2024, 1, 2)),
    ],
)
def test_equal_keys_have_equal_bytes(equal: tuple[Any, ...]) -> None:
    assert len({key_bytes(key) for key in equal}) == 1
    assert len({key_bytes(freeze(key)) for key in equal}) == 1


def test_different_keys_have_different_bytes() -> None:
    keys = [None, 0, 1, 2, "1", b"1", "", (), [], (1,), [1], ((1,),), "ab", ("a", "b"), 1.5, 2**70]
    keys += [Decimal("1e400"), Decimal("2e400")]  # no float holds them
    keys += [float("inf"), {"a": 1}, {"a"}, Point(1, 2), Point(2, 1), int, str, len]
    assert len({key_bytes(key) for key in keys}) == len(keys)


def test_the_same_text_has_the_same_bytes_interned_or_not() -> None:
    interned, fresh = "word", "".join(["wo", "rd"])
    assert interned is not fresh
    assert key_bytes((interned, interned)) == key_bytes((interned, fresh))


keys = st.recursive(
    st.none() | st.integers() | st.text() | st.floats(allow_nan=False) | st.booleans(),
    lambda inner: st.tuples(inner, inner) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@given(keys, keys)
def test_bytes_are_equal_exactly_if_the_keys_are(key: Any, other: Any) -> None:
    assert (key_bytes(key) == key_bytes(other)) == (key == other)
