"""The source operator: splits are read in turn, nothing blocks. Row 17, 159."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS, Bundle, Watermark
from headgate.core.chain.context import OperatorContext
from headgate.core.chain.operator import PollResult
from headgate.core.operators.source import (
    LAG_MS,
    SourceAlignment,
    SourceOperator,
)
from headgate.core.operators.source_time import SplitWatermarks
from headgate.functions.source import SplitLag
from headgate.functions.watermarks import AlignmentGroup
from tests.core.chain.kit import KeptOutput, context, open_operator
from tests.core.chain.time_kit import ACTIVE, IDLE, HandClock, Line
from tests.core.operators.kit import ScriptedReader, ScriptedSource


def drain(operator: SourceOperator) -> list[PollResult]:
    polls = [operator.poll()]
    while polls[-1] is not PollResult.ENDED:
        polls.append(operator.poll())
    return polls


splits = st.lists(
    st.lists(st.lists(st.integers(), max_size=3), max_size=4).map(tuple), max_size=4
).map(tuple)


@given(splits)
def test_every_split_is_read_in_order_whole_and_once(made: tuple[Any, ...]) -> None:
    numbered = tuple(
        tuple([(index, number) for number in answer] for answer in split)
        for index, split in enumerate(made)
    )
    source = ScriptedSource()
    operator = SourceOperator(source, numbered)
    output = open_operator(operator)
    drain(operator)
    for index, split in enumerate(numbered):
        read = [record for record in output.records if record[0] == index]
        assert read == [record for answer in split for record in answer]
    assert len(source.closed) == len(numbered)
    operator.close()
    assert len(source.closed) == len(numbered)


@given(st.integers(1, 4), st.integers(0, 9))
def test_the_splits_of_all_tasks_are_shared_out(parallelism: int, count: int) -> None:
    source = ScriptedSource()
    for subtask in range(parallelism):
        operator = SourceOperator(source, tuple((n,) for n in range(count)))
        operator.set_up(KeptOutput())
        operator.open(context("source", subtask, parallelism))
        operator.close()
    assert sorted(source.opened) == [(n,) for n in range(count)]


def test_an_empty_split_does_not_keep_the_others_from_being_read() -> None:
    operator = SourceOperator(ScriptedSource(), (([], [], []), ([1], [2])))
    output = open_operator(operator)
    assert operator.poll() is PollResult.RECORDS
    assert operator.poll() is PollResult.RECORDS
    assert output.records == [1, 2]


def test_with_nothing_to_read_it_says_when_to_ask_again() -> None:
    operator = SourceOperator(ScriptedSource(), (([], [1]),))
    output = open_operator(operator)
    assert operator.poll() is PollResult.NOTHING
    assert operator.wait_ms == 7.0
    assert operator.poll() is PollResult.RECORDS
    assert operator.poll() is PollResult.ENDED
    assert output.records == [1]


def test_without_splits_it_has_ended_at_once() -> None:
    operator = SourceOperator(ScriptedSource(), ())
    open_operator(operator)
    assert operator.poll() is PollResult.ENDED


@pytest.mark.parametrize(
    ("said", "known"),
    [
        *((5_000, 5_000.0), (0.5, 0.5), (0, None), (-1, None), (True, None)),
        *((float("nan"), None), (float("inf"), None), ("5,000", None), (lambda: 7, None)),
    ],
)
def test_only_a_number_is_the_rate_of_a_source(said: Any, known: float | None) -> None:
    """A class of the user's may have an attribute of that name for something else."""
    source = ScriptedSource()
    source.records_per_second = said
    assert SourceOperator(source, ()).records_per_second == known


def test_timestamps_of_the_source_are_kept() -> None:
    operator = SourceOperator(ScriptedSource(), ((Bundle([1, 2], [10, 20]),),))
    output = open_operator(operator)
    operator.poll()
    assert output.timed == [(1, 10), (2, 20)]


def test_at_its_end_a_source_sends_the_largest_watermark() -> None:
    operator = SourceOperator(ScriptedSource(), ())
    output = open_operator(operator)
    operator.finish()
    assert output.elements == [Watermark(MAX_WATERMARK_MS)]


def test_readers_are_closed_also_if_a_later_one_cannot_be_opened() -> None:
    source = ScriptedSource(broken=("bad",))
    operator = SourceOperator(source, (("good",), ("bad",)))
    operator.set_up(KeptOutput())
    with pytest.raises(OSError, match="no such split"):
        operator.open(context())
    operator.close()
    assert source.closed == [("good",)]


def test_a_reader_that_fails_to_close_does_not_keep_the_others_open() -> None:
    source = ScriptedSource()
    operator = SourceOperator(source, (("a", "bad end"), ("b",), ("c",)))
    open_operator(operator)
    with pytest.raises(OSError, match="bad end"):
        operator.close()
    assert len(source.closed) == 3
    operator.close()
    assert len(source.closed) == 3


def test_what_a_source_keeps_cannot_be_changed_by_its_reader() -> None:
    kept = [[0]] * 3
    operator = SourceOperator(ScriptedSource(), ((kept,),))
    output = open_operator(operator)
    operator.poll()
    for record in output.records:
        record.append(1)
    assert output.records == [[0, 1]] * 3
    assert kept == [[0]] * 3


def test_a_reader_that_yields_a_growing_list_sends_it_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def growing(self: ScriptedReader, limit: int) -> Any:
        kept: list[int] = []
        for number in range(3):
            kept.append(number)
            yield kept

    monkeypatch.setattr(ScriptedReader, "poll", growing)
    operator = SourceOperator(ScriptedSource(), (([0],),))
    output = open_operator(operator)
    operator.poll()
    assert output.records == [[0], [0, 1], [0, 1, 2]]


def test_what_a_reader_gives_away_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedReader, "gives_away", True, raising=False)
    made = [[0], [1]]
    operator = SourceOperator(ScriptedSource(), ((made,),))
    output = open_operator(operator)
    operator.poll()
    assert [a is b for a, b in zip(output.records, made, strict=True)] == [True, True]


class Task:
    """A source that is where the test says."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.least_ms: int | None = MIN_WATERMARK_MS
        self.alignment = SourceAlignment(
            AlignmentGroup("group", drift_ms=10, interval_ms=100),
            self.clock.context(),
            lambda: self.least_ms,
        )

    def reports(self) -> list[int | None]:
        reports, self.clock.reports = self.clock.reports, []
        assert {group for group, _ in reports} <= {"group"}
        return [watermark_ms for _, watermark_ms in reports]


def test_it_reports_at_the_start_and_at_intervals() -> None:
    task = Task()
    assert task.reports() == [MIN_WATERMARK_MS]
    task.least_ms = 7
    task.clock.pass_ms(100)
    task.least_ms = None
    task.clock.pass_ms(100)
    assert task.reports() == [7, None]


def test_the_limit_is_the_drift_ahead_of_the_slowest() -> None:
    alignment = Task().alignment
    assert alignment.limit_ms == MIN_WATERMARK_MS, "nothing was announced"
    alignment.announced("group", 5)
    assert alignment.limit_ms == 15
    alignment.announced("another", 0)
    assert alignment.limit_ms == 15
    alignment.announced("group", MIN_WATERMARK_MS)
    assert alignment.limit_ms == MIN_WATERMARK_MS + 10, "somebody has not begun"
    alignment.announced("group", None)
    assert alignment.limit_ms == MAX_WATERMARK_MS
    alignment.announced("group", MAX_WATERMARK_MS - 1)
    assert alignment.limit_ms == MAX_WATERMARK_MS


def test_who_is_paused_at_the_start_tells_at_once_that_it_has_begun() -> None:
    task = Task()
    task.reports()
    task.least_ms = 3
    task.alignment.paused()
    assert task.reports() == [3]
    task.least_ms = 8
    task.alignment.paused()
    assert task.reports() == [], "later the interval is good enough"


def test_after_its_end_it_reports_no_more() -> None:
    task = Task()
    task.reports()
    task.alignment.close()
    task.clock.pass_ms(500)
    assert task.reports() == []
    assert task.clock.waiting == 0


def test_a_split_that_has_not_begun_holds_the_others() -> None:
    line = Line()
    times = SplitWatermarks(line)
    first, second = times.add(), times.add()
    first.collect(Bundle(["a"], [10]))
    first.emit_watermark(9)
    assert line.take() == [("a", 10)]
    second.emit_watermark(4)
    assert line.take() == [Watermark(4)]
    second.emit_watermark(20)
    assert line.take() == [Watermark(9)]


def test_of_many_splits_the_one_that_holds_back_is_enough_to_look_at() -> None:
    times = SplitWatermarks(Line())
    shares = [times.add() for _ in range(100)]
    del shares[1].watermark_ms  # whoever looks behind the first one fails
    times.advance()


def test_a_split_that_has_ended_is_not_waited_for() -> None:
    line = Line()
    times = SplitWatermarks(line)
    first, second = times.add(), times.add()
    first.emit_watermark(9)
    times.ended(second)
    assert line.take() == [Watermark(9)]
    times.ended(first)
    assert line.take() == [], "the end of all is for the source to tell"


def test_an_idle_split_is_not_waited_for_until_it_has_a_record() -> None:
    line = Line()
    times = SplitWatermarks(line)
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
    times = SplitWatermarks(line)
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
    times = SplitWatermarks(line)
    first, second = times.add(), times.add()
    second.mark_idle()
    times.ended(first)
    assert line.take() == [IDLE]


def test_a_split_that_wakes_with_an_old_watermark_makes_the_source_active() -> None:
    line = Line()
    watermarks = SplitWatermarks(line)
    ahead, behind = watermarks.add(), watermarks.add()
    ahead.emit_watermark(5)
    ahead.mark_idle()
    behind.mark_idle()
    assert line.take() == [Watermark(5), IDLE]
    behind.emit_watermark(3)
    assert line.take() == [ACTIVE]


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
    times = SplitWatermarks(line)
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
        left = [split for split in range(splits) if not over[split]]
        counting = [reached[split] for split in left if active[split]]
        if counting:
            latest = max(latest, min(counting))
        elif left:
            latest = max(latest, *(reached[split] for split in left))
        assert line.watermark_ms == latest
        if left:
            assert times.target.active == bool(counting)


class LaggingReader(ScriptedReader):
    answers: ClassVar[dict[int, Any]] = {}
    asked: ClassVar[list[int]] = []

    def lag(self) -> SplitLag | None:
        self.asked.append(self._split[0])
        answer: SplitLag | None = self.answers[self._split[0]]
        return answer


class LaggingSource(ScriptedSource):
    def open(self, split: Any, position: object, context: OperatorContext) -> LaggingReader:
        return LaggingReader(self, split)


def lagging(*answers: Any) -> SourceOperator:
    LaggingReader.answers = dict(enumerate(answers))
    LaggingReader.asked = []
    splits = tuple((number, [number]) for number in range(len(answers)))
    operator = SourceOperator(LaggingSource(), splits)  # type: ignore[arg-type]
    open_operator(operator)
    return operator


def test_the_lag_is_the_sum_over_the_splits_of_what_all_of_them_know() -> None:
    assert lagging(SplitLag(3, 30, 5.0), SplitLag(4, None, 9.0)).lag() == SplitLag(7, None, 9.0)
    assert lagging(SplitLag(3), None).lag() is None
    assert lagging(SplitLag(np.int64(3), -7), SplitLag(10**30, 4)).lag() == (  # type: ignore[arg-type]
        SplitLag(2**63 - 1, 4)
    )
    with pytest.raises(ValueError, match="many"):
        lagging(SplitLag("many")).lag()  # type: ignore[arg-type]


def test_a_source_whose_readers_do_not_tell_has_no_lag() -> None:
    operator = SourceOperator(ScriptedSource(), (([1],),))  # type: ignore[arg-type]
    open_operator(operator)
    assert operator.lag() is None


def test_when_all_splits_have_ended_nothing_is_left() -> None:
    operator = lagging(SplitLag(3, 30))
    assert operator.splits == 1
    assert operator.lag() == SplitLag(3, 30)
    operator._splits.clear()
    assert operator.splits == 0
    assert operator.lag() == SplitLag(0, 0)


def test_of_many_splits_some_are_asked_at_a_time_and_all_in_the_end() -> None:
    operator = lagging(*[SplitLag(records=1)] * 6)
    clock = [0.0]

    def elapsed_ms() -> float:
        clock[0] += LAG_MS / 4
        return clock[0]

    operator.context = replace(operator.context, elapsed_ms=elapsed_ms)
    assert operator.lag() is None
    asked = len(LaggingReader.asked)
    assert 1 < asked < 6
    while operator.lag() is None:
        assert len(LaggingReader.asked) < 40
    assert operator.lag() == SplitLag(records=6)
    assert LaggingReader.asked[asked] == 0, "the one that is being read comes first"


def test_a_reader_that_is_derived_from_nothing_is_refused() -> None:
    class Bare(ScriptedSource):
        def open(self, split: Any, position: object, context: OperatorContext) -> Any:
            return iter(split)

    operator = SourceOperator(Bare(), ([1],))
    with pytest.raises(TypeError, match="of Bare returned .*iterator.*derived from SplitReader"):
        open_operator(operator)
