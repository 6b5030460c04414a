"""State of a function that belongs to its task."""

from collections.abc import Iterator
from typing import Any

import pytest

from headgate.base.elements import Bundle
from headgate.core.chain.user_function import UserFunction
from headgate.core.operators.one_input import FlatMapOperator
from headgate.functions.context import FunctionInitializationContext, SnapshotMoment
from headgate.functions.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from tests.core.chain.kit import context


class Pairs:
    """Sends records two at a time; the odd one waits, in a list without a key."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.kept = store.get_list_state(ListStateDescriptor("kept"))
        self.all = store.get_union_list_state(ListStateDescriptor("all"))
        self.rules = store.get_broadcast_state(MapStateDescriptor("rules"))
        self.waiting = list(self.kept.get())
        self.calls.append(("initialize", context.is_restored()))

    def open(self, runtime_context: object) -> None:
        self.calls.append("open")

    def flat_map(self, value: int) -> Iterator[tuple[int, int]]:
        self.waiting.append(value)
        if len(self.waiting) == 2:
            yield tuple(self.waiting)  # type: ignore[misc]
            self.waiting.clear()

    def snapshot_state(self, context: Any) -> None:
        self.calls.append((context.get_checkpoint_id(), context.get_checkpoint_timestamp()))
        self.kept.update(self.waiting)
        self.all.update([len(self.waiting)])
        self.rules.put("pairs", True)


def test_state_is_asked_for_before_open_and_brought_up_to_date_before_a_snapshot() -> None:
    function = Pairs()
    wrapped = UserFunction(function, "flat_map")
    wrapped.open(context())
    assert function.calls == [("initialize", False), "open"]
    assert [list(wrapped.call(number)) for number in (1, 2, 3)] == [[], [(1, 2)], []]
    data = wrapped.snapshot(SnapshotMoment(7, 1_000))
    assert function.calls[2:] == [(7, 1_000)]

    restored = UserFunction(Pairs(), "flat_map")
    restored.states.restore([data], 0, 1)
    restored.open(context())
    assert list(restored.call(4)) == [(3, 4)]
    assert list(restored.function.all.get()) == [1]  # type: ignore[attr-defined]
    assert restored.function.rules.get("pairs") is True  # type: ignore[attr-defined]


def test_a_function_without_such_state_has_an_empty_snapshot() -> None:
    wrapped = UserFunction(len, "map")
    wrapped.open(context())
    other = UserFunction(len, "map")
    other.states.restore([wrapped.states.snapshot()], 0, 1)


def test_keyed_state_is_refused_on_a_stream_without_keys() -> None:
    class Wrong:
        def initialize_state(self, context: FunctionInitializationContext) -> None:
            context.get_keyed_state_store().get_state(ValueStateDescriptor("n"))

        def flat_map(self, value: int) -> list[int]:
            return [value]

    operator = FlatMapOperator(Wrong())
    with pytest.raises(RuntimeError, match="call key_by"):
        operator.open(context())
    assert Bundle([1]).records == [1]
