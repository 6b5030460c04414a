"""Count windows: only full ones are sent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import PlanInvalid
from headgate.functions.assigners import (
    COUNTED,
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
)
from tests.core.window.kit import LISTED, Lab, plan


def windows_of(assigner: Any, records: list[Any]) -> list[Any]:
    lab = Lab(plan(assigner, LISTED))
    lab.send_untimed(*records)
    return [(key, elements) for key, _, elements in lab.end().taken()]


def test_the_incomplete_rest_is_dropped() -> None:
    records = [("a", n) for n in range(7)]
    found = windows_of(CountTumblingWindowAssigner.of(3), records)
    assert found == [("a", tuple(records[:3])), ("a", tuple(records[3:6]))]


def test_sliding_windows_are_sent_when_they_are_full() -> None:
    records = [("a", n) for n in range(6)]
    found = windows_of(CountSlidingWindowAssigner.of(3, 2), records)
    assert found == [("a", tuple(records[:3])), ("a", tuple(records[2:5]))]


@given(st.lists(st.sampled_from("ab"), max_size=40), st.integers(1, 6), st.integers(1, 6))
def test_each_key_is_counted_for_itself(keys: list[str], size: int, slide: int) -> None:
    records = [(key, number) for number, key in enumerate(keys)]
    expected = []
    for key in "ab":
        of_key = [record for record in records if record[0] == key]
        starts = range(0, len(of_key) - size + 1, slide)
        expected += [(key, tuple(of_key[start : start + size])) for start in starts]
    assert sorted(windows_of(CountSlidingWindowAssigner(size, slide), records)) == sorted(expected)


def test_nothing_of_a_full_window_is_kept() -> None:
    lab = Lab(plan(CountTumblingWindowAssigner.of(2), LISTED))
    lab.send_untimed(("a", 1), ("a", 2))
    assert [name for name, _, _ in lab.kept()] == [COUNTED.name]
    assert len(lab.taken()) == 1
    lab.send_untimed(("a", 3), ("a", 4))
    assert [elements for _, _, elements in lab.taken()] == [(("a", 3), ("a", 4))]


@pytest.mark.parametrize("wrong", [0, -1, 2.0, None, "3"])
def test_a_wrong_number_is_refused(wrong: Any) -> None:
    with pytest.raises(PlanInvalid, match="number of records from 1 on"):
        CountTumblingWindowAssigner.of(wrong)
    with pytest.raises(PlanInvalid, match="as its slide"):
        CountSlidingWindowAssigner.of(3, wrong)


def test_counts_do_not_care_about_time() -> None:
    assert not CountTumblingWindowAssigner(3).is_event_time()
    assert repr(CountTumblingWindowAssigner(3)) == "CountTumblingWindowAssigner(3)"
    assert repr(CountSlidingWindowAssigner(3, 2)) == "CountSlidingWindowAssigner(3, 2)"
