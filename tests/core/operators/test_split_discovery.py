"""How the driver finds splits: by an enumerator, or in a list; what earlier runs have known."""

import pickle
import threading
from collections.abc import Sequence

import pytest

from headgate.base.checkpoints import SourceState
from headgate.base.errors import StateBroken, UserFunctionFailed
from headgate.core.operators.source_splits import (
    SplitProgress,
    assign_splits,
    identify_splits,
    pickled_position,
    write_splits,
)
from headgate.core.operators.split_discovery import (
    ListedSplits,
    SplitDiscovery,
    dealt_state,
    find_splits,
    pickled_splits,
)
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position, Source, SplitEnumerator, SplitReader


class Looking(SplitEnumerator):
    def __init__(self, position: Position) -> None:
        self.begun = position
        self.closed = False

    def discover(self) -> Sequence[object]:
        return ["a"]

    def close(self) -> None:
        self.closed = True


class Found(Source):
    finds_more: bool | None = True

    def __init__(self, *splits: object, looks: bool = False, fails: bool = False) -> None:
        self.list = splits
        self.looks, self.fails = looks, fails
        self.made: list[Looking] = []

    def splits(self, parallelism: int) -> Sequence[object]:
        if self.fails:
            raise ValueError("no splits")
        return self.list

    def create_enumerator(self, parallelism: int, position: Position) -> SplitEnumerator | None:
        if self.looks and self.fails:
            raise ValueError("no enumerator")
        self.made.append(Looking(position))
        return self.made[-1] if self.looks else None

    def open(self, split: object, position: Position, context: ConnectorContext) -> SplitReader:
        raise AssertionError("nothing is read here")


def listed(
    *splits: object, parallelism: int = 2, position: Position = None, finds_more: bool | None = True
) -> ListedSplits:
    return ListedSplits(identify_splits(splits), parallelism, finds_more, position)


def names(found: Sequence[object]) -> list[object]:
    return [pickle.loads(split.data) for split in pickled_splits(found)]


def test_a_source_with_an_enumerator_is_not_asked_for_splits() -> None:
    source = Found(looks=True)
    assert find_splits(source, "found", 2) == ((), SplitDiscovery(source, "found", 2))
    assert source.made[0].closed, "it only shows that there is one"


def test_a_source_that_has_neither_says_what_to_implement() -> None:
    class Bare(Source):
        open = Found.open

    with pytest.raises(UserFunctionFailed, match=r"splits\(\), or create_enumerator"):
        find_splits(Bare(), "bare", 1)


@pytest.mark.parametrize(
    ("looks", "where"), [(True, r"in create_enumerator\(\)"), (False, r"in splits\(\)")]
)
def test_a_source_that_fails_is_named(looks: bool, where: str) -> None:
    with pytest.raises(UserFunctionFailed, match=f"'found'.*{where}"):
        find_splits(Found(looks=looks, fails=True), "found", 2)


def test_an_enumerator_gets_its_position_back() -> None:
    source = Found(looks=True)
    discovery = SplitDiscovery(source, "found", 2)
    for position in (None, {"a": 1}):
        made = discovery.create(pickled_position(position, "an enumerator") if position else b"")
        assert isinstance(made, Looking) and made.begun == position


def test_an_enumerator_that_is_gone_since_planning_is_an_error() -> None:
    with pytest.raises(StateBroken, match="returned none"):
        SplitDiscovery(Found(), "found", 2).create(b"")


def test_of_a_list_a_restored_run_finds_what_is_new() -> None:
    first = listed("a", "b", "b")
    assert names(first.discover()) == ["a", "b", "b"]
    assert names(first.discover()) == []
    second = listed("a", "b", "b", "c", "b", position=first.position())
    assert names(second.discover()) == ["c", "b"]
    assert second.interval_ms is None


def test_a_list_that_cuts_the_data_anew_is_refused_if_nobody_has_said_what_it_means() -> None:
    first = listed("0-10", "10-20", finds_more=None)
    first.discover()
    again = listed("0-10", "10-20", parallelism=3, position=first.position(), finds_more=None)
    assert names(again.discover()) == []
    beside = listed("0-10", "10-20", "20-30", position=first.position(), finds_more=None)
    assert names(beside.discover()) == ["20-30"]
    other = listed(
        "0-7", "7-14", "14-20", parallelism=3, finds_more=None, position=first.position()
    )
    with pytest.raises(StateBroken, match="finds_more"):
        other.discover()


def test_a_list_is_handed_out_by_demand_if_it_is_longer_than_the_tasks_are_many() -> None:
    source = Found("a", "b", "c")
    splits, discovery = find_splits(source, "found", 2)
    assert splits == () and discovery is not None and discovery.by_demand
    assert names(discovery.create(b"").discover()) == ["a", "b", "c"]
    assert find_splits(source, "found", 3) == (("a", "b", "c"), None)


class Endless(Found):
    bounded = False


class Cutting(Found):
    finds_more = False


@pytest.mark.parametrize(
    "source",
    [
        Endless("a", "b"),
        Cutting("a", "b"),
        Found("a", bytes(100_000)),
        Found("a", lambda: 1),
    ],
    ids=["splits that do not end", "the same data cut", "large", "pickled with the code"],
)
def test_other_lists_are_dealt_out(source: Source) -> None:
    splits, discovery = find_splits(source, "found", 1)
    assert len(splits) == 2 and discovery is None


def test_a_source_that_gets_an_enumerator_does_not_find_its_list_again() -> None:
    before = listed("a", "b")
    before.discover()
    discovery = SplitDiscovery(Found(looks=True), "found", 2)
    for found in ([], []):
        enumerator = discovery.create(pickled_position(before.position(), "an enumerator"))
        assert names(enumerator.discover()) == found, "a was in the list"
        assert enumerator.interval_ms is None
        before = enumerator  # type: ignore[assignment]
        enumerator.close()
    assert isinstance(discovery.source, Found) and all(
        made.closed for made in discovery.source.made
    )


def test_a_source_that_has_lost_its_enumerator_is_refused() -> None:
    found = tuple(identify_splits(["a", "b"]))
    discovery = SplitDiscovery(Found("a", "b"), "found", 1, found)
    with pytest.raises(StateBroken, match="had an enumerator when the checkpoint was taken"):
        discovery.create(pickled_position({"a": 1}, "an enumerator"))
    state = SourceState("uid", "found", pickled_position({"a": 1}, "an enumerator"))
    with pytest.raises(StateBroken, match="had an enumerator when the checkpoint was taken"):
        dealt_state(state)


def test_a_list_that_has_become_short_is_dealt_out_to_the_tasks_that_are_left() -> None:
    listed = tuple(identify_splits("abcd"))
    b, c, d = listed[1:]
    finder = ListedSplits(listed, 2, True, None)
    finder.discover()
    position = pickled_position(finder.position(), "an enumerator")
    held = dealt_state(SourceState("uid", "letters", position, ()))
    states = (None, write_splits([SplitProgress(c, 7), SplitProgress(d)], b""), held)
    shares = [assign_splits(states, (b, c), subtask, 2, True) for subtask in range(2)]
    assert not shares[0].splits, "it had finished, and is not run"
    assert [at.split.split for at in shares[1].splits] == ["c", "d"]
    assert [share.known for share in shares] == [b"".join(split.mark for split in listed)] * 2


@pytest.mark.parametrize("parallelism", [2, 3, 4])
def test_what_the_driver_held_of_a_list_is_dealt_out_once(parallelism: int) -> None:
    a, b, c = identify_splits("abc")
    finder = ListedSplits((a, b, c), 2, True, None)
    finder.discover()
    held = SourceState(
        "uid", "abc", pickled_position(finder.position(), "an enumerator"), (*pickled_splits([c]),)
    )
    states = [write_splits([SplitProgress(a, 7)], b""), write_splits([], b""), dealt_state(held)]
    shares = [assign_splits(states, (), task, parallelism, True) for task in range(parallelism)]
    found = {at.split.split: at.position for share in shares for at in share.splits}
    assert found == {"a": 7, "c": None}
    assert sum(len(share.splits) for share in shares) == 2


def test_what_cannot_be_pickled_is_refused_in_a_sentence() -> None:
    with pytest.raises(StateBroken, match="splits must be picklable"):
        pickled_splits([threading.Lock()])
    with pytest.raises(StateBroken, match="positions must be picklable"):
        pickled_position(threading.Lock(), "an enumerator")


def test_large_splits_travel_whole() -> None:
    (split,) = pickled_splits([bytes(200_000)])
    assert pickle.loads(split.data) == bytes(200_000)
