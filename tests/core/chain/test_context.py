"""The runtime context of user functions."""

from collections.abc import Callable
from typing import Any

import pytest

from headgate.core.chain.context import OperatorContext, OperatorRuntimeContext
from headgate.core.chain.keyed_context import KeyedContext
from headgate.functions.context import TaskInfo
from headgate.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from tests.core.state.kit import Sum


def test_a_function_learns_about_its_task() -> None:
    info = TaskInfo("job", "count", 1, 4, 64, 2, {"colour": "red"})
    seen = OperatorRuntimeContext(OperatorContext("count", info, lambda: 0))
    assert seen.get_task_name() == "count"
    assert seen.get_task_name_with_subtasks() == "count (2/4)"
    assert seen.get_number_of_parallel_subtasks() == 4
    assert seen.get_max_number_of_parallel_subtasks() == 64
    assert seen.get_index_of_this_subtask() == 1
    assert seen.get_attempt_number() == 2
    assert seen.get_job_parameter("colour", "blue") == "red"
    assert seen.get_job_parameter("size", "large") == "large"


STATES: list[tuple[Callable[[Any], Callable[[Any], Any]], Any, type]] = [
    (lambda seen: seen.get_state, ValueStateDescriptor("s"), ValueState),
    (lambda seen: seen.get_list_state, ListStateDescriptor("s"), ListState),
    (lambda seen: seen.get_map_state, MapStateDescriptor("s"), MapState),
    (lambda seen: seen.get_reducing_state, ReducingStateDescriptor("s", max), ReducingState),
    (
        lambda seen: seen.get_aggregating_state,
        AggregatingStateDescriptor("s", Sum()),
        AggregatingState,
    ),
]


@pytest.mark.parametrize(("getter", "descriptor", "kind"), STATES)
def test_state_exists_only_on_keyed_streams(
    getter: Callable[[Any], Callable[[Any], Any]], descriptor: Any, kind: type
) -> None:
    context = OperatorContext("count", TaskInfo("job", "count", 0, 1), lambda: 0)
    keyed = KeyedContext(context)
    state = getter(OperatorRuntimeContext(context, keyed.opener))(descriptor)
    assert isinstance(state, kind)
    assert getter(OperatorRuntimeContext(context, keyed.opener))(descriptor) is state, (
        "the same name"
    )
    keyed.close()
    with pytest.raises(
        RuntimeError,
        match=r"'s' was asked for by 'count': this state is only accessible by functions executed "
        r"on a KeyedStream; call key_by\(\) before",
    ):
        getter(OperatorRuntimeContext(context))(descriptor)


def test_a_function_learns_of_the_cancellation() -> None:
    slept: list[float] = []
    task = TaskInfo("job", "count", 0, 1)
    context = OperatorContext(
        "count", task, lambda: 0, is_cancelled=lambda: bool(slept), sleep=slept.append
    )
    seen = OperatorRuntimeContext(context)

    assert not seen.is_cancelled()
    seen.sleep(0.5)

    assert seen.is_cancelled() and slept == [0.5]


@pytest.mark.parametrize(("getter", "descriptor", "kind"), STATES)
def test_a_state_needs_its_own_kind_of_descriptor(
    getter: Callable[[Any], Callable[[Any], Any]], descriptor: Any, kind: type
) -> None:
    context = OperatorContext("count", TaskInfo("job", "count", 0, 1), lambda: 0)
    for wrong in ("name", *(other for _, other, _ in STATES if other is not descriptor)):
        with pytest.raises(TypeError, match=r"was given for a state; give an? \w+Descriptor"):
            getter(OperatorRuntimeContext(context))(wrong)
