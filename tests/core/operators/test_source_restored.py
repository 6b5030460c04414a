"""Sources that are cut anywhere and restored: every record once, event time goes on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MIN_WATERMARK_MS, Bundle, Watermark
from headgate.base.messages import TimeAnnounced
from headgate.core.chain.operator import PollResult
from headgate.core.chain.watermarks import OWN_TIME, Bounded, TimePlan
from headgate.core.operators.source import SourceOperator
from headgate.functions.source import Source, SplitReader, why_not_rewound
from headgate.functions.watermarks import AlignmentGroup
from tests.core.chain.kit import HandClock, KeptOutput, context, open_operator
from tests.core.chain.restore_kit import MOMENT, StoredState, restored, stored_state


class Numbers(Source):
    """Split (a, b) holds the numbers from a to before b, with themselves as their times."""

    bounded = True
    finds_more: bool | None = True

    def __init__(self) -> None:
        self.readers: list[NumberReader] = []
        self.over: list[Any] = []

    def splits(self, parallelism: int) -> Sequence[object]:
        return []

    def open(self, split: Any, position: Any, context: Any) -> "NumberReader":
        self.readers.append(NumberReader(split, position))
        return self.readers[-1]

    def passed_over(self, split: object) -> None:
        self.over.append(split)


class NumberReader(SplitReader):
    def __init__(self, split: tuple[int, int], position: int | None) -> None:
        self._next = split[0] if position is None else position
        self._end = split[1]
        self.completed: list[int] = []
        self.quiet = False

    def poll(self, limit: int) -> Bundle | list[int] | None:
        if self.quiet:
            return []
        if self._next >= self._end:
            return None
        some = list(range(self._next, min(self._end, self._next + limit)))
        self._next += len(some)
        return Bundle(some, list(some))

    def wait_ms(self) -> float:
        return 1.0

    def position(self) -> Any:
        return self._next

    def checkpoint_completed(self, checkpoint: int) -> None:
        self.completed.append(checkpoint)

    def close(self) -> None:
        pass


class Tasks:
    """All tasks of a source."""

    def __init__(
        self,
        splits: Sequence[Any],
        parallelism: int,
        states: Sequence[StoredState | None] | None = None,
    ) -> None:
        self.outputs: list[KeptOutput] = []
        self.operators: list[SourceOperator | None] = []
        for subtask in range(parallelism):
            had_finished = states is not None and len(states) == parallelism and not states[subtask]
            if had_finished:
                self.operators.append(None)
                continue
            given = None if states is None else restored(states, subtask, parallelism)
            within = replace(context(subtask=subtask, parallelism=parallelism), restored=given)
            operator = SourceOperator(Numbers(), tuple(splits))
            self.outputs.append(open_operator(operator, within=within))
            self.operators.append(operator)

    def poll(self, task: int) -> None:
        operator = self.operators[task % len(self.operators)]
        if operator is not None:
            operator.poll(3)

    def stored_states(self) -> list[StoredState | None]:
        """A task that is through has finished, or waits to."""
        states: list[StoredState | None] = []
        for number, operator in enumerate(self.operators):
            done = operator is None or (not operator._splits and number % 2)
            states.append(None if done or operator is None else stored_state(operator))
        return states

    def finish(self) -> None:
        for operator in self.operators:
            while operator is not None and operator.poll(3) is not PollResult.ENDED:
                pass

    @property
    def records(self) -> list[int]:
        return [record for output in self.outputs for record in output.records]


runs = st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=8)), max_size=4)


@given(st.lists(st.integers(0, 8), max_size=6), runs, st.integers(0, 3))
def test_every_record_comes_once_however_often_the_job_was_cut(
    sizes: list[int], steps: list[tuple[int, list[int]]], more: int
) -> None:
    splits = [(100 * place, 100 * place + size) for place, size in enumerate(sizes)]
    found: list[int] = []
    states: list[StoredState | None] | None = None
    for parallelism, polls in [*steps, (2, [])]:
        tasks = Tasks(splits, parallelism, states)
        for task in polls:
            tasks.poll(task)
        states = tasks.stored_states()
        found += tasks.records
        if all(state is None for state in states):
            break
        splits += [(1000 + len(splits) * 100, 1000 + len(splits) * 100 + more)]
    else:
        tasks = Tasks(splits, 3, states)
        tasks.finish()
        found += tasks.records
        assert sorted(found) == [number for split in splits for number in range(*split)]
    assert len(set(found)) == len(found)


def timed(bound_ms: int = 0, **more: Any) -> TimePlan:
    return TimePlan(lambda context: Bounded(bound_ms), **more)


def opened(
    plan: TimePlan, *splits: Any, states: Sequence[StoredState] | None = None
) -> tuple[SourceOperator, KeptOutput, HandClock]:
    clock = HandClock()
    given = None if states is None else restored(states, 0, 1)
    operator = SourceOperator(Numbers(), splits, plan)
    return operator, open_operator(operator, within=replace(clock.context(), restored=given)), clock


def test_event_time_of_a_split_that_is_silent_from_now_on_does_not_hold_the_others() -> None:
    operator, output, clock = opened(timed(), (0, 90), (100, 200))
    operator.poll(5)
    operator._splits.rotate(1)
    operator.poll(50)
    clock.move_to(clock.now_ms + 200)
    assert output.elements == [Watermark(3)]
    again, output, clock = opened(timed(), (0, 90), (100, 200), states=[stored_state(operator)])
    near, far = sorted(again._splits, key=lambda split: split.share.watermark_ms)
    far.reader.quiet = True  # type: ignore[attr-defined]
    while near.reader.position() == 5:
        again.poll(5)
    assert output.elements == [Watermark(3)], "what was told is told again"
    clock.move_to(clock.now_ms + 200)
    assert output.elements == [Watermark(3), Watermark(8)]


def test_a_source_without_intervals_tells_event_time_again_too() -> None:
    operator, output, _ = opened(OWN_TIME, (0, 9))
    operator._take_own(operator._splits[0], Watermark(4))
    again, output, _ = opened(OWN_TIME, (0, 9), states=[stored_state(operator)])
    assert output.elements == []
    again.poll(1)
    assert output.elements == [Watermark(4)]
    again._take_own(again._splits[0], Watermark(6))
    assert output.elements == [Watermark(4), Watermark(6)]


def test_a_restored_split_is_not_idle_before_its_time() -> None:
    operator, _, _ = opened(timed(idle_ms=100), (0, 9))
    operator._splits[0].is_idle = True
    again, _, clock = opened(timed(idle_ms=100), (0, 9), states=[stored_state(operator)])
    again._splits[0].reader.quiet = True  # type: ignore[attr-defined]
    assert again.poll() is PollResult.NOTHING
    clock.move_to(clock.now_ms + 99)
    assert again.poll() is PollResult.NOTHING
    assert again._splits[0].share.active
    clock.move_to(clock.now_ms + 1)
    again.poll()
    assert not again._splits[0].share.active


def test_a_group_that_is_aligned_knows_how_far_a_restored_split_is() -> None:
    plan = timed(alignment=AlignmentGroup("group", 10))
    operator, _, clock = opened(plan, (50, 90))
    operator.obey(TimeAnnounced("run", "group", 40))
    operator.poll(4)
    clock.move_to(clock.now_ms + 200)
    reports: list[Any] = []
    clock = HandClock()
    within = replace(
        clock.context(),
        restored=restored([stored_state(operator)], 0, 1),
        tell_time=lambda group, time_ms: reports.append(time_ms),
    )
    again = SourceOperator(Numbers(), ((50, 90),), plan)
    open_operator(again, within=within)
    assert reports == [52]
    again.obey(TimeAnnounced("run", "group", 41))
    assert again.poll() is PollResult.PAUSED


def test_splits_that_have_ended_are_passed_over() -> None:
    operator, _, _ = opened(timed(), (0, 2), (5, 9))
    operator.poll()
    operator.poll()
    again, output, _ = opened(timed(), (0, 2), (5, 9), states=[stored_state(operator)])
    assert again._source.over == [(0, 2)]  # type: ignore[attr-defined]
    assert again.poll() is PollResult.ENDED
    assert output.records == []


def test_readers_are_told_of_checkpoints() -> None:
    operator, _, _ = opened(timed(), (0, 2))
    operator.checkpoint_completed(3)
    operator.checkpoint_aborted(4)
    (reader,) = operator._source.readers  # type: ignore[attr-defined]
    assert reader.completed == [3]


class Forgetful(Numbers):
    """Its readers tell no position."""

    def open(self, split: Any, position: Any, context: Any) -> NumberReader:
        reader = super().open(split, position, context)
        reader.position = lambda: None  # type: ignore[method-assign]
        return reader


def test_a_reader_that_tells_no_position_is_found_out() -> None:
    operator = SourceOperator(Forgetful(), ((0, 9),))
    open_operator(operator)
    stored_state(operator)  # at the beginning there is nothing to tell
    operator.poll(1)
    with pytest.raises(RuntimeError, match=r"NumberReader has given records.*rewinds = False on F"):
        operator.snapshot(MOMENT)


def test_a_source_that_cannot_rewind_may_say_so() -> None:
    class Endless(Forgetful):
        rewinds = False
        rewind_advice = "use a log"

    source = Endless()
    operator = SourceOperator(source, ((0, 9),))
    open_operator(operator)
    operator.poll(1)
    assert stored_state(operator).source is not None
    assert why_not_rewound(source, "lines") == (
        "source 'lines' cannot be read again from where a checkpoint was taken: use a log"
    )
    assert why_not_rewound(Numbers(), "numbers") is None


def test_a_position_may_be_asked_for_with_its_checkpoint() -> None:
    operator, _, _ = opened(timed(), (0, 9))
    asked: list[Any] = []
    reader: Any = operator._splits[0].reader
    reader.position_at = lambda moment: asked.append(moment) or 5
    again, output, _ = opened(timed(), (0, 9), states=[stored_state(operator)])
    assert asked == [MOMENT]
    again.poll(1)
    assert output.records == [5]
    assert again._splits[0].share.watermark_ms == MIN_WATERMARK_MS
