"""The runtime context: what a user's function learns in ``open`` about the task it runs in."""

from headgate.core.chain.context import OperatorContext


class RuntimeContext:
    """One for each operator of a task."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context

    def get_task_name(self) -> str:
        """The name of the vertex, without subtask numbers."""
        return self._context.task.vertex

    def get_task_name_with_subtasks(self) -> str:
        """For instance ``map (2/4)``."""
        return self._context.task.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._context.task.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._context.task.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        """From 0."""
        return self._context.task.subtask

    def get_attempt_number(self) -> int:
        """0 at first, one more after each restart."""
        return self._context.task.attempt

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._context.task.parameters.get(key, default_value)
