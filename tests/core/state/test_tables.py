"""Tables that snapshots share: their view is a dictionary until one is open, then a guard."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.core.state.tables import GuardedEntries, Spaces, Table


def table() -> Table:
    made = Table()
    made.entries.update({"a": [1], "b": [2], "n": 3, "t": (1, "x")})
    return made


READS: list[Callable[[Any], Any]] = [
    lambda held: held["a"],
    lambda held: held.get("a"),
    lambda held: held.setdefault("a", None),
    lambda held: held.pop("a"),
    lambda held: next(value for key, value in held.items() if key == "a"),
    lambda held: next(iter(held.values())),
    lambda held: dict(held)["a"],
    lambda held: dict(held.popitem() for _ in range(4))["a"],
]


class Reader:
    """Keeps the view of a table, as a state does."""

    view: Any = None

    def bind(self, view: Any) -> None:
        self.view = view


@pytest.mark.parametrize("read", READS)
def test_whatever_hands_out_a_shared_value_hands_out_a_copy(read: Callable[[Any], Any]) -> None:
    held = table()
    original = held.view["a"]
    frozen = held.freeze(1)
    found = read(held.view)
    assert found == [1] and found is not original
    found.append("changed")
    assert frozen == {"a": [1], "b": [2], "n": 3, "t": (1, "x")}


def test_a_copy_is_made_once_and_kept() -> None:
    held = table()
    held.freeze(1)
    first = held.view["a"]
    assert held.view["a"] is first and held.view.get("a") is first
    first.append(2)
    assert held.view["a"] == [1, 2]


def test_what_is_immutable_or_new_is_not_copied() -> None:
    held = table()
    held.freeze(1)
    view = held.view
    pair, new = view["t"], [5]
    assert view.get("t") is pair
    view["new"] = view["b"] = new
    assert view["new"] is new and view["b"] is new


def test_a_guard_answers_like_a_dictionary() -> None:
    held = table()
    held.freeze(1)
    view = held.view
    assert view.get("no") is None and view.get("no", 7) == 7
    assert view.pop("no", None) is None and "no" not in view and "a" in view
    with pytest.raises(KeyError):
        view["no"]
    with pytest.raises(KeyError):
        view.pop("no")
    assert view.setdefault("no", 8) == 8
    assert list(view) == ["a", "b", "n", "t", "no"] and len(view) == 5
    del view["no"]
    view.clear()
    with pytest.raises(KeyError):
        view.popitem()
    assert view == {} == held.entries


def test_guarding_ends_with_the_last_snapshot() -> None:
    held = table()
    assert held.view is held.entries
    held.freeze(1)
    held.freeze(2)
    held.thaw(1)
    assert type(held.view) is GuardedEntries
    held.thaw(1)
    held.thaw(2)
    assert held.view is held.entries
    value = held.view["a"]
    assert held.view["a"] is value


def test_whoever_is_bound_always_has_the_current_view() -> None:
    for held in (table(), spaces()):
        early = held.bound(Reader())
        assert early.view is held.view
        held.freeze(1)
        late = held.bound(Reader())
        assert early.view is late.view is held.view and type(early.view) is not dict
        held.freeze(2)
        held.thaw(1)
        assert early.view is late.view is held.view and type(early.view) is not dict
        held.thaw(2)
        assert early.view is late.view is held.view and type(early.view) is dict


def test_each_of_two_snapshots_keeps_what_it_saw() -> None:
    held = table()
    first = held.freeze(1)
    held.view["a"].append("between")
    second = held.freeze(2)
    held.view["a"].append("after")
    assert (first["a"], second["a"]) == ([1], [1, "between"])
    assert held.view["a"] == [1, "between", "after"]
    held.thaw(2)
    held.view["b"].append("late")
    assert first["b"] == [2]


def spaces() -> Spaces:
    made = Spaces()
    made.plain.entries.update({"a": [0]})
    made.view["w1"] = {"a": [1], "b": [2]}
    made.view["w2"] = {"a": [3]}
    return made


def test_the_entries_without_a_namespace_are_those_of_the_plain_table() -> None:
    held = spaces()
    entries = held.plain.entries
    assert held.view[None] is entries
    frozen = held.freeze(1)
    plain = held.plain.view
    assert held.view[None] is plain and held.view.get(None) is plain
    plain["a"].append("later")
    plain["new"] = 1
    held.thaw(1)
    assert held.view[None] is held.plain.view is entries
    assert frozen[None] == {"a": [0]} and entries == {"a": [0, "later"], "new": 1}


def test_the_entries_of_a_namespace_are_replaced_when_they_are_read() -> None:
    held = spaces()
    old = held.view["w1"]
    frozen = held.freeze(1)
    new = held.view["w1"]
    assert new is not old and held.view.get("w1") is new
    new["a"].append("later")
    new["c"] = 1
    del new["b"]
    del held.view["w2"]
    assert frozen == {None: {"a": [0]}, "w1": {"a": [1], "b": [2]}, "w2": {"a": [3]}}
    held.thaw(1)
    assert held.view == {None: {"a": [0]}, "w1": {"a": [1, "later"], "c": 1}}
    assert [type(entries) for entries in held.view.values()] == [dict, dict]


def test_entries_that_came_later_are_not_replaced() -> None:
    held = spaces()
    held.freeze(1)
    new = held.view.setdefault("w3", {})
    assert held.view["w3"] is new and type(new) is dict


def test_replaced_entries_still_guard_for_the_older_snapshot() -> None:
    held = spaces()
    first = held.freeze(1)
    held.view["w1"]["b"].append("one")
    second = held.freeze(2)
    held.view["w1"]["b"].append("two")
    held.thaw(2)
    held.view["w1"]["a"].append("three")
    assert first["w1"] == {"a": [1], "b": [2]}
    assert type(second["w1"]) is dict and second["w1"]["b"] == [2, "one"]
    assert held.view["w1"] == {"a": [1, "three"], "b": [2, "one", "two"]}
    held.thaw(1)
    assert type(held.view["w1"]) is dict


def test_entries_may_move_to_another_state_while_a_snapshot_shares_them() -> None:
    source, target = spaces(), spaces()
    frozen = [held.freeze(1) for held in (source, target)]
    moved = target.view["w3"] = source.view.pop("w1")
    target.view["w2"].update(source.view.pop("w2"))
    second = target.freeze(2)
    assert type(second["w3"]) is dict
    moved = target.view["w3"]
    moved["a"].append("later")
    target.view["w2"]["a"].append("later")
    assert frozen == [spaces().by_namespace] * 2
    assert (second["w2"], second["w3"]) == ({"a": [3]}, {"a": [1], "b": [2]})
    for number, held in ((1, source), (1, target), (2, target)):
        held.thaw(number)
    assert (type(target.view["w2"]), type(target.view["w3"])) == (dict, dict)
    assert target.view["w3"] == {"a": [1, "later"], "b": [2]}
    assert source.view == {None: {"a": [0]}}


def test_one_value_may_stand_at_two_keys() -> None:
    held = Table()
    shared = [1]
    held.view.update({"a": shared, "b": shared})
    frozen = held.freeze(1)
    held.view["a"].append(2)
    assert held.view["b"] == [1] and frozen == {"a": [1], "b": [1]}


def test_the_kind_of_copy_can_be_chosen() -> None:
    held = Table(dict.copy)
    inner = {"x": [1]}
    held.view["a"] = inner
    held.freeze(1)
    assert held.view["a"] is not inner and held.view["a"]["x"] is inner["x"]
