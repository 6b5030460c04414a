"""Event time of a source task, put together out of the shares of its splits."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Watermark
from headgate.core.operators.split_times import SplitTimes
from tests.core.chain.time_kit import ACTIVE, IDLE, Line


def test_a_split_that_has_not_begun_holds_the_others() -> None:
    line = Line()
    times = SplitTimes(line)
    first, second = times.add(), times.add()
    first.collect(Bundle(["a"], [10]))
    first.emit_watermark(9)
    assert line.take() == [("a", 10)]
    second.emit_watermark(4)
    assert line.take() == [Watermark(4)]
    second.emit_watermark(20)
    assert line.take() == [Watermark(9)]


def test_of_many_splits_the_one_that_holds_back_is_enough_to_look_at() -> None:
    times = SplitTimes(Line())
    shares = [times.add() for _ in range(100)]
    del shares[1].watermark_ms  # whoever looks behind the first one fails
    times.advance()


def test_a_split_that_has_ended_is_not_waited_for() -> None:
    line = Line()
    times = SplitTimes(line)
    first, second = times.add(), times.add()
    first.emit_watermark(9)
    times.ended(second)
    assert line.take() == [Watermark(9)]
    times.ended(first)
    assert line.take() == [], "the end of all is for the source to tell"


def test_an_idle_split_is_not_waited_for_until_it_has_a_record() -> None:
    line = Line()
    times = SplitTimes(line)
    first, second = times.add(), times.add()
    first.emit_watermark(9)
    second.mark_idle()
    assert line.take() == [Watermark(9)]
    second.collect(Bundle(["b"], [12]))
    first.emit_watermark(30)
    assert line.take() == [("b", 12)], "it is waited for again"
    second.emit_watermark(11)
    assert line.take() == [Watermark(11)]


def test_when_all_are_idle_the_furthest_comes_out_first() -> None:
    line = Line()
    times = SplitTimes(line)
    first, second = times.add(), times.add()
    first.emit_watermark(9)
    second.emit_watermark(5)
    first.mark_idle()
    assert line.take() == [Watermark(5)]
    second.mark_idle()
    assert line.take() == [Watermark(9), IDLE]
    first.mark_active()
    assert line.take() == [ACTIVE]
    second.emit_watermark(50)
    assert line.take() == []


def test_who_ends_while_the_rest_is_idle_leaves_idleness() -> None:
    line = Line()
    times = SplitTimes(line)
    first, second = times.add(), times.add()
    second.mark_idle()
    times.ended(first)
    assert line.take() == [IDLE]


@given(
    splits=st.integers(1, 4),
    happenings=st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 30) | st.sampled_from(["idle", "record", "end"])
        ),
        max_size=40,
    ),
)
def test_event_time_is_the_least_of_who_counts(
    splits: int, happenings: list[tuple[int, Any]]
) -> None:
    line = Line()
    times = SplitTimes(line)
    shares = [times.add() for _ in range(splits)]
    reached, active, over = [MIN_WATERMARK_MS] * splits, [True] * splits, [False] * splits
    latest = MIN_WATERMARK_MS
    for number, what in happenings:
        at = number % splits
        if over[at]:
            continue
        if what == "idle":
            shares[at].mark_idle()
            active[at] = False
        elif what == "record":
            shares[at].collect(Bundle(["r"], [99]))
            active[at] = True
        elif what == "end":
            times.ended(shares[at])
            over[at] = True
        else:
            shares[at].emit_watermark(what)
            if what > reached[at]:
                reached[at], active[at] = what, True
        left = [one for one in range(splits) if not over[one]]
        counting = [reached[one] for one in left if active[one]]
        if counting:
            latest = max(latest, min(counting))
        elif left:
            latest = max(latest, *(reached[one] for one in left))
        assert line.watermark_ms == latest
        if left:
            assert times.target.active == bool(counting)
