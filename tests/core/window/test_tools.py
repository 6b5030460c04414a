"""What assigners and triggers are handed."""

from typing import Any

import pytest

from headgate.core.chain.context import KeyedStates, OperatorContext
from headgate.core.chain.keyed_context import KeyedContext
from headgate.core.state.backend import StateSpec
from headgate.core.window.user_code import Compartment, WindowTools, merge_values
from headgate.functions.context import TaskInfo
from headgate.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tests.core.window.kit import CollectingAggregate

CONTEXT = OperatorContext("windows", TaskInfo("job", "vertex", 0, 1), lambda: 42)


def lab() -> tuple[KeyedContext, WindowTools]:
    keyed = KeyedContext(CONTEXT)
    keyed.cursor.key = "k"
    return keyed, WindowTools(keyed, CONTEXT)


def at(keyed: KeyedContext, state: Any, window: str) -> Any:
    keyed.cursor.namespace = window
    return state.get()


@pytest.mark.parametrize(
    ("descriptor", "expected"),
    [
        (ReducingStateDescriptor("n", lambda value, other: f"{value}+{other}"), "1+2+3"),
        (AggregatingStateDescriptor("n", CollectingAggregate()), ["1", "2", "3"]),
        (ListStateDescriptor("n"), ["1", "2", "3"]),
    ],
)
def test_state_of_merged_windows_moves_into_the_new_one(
    descriptor: StateDescriptor, expected: Any
) -> None:
    keyed, tools = lab()
    state: Any = tools.get_partitioned_state(descriptor)
    for window, value in (("new", "1"), ("old", "2"), ("older", "3")):
        keyed.cursor.namespace = window
        state.add(value)
    keyed.cursor.namespace = "new"
    tools.merged = ["old", "empty", "older"]
    tools.merge_partitioned_state(descriptor)
    assert keyed.cursor.namespace == "new"
    found = at(keyed, state, "new")
    assert (found if isinstance(found, str) else list(found)) == expected
    assert not at(keyed, state, "old")
    keyed.close()


def test_state_that_cannot_be_merged_is_refused() -> None:
    keyed, tools = lab()
    for descriptor in (ValueStateDescriptor("v"), MapStateDescriptor("m")):
        with pytest.raises(TypeError, match="cannot be merged: .* reducing, aggregating or list"):
            tools.merge_partitioned_state(descriptor)
    keyed.close()


def test_values_are_merged_in_order_also_into_nothing() -> None:
    keyed, _ = lab()
    value = keyed.backend.value_state(StateSpec("v", "value", namespaced=True))
    for window in "ab":
        keyed.cursor.namespace = window
        value.update(window)
    merge_values(keyed, value, lambda value, other: value + other, "new", ["a", "none", "b"])
    assert keyed.cursor.namespace == "b"
    keyed.cursor.namespace = "new"
    assert value.value() == "ab"
    merge_values(keyed, value, lambda value, other: value + other, "never", ["a", "b"])
    keyed.cursor.namespace = "never"
    assert value.value() is None
    keyed.close()


def test_states_of_trigger_window_and_function_may_have_the_same_name() -> None:
    keyed, tools = lab()
    keyed.cursor.namespace = "w"
    descriptor = ValueStateDescriptor("same")
    trigger: Any = tools.get_partitioned_state(descriptor)
    of_window = KeyedStates(Compartment(keyed, CONTEXT, "window"), "op").get_state(descriptor)
    of_key = tools.get_runtime_context().get_state(descriptor)
    trigger.update(1)
    of_window.update(2)
    of_key.update(3)
    assert (trigger.value(), of_window.value(), of_key.value()) == (1, 2, 3)
    keyed.cursor.namespace = "other"
    assert (trigger.value(), of_window.value(), of_key.value()) == (None, None, 3)
    assert descriptor.name == "same"
    keyed.close()


def test_a_name_stands_for_one_kind_of_state() -> None:
    keyed, tools = lab()
    tools.get_partitioned_state(ValueStateDescriptor("n"))
    with pytest.raises(ValueError, match="give it another name"):
        tools.get_partitioned_state(ListStateDescriptor("n"))
    store = KeyedStates(Compartment(keyed, CONTEXT, "window"), "op")
    with pytest.raises(TypeError, match="give a ValueStateDescriptor"):
        store.get_state("n")  # type: ignore[arg-type]
    keyed.close()


def test_times_and_figures_are_at_hand() -> None:
    keyed, tools = lab()
    keyed.timers.watermark_ms = 7
    assert tools.get_current_watermark() == 7
    assert tools.get_current_processing_time() == 42
    tools.get_metric_group().counter("n").inc()
    assert CONTEXT.metrics.counter("n").get_count() == 1
    keyed.close()
