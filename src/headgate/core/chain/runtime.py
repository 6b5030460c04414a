"""The runtime context: what a user's function learns in ``open`` about the task it runs in.

State is given out to functions on a keyed stream only; there the operator hands in an opener.
"""

from typing import NoReturn

from headgate.base.elements import Record
from headgate.core.chain.context import OperatorContext
from headgate.core.state.opening import StateOpener
from headgate.functions.metrics import MetricGroup
from headgate.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)


class KeyedStateStore:
    """Gives states by their descriptors; also what windows call window and global state."""

    def __init__(self, opener: StateOpener | None, operator: str) -> None:
        self._opener = opener
        self._operator = operator

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Record]:
        """One value for each key."""
        return self._open(state_descriptor, ValueStateDescriptor)  # type: ignore[return-value]

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Record]:
        """A list for each key."""
        return self._open(state_descriptor, ListStateDescriptor)  # type: ignore[return-value]

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Record, Record]:
        """A dictionary for each key."""
        return self._open(state_descriptor, MapStateDescriptor)  # type: ignore[return-value]

    def get_reducing_state(
        self, state_descriptor: ReducingStateDescriptor
    ) -> ReducingState[Record]:
        """All values of a key in one, by a reduce function."""
        return self._open(state_descriptor, ReducingStateDescriptor)  # type: ignore[return-value]

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Record, Record]:
        """All values of a key in one accumulator, by an aggregate function."""
        return self._open(state_descriptor, AggregatingStateDescriptor)  # type: ignore[return-value]

    def _open(self, descriptor: object, kind: type[StateDescriptor]) -> State:
        if not isinstance(descriptor, kind):
            raise TypeError(f"{descriptor!r} was given for a state; give a {kind.__name__}")
        if self._opener is None:
            self._refuse(descriptor)
        return self._opener.open(descriptor)

    def _refuse(self, descriptor: StateDescriptor) -> NoReturn:
        raise RuntimeError(
            f"keyed state {descriptor.name!r} was asked for by {self._operator!r}: {self.no_state}"
        )

    no_state = (
        "this state is only accessible by functions executed on a KeyedStream; call key_by() before"
    )
    """Why there is none, where there is none."""


class RuntimeContext(KeyedStateStore):
    """One for each operator of a task."""

    def __init__(self, context: OperatorContext, opener: StateOpener | None = None) -> None:
        super().__init__(opener, context.operator)
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

    def get_metrics_group(self) -> MetricGroup:
        """Counters and the like of your own; they appear with the job's metrics."""
        return self._context.metrics
