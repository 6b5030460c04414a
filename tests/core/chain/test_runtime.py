"""The runtime context of user functions."""

from headgate.core.chain.context import OperatorContext, TaskInfo
from headgate.core.chain.runtime import RuntimeContext


def test_a_function_learns_about_its_task() -> None:
    info = TaskInfo("job", "count", 1, 4, 64, 2, {"colour": "red"})
    seen = RuntimeContext(OperatorContext("count", info, lambda: 0))
    assert seen.get_task_name() == "count"
    assert seen.get_task_name_with_subtasks() == "count (2/4)"
    assert seen.get_number_of_parallel_subtasks() == 4
    assert seen.get_max_number_of_parallel_subtasks() == 64
    assert seen.get_index_of_this_subtask() == 1
    assert seen.get_attempt_number() == 2
    assert seen.get_job_parameter("colour", "blue") == "red"
    assert seen.get_job_parameter("size", "large") == "large"
