"""The runtime context of an operator: facts of its task, and keyed state by descriptor.

State is given out to functions on a keyed stream only; there the operator hands in an opener.
"""

from typing import NoReturn, Protocol

from headgate.base.elements import Record
from headgate.core.chain.context import OperatorContext
from headgate.functions.context import KeyedStateStore, RuntimeContext
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


class Opener(Protocol):
    """Opens states of one operator."""

    def open(self, descriptor: StateDescriptor) -> State:
        """The state; the same descriptor gives the same state."""


class KeyedStates(KeyedStateStore):
    """Checks descriptors and opens their states; without an opener there are none."""

    def __init__(self, opener: Opener | None, operator: str) -> None:
        self._opener = opener
        self._operator = operator

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Record]:
        return self._open(state_descriptor, ValueStateDescriptor)  # type: ignore[return-value]

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Record]:
        return self._open(state_descriptor, ListStateDescriptor)  # type: ignore[return-value]

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Record, Record]:
        return self._open(state_descriptor, MapStateDescriptor)  # type: ignore[return-value]

    def get_reducing_state(
        self, state_descriptor: ReducingStateDescriptor
    ) -> ReducingState[Record]:
        return self._open(state_descriptor, ReducingStateDescriptor)  # type: ignore[return-value]

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Record, Record]:
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


class OperatorRuntimeContext(KeyedStates, RuntimeContext):
    """One for each operator of a task."""

    def __init__(self, context: OperatorContext, opener: Opener | None = None) -> None:
        super().__init__(opener, context.operator)
        self._context = context

    def get_task_name(self) -> str:
        return self._context.task.vertex

    def get_task_name_with_subtasks(self) -> str:
        return self._context.task.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._context.task.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._context.task.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._context.task.subtask

    def get_attempt_number(self) -> int:
        return self._context.task.attempt

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._context.task.parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        return self._context.metrics

    def is_cancelled(self) -> bool:
        return self._context.is_cancelled()

    def sleep(self, seconds: float) -> None:
        self._context.sleep(seconds)
