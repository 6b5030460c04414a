"""Sources whose splits are assigned while they run: every record once, event time held back."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.checkpoints import SourceState, SplitData
from headgate.base.elements import MIN_WATERMARK_MS, Bundle, StreamStatus, Watermark
from headgate.base.errors import StateBroken
from headgate.base.messages import SourceTimeAnnounced, SplitsAssigned, TimeAnnounced
from headgate.core.chain.operator import PollResult
from headgate.core.chain.watermarks import Bounded, TimePlan
from headgate.core.operators.source import SourceOperator
from headgate.core.operators.split_discovery import dealt_state, pickled_splits
from headgate.functions.source import Source, SplitLag, SplitReader
from headgate.functions.watermarks import AlignmentGroup
from tests.core.chain.kit import HandClock, KeptOutput, context, open_operator
from tests.core.chain.restore_kit import MOMENT, StoredState, restored, stored_state

TIMED = TimePlan(lambda context: Bounded(0))


class Ranges(Source):
    """Split (a, b) holds the numbers from a to before b, with themselves as their times."""

    bounded = splits_end = True

    def __init__(self, bounded: bool = True, splits_end: bool = True) -> None:
        self.bounded = bounded
        self.splits_end = splits_end
        self.finds_more: bool | None = True
        self.over: list[Any] = []
        self.finished: list[Any] = []
        self.open_readers: list[Any] = []

    def open(self, split: Any, position: Any, context: Any) -> "RangeReader":
        self.open_readers.append(split)
        return RangeReader(self, split, position)

    def splits_finished(self, splits: Sequence[object]) -> None:
        self.finished += splits

    def passed_over(self, split: object) -> None:
        self.over.append(split)


class RangeReader(SplitReader):
    quiet = False

    def __init__(self, source: Ranges, split: tuple[int, int], position: int | None) -> None:
        self.source, self.split = source, split
        self.next, self.end = split[0] if position is None else position, split[1]

    def poll(self, limit: int) -> Bundle | list[int] | None:
        if self.quiet:
            return []
        if self.next >= self.end:
            return None
        some = list(range(self.next, min(self.end, self.next + limit)))
        self.next += len(some)
        return Bundle(some, list(some))

    def wait_ms(self) -> float:
        return 1.0

    def position(self) -> int:
        return self.next

    def lag(self) -> SplitLag:
        return SplitLag(records=self.end - self.next)

    def close(self) -> None:
        self.source.open_readers.remove(self.split)


class Assigned:
    """A task, and what it has asked for."""

    def __init__(
        self,
        source: Ranges | None = None,
        states: Sequence[StoredState | None] | None = None,
        subtask: int = 0,
        parallelism: int = 1,
        plan: TimePlan = TIMED,
        listed: bool = False,
    ) -> None:
        self.asked: list[tuple[int, int]] = []
        self.reports: list[tuple[int, int, bool]] = []
        self.source = source or Ranges()
        given = None if states is None else restored(states, subtask, parallelism)
        self.clock = HandClock()
        within = replace(
            context(subtask=subtask, parallelism=parallelism),
            restored=given,
            now_ms=self.clock._read,
            later=self.clock.later,
            elapsed_ms=lambda: float(self.clock.now_ms),
            want_splits=lambda count, held: self.asked.append((count, held)),
            tell_source_time=lambda *report: self.reports.append(report),
        )
        self.operator = SourceOperator(self.source, (), plan, True, listed)
        self.output: KeptOutput = open_operator(self.operator, within=within)

    def assign(
        self, *splits: tuple[int, int], backlog: bool = False, no_more: bool = False
    ) -> None:
        found = tuple(pickled_splits(splits))
        self.operator.obey(SplitsAssigned("run", "0.0", found, backlog, no_more))

    def announce(self, watermark_ms: int, *, all_rest: bool, followed: bool = False) -> None:
        """What the driver tells of the other tasks."""
        announced = SourceTimeAnnounced("run", "0.0", watermark_ms, all_rest, followed)
        self.operator.obey(announced)

    def read(self, limit: int = 100, polls: int = 20) -> PollResult:
        """Poll until there is nothing."""
        for _ in range(polls):
            found = self.operator.poll(limit)
            if found is not PollResult.RECORDS and self.operator.wait_ms > 0:
                break
        self.clock.move_to(self.clock.now_ms + 200)  # event time goes out
        return found

    @property
    def watermarks(self) -> list[int]:
        return [e.timestamp_ms for e in self.output.elements if isinstance(e, Watermark)]


def test_splits_are_read_one_after_the_other_and_the_next_is_asked_for() -> None:
    task = Assigned()
    assert task.read() is PollResult.NOTHING
    assert task.asked == [(1, 0)]
    task.assign((0, 3), (10, 13))
    task.operator.poll(2)
    assert task.source.open_readers == [(0, 3)], "the other one waits"
    assert task.operator.splits == 2
    assert task.operator.lag() is None, "what waits has not told"
    task.read()
    assert task.output.records == [0, 1, 2, 10, 11, 12]
    assert task.asked[1:] == [(2, 0)], "two, for it reads fast"
    assert task.source.open_readers == []


def test_a_source_is_told_of_splits_that_a_completed_checkpoint_covers() -> None:
    task = Assigned()
    task.operator.context = replace(task.operator.context, checkpoints=True)
    task.assign((0, 3), (10, 13))
    while task.output.records != [0, 1, 2, 10]:
        task.operator.poll(1)

    task.operator.snapshot(MOMENT)
    task.read()
    assert task.source.finished == []
    task.operator.checkpoint_completed(MOMENT.checkpoint)

    assert task.source.finished == [(0, 3)]


def test_a_source_is_told_after_a_restore_of_splits_that_it_was_not_told_of_before() -> None:
    task = Assigned(Ranges(bounded=False))
    task.operator.context = replace(task.operator.context, checkpoints=True)
    task.assign((0, 3))
    task.read()
    state = stored_state(task.operator)  # and it is killed before it learns of its completion

    again = Assigned(Ranges(bounded=False), [state])
    again.operator.context = replace(again.operator.context, checkpoints=True)
    again.read()
    again.operator.snapshot(MOMENT)
    again.operator.checkpoint_completed(MOMENT.checkpoint)

    assert again.output.records == []
    assert again.source.finished == [(0, 3)]


def test_splits_that_do_not_end_are_opened_at_once() -> None:
    task = Assigned(Ranges(bounded=False, splits_end=False))
    assert task.asked == [(0, 0)]
    task.assign((0, 100), (200, 300), (400, 500))
    for _ in range(3):
        task.operator.poll(5)
    assert task.source.open_readers == [(0, 100), (200, 300), (400, 500)]
    assert sorted(task.output.records)[::5] == [0, 200, 400]
    assert task.asked == [(0, 0)]


def test_a_source_ends_when_there_are_no_more_splits() -> None:
    task = Assigned()
    task.assign((0, 2), no_more=True)
    assert task.read() is PollResult.ENDED
    assert task.operator.splits == 0


def test_a_split_that_waits_for_a_quiet_one_is_read() -> None:
    task = Assigned()
    task.assign((0, 50), (100, 103))
    task.operator.poll(1)
    task.operator._splits[0].reader.quiet = True  # type: ignore[attr-defined]
    task.read()
    assert task.output.records == [0, 100, 101, 102]


def test_a_split_that_waits_for_one_that_is_too_far_ahead_is_read() -> None:
    task = Assigned(plan=replace(TIMED, alignment=AlignmentGroup("group", 10)))
    task.assign((100, 200), (0, 5))
    task.operator.poll(5)
    task.operator.obey(TimeAnnounced("run", "group", 0))
    results = [task.operator.poll(5) for _ in range(6)]
    assert task.output.records == [100, 101, 102, 103, 104, 0, 1, 2, 3, 4]
    assert results[-1] is PollResult.PAUSED
    assert task.asked == [(1, 0)], "a paused task wants no more"


def test_event_time_waits_for_splits_that_no_task_has_yet() -> None:
    task = Assigned()
    task.assign((0, 10), backlog=True)
    task.operator.poll(5)
    task.clock.move_to(task.clock.now_ms + 200)
    assert task.watermarks == []
    task.assign(backlog=False)  # another task has them; of a bounded source others may come
    task.operator.poll(1)
    task.clock.move_to(task.clock.now_ms + 200)
    assert task.watermarks == []
    task.assign(no_more=True)
    task.operator.poll(1)
    task.clock.move_to(task.clock.now_ms + 200)
    assert task.watermarks == [4, 5]


def test_of_an_endless_source_what_was_not_found_does_not_count() -> None:
    task = Assigned(Ranges(bounded=False))
    task.assign((0, 10))
    task.operator.poll(5)
    task.operator.poll(1)
    task.clock.move_to(task.clock.now_ms + 200)
    assert task.watermarks == [4]
    task.assign(backlog=True)
    task.operator.poll(1)
    task.operator.poll(1)
    task.clock.move_to(task.clock.now_ms + 200)
    assert task.watermarks == [4], "there are others now, and nobody has them"


NOTHING_TO_READ = StreamStatus(active=False, together=True, awaits_splits=True)


def test_a_task_without_a_split_is_idle_when_all_of_its_source_are_until_it_gets_one() -> None:
    task = Assigned(Ranges(bounded=False))
    task.read()
    assert task.reports == [], "nobody has looked yet"
    task.assign()
    task.read()
    assert task.reports == [(0, MIN_WATERMARK_MS, True)]
    assert task.output.elements == [], "others may have something to read"
    task.announce(MIN_WATERMARK_MS, all_rest=True)
    task.read()
    assert task.output.elements == [NOTHING_TO_READ]
    task.assign((0, 3))
    task.operator.poll(1)
    assert task.output.elements[1] == StreamStatus(active=True)
    assert task.reports[1:] == [(1, MIN_WATERMARK_MS, False)]
    task.read()
    assert task.reports[2:] == [(1, 1, True)]
    assert task.output.records == [0, 1, 2]
    task.announce(1, all_rest=True)
    task.read()
    assert task.output.elements[-2:] == [Watermark(1), NOTHING_TO_READ]


def test_a_task_without_a_split_follows_those_that_have_some() -> None:
    task = Assigned(Ranges(bounded=False))
    task.assign()
    task.read()
    for reached_ms in (5, 9, 9):
        task.announce(reached_ms, all_rest=False)
        task.read()
    assert task.output.elements == [Watermark(5), Watermark(9)]
    task.assign((10, 12))
    task.announce(20, all_rest=False)
    task.operator.poll(1)
    task.clock.move_to(task.clock.now_ms + 200)
    assert task.watermarks == [5, 9], "it has a split now"


def test_splits_that_were_assigned_hold_event_time_back_before_the_next_poll() -> None:
    task = Assigned(Ranges(bounded=False))
    task.assign((10, 20))
    task.operator.poll(5)
    task.operator.poll(1)
    task.assign((0, 5))
    task.clock.move_to(task.clock.now_ms + 200)
    assert task.watermarks == []


def test_a_task_reports_how_far_it_is_only_if_others_follow_it() -> None:
    task = Assigned(Ranges(bounded=False))
    task.assign((0, 100))
    task.operator.poll(1)
    assert task.reports == [(1, MIN_WATERMARK_MS, False)], "it has got the split"
    for _ in range(2):
        task.operator.poll(1)
        task.clock.move_to(task.clock.now_ms + 200)
    assert len(task.reports) == 1
    task.announce(MIN_WATERMARK_MS, all_rest=False, followed=True)
    task.operator.poll(1)
    task.clock.move_to(task.clock.now_ms + 200)
    assert task.reports[1:] == [(1, 1, False), (1, 2, False)]
    task.announce(MIN_WATERMARK_MS, all_rest=False, followed=False)
    task.operator.poll(1)
    task.clock.move_to(task.clock.now_ms + 200)
    assert len(task.reports) == 3


def test_splits_that_end_between_two_ticks_move_event_time() -> None:
    task = Assigned(Ranges(bounded=False))
    task.assign((0, 10), (30, 40), (10, 20), backlog=True)
    task.read()
    assert task.watermarks == [], "there are others, and nobody has them"
    task.assign()
    task.read()
    assert task.reports[-1] == (3, 38, True), "the furthest counts"
    task.announce(38, all_rest=True)
    task.assign()
    task.read()
    assert task.watermarks == [38]
    task.assign((40, 50))
    task.read()
    assert task.reports[-1] == (4, 48, True)


def test_splits_that_end_without_ticks_bring_no_watermark() -> None:
    task = Assigned(Ranges(bounded=False), plan=TimePlan(lambda context: Bounded(0), interval_ms=0))
    task.assign((0, 10))
    task.read()
    assert task.watermarks == []


def test_what_was_assigned_and_not_begun_is_in_the_checkpoint() -> None:
    task = Assigned()
    task.assign((0, 10), (20, 22), backlog=True)
    task.operator.poll(4)
    state = stored_state(task.operator)
    again = Assigned(states=[state])
    assert again.asked == [(0, 2)], "it has two of them"
    again.assign(no_more=True)
    assert again.read() is PollResult.ENDED
    assert again.output.records == [4, 5, 6, 7, 8, 9, 20, 21]


def test_splits_of_a_run_that_had_dealt_them_out_are_not_read_again() -> None:
    dealt = SourceOperator(Ranges(), ((0, 3), (10, 15), (20, 23)), TIMED)  # type: ignore[arg-type]
    open_operator(dealt)
    for _ in range(2):
        dealt.poll(4)  # the first one to its end, and some of the second
    task = Assigned(states=[stored_state(dealt)])
    task.assign((0, 3), (10, 15), (20, 23), (30, 33), no_more=True)
    task.read()
    assert task.output.records == [14, 20, 21, 22, 30, 31, 32]
    assert task.source.over == [(0, 3), (10, 15), (20, 23)]
    again = Assigned(states=[stored_state(task.operator)])
    again.assign((0, 3), (20, 23), no_more=True)
    assert again.read() is PollResult.ENDED
    assert again.output.records == [], "they are still known"


def test_other_splits_in_the_place_of_dealt_ones_are_refused_if_nobody_says_what_they_are() -> None:
    dealt = SourceOperator(Ranges(), ((0, 10), (10, 20)), TIMED)  # type: ignore[arg-type]
    open_operator(dealt)
    source = Ranges()
    source.finds_more = None
    task = Assigned(source, [stored_state(dealt)], subtask=1, parallelism=2, listed=True)
    task.assign((0, 7), (7, 14))
    with pytest.raises(StateBroken, match="finds_more = False if splits"):
        task.operator.poll()


def test_what_an_enumerator_finds_is_new_data_with_any_parallelism() -> None:
    dealt = SourceOperator(Ranges(), ((0, 3),), TIMED)  # type: ignore[arg-type]
    open_operator(dealt)
    states = [stored_state(dealt)]
    for parallelism, found in ((2, (10, 13)), (3, (20, 23))):
        source = Ranges()
        source.finds_more = None
        task = Assigned(source, states, subtask=1, parallelism=parallelism)
        task.assign(found, no_more=True)
        assert task.read() is PollResult.ENDED
        assert task.output.records == list(range(*found))
        states = [*states[:1], stored_state(task.operator)]


def test_splits_of_the_driver_are_dealt_out_when_there_are_enough_tasks() -> None:
    task = Assigned()
    task.assign((0, 4), backlog=True)
    task.operator.poll(2)
    held = SourceState("uid", "ranges", b"", tuple(pickled_splits([(10, 12), (20, 22)])))
    states = [stored_state(task.operator), StoredState([], None, False, dealt_state(held))]
    found: list[int] = []
    for subtask in range(3):
        dealt = SourceOperator(Ranges(), (), TIMED)  # type: ignore[arg-type]
        within = replace(
            context(subtask=subtask, parallelism=3), restored=restored(states, subtask, 3)
        )
        output = open_operator(dealt, within=within)
        while dealt.poll() is not PollResult.ENDED:
            pass
        found += output.records
    assert sorted(found) == [2, 3, 10, 11, 20, 21]


def test_a_split_that_cannot_be_read_fails_the_task() -> None:
    task = Assigned()
    broken = (SplitData(b"mark", b"no pickle"),)
    task.operator.obey(SplitsAssigned("run", "0.0", broken, False, False))
    with pytest.raises(StateBroken, match="a split of the source cannot be read"):
        task.operator.poll()


def test_everything_is_closed() -> None:
    task = Assigned()
    task.assign((0, 10), (20, 30))
    task.operator.poll(1)
    task.operator.close()
    assert task.source.open_readers == []


steps = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=12)


@given(st.lists(st.integers(0, 6), max_size=8), st.lists(st.tuples(st.integers(1, 3), steps)))
def test_every_record_comes_once_however_often_the_job_was_cut(
    sizes: list[int], runs: list[tuple[int, list[tuple[int, int]]]]
) -> None:
    splits = [(100 * place, 100 * place + size) for place, size in enumerate(sizes)]
    unassigned, found = list(splits), []
    states: list[StoredState | None] | None = None
    for parallelism, polls in [*runs, (2, [])]:
        tasks = [Assigned(None, states, number, parallelism) for number in range(parallelism)]
        for number, limit in polls:
            task = tasks[number % parallelism]
            if unassigned:
                task.assign(unassigned.pop(0), backlog=bool(unassigned))
            task.operator.poll(limit)
        found += [record for task in tasks for record in task.output.records]
        states = [stored_state(task.operator, MOMENT) for task in tasks]
    last = Assigned(None, states)
    last.assign(*unassigned, no_more=True)
    assert last.read(polls=1000) is PollResult.ENDED
    found += last.output.records
    assert sorted(found) == [number for split in splits for number in range(*split)]
