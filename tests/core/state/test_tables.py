"""Tables that snapshots share: plain dictionaries until one is open, guarded while it is."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.core.state.tables import GuardedSpaces, GuardedTable, Spaces, Table


def table() -> Table:
    made = Table()
    made.update({"a": [1], "b": [2], "n": 3, "t": (1, "x")})
    return made


READS: list[Callable[[Any], Any]] = [
    lambda held: held["a"],
    lambda held: held.get("a"),
    lambda held: held.setdefault("a", None),
    lambda held: held.pop("a"),
    lambda held: next(value for key, value in held.items() if key == "a"),
    lambda held: next(iter(held.values())),
    lambda held: held.copy()["a"],
    lambda held: [held.popitem() for _ in range(4)][-1][1],
]


@pytest.mark.parametrize("read", READS)
def test_whatever_hands_out_a_shared_value_hands_out_a_copy(read: Callable[[Any], Any]) -> None:
    held = table()
    original = held["a"]
    frozen = held.freeze(1)
    found = read(held)
    assert found == [1] and found is not original
    found.append("changed")
    assert frozen == {"a": [1], "b": [2], "n": 3, "t": (1, "x")}


def test_a_copy_is_made_once_and_kept() -> None:
    held = table()
    held.freeze(1)
    first = held["a"]
    assert held["a"] is first and held.get("a") is first
    first.append(2)
    assert held["a"] == [1, 2]


def test_what_is_immutable_or_new_is_not_copied() -> None:
    held = table()
    held.freeze(1)
    pair, new = held["t"], [5]
    assert held.get("t") is pair
    held["new"] = held["b"] = new
    assert held["new"] is new and held["b"] is new


def test_a_guarded_table_answers_like_a_dictionary() -> None:
    held = table()
    held.freeze(1)
    assert held.get("no") is None and held.get("no", 7) == 7
    assert held.pop("no", None) is None
    with pytest.raises(KeyError):
        held["no"]
    with pytest.raises(KeyError):
        held.pop("no")
    assert held.setdefault("no", 8) == 8
    held.clear()
    with pytest.raises(KeyError):
        held.popitem()
    assert held == {} and isinstance(held, dict)


def test_guarding_ends_with_the_last_snapshot() -> None:
    held = table()
    assert type(held) is Table
    held.freeze(1)
    held.freeze(2)
    held.thaw(1)
    assert type(held) is GuardedTable
    held.thaw(1)
    held.thaw(2)
    assert type(held) is Table
    value = held["a"]
    assert held["a"] is value


def test_each_of_two_snapshots_keeps_what_it_saw() -> None:
    held = table()
    first = held.freeze(1)
    held["a"].append("between")
    second = held.freeze(2)
    held["a"].append("after")
    assert (first["a"], second["a"], held["a"]) == ([1], [1, "between"], [1, "between", "after"])
    held.thaw(2)
    held["b"].append("late")
    assert first["b"] == [2]


def spaces() -> Spaces:
    made = Spaces()
    made.plain.update({"a": [0]})
    made["w1"] = {"a": [1], "b": [2]}
    made["w2"] = {"a": [3]}
    return made


def test_the_table_without_a_namespace_stays_the_same_object() -> None:
    held = spaces()
    plain = held.plain
    frozen = held.freeze(1)
    assert held[None] is plain and held.get(None) is plain
    plain["a"].append("later")
    plain["new"] = 1
    held.thaw(1)
    assert held[None] is plain
    assert frozen[None] == {"a": [0]}


def test_the_table_of_a_namespace_is_replaced_when_it_is_read() -> None:
    held = spaces()
    old = held["w1"]
    frozen = held.freeze(1)
    assert type(held) is GuardedSpaces
    new = held["w1"]
    assert new is not old and held.get("w1") is new
    new["a"].append("later")
    new["c"] = 1
    del new["b"]
    del held["w2"]
    assert frozen == {None: {"a": [0]}, "w1": {"a": [1], "b": [2]}, "w2": {"a": [3]}}
    held.thaw(1)
    assert type(held) is Spaces and type(new) is Table


def test_a_table_that_came_later_is_not_replaced() -> None:
    held = spaces()
    held.freeze(1)
    new = held.setdefault("w3", {})
    assert held["w3"] is new and type(new) is dict


def test_a_successor_still_guards_for_the_older_snapshot() -> None:
    held = spaces()
    first = held.freeze(1)
    held["w1"]["b"].append("one")
    second = held.freeze(2)
    held["w1"]["b"].append("two")
    held.thaw(2)
    held["w1"]["a"].append("three")
    assert first["w1"] == {"a": [1], "b": [2]}
    assert dict.__getitem__(second["w1"], "b") == [2, "one"]
    assert held["w1"] == {"a": [1, "three"], "b": [2, "one", "two"]}
    held.thaw(1)
    assert held.successors == [] and type(held["w1"]) is Table


def test_one_value_may_stand_at_two_keys() -> None:
    held = Table()
    shared = [1]
    held.update({"a": shared, "b": shared})
    frozen = held.freeze(1)
    held["a"].append(2)
    assert held["b"] == [1] and frozen == {"a": [1], "b": [1]}


def test_the_kind_of_copy_can_be_chosen() -> None:
    held = Table(dict.copy)
    inner = {"x": [1]}
    held["a"] = inner
    held.freeze(1)
    assert held["a"] is not inner and held["a"]["x"] is inner["x"]
