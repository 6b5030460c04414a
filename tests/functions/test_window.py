"""Windows as values."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import MAX_WATERMARK_MS
from headgate.base.values import own
from headgate.functions.window import CountWindow, GlobalWindow, TimeWindow

EVERY = [TimeWindow(-5, 5), CountWindow(3), GlobalWindow()]


class MergeRecorder:
    """Keeps which windows it was called to merge."""

    def __init__(self) -> None:
        self.groups: list[tuple[list[TimeWindow], TimeWindow]] = []

    def merge(self, to_be_merged: list[TimeWindow], merge_result: TimeWindow) -> None:
        self.groups.append((list(to_be_merged), merge_result))


@pytest.mark.parametrize("window", EVERY)
def test_a_window_is_the_same_after_pickling_and_names_state(window: object) -> None:
    again = pickle.loads(pickle.dumps(window))
    assert again == window
    assert {window: 1}[again] == 1
    assert own(window) is window
    assert bool(window)


def test_there_is_one_global_window() -> None:
    assert GlobalWindow() is GlobalWindow.get()
    assert pickle.loads(pickle.dumps(GlobalWindow())) is GlobalWindow()


def test_the_last_time_of_a_window_is_before_its_end() -> None:
    assert TimeWindow(0, 5).max_timestamp() == 4
    assert CountWindow(0).max_timestamp() == MAX_WATERMARK_MS
    assert GlobalWindow().max_timestamp() == MAX_WATERMARK_MS


def test_windows_print_as_people_write_them() -> None:
    assert repr(TimeWindow(0, 5)) == "TimeWindow(start=0, end=5)"
    assert repr(CountWindow(2)) == "CountWindow(id=2)"
    assert repr(GlobalWindow()) == "GlobalWindow()"


def test_windows_that_touch_intersect() -> None:
    assert TimeWindow(0, 5).intersects(TimeWindow(5, 10))
    assert TimeWindow(5, 10).intersects(TimeWindow(0, 5))
    assert not TimeWindow(0, 5).intersects(TimeWindow(6, 10))
    assert TimeWindow(0, 5).cover(TimeWindow(8, 10)) == TimeWindow(0, 10)


def test_windows_are_ordered_by_time() -> None:
    windows = [TimeWindow(5, 7), TimeWindow(0, 9), TimeWindow(0, 3)]
    assert sorted(windows) == [TimeWindow(0, 3), TimeWindow(0, 9), TimeWindow(5, 7)]


@given(st.integers(-(10**15), 10**15), st.integers(1, 10**6), st.data())
def test_a_window_holds_its_timestamp_and_starts_at_the_offset(
    timestamp: int, size: int, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(-size + 1, size - 1))
    start = TimeWindow.get_window_start_with_offset(timestamp, offset, size)
    assert start <= timestamp < start + size
    assert (start - offset) % size == 0


def test_a_start_below_zero_is_rounded_down() -> None:
    assert TimeWindow.get_window_start_with_offset(-6, 0, 5) == -10


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 10)), max_size=12))
def test_merging_makes_one_of_all_that_overlap_or_touch(spans: list[tuple[int, int]]) -> None:
    windows = [TimeWindow(start, start + length) for start, length in spans]
    merges = MergeRecorder()
    TimeWindow.merge_windows(windows, merges)
    merged = [window for group, _ in merges.groups for window in group]
    alone = sorted(windows)
    for window in merged:
        alone.remove(window)
    remaining = alone + [result for _, result in merges.groups]
    for number, window in enumerate(remaining):
        assert not any(window.intersects(other) for other in remaining[number + 1 :])
    for group, result in merges.groups:
        assert len(group) > 1
        assert result == TimeWindow(min(w.start for w in group), max(w.end for w in group))
