"""How records are compared."""

from collections import Counter, OrderedDict, namedtuple
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import pytest

from headgate import Row
from headgate.testing.canonical import counted, difference, text_of

Point = namedtuple("Point", "x y")


class Colour(Enum):
    RED = 1


@dataclass
class Click:
    user: str
    tags: set[str]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        (0.1 + 0.2, 0.3),
        (float("nan"), float("nan")),
        (Click("a", {"p", "q"}), Click("a", {"q", "p"})),
        (Row(a=1, b={1, 2}), Row(a=1, b={2, 1})),
        (datetime(2024, 1, 1), datetime(2024, 1, 1)),
        (Colour.RED, Colour.RED),
        (-0.0, 0.0),
    ],
)
def test_equal_records_have_the_same_text(first: Any, second: Any) -> None:
    assert text_of(first) == text_of(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, "1"),
        ((1, 2), [1, 2]),
        (Point(1, 2), (1, 2)),
        (Click("a", set()), Click("b", set())),
        ({1: 2}, OrderedDict({1: 3})),
        (1.0, 1.001),
        (b"a", "a"),
        (None, "None"),
    ],
)
def test_others_have_not(first: Any, second: Any) -> None:
    assert text_of(first) != text_of(second)


def test_a_difference_is_told_in_words() -> None:
    assert difference(Counter("ab"), Counter("ba")) == ""
    told_words = difference(counted([1, 2, 2, 3, 4, 5, 6]), counted([1, (7, 8)]))
    assert told_words == "missing 2 (2 times), 3, 4 and 2 others; unexpected (7, 8)"
