"""Evictors in real windows: what the function sees, and what stays."""

from typing import Any

import pytest

from headgate.base.elements import MIN_WATERMARK_MS
from headgate.base.errors import PlanInvalid
from headgate.core.window.spec import Aggregated, Reduced
from headgate.functions.assigners import GlobalWindows, TumblingEventTimeWindows
from headgate.functions.evictors import (
    CountEvictor,
    DeltaEvictor,
    Evictor,
    TimeEvictor,
    TimestampedValue,
)
from headgate.functions.time import Time
from headgate.functions.triggers import CountTrigger
from tests.core.window.kit import LISTED, Lab, plan

EVERY = CountTrigger(1)


def seen(evictor: Any, *pairs: tuple[Any, int | None]) -> list[tuple[Any, ...]]:
    """What the function got, record by record, in a window that has no end."""
    lab = Lab(plan(GlobalWindows(), LISTED, trigger=EVERY, key_of=lambda _: 0, evictor=evictor))
    lab.send(*pairs)
    return [elements for _, _, elements in lab.taken()]


def test_count_keeps_the_last_so_many() -> None:
    assert seen(CountEvictor.of(2), ("a", 1), ("b", 2), ("c", 3)) == [
        ("a",),
        ("a", "b"),
        ("b", "c"),
    ]
    after = seen(CountEvictor.of(1, True), ("a", 1), ("b", 2), ("c", 3))
    assert after == [("a",), ("a", "b"), ("b", "c")]
    assert seen(CountEvictor.of(0), ("a", 1)) == [()]


def test_time_keeps_what_is_not_much_older_than_the_youngest() -> None:
    evictor = TimeEvictor.of(Time.milliseconds(5))
    assert seen(evictor, ("a", 1), ("c", 5), ("b", 3), ("d", 8)) == [
        ("a",),
        ("a", "c"),
        ("a", "c", "b"),
        ("c", "d"),
    ]


def test_time_keeps_everything_that_has_no_time() -> None:
    evictor = TimeEvictor.of(Time.milliseconds(5))
    lab = Lab(plan(GlobalWindows(), trigger=CountTrigger(3), key_of=lambda _: 0, evictor=evictor))
    lab.send_untimed("a", "b", "c")
    assert [elements for _, _, elements in lab.taken()] == [("a", "b", "c")]


def test_delta_keeps_what_is_near_the_last_one() -> None:
    evictor = DeltaEvictor.of(10, lambda value, last: abs(last - value))
    assert seen(evictor, (1, 0), (9, 0), (11, 0), (50, 0)) == [(1,), (1, 9), (9, 11), (50,)]


def test_a_delta_function_may_be_an_object() -> None:
    class Delta:
        def get_delta(self, old: int, new: int) -> int:
            return new - old

    evictor: Any = DeltaEvictor.of(2, Delta(), True)  # type: ignore[arg-type]
    assert seen(evictor, (1, 0), (2, 0), (3, 0), (4, 0)) == [(1,), (1, 2), (1, 2, 3), (2, 3, 4)]


class RecordingEvictor(Evictor[Any, Any]):
    """Keeps what it was called with."""

    calls: list[Any] = []  # noqa: RUF012 - read by the test

    def evict_before(self, elements: Any, size: int, window: Any, ctx: Any) -> None:
        self.calls.append(("before", size, window, ctx.get_current_watermark()))

    def evict_after(self, elements: Any, size: int, window: Any, ctx: Any) -> None:
        self.calls.append(("after", size, ctx.get_current_processing_time()))
        ctx.get_metric_group().counter("evictions").inc()


def test_an_evictor_knows_times_size_and_window() -> None:
    lab = Lab(plan(TumblingEventTimeWindows(10), evictor=RecordingEvictor()), now_ms=7)
    lab.send((("a", 1), 1), (("a", 2), 2))
    lab.watermark(20)
    assert RecordingEvictor.calls == [("before", 2, (0, 10), 20), ("after", 2, 7)]
    assert lab.kept() == []


class Total:
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: list[int]) -> Any:
        return sum(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (Reduced(lambda record, other: ("a", record[1] + other[1])), [("a", 5)]),
        (Aggregated(Total()), [5]),
    ],
)
def test_what_is_left_is_folded_when_the_window_fires(contents: Any, expected: Any) -> None:
    lab = Lab(plan(TumblingEventTimeWindows(10), contents, evictor=CountEvictor(2)))
    lab.send(*[(("a", n), n) for n in range(4)])
    assert lab.end().taken() == expected


@pytest.mark.parametrize("contents", [Reduced(max), Aggregated(Total())])
def test_nothing_is_sent_when_everything_was_evicted(contents: Any) -> None:
    lab = Lab(plan(TumblingEventTimeWindows(10), contents, evictor=CountEvictor(0)))
    lab.send((("a", 1), 1))
    assert lab.end().taken() == []


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(PlanInvalid, match="number from 0 on"):
        CountEvictor.of(-1)
    with pytest.raises(PlanInvalid, match="give a span of time"):
        TimeEvictor.of(5)
    with pytest.raises(PlanInvalid, match="how far two records are apart"):
        DeltaEvictor.of(1, None)  # type: ignore[arg-type]


def test_an_element_tells_its_value_and_time() -> None:
    timed, untimed = TimestampedValue("a", 3), TimestampedValue("a")
    assert (timed.get_value(), timed.get_timestamp(), timed.has_timestamp()) == ("a", 3, True)
    assert (untimed.get_timestamp(), untimed.has_timestamp()) == (MIN_WATERMARK_MS, False)
