"""Wiring: both sides agree on who is connected, and nobody is left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.plan.execution_graph import Wiring

WIDTHS = st.integers(1, 40)


@given(producers=WIDTHS, consumers=WIDTHS, pointwise=st.booleans())
def test_both_sides_agree(producers: int, consumers: int, pointwise: bool) -> None:
    wiring = Wiring(producers, consumers, pointwise)
    forth = [(p, c) for p in range(producers) for c in wiring.consumers_of(p)]
    back = [(p, c) for c in range(consumers) for p in wiring.producers_of(c)]
    assert sorted(forth) == sorted(back)
    assert {p for p, _ in forth} == set(range(producers))
    assert {c for _, c in forth} == set(range(consumers))
    for producer in range(producers):
        numbers = [wiring.subpartition(producer, c) for c in wiring.consumers_of(producer)]
        assert numbers == list(range(len(numbers)))


@given(producers=WIDTHS, consumers=WIDTHS)
def test_pointwise_shares_differ_by_one_at_most(producers: int, consumers: int) -> None:
    wiring = Wiring(producers, consumers, pointwise=True)
    fan_out = [len(wiring.consumers_of(producer)) for producer in range(producers)]
    fan_in = [len(wiring.producers_of(consumer)) for consumer in range(consumers)]
    assert max(fan_out) - min(fan_out) <= 1
    assert max(fan_in) - min(fan_in) <= 1
    assert sum(fan_out) == max(producers, consumers)


@pytest.mark.parametrize(
    ("producers", "consumers", "shares"),
    [
        (3, 3, [[0], [1], [2]]),
        (2, 4, [[0, 1], [2, 3]]),
        (2, 5, [[0, 1, 2], [3, 4]]),
        (4, 2, [[0], [0], [1], [1]]),
        (5, 2, [[0], [0], [1], [1], [1]]),
    ],
)
def test_neighbours_share(producers: int, consumers: int, shares: list[list[int]]) -> None:
    wiring = Wiring(producers, consumers, pointwise=True)
    assert [list(wiring.consumers_of(producer)) for producer in range(producers)] == shares


def test_all_to_all_connects_each_with_each() -> None:
    wiring = Wiring(2, 3, pointwise=False)
    assert [list(wiring.consumers_of(p)) for p in range(2)] == [[0, 1, 2]] * 2
    assert [list(wiring.producers_of(c)) for c in range(3)] == [[0, 1]] * 3
    assert wiring.subpartition(1, 2) == 2
