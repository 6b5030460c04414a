"""The faces of states: what they have by themselves stands on what a backend gives them."""

from collections.abc import Iterable
from typing import Any

import pytest

from headgate.functions.state import (
    AggregatingState,
    AppendingState,
    BroadcastState,
    ListState,
    MapState,
    MergingState,
    ReadOnlyBroadcastState,
    ReducingState,
    State,
    ValueState,
)


class Bare(MapState[Any, Any]):
    """A map with the least that a backend must give."""

    def __init__(self) -> None:
        self.held: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        return self.held.get(key)

    def put(self, key: Any, value: Any) -> None:
        self.held[key] = value

    def remove(self, key: Any) -> None:
        self.held.pop(key, None)

    def contains(self, key: Any) -> bool:
        return key in self.held

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list(self.held.items())

    def is_empty(self) -> bool:
        return not self.held

    def clear(self) -> None:
        self.held.clear()


class BareBroadcast(Bare, BroadcastState[Any, Any]):  # type: ignore[misc]
    """The same as a broadcast state."""


@pytest.mark.parametrize("kind", [Bare, BareBroadcast])
def test_a_map_reads_like_a_dictionary(kind: type[Any]) -> None:
    state = kind()
    state["a"] = 1
    state.put_all({"b": 2, "c": 3})
    assert state["a"] == 1 and state["no"] is None
    assert "b" in state and "no" not in state
    del state["b"], state["no"]
    assert list(state) == list(state.keys()) == ["a", "c"] and list(state.values()) == [1, 3]


def test_what_can_be_done_with_a_state_follows_its_kind() -> None:
    for kind in (ListState, ReducingState, AggregatingState):
        assert issubclass(kind, MergingState) and issubclass(kind, AppendingState)
    for kind in (ValueState, MapState, ReadOnlyBroadcastState):
        assert issubclass(kind, State) and not issubclass(kind, AppendingState)
    assert not hasattr(ReadOnlyBroadcastState, "put")


@pytest.mark.parametrize("kind", [State, ValueState, ListState, MapState, BroadcastState])
def test_a_face_alone_is_no_state(kind: type[Any]) -> None:
    with pytest.raises(TypeError, match="abstract"):
        kind()
