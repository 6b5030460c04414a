"""State without keys: how it is shared out to another number of tasks, and who may change it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.types.types import Types
from headgate.base.errors import StateBroken, StateChanged
from headgate.core.state.migration import StateShapes
from headgate.core.state.operator_state import OperatorStates
from headgate.functions.state import (
    BroadcastState,
    ListStateDescriptor,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    ValueStateDescriptor,
)
from tests.core.state.kit import Whole

SPLITS, UNION = ListStateDescriptor("splits"), ListStateDescriptor("all")
RULES = MapStateDescriptor("rules")


def restored(parts: list[bytes], subtask: int, parallelism: int) -> OperatorStates:
    store = OperatorStates()
    store.restore(parts, subtask, parallelism)
    return store


def test_a_list_of_an_operator_is_a_list() -> None:
    store = OperatorStates()
    state = store.get_list_state(SPLITS)
    assert list(state.get()) == []
    state.add(1)
    state.add_all([2, None])
    assert list(store.get_list_state(ListStateDescriptor("splits")).get()) == [1, 2, None]
    state.update([3])
    assert list(state.get()) == [3]
    state.clear()
    assert list(state.get()) == []


def test_a_typed_list_is_checked() -> None:
    state = OperatorStates().get_list_state(ListStateDescriptor("splits", Whole()))
    state.add(1.0)
    with pytest.raises(TypeError, match="'splits' has the type Whole and does not take None"):
        state.add(None)
    assert list(state.get()) == [1]


held = st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=5)


@given(held, st.integers(1, 6))
def test_split_lists_are_shared_out_and_union_lists_are_everywhere(
    held: list[list[int]], parallelism: int
) -> None:
    parts = []
    for elements in held:
        store = OperatorStates()
        store.get_list_state(SPLITS).update(elements)
        store.get_union_list_state(UNION).update(elements)
        parts.append(store.snapshot())
    together = [element for elements in held for element in elements]
    tasks = [restored(parts, subtask, parallelism) for subtask in range(parallelism)]
    shares = [list(task.get_list_state(SPLITS).get()) for task in tasks]
    assert [element for share in shares for element in share] == together
    if parallelism == len(held):
        assert shares == held
    else:
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(list(task.get_union_list_state(UNION).get()) == together for task in tasks)


def test_states_may_be_opened_before_they_are_restored() -> None:
    old = OperatorStates()
    old.get_list_state(SPLITS).add("a")
    old.get_broadcast_state(RULES).put("r", [1])
    new = OperatorStates()
    elements, rules, view = (
        new.get_list_state(SPLITS),
        new.get_broadcast_state(RULES),
        new.read_only(RULES),
    )
    rules.put("old", 1)
    new.restore([old.snapshot()], 0, 1)
    assert list(elements.get()) == ["a"]
    assert dict(rules.items()) == {"r": [1]} == dict(view.items())


def test_a_snapshot_is_of_the_moment_when_it_was_taken() -> None:
    store = OperatorStates()
    rules = store.get_broadcast_state(RULES)
    rules.put("r", [1])
    part = store.snapshot()
    rules.get("r").append(2)
    rules.put("s", 1)
    assert dict(restored([part], 0, 1).read_only(RULES).items()) == {"r": [1]}


def test_a_broadcast_state_is_the_same_in_every_task() -> None:
    parts = []
    for _ in range(2):
        store = OperatorStates()
        store.get_broadcast_state(RULES).put_all({"a": 1, "b": 2})
        parts.append(store.snapshot())
    for parallelism in (1, 2, 5):
        for subtask in range(parallelism):
            rules = restored(parts, subtask, parallelism).get_broadcast_state(RULES)
            assert dict(rules.items()) == {"a": 1, "b": 2}


def test_a_task_that_had_no_state_yet_takes_part_in_the_sharing() -> None:
    store = OperatorStates()
    store.get_list_state(SPLITS).update([1, 2])
    store.get_broadcast_state(RULES).put("a", 1)
    parts = [OperatorStates().snapshot(), store.snapshot()]
    assert list(restored(parts, 0, 2).get_list_state(SPLITS).get()) == []
    assert list(restored(parts, 1, 2).get_list_state(SPLITS).get()) == [1, 2]
    assert restored(parts, 0, 2).read_only(RULES).get("a") == 1
    assert restored([], 0, 2).read_only(RULES).is_empty()


def test_a_broadcast_state_is_a_dictionary() -> None:
    store = OperatorStates()
    rules = store.get_broadcast_state(RULES)
    assert isinstance(rules, BroadcastState) and rules.is_empty() and rules["no"] is None
    rules.put("a", 1)
    rules["b"] = None
    rules.put_all({"c": 3})
    assert list(rules) == ["a", "b", "c"] and list(rules.values()) == [1, None, 3]
    assert rules.contains("b") and "d" not in rules and rules.get("c") == 3
    del rules["a"]
    rules.remove("never there")
    for key in list(rules):
        rules.remove(key)
    assert rules.is_empty()
    rules.put("x", 1)
    rules.clear()
    assert rules.is_empty()


def test_the_other_side_reads_but_does_not_change_it() -> None:
    store = OperatorStates()
    rules, view = store.get_broadcast_state(RULES), store.read_only(RULES)
    rules.put("a", 1)
    assert isinstance(view, ReadOnlyBroadcastState) and not isinstance(view, BroadcastState)
    assert view.get("a") == view["a"] == 1 and "a" in view and not view.is_empty()
    assert list(view) == ["a"] and list(view.values()) == [1] and dict(view.items()) == {"a": 1}
    for name in ("put", "put_all", "remove", "__setitem__", "__delitem__"):
        assert not hasattr(view, name)
    with pytest.raises(RuntimeError, match="'rules' can only be read here; change it in process_b"):
        view.clear()


def test_a_typed_broadcast_state_is_checked() -> None:
    store = OperatorStates()
    rules = store.get_broadcast_state(MapStateDescriptor("rules", Whole(), Whole()))
    rules.put(1.0, 2.0)
    rules.put(2, None)
    assert dict(rules.items()) == {1: 2, 2: None} and {type(key) for key in rules} == {int}
    for key, value in ((None, 1), ("x", 1), (1, "x")):
        with pytest.raises(TypeError, match="the state 'rules'"):
            rules.put(key, value)
    rules.remove(1.5)
    assert list(rules) == [2] and 2.5 in rules and rules.get(2.5) is None


def test_a_name_is_one_kind_of_state() -> None:
    store = OperatorStates()
    store.get_list_state(SPLITS)
    with pytest.raises(ValueError, match="'splits' is there as a split list .* union list"):
        store.get_union_list_state(SPLITS)
    other = OperatorStates()
    other.get_union_list_state(SPLITS)
    with pytest.raises(StateBroken, match="'splits' is there as a union list"):
        other.restore([store.snapshot()], 0, 1)


@pytest.mark.parametrize("method", ["get_list_state", "get_union_list_state", "read_only"])
def test_a_descriptor_of_another_kind_is_refused(method: str) -> None:
    with pytest.raises(TypeError, match=r"ValueStateDescriptor\('v'\) was given for a state; give"):
        getattr(OperatorStates(), method)(ValueStateDescriptor("v"))


def test_broken_bytes_are_refused() -> None:
    store = OperatorStates()
    store.get_list_state(SPLITS).add(1)
    part = store.snapshot()
    for broken in (b"", part[:4], part[:-1], b"x" + part[1:], part[:-2] + b"xx", part[:4] + b"\7"):
        with pytest.raises(StateBroken, match="an operator's state"):
            restored([broken], 0, 1)


class Gone:
    """A class that is removed between writing and reading."""


def test_values_must_be_picklable_now_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    store = OperatorStates()
    state = store.get_list_state(SPLITS)
    state.add(Gone())
    part = store.snapshot()
    monkeypatch.delitem(globals(), "Gone")
    with pytest.raises(StateBroken, match="cannot be read .*Gone.*under their old names"):
        restored([part], 0, 1)
    nothing: Any = lambda: 1  # noqa: E731 - something that pickle cannot write
    state.update([nothing])
    with pytest.raises(
        StateBroken, match=r"the operator's state 'splits' \(split list\) cannot be"
    ):
        store.snapshot()


ROW = Types.ROW_NAMED(["a"], [Types.INT()])
WIDER = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])


def noted(shapes: StateShapes | None = None, part: bytes | None = None) -> OperatorStates:
    """A store whose shapes are known, with what another has left."""
    store = OperatorStates()
    store.compare_with(StateShapes(() if shapes is None else shapes.all(), "op", 7), "function: f")
    store.restore([part], 0, 1)
    return store


@pytest.mark.parametrize("knows_shapes", [True, False])
def test_a_list_and_a_broadcast_map_keep_kind_and_type(knows_shapes: bool) -> None:
    old, shapes = OperatorStates(), StateShapes()
    old.compare_with(shapes, "function: f")
    old.get_list_state(ListStateDescriptor("l", Types.INT())).add(1)
    old.get_broadcast_state(MapStateDescriptor("m", Types.STRING(), Types.INT())).put("a", 1)
    new = noted(shapes if knows_shapes else None, old.snapshot())
    for refused in (
        lambda: new.get_union_list_state(ListStateDescriptor("l", Types.INT())),
        lambda: new.get_broadcast_state(MapStateDescriptor("l", Types.STRING(), Types.INT())),
        lambda: new.get_list_state(ListStateDescriptor("l", Types.STRING())),
        lambda: new.get_list_state(ListStateDescriptor("m", Types.INT())),
        lambda: new.read_only(MapStateDescriptor("m", Types.STRING(), Types.STRING())),
        lambda: new.read_only(MapStateDescriptor("m", Types.INT(), Types.INT())),
    ):
        with pytest.raises(StateChanged, match="of operator 'op' was "):
            refused()
    assert list(new.get_list_state(ListStateDescriptor("l", Types.LONG())).get()) == [1]
    wider = MapStateDescriptor("m", Types.STRING(), Types.LONG())
    assert new.get_broadcast_state(wider).get("a") == 1


def test_rows_of_a_task_get_a_new_field() -> None:
    old, shapes = OperatorStates(), StateShapes()
    old.compare_with(shapes, "function: f")
    old.get_list_state(ListStateDescriptor("l", ROW)).add({"a": 1})
    old.get_broadcast_state(MapStateDescriptor("m", Types.STRING(), ROW)).put("k", {"a": 1})
    new = noted(shapes, old.snapshot())
    row = WIDER.coerced({"a": 1})
    assert list(new.get_list_state(ListStateDescriptor("l", WIDER)).get()) == [row]
    assert new.read_only(MapStateDescriptor("m", Types.STRING(), WIDER)).get("k") == row
