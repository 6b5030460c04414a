"""Folding many records at once equals folding them one by one."""

from itertools import repeat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.window.contents import in_each_window, make_fold
from headgate.core.window.spec import Aggregated, Reduced
from tests.core.window.kit import LISTED, CollectingAggregate, add_in_place

KINDS = [Reduced(lambda record, other: record + other), Aggregated(CollectingAggregate()), LISTED]

keyed = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=20)


@pytest.mark.parametrize("contents", KINDS)
@given(keyed)
def test_a_bundle_is_folded_as_its_records_one_by_one(
    contents: Any, pairs: list[tuple[str, int]]
) -> None:
    fold = make_fold(contents, copies=True)
    records = [f"{number}," for number in range(len(pairs))]
    keys = [key for key, _ in pairs]
    at_once: list[dict[Any, Any]] = [{}, {}, {}]
    one_by_one: list[dict[Any, Any]] = [{}, {}, {}]
    fold.add_all(zip(records, keys, [at_once[window] for _, window in pairs], strict=True))
    for record, (key, window) in zip(records, pairs, strict=True):
        fold.add_all([(record, key, one_by_one[window])])
    assert at_once == one_by_one
    both: list[dict[Any, Any]] = [{}, {}, {}]
    for_each = [tuple(both[: window + 1]) for _, window in pairs]
    fold.add_all(in_each_window(records, keys, for_each, copies=True))
    assert both[2] == one_by_one[2]
    whole: dict[Any, Any] = {}
    fold.add_all(zip(records, keys, repeat(whole)))
    assert both[0] == whole


@pytest.mark.parametrize(
    "contents", [Reduced(add_in_place), Aggregated(CollectingAggregate()), LISTED]
)
def test_each_window_gets_a_record_of_its_own(contents: Any) -> None:
    first: dict[Any, Any] = {}
    second: dict[Any, Any] = {}
    record = ["a", 1]
    fold = make_fold(contents, copies=True)
    fold.add_all(in_each_window([record], ["a"], [(first, second)], copies=True))
    assert first == second
    held = [
        table["a"] if contents == Reduced(add_in_place) else table["a"][0]
        for table in (first, second)
    ]
    assert held[0] is not record
    assert held[1] is record
    fold.add_all(in_each_window([record], ["b"], [(first, second)], copies=False))
    held = [
        table["b"] if contents == Reduced(add_in_place) else table["b"][0]
        for table in (first, second)
    ]
    assert held[1] is held[0]


def test_no_window_sees_what_a_function_does_to_a_record_for_another() -> None:
    class Marking(CollectingAggregate):
        def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
            accumulator.append([*value])
            value.append("seen")
            return accumulator

    windows: tuple[dict[Any, Any], ...] = ({}, {}, {})
    fold = make_fold(Aggregated(Marking()), copies=True)
    fold.add_all(in_each_window([["new"]], ["a"], [windows], copies=True))
    assert windows == ({"a": [["new"]]},) * 3


def test_what_is_sent_belongs_to_its_receiver() -> None:
    kept = [["a", 1]]
    assert make_fold(Reduced(add_in_place), copies=True).answers(kept)[0] is not kept[0]
    assert make_fold(Reduced(add_in_place), copies=False).answers(kept)[0] is kept[0]
    assert make_fold(Aggregated(CollectingAggregate()), copies=True).answers(kept)[0] is not kept[0]
    assert make_fold(LISTED, copies=True).answer(kept) is not kept


def test_results_of_none_are_left_out() -> None:
    class First(CollectingAggregate):
        def get_result(self, accumulator: list[Any]) -> Any:
            return accumulator[0]

    assert make_fold(Aggregated(First()), copies=True).answers([[1], [None], [2]]) == [1, 2]


def test_a_list_without_a_function_is_never_sent() -> None:
    with pytest.raises(AssertionError, match="has a function"):
        make_fold(LISTED, copies=True).answers([[1]])
