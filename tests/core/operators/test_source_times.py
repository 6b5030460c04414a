"""Event time of sources: strategies for each split, idleness, alignment, what a source says."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import (
    MAX_WATERMARK_MS,
    MIN_WATERMARK_MS,
    Bundle,
    StreamStatus,
    Watermark,
)
from headgate.base.messages import TimeAnnounced
from headgate.core.chain.operator import PollResult
from headgate.core.chain.watermarks import TimePlan, silent
from headgate.core.operators.source import SourceOperator
from headgate.functions.watermarks import AlignmentGroup
from tests.core.chain.time_kit import (
    ACTIVE,
    IDLE,
    HandClock,
    Line,
    bounded,
    by_first,
    open_with,
    timed,
)
from tests.core.operators.kit import ScriptedSource

END = Watermark(MAX_WATERMARK_MS)


class Endless(ScriptedSource):
    """Its splits take turns."""

    bounded = False


def at(*times: int) -> list[Any]:
    return [(time,) for time in times]


def opened(
    *splits: Sequence[Any], plan: TimePlan, source: ScriptedSource | None = None
) -> tuple[SourceOperator, Line, HandClock]:
    clock = HandClock()
    operator = SourceOperator(source or Endless(), tuple(map(tuple, splits)), plan)
    return operator, open_with(operator, clock), clock


def test_the_slowest_split_counts() -> None:
    operator, line, clock = opened([at(10), at(40)], [at(5), at(30)], plan=bounded(interval_ms=100))
    operator.poll()
    clock.pass_ms(100)
    assert line.take() == timed(10), "the second split has not begun"
    operator.poll()
    clock.pass_ms(100)
    assert line.take() == [*timed(5), Watermark(4)]
    operator.poll()
    operator.poll()
    clock.pass_ms(100)
    assert line.take() == [*timed(40, 30), Watermark(29)]
    assert operator.poll() is PollResult.ENDED
    operator.finish()
    assert line.take() == [END]


def test_of_splits_that_end_the_later_ones_hold_event_time() -> None:
    operator, line, clock = opened(
        [at(100)], [at(1)], plan=bounded(interval_ms=10), source=ScriptedSource()
    )
    operator.poll()
    clock.pass_ms(10)
    operator.poll()
    clock.pass_ms(10)
    assert line.take() == [*timed(100, 1), Watermark(0)], "the record of the second is not late"


def test_a_sources_own_times_are_shown_to_the_assigner() -> None:
    plan = TimePlan(silent, lambda record, before: before + 1)
    operator, line, _ = opened([Bundle(["a", "b"], [10, None])], plan=plan)
    operator.poll()
    assert line.seen == [("a", 11), ("b", MIN_WATERMARK_MS + 1)]


def test_a_split_with_nothing_for_long_is_not_waited_for() -> None:
    operator, line, clock = opened(
        [at(10), [], [], at(11)], [[], [], [], at(3)], plan=bounded(interval_ms=50, idle_ms=100)
    )
    assert operator.poll() is PollResult.RECORDS
    operator.poll()  # the second has nothing, nor has the first
    clock.pass_ms(99)
    operator.poll()
    assert line.take() == timed(10), "the second is waited for"
    clock.pass_ms(1)
    assert (
        operator.poll() is PollResult.RECORDS
    )  # the second had nothing for long, the first has 11
    assert line.take() == [Watermark(9), *timed(11)]
    assert operator.poll() is PollResult.RECORDS
    assert line.take() == timed(3)
    clock.pass_ms(50)
    assert line.take() == [], "event time does not go back"


def test_a_task_whose_splits_have_nothing_for_long_is_idle() -> None:
    operator, line, clock = opened(
        [at(10), [], [], [], at(20)], plan=bounded(interval_ms=500, idle_ms=100)
    )
    operator.poll()
    operator.poll()
    clock.pass_ms(100)
    operator.poll()
    operator.poll()
    assert line.take() == [*timed(10), Watermark(9), IDLE]
    operator.poll()
    assert line.take() == [ACTIVE, *timed(20)]
    operator.poll()
    operator.finish()
    assert line.take() == [END]


def test_time_without_polls_does_not_make_idle() -> None:
    operator, line, clock = opened([[], at(10)], plan=bounded(interval_ms=500, idle_ms=100))
    operator.poll()
    clock.pass_ms(400)  # those behind take nothing, so nobody polls
    operator.poll()
    assert line.seen == timed(10)


def test_what_a_source_says_itself_is_passed_on_if_it_has_no_strategy() -> None:
    says = [
        Bundle(["a"], [3]),
        Watermark(3),
        StreamStatus(active=False),
        Watermark(2),
        Bundle(["b"], [5]),
        StreamStatus(active=True),
    ]
    clock = HandClock()
    operator = SourceOperator(Endless(), (tuple(says),))
    line = open_with(operator, clock)
    assert [operator.poll() for _ in says] == [PollResult.RECORDS] * 6
    assert line.take() == [("a", 3), Watermark(3), IDLE, ACTIVE, ("b", 5)]
    assert clock.waiting == 0, "without a strategy there is no clock"


def test_what_a_source_says_itself_does_not_count_beside_a_strategy() -> None:
    operator, line, clock = opened([at(9), Watermark(50), IDLE], plan=bounded(interval_ms=10))
    for _ in range(3):
        operator.poll()
    clock.pass_ms(10)
    assert line.seen == [*timed(9), Watermark(8)]


@pytest.mark.parametrize("how", ["finish", "close"])
def test_after_the_end_no_timer_does_anything(how: str) -> None:
    plan = bounded(interval_ms=10, alignment=AlignmentGroup("group", 5, 20))
    operator, line, clock = opened([at(9), at(10)], plan=plan)
    operator.poll()
    getattr(operator, how)()
    operator.close()
    line.take()
    clock.pass_ms(100)
    assert line.seen == []
    assert clock.waiting == 0


def test_a_generator_that_cannot_be_made_leaves_no_reader_open() -> None:
    def broken(context: object) -> Any:
        raise ValueError("no generator")

    source = Endless()
    operator = SourceOperator(source, (("a",), ("b",)), TimePlan(broken))
    operator.set_up(Line())
    with pytest.raises(ValueError, match="no generator"):
        operator.open(HandClock().context())
    operator.close()
    assert source.closed == source.opened == [("a",)]


def test_a_split_too_far_ahead_of_its_group_is_not_read() -> None:
    plan = bounded(interval_ms=1000, alignment=AlignmentGroup("group", 10, 100))
    operator, line, _ = opened([at(5), at(30), at(50)], plan=plan)
    assert operator.poll() is PollResult.RECORDS
    assert operator.poll() is PollResult.PAUSED, "nobody has said how far the others are"
    operator.obey(TimeAnnounced("run", "group", 0))
    assert operator.poll() is PollResult.RECORDS
    assert operator.poll() is PollResult.PAUSED
    assert operator.poll() is PollResult.PAUSED
    assert line.take() == timed(5, 30)
    operator.obey(TimeAnnounced("run", "another", 100))
    assert operator.poll() is PollResult.PAUSED
    operator.obey(TimeAnnounced("run", "group", 19))
    assert operator.poll() is PollResult.RECORDS
    operator.obey(TimeAnnounced("run", "group", None))
    assert operator.poll() is PollResult.ENDED


def test_a_split_too_far_ahead_does_not_keep_the_others_from_being_read() -> None:
    plan = bounded(interval_ms=1000, alignment=AlignmentGroup("group", 10, 100))
    operator, line, _ = opened([at(100), at(101)], [at(1), [], at(2)], plan=plan)
    operator.obey(TimeAnnounced("run", "group", 0))
    operator.poll()
    operator.poll()
    assert operator.poll() is PollResult.NOTHING
    assert operator.wait_ms == 7.0
    assert operator.poll() is PollResult.RECORDS
    assert line.seen == timed(100, 1, 2)


def test_a_task_reports_how_far_its_slowest_split_is() -> None:
    plan = bounded(interval_ms=1000, idle_ms=50, alignment=AlignmentGroup("group", 10, 100))
    operator, _, clock = opened([at(100), [], [], at(120)], [at(3), [], []], plan=plan)
    operator.obey(TimeAnnounced("run", "group", None))
    operator.poll()
    clock.pass_ms(100)
    operator.poll()
    operator.poll()  # both have nothing
    clock.pass_ms(100)
    operator.poll()  # nor have they now
    clock.pass_ms(100)
    operator.poll()
    clock.pass_ms(100)
    reports = [watermark_ms for _, watermark_ms in clock.reports]
    assert reports == [MIN_WATERMARK_MS, MIN_WATERMARK_MS, 2, None, 119]


polls = st.lists(
    st.lists(st.lists(st.integers(0, 60), max_size=4), max_size=5), min_size=1, max_size=4
)


@given(st.integers(0, 8), polls, st.lists(st.integers(0, 30), max_size=20), st.booleans())
def test_a_record_is_late_only_by_the_fault_of_its_own_split(
    bound_ms: int, made: list[list[list[int]]], pauses: list[int], ends: bool
) -> None:
    """Whatever is read when: a split in bounds has no late record, whoever else is in the task."""
    splits = [
        [[(time, index, number, n) for n, time in enumerate(poll)]
         for number, poll in enumerate(split)]
        for index, split in enumerate(made)
    ]  # fmt: skip
    operator, line, clock = opened(
        *splits,
        plan=bounded(bound_ms, interval_ms=20),
        source=ScriptedSource() if ends else Endless(),
    )
    left = iter(pauses)
    while operator.poll() is not PollResult.ENDED:
        clock.pass_ms(next(left, 7))
    operator.finish()
    watermark_ms, highest = MIN_WATERMARK_MS, [MIN_WATERMARK_MS] * len(made)
    for element in line.seen:
        if isinstance(element, Watermark):
            assert element.timestamp_ms > watermark_ms
            watermark_ms = element.timestamp_ms
            continue
        (time, index, _, _), stamp = element
        assert stamp == time == by_first(element[0], 0)
        if time > highest[index] - bound_ms - 1:
            assert time > watermark_ms, "in bounds within its split, so not late"
        highest[index] = max(highest[index], time)
    assert line.seen[-1] == END
