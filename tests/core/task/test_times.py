"""Where a task's time goes: busy, back-pressured and idle add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.task.statistics import TaskActivity, TaskTimes

turns = st.lists(st.tuples(st.sampled_from(TaskActivity), st.integers(0, 1000)), max_size=30)


@given(turns, st.integers(0, 1000))
def test_the_times_add_up_to_the_time_since_the_start(
    made: list[tuple[TaskActivity, int]], last: int
) -> None:
    times, now = TaskTimes(100.0), 100.0
    expected = dict.fromkeys(TaskActivity, 0)
    doing = TaskActivity.IDLE
    for turn, pause in made:
        now += pause
        expected[doing] += pause
        times.turn_to(turn, now)
        doing = turn
    expected[doing] += last
    now += last
    spent = times.spent(now)
    assert spent.busy_ms == expected[TaskActivity.BUSY]
    assert spent.soft_backpressured_ms == expected[TaskActivity.SOFT_BACKPRESSURED]
    assert spent.hard_backpressured_ms == expected[TaskActivity.HARD_BACKPRESSURED]
    assert spent.backpressured_ms == spent.soft_backpressured_ms + spent.hard_backpressured_ms
    assert spent.idle_ms == expected[TaskActivity.IDLE]
    assert spent.busy_ms + spent.backpressured_ms + spent.idle_ms == pytest.approx(now - 100)
