"""Splits of a source at a checkpoint: who reads which of them in the next run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import StateBroken
from headgate.core.operators.source_splits import (
    KEPT_BYTES,
    MARK_BYTES,
    SplitProgress,
    SplitShare,
    assign_splits,
    identify_splits,
    write_splits,
)


def begin(splits: Sequence[object], parallelism: int) -> list[SplitShare]:
    marked = identify_splits(splits)
    return [assign_splits((), marked, task, parallelism, None) for task in range(parallelism)]


def stored_splits(share: SplitShare, *, ended: int = 0) -> bytes:
    """What a checkpoint stores of a task that has ended some splits and read a record of others."""
    progress = [
        SplitProgress(at.split, (at.position or 0) + 1, 5)  # type: ignore[operator]
        for at in share.splits[ended:]
    ]
    return write_splits(progress, share.known)


def go_on(
    stored: Sequence[bytes | None],
    splits: Sequence[object],
    parallelism: int,
    finds_more: bool | None = None,
) -> list[SplitShare]:
    marked = identify_splits(splits)
    return [
        assign_splits(stored, marked, task, parallelism, finds_more) for task in range(parallelism)
    ]


def positions(shares: Sequence[SplitShare]) -> list[tuple[Any, Any]]:
    return [(at.split.split, at.position) for share in shares for at in share.splits]


def test_the_first_run_shares_out_all_splits_from_their_beginning() -> None:
    assert [positions([share]) for share in begin("abc", 2)] == [
        [("a", None), ("c", None)],
        [("b", None)],
    ]


def test_with_the_same_tasks_each_goes_on_with_its_own() -> None:
    stored = [stored_splits(share) for share in begin("abcd", 2)]
    assert [positions([share]) for share in go_on(stored, "abcd", 2)] == [
        [("a", 1), ("c", 1)],
        [("b", 1), ("d", 1)],
    ]
    assert go_on(stored, "abcd", 2)[0].splits[0].watermark_ms == 5


@given(
    st.integers(0, 8),
    st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=4)), max_size=4),
)
def test_each_split_is_read_by_one_task_until_it_has_ended(count: int, runs: Any) -> None:
    splits = list(range(count))
    shares = begin(splits, 2)
    reading = dict(positions(shares))
    for parallelism, ends in runs:
        for share, ended in zip(shares, ends, strict=False):
            for at in share.splits[:ended]:
                del reading[at.split.split]
        ends = [*ends, *[0] * len(shares)]
        stored = [
            stored_splits(share, ended=ended) for share, ended in zip(shares, ends, strict=False)
        ]
        reading = {split: (position or 0) + 1 for split, position in reading.items()}
        shares = go_on(stored, splits, parallelism)
        found = positions(shares)
        assert dict(found) == reading
        assert len(found) == len(reading), "none is read by two"


def test_a_split_that_has_ended_is_not_read_again() -> None:
    shares = begin("abcd", 2)
    stored = [stored_splits(shares[0], ended=1), stored_splits(shares[1], ended=2)]
    again = go_on(stored, "abcd", 2)
    assert positions(again) == [("c", 1)]
    assert [share.passed_over for share in again] == [["a"], ["b", "d"]]
    assert positions(go_on(stored, "abcd", 3)) == [("c", 1)]


def test_splits_of_a_task_that_had_finished_are_not_read_again_nor_does_it_get_new_ones() -> None:
    shares = begin("abcd", 2)
    stored = [None, stored_splits(shares[1])]
    assert positions(go_on(stored, "abcd", 2)) == [("b", 1), ("d", 1)]
    more = go_on(stored, "abcdefg", 2)
    assert more[0].splits == []
    assert positions(more) == [("b", 1), ("d", 1), ("e", None), ("f", None), ("g", None)]


def test_a_source_that_had_no_state_begins_anew() -> None:
    assert positions(go_on([None, None], "ab", 2)) == [("a", None), ("b", None)]


@pytest.mark.parametrize("parallelism", [2, 3])
def test_new_splits_are_read_from_their_beginning_and_known_from_then_on(parallelism: int) -> None:
    stored = [stored_splits(share) for share in begin("ab", 2)]
    more = go_on(stored, "axyb", parallelism)
    assert sorted(positions(more), key=str) == [("a", 1), ("b", 1), ("x", None), ("y", None)]
    stored = [stored_splits(share, ended=len(share.splits)) for share in more]
    assert positions(go_on(stored, "axyb", parallelism)) == []


def test_splits_that_only_cut_the_same_data_anew_are_left_out() -> None:
    stored = [stored_splits(share) for share in begin([(0, 5), (5, 9)], 2)]
    thirds = [(0, 3), (3, 6), (6, 9)]
    assert positions(go_on(stored, thirds, 3, finds_more=False)) == [((0, 5), 1), ((5, 9), 1)]
    assert len(positions(go_on(stored, thirds, 3, finds_more=True))) == 5
    with pytest.raises(StateBroken, match="2 are gone, others are new.*2 tasks and are 3 now.*set"):
        go_on(stored, thirds, 3)


def test_a_split_that_is_gone_is_read_to_its_end_nevertheless() -> None:
    stored = [stored_splits(share) for share in begin("ab", 2)]
    assert positions(go_on(stored, "b", 2)) == [("a", 1), ("b", 1)]
    assert positions(go_on(stored, "b", 1)) == [("a", 1), ("b", 1)]


def test_equal_splits_are_several() -> None:
    stored = [
        stored_splits(share, ended=task) for task, share in enumerate(begin([None, None, None], 2))
    ]
    assert positions(go_on(stored, [None, None, None], 2)) == [(None, 1), (None, 1)]
    assert positions(go_on(stored, [None] * 4, 2)) == [(None, 1), (None, 1), (None, None)]


def test_equal_splits_have_the_same_marks_whatever_objects_they_are_made_of() -> None:
    name = "".join(["a", "b"])
    shared, apart = [(name, name)], [("".join(["a", "b"]), "".join(["a", "b"]))]
    assert [split.mark for split in identify_splits(shared)] == [
        split.mark for split in identify_splits(apart)
    ]
    assert len(identify_splits(shared)[0].mark) == MARK_BYTES


@dataclass
class Ring:
    other: Any = None


def test_a_split_that_holds_itself_can_be_marked() -> None:
    ring = Ring()
    ring.other = ring
    assert identify_splits([ring])[0].mark == identify_splits([ring])[0].mark


def test_a_large_split_is_found_by_its_mark_and_not_written() -> None:
    large = "x" * (KEPT_BYTES + 1)
    stored = [stored_splits(share) for share in begin([large], 1)]
    assert len(stored[0] or b"") < 1000
    assert positions(go_on(stored, [large], 2)) == [(large, 1)]
    with pytest.raises(StateBroken, match="too large to be kept"):
        go_on(stored, ["other"], 1)


def test_what_cannot_be_written_is_named() -> None:
    with pytest.raises(StateBroken, match="the split .*lambda.* splits must be picklable"):
        identify_splits([lambda: 0])
    (marked,) = identify_splits("a")
    with pytest.raises(StateBroken, match="the position .*lambda.* positions must be picklable"):
        write_splits([SplitProgress(marked, lambda: 0)], b"")


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(StateBroken, match="positions of a source cannot be read"):
        go_on([b"\xff"], "a", 1)
    stored = [stored_splits(share) for share in begin([Ring()], 1)]
    broken = stored[0].replace(b"Ring", b"Gone")
    with pytest.raises(StateBroken, match=r"a split of the source cannot be read .*Gone"):
        go_on([broken], "", 1)
