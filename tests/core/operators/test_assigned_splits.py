"""A source task asks for splits when it has read its own, in batches if it reads fast."""

from collections.abc import Sequence
from math import inf

from headgate.base.checkpoints import SplitData, Stop
from headgate.core.operators.source_splits import (
    FAST_MS,
    MOST,
    QUIET_MS,
    SLOW_MS,
    AssignedSplits,
    FinishedSplits,
    IdentifiedSplit,
    SplitProgress,
)
from headgate.functions.context import SnapshotMoment
from tests.core.operators.kit import ScriptedSource


class Asking:
    """A task, its clock, and what it has asked for."""

    def __init__(self, *, held: int = 0, **more: object) -> None:
        self.now_ms = 0.0
        self.asked: list[tuple[int, int]] = []
        self.splits = AssignedSplits(
            lambda count, held: self.asked.append((count, held)),
            lambda: self.now_ms,
            **{"by_demand": True, "bounded": True, **more},  # type: ignore[arg-type]
        )
        self.splits.open(held)

    def assign(self, count: int, *, backlog: bool = True, no_more: bool = False) -> None:
        splits = [SplitData(b"%d" % number, b"") for number in range(count)]
        self.splits.assigned(splits, backlog, no_more)

    def read(self, took_ms: float, *, left: int = 0) -> int | None:
        """Read all but ``left`` splits; returns how many it asks for then."""
        while len(self.splits.waiting) > left:
            self.splits.waiting.popleft()
        self.now_ms += took_ms
        before = len(self.asked)
        self.splits.look(0, all_quiet=False)
        return self.asked[-1][0] if len(self.asked) > before else None


def test_a_task_asks_when_it_opens_and_says_what_it_holds() -> None:
    assert Asking().asked == [(1, 0)]
    assert Asking(held=3).asked == [(0, 3)]
    assert Asking(by_demand=False).asked == [(0, 0)]


def test_a_slow_task_asks_when_it_has_read_all_and_for_one() -> None:
    task = Asking()
    task.assign(1)
    assert task.splits.look(1, all_quiet=False) == inf
    assert len(task.asked) == 1
    assert task.read(SLOW_MS + 1) == 1
    assert task.read(SLOW_MS + 1) is None, "it has asked already"


def test_a_fast_task_asks_for_more_and_more_and_early() -> None:
    task = Asking()
    wanted: list[int | None] = []
    for _ in range(12):
        task.assign(task.asked[-1][0])
        wanted.append(task.read(FAST_MS / 2, left=task.asked[-1][0] // 2))
    assert wanted[:4] == [2, 4, 8, 16]
    assert wanted[-1] == MOST
    task.assign(MOST)
    assert task.read(SLOW_MS + 1, left=MOST // 2) == 1


def test_a_task_whose_splits_are_quiet_asks_for_another_after_a_while() -> None:
    task = Asking()
    task.assign(1)
    task.splits.waiting.clear()
    assert task.splits.look(1, all_quiet=True) == QUIET_MS
    task.now_ms += QUIET_MS - 50
    assert task.splits.look(1, all_quiet=True) == 50
    task.splits.look(1, all_quiet=False)
    task.now_ms += 60
    assert task.splits.look(1, all_quiet=True) == QUIET_MS, "it has had something meanwhile"
    task.now_ms += QUIET_MS
    task.splits.look(1, all_quiet=True)
    assert task.asked[1:] == [(1, 1)]


def test_nothing_is_asked_for_when_there_is_no_more() -> None:
    task = Asking()
    task.assign(1, backlog=False, no_more=True)
    assert not task.splits.has_ended
    assert task.read(0) is None
    assert task.splits.has_ended


def test_event_time_is_held_back_while_splits_wait_anywhere() -> None:
    bounded, endless = Asking(), Asking(bounded=False)
    assert bounded.splits.holds_back and endless.splits.holds_back, "nobody has looked yet"
    for task in (bounded, endless):
        task.assign(1, backlog=False)
        assert task.splits.holds_back, "one is here"
        task.splits.waiting.clear()
    assert bounded.splits.holds_back and not endless.splits.holds_back
    endless.assign(0, backlog=True)
    bounded.assign(0, backlog=False, no_more=True)
    assert endless.splits.holds_back and not bounded.splits.holds_back


def test_splits_of_a_run_that_had_dealt_them_out_are_passed_over() -> None:
    task = Asking(known=[b"0"])
    task.assign(2)
    assert [split.mark for split in task.splits.passed_over] == [b"0"]
    assert [progress.split.mark for progress in task.splits.waiting] == [b"1"]
    assert task.splits.is_mixed


class Listening:
    """A source that wants to know of splits that nobody reads again."""

    def __init__(self) -> None:
        self.over: list[object] = []

    def splits_finished(self, splits: Sequence[object]) -> None:
        self.over += splits


def add(finished: FinishedSplits, split: str, checkpoints: bool = True) -> None:
    identity = IdentifiedSplit(split, split.encode(), b"")
    finished.add(split, lambda: SplitProgress(identity, 9), checkpoints)


def test_finished_splits_wait_for_a_checkpoint_that_covers_them() -> None:
    source = Listening()
    finished = FinishedSplits(source)
    add(finished, "a")
    finished.snapshot(SnapshotMoment(1, 0))
    add(finished, "b")
    finished.snapshot(SnapshotMoment(2, 0))
    add(finished, "c")
    assert [ended.split.split for ended in finished.uncovered] == ["a", "b", "c"]

    finished.completed(1)
    assert source.over == ["a"]
    finished.completed(2)
    finished.completed(2)

    assert source.over == ["a", "b"]
    assert [ended.split.split for ended in finished.uncovered] == ["c"]


def test_a_savepoint_covers_finished_splits_only_if_the_job_ends_with_it() -> None:
    source = Listening()
    finished = FinishedSplits(source)
    add(finished, "a")
    finished.snapshot(SnapshotMoment(1, 0, is_savepoint=True))
    finished.completed(1)
    assert source.over == []

    finished.snapshot(SnapshotMoment(2, 0, is_savepoint=True, stop=Stop.DRAIN))
    finished.completed(2)

    assert source.over == ["a"]


def test_without_checkpoints_a_split_is_finished_at_its_end() -> None:
    source = Listening()
    add(FinishedSplits(source), "a", checkpoints=False)

    assert source.over == ["a"]


def test_splits_of_a_source_that_does_not_ask_are_not_kept() -> None:
    finished = FinishedSplits(ScriptedSource())
    add(finished, "a")

    assert finished.uncovered == []
