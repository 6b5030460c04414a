"""Windows with an error policy: failing records are left out, failing windows answer nothing."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.window.operator import WatchedRecords
from headgate.core.window.spec import Aggregated, Reduced, WindowCall
from headgate.functions.assigners import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from headgate.functions.error_policy import ErrorPolicy, FailedWindow
from headgate.functions.function import OutputTag
from headgate.functions.triggers import CountTrigger, PurgingTrigger
from tests.core.window.kit import LISTED, CollectingAggregate, Lab, plan

LETTERS = ErrorPolicy.dead_letters(OutputTag("dead"))
BUNDLED = pytest.mark.parametrize("bundled", [True, False])


def letters(lab: Lab) -> list[Any]:
    return [letter.record for letter in lab.output.side_records("dead")]


def add(first: Any, second: Any) -> Any:
    if second[1] < 0:
        raise ValueError("negative")
    return first[0], first[1] + second[1]


def gap(record: Any) -> int:
    if record[1] < 0:
        raise ValueError("negative")
    return 5


ASSIGNERS = {
    "tumbling": TumblingEventTimeWindows(10, 0),
    "sliding": SlidingEventTimeWindows(20, 10, 0),
    "sessions": EventTimeSessionWindows(5),
    "dynamic sessions": DynamicEventTimeSessionWindows(gap),
}


@BUNDLED
@pytest.mark.parametrize("kind", list(ASSIGNERS))
@given(records=st.lists(st.tuples(st.sampled_from("ab"), st.integers(-2, 9)), max_size=12))
def test_windows_hold_what_has_not_failed(
    kind: str, bundled: bool, records: list[tuple[str, int]]
) -> None:
    """A first record of a window is not reduced, so that it cannot fail there: it is put before."""
    starts = [("a", 0), ("b", 0)]
    timed = [(record, 1) for record in [*starts, *records]]
    fold = Reduced(add)
    if kind == "sliding":  # the windows of one pane, so that each is begun by the first records
        timed = [(record, 11) for record, _ in timed]
    lab = Lab(plan(ASSIGNERS[kind], fold), bundled, on_error=LETTERS)
    lab.send(*timed)
    lab.end()
    good = {key: sum(n for k, n in records if k == key and n >= 0) for key in "ab"}
    windows = 2 if kind == "sliding" else 1
    assert sorted(lab.output.records) == sorted(list(good.items()) * windows)
    assert letters(lab) == [record for record in records if record[1] < 0]


@BUNDLED
def test_the_rest_of_a_bundle_is_late_or_not_as_it_was(bundled: bool) -> None:
    lab = Lab(plan(TumblingEventTimeWindows(10, 0), Reduced(add)), bundled, on_error=LETTERS)
    lab.watermark(9)
    lab.send((("a", 1), 11), (("a", -1), 12), (("a", 5), 3), (("a", 2), 13))
    lab.end()
    assert lab.output.records == [("a", 3)]
    assert letters(lab) == [("a", -1)]


class Summing:
    """A window function that fails for the key b."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield key, "first"
        if key == "b":
            raise ValueError("b")
        yield key, len(list(elements))

    def clear(self, context: Any) -> None:
        raise ValueError("clear")


@BUNDLED
@pytest.mark.parametrize("kind", ["tumbling", "sessions"])
def test_a_window_whose_function_fails_answers_nothing_and_ends(kind: str, bundled: bool) -> None:
    call = WindowCall("process", Summing())
    lab = Lab(plan(ASSIGNERS[kind], LISTED, call), bundled, on_error=LETTERS)
    lab.send((("a", 1), 1), (("b", 1), 2), (("c", 1), 3))
    lab.watermark(20)
    assert lab.taken() == [("a", "first"), ("a", 1), ("c", "first"), ("c", 1)]
    failed = letters(lab)
    assert {letter.key for letter in failed if isinstance(letter, FailedWindow)} == {"a", "b", "c"}
    assert len(failed) == 4  # the function for b, and clear() for all
    assert lab.output.side[0][1].timestamps == [failed[0].window.max_timestamp()]
    assert lab.kept() == []
    lab.end()


class BadResult(CollectingAggregate):
    def get_result(self, accumulator: list[Any]) -> Any:
        if accumulator[0][0] == "b":
            raise ValueError("b")
        return accumulator


@BUNDLED
@pytest.mark.parametrize("kind", ["tumbling", "sessions"])
@pytest.mark.parametrize("function", [None, WindowCall("process", Summing())])
def test_an_aggregate_without_a_result_is_the_failure_of_its_window(
    kind: str, bundled: bool, function: WindowCall | None
) -> None:
    fold = Aggregated(BadResult())
    lab = Lab(plan(ASSIGNERS[kind], fold, function), bundled, on_error=LETTERS)
    lab.send((("a", 1), 1), (("b", 1), 2), (("c", 1), 3))
    lab.watermark(20)
    assert [letter.key for letter in letters(lab)].count("b") >= 1
    assert "b" not in str(lab.taken()) and lab.kept() == []
    lab.end()


def test_windows_by_the_clock_go_on_behind_what_fails() -> None:
    lab = Lab(plan(TumblingProcessingTimeWindows(10, 0), Reduced(add)), on_error=LETTERS)
    lab.send_untimed(("a", 1), ("a", -1), ("a", 2))
    lab.clock(20)
    assert lab.taken() == [("a", 3)] and letters(lab) == [("a", -1)]


def test_a_window_that_fires_within_a_bundle_fails_as_a_window() -> None:
    lab = Lab(
        plan(
            GlobalWindows.create(),
            LISTED,
            WindowCall("process", Summing()),
            PurgingTrigger.of(CountTrigger.of(2)),
        ),
        on_error=LETTERS,
    )
    lab.send_untimed(("b", 1), ("b", 2), ("a", 3), ("a", 4))
    assert lab.taken() == [("a", "first"), ("a", 2)]
    (letter,) = letters(lab)
    assert isinstance(letter, FailedWindow) and letter.key == "b"


@BUNDLED
def test_a_record_without_a_time_fails_the_job_in_spite_of_the_policy(bundled: bool) -> None:
    lab = Lab(plan(TumblingEventTimeWindows(10, 0)), bundled, on_error=LETTERS)
    with pytest.raises(ValueError, match="without a timestamp"):
        lab.send((("a", 1), None))


@BUNDLED
def test_a_session_that_a_failing_record_has_merged_still_answers(bundled: bool) -> None:
    lab = Lab(plan(EventTimeSessionWindows(5), Reduced(add)), bundled, on_error=LETTERS)
    lab.send((("a", 1), 0), (("a", 2), 8), (("a", -1), 4))
    lab.watermark(100)
    assert sum(total for _, total in lab.taken()) == 3
    assert letters(lab) == [("a", -1)] and lab.kept() == []
    lab.end()


def test_watched_records_know_the_one_at_hand() -> None:
    records = WatchedRecords(["a", "b"])
    assert records.place is None
    left = iter(records)
    assert records.place is None
    next(left)
    assert records.place == 0
    list(left)
    assert records.place == 1
