"""The life of a task: every pair of state and happening, from the table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.messages import TaskState
from headgate.core.task.life_cycle import LIFE, Lifecycle, TaskTransition


def lived(*happenings: TaskTransition) -> Lifecycle:
    life = Lifecycle("map/3")
    for what in happenings:
        life.happened(what)
    return life


def test_a_task_runs_from_creation_to_its_end() -> None:
    life = lived(TaskTransition.DEPLOYED, TaskTransition.STARTED, TaskTransition.COMPLETED)
    assert life.state is TaskState.FINISHED
    assert life.failure is None


def test_a_failure_is_kept_and_final() -> None:
    life = lived(TaskTransition.DEPLOYED, TaskTransition.STARTED)
    error = ValueError("of the user")
    assert life.failed(error) is TaskState.FAILED
    assert life.failed(KeyError("later")) is TaskState.FAILED
    assert life.failure is error


def test_what_fails_while_it_is_cancelled_is_cancelled() -> None:
    life = lived(TaskTransition.DEPLOYED, TaskTransition.STARTED, TaskTransition.CANCEL)
    assert life.failed(OSError("closed under it")) is TaskState.CANCELLED
    assert life.failure is None


def test_a_task_can_be_cancelled_before_it_runs_and_twice() -> None:
    assert lived(TaskTransition.CANCEL).state is TaskState.CANCELLED
    life = lived(
        TaskTransition.DEPLOYED,
        TaskTransition.CANCEL,
        TaskTransition.CANCEL,
        TaskTransition.CLEANED_UP,
    )
    assert life.state is TaskState.CANCELLED


def test_a_pair_that_is_not_in_the_table_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="map/3: COMPLETED while created"):
        lived(TaskTransition.COMPLETED)


@given(st.lists(st.sampled_from(TaskTransition), max_size=12))
def test_an_end_is_for_good(happenings: list[TaskTransition]) -> None:
    life = Lifecycle("any")
    for what in happenings:
        before = life.state
        if (before, what) in LIFE:
            life.happened(what)
        if before.has_ended:
            assert life.state is before
