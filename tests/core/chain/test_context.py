"""What an operator knows about its task."""

import dataclasses

import pytest

from headgate.core.chain.context import OperatorContext
from headgate.functions.context import TaskInfo


def test_tasks_are_counted_as_people_count() -> None:
    assert TaskInfo("job", "map", 1, 4).name == "map (2/4)"


def test_a_context_without_timers_takes_them_and_does_nothing() -> None:
    context = OperatorContext("map", TaskInfo("job", "map", 0, 1), lambda: 7)
    assert context.later(5.0, lambda: pytest.fail("no timers here")) is None
    assert context.now_ms() == 7


def test_nobody_changes_what_a_task_is() -> None:
    info = TaskInfo("job", "map", 0, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.subtask = 3  # type: ignore[misc]
