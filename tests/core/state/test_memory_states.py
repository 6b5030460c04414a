"""States in memory, one by one: plain and namespaced ones behave alike and leave nothing behind."""

from typing import Any

import pytest

from headgate.core.state.backend import StateSpec
from headgate.core.state.cursor import Cursor
from headgate.core.state.memory import MemoryBackend


@pytest.fixture(params=[None, "window"])
def cursor(request: Any) -> Cursor:
    cursor = Cursor()
    cursor.key, cursor.namespace = "k", request.param
    return cursor


def made(kind: str, cursor: Cursor) -> tuple[Any, Any]:
    """A state of a backend, and its entries by namespace."""
    backend = MemoryBackend(range(128), 128)
    backend.cursor = cursor
    spec = StateSpec("s", kind, namespaced=cursor.namespace is not None)
    spaces = backend.direct(spec)
    assert spaces is not None
    return getattr(backend, f"{kind}_state")(spec), spaces.view


def test_a_value_is_held_at_its_key(cursor: Cursor) -> None:
    state, spaces = made("value", cursor)
    state.update(1)
    assert spaces[cursor.namespace] == {"k": 1} and state.value() == 1
    state.update(2)
    assert state.value() == 2
    state.update(None)
    state.clear()
    assert state.value() is None and spaces == {None: {}}


def test_a_list_grows_in_place(cursor: Cursor) -> None:
    state, spaces = made("list", cursor)
    state.add(1)
    held = spaces[cursor.namespace]["k"]
    state.add(2)
    state.add_all(value for value in (3, 4))
    assert spaces[cursor.namespace]["k"] is held and held == [1, 2, 3, 4]
    state.get().append("not mine")
    assert state.get() == [1, 2, 3, 4]
    state.add_all(state.get())
    assert len(state.get()) == 8
    state.update([])
    state.add_all([])
    assert state.get() == [] and spaces == {None: {}}


def test_a_map_grows_in_place_and_goes_with_its_last_item(cursor: Cursor) -> None:
    state, spaces = made("map", cursor)
    state.put("a", 1)
    held = spaces[cursor.namespace]["k"]
    state.put("b", None)
    assert spaces[cursor.namespace]["k"] is held == {"a": 1, "b": None}
    assert state.contains("b") and not state.contains("c") and state.get("b") is None
    assert state.items() == [("a", 1), ("b", None)]
    assert state.keys() == ["a", "b"] and state.values() == [1, None] and not state.is_empty()
    state.remove("a")
    state.remove("a")
    state.remove("b")
    state.remove("b")
    assert state.is_empty() and spaces == {None: {}}
    assert state.get("a") is None and not state.contains("a")
    state.clear()


def test_a_name_that_cannot_be_hashed_is_an_error_and_changes_nothing(cursor: Cursor) -> None:
    state, spaces = made("map", cursor)
    with pytest.raises(TypeError, match="unhashable"):
        state.put([1], 1)
    assert spaces == {None: {}}
