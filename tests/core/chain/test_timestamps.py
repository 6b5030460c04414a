"""Timestamps: what an assigner says becomes the times of a bundle, or an error that says why."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Bundle
from headgate.core.chain.timestamps import Stamper, highest_of
from headgate.functions.watermarks import TimestampAssigner

times = st.lists(st.none() | st.integers(-5, 5), max_size=6)


class Doubled(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return 2 * value


class Whole:
    """A number that is no int, as numpy has them."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


def test_an_assigner_gives_records_their_times() -> None:
    bundle = Bundle([1, 2, 3])
    assert Stamper(Doubled()).stamped(bundle) == Bundle([1, 2, 3], [2, 4, 6])
    assert bundle.timestamps is None, "the bundle belongs to others too"


def test_a_plain_callable_will_do_and_sees_the_time_that_was_there() -> None:
    stamper = Stamper(lambda value, before: before + value)
    assert stamper.stamped(Bundle([1, 2], [10, 20])).timestamps == [11, 22]


def test_a_record_without_a_time_shows_the_smallest_of_all() -> None:
    seen: list[int] = []
    stamper = Stamper(lambda value, before: seen.append(before) or 1)
    stamper.stamped(Bundle(["a"]))
    stamper.stamped(Bundle(["b", "c"], [None, 7]))
    assert seen == [MIN_WATERMARK_MS, MIN_WATERMARK_MS, 7]


def test_without_an_assigner_records_keep_their_times() -> None:
    bundle = Bundle(["a", "b"], [3, None])
    assert Stamper(None).stamped(bundle) is bundle


def test_the_smallest_of_all_times_stands_for_none() -> None:
    stamper = Stamper(lambda value, before: before)
    assert stamper.stamped(Bundle(["a", "b"], [None, 4])).timestamps == [None, 4]


def test_numbers_that_are_whole_become_plain_ones() -> None:
    found = Stamper(lambda value, before: value).stamped(Bundle([Whole(5), True, 7])).timestamps
    assert found == [5, 1, 7]
    assert {type(time) for time in found or ()} == {int}


@pytest.mark.parametrize("wrong", ["12", None, object(), float("nan"), float("inf")])
def test_what_is_no_number_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a timestamp assigner returned .*; return millisec"):
        Stamper(lambda value, before: wrong if value else 1).stamped(Bundle([0, 1]))


@pytest.mark.parametrize("wrong", [MAX_WATERMARK_MS + 1, MIN_WATERMARK_MS - 1])
def test_what_does_not_fit_into_64_bits_is_refused(wrong: int) -> None:
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        Stamper(lambda value, before: wrong).stamped(Bundle(["a"]))


@given(times)
def test_the_highest_of_times_leaves_out_those_that_are_missing(some: list[int | None]) -> None:
    known = [time for time in some if time is not None]
    assert highest_of(some) == (max(known) if known else None)


def test_a_bundle_without_times_has_no_highest() -> None:
    assert highest_of(None) is None


def test_parts_of_a_millisecond_are_cut_off() -> None:
    bundle = Stamper(lambda value, before: value).stamped(Bundle([1.9, -1.9, 3]))
    assert bundle.timestamps == [1, -1, 3]
