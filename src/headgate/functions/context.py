"""Contexts: what a user's code is handed about the task, checkpoint, state and time it works with.

``core`` implements the abstract classes. Law: state and timers belong to the current key, which
the operator sets before it calls user code.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from headgate.base.checkpoints import Stop
from headgate.functions.metrics import MetricGroup
from headgate.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from headgate.functions.type_variables import IN, MK, OUT, V


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """Names and numbers of one task; the same for all operators of its chain."""

    job: str
    vertex: str
    subtask: int
    parallelism: int
    max_parallelism: int = 128
    attempt: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    job_id: str = ""
    """One for all runs of the job; empty: unknown."""
    checkpoint_folder: str = ""
    """Where the job's checkpoints are looked for; empty: it takes none."""

    @property
    def name(self) -> str:
        """The vertex with the subtask counted from 1: ``map (2/4)``."""
        return f"{self.vertex} ({self.subtask + 1}/{self.parallelism})"


class ConnectorContext(Protocol):
    """The context of a split reader, sink writer or committer: facts about its task."""

    @property
    def operator(self) -> str:
        """The operator's name."""

    @property
    def uid(self) -> str:
        """The operator's uid, under which its state is kept; empty: it has none."""

    @property
    def task(self) -> TaskInfo:
        """Names and numbers of the task."""

    @property
    def now_ms(self) -> Callable[[], int]:
        """Wall-clock time, in milliseconds since 1970."""

    @property
    def metrics(self) -> MetricGroup:
        """Metrics of the operator."""

    @property
    def wake(self) -> Callable[[], None]:
        """Call it from any thread, at any time, also after the end: the source is polled again.

        Cheap, and however many calls come before a poll, they lead to that one poll. For sinks it
        does nothing.
        """

    @property
    def checkpoints(self) -> bool:
        """Whether checkpoints are taken periodically: sinks then commit with them."""

    @property
    def restored(self) -> Any:
        """What an earlier run left of the operator; None: this is the first run."""

    @property
    def malformed(self) -> "Callable[[object, Exception], None]":
        """``malformed(raw, error)``: a reader met bytes that are no record, or a writer a record
        that it cannot write; ``raw`` are the bytes, or the record.

        Raises ``error`` if the operator's policy is to fail. Otherwise it counts and skips it, or
        emits a DeadLetter, and the reader goes on after it. Call it on the task's own thread,
        within ``poll``, ``write`` or ``flush``, once the reader's position has passed the bytes: a
        reader that is opened at the next ``position()`` must not meet them again.
        """

    @property
    def is_cancelled(self) -> Callable[[], bool]:
        """Whether the task is to end. Ask it in every loop that waits for the outside world and
        cannot ``sleep``, and raise; from any thread.
        """

    @property
    def sleep(self) -> Callable[[float], None]:
        """Wait so many seconds; raises TaskCancelled as soon as the task is cancelled.

        Call it between two attempts or looks instead of ``time.sleep``, from any thread, and let
        the error pass: a write that returned would count as written.
        """

    @property
    def when_cancelled(self) -> Callable[[Callable[[], None]], None]:
        """``when_cancelled(call)``: let it be called when the task is cancelled, by another thread.

        For clients that wait by themselves: ``call`` ends what they wait for, for instance by
        shutting a socket down. It must return at once, may come at any moment until ``close`` has
        returned and a little later, and more than once.
        """


class KeyedStateStore(ABC):
    """Gives states by their descriptors; also what windows call window and global state."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor[V]) -> ValueState[V]:
        """One value for each key."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor[V]) -> ListState[V]:
        """A list for each key."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor[MK, V]) -> MapState[MK, V]:
        """A dictionary for each key."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[V]) -> ReducingState[V]:
        """All values of a key in one, by a reduce function."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor[IN, OUT]
    ) -> AggregatingState[IN, OUT]:
        """All values of a key in one accumulator, by an aggregate function."""


class RuntimeContext(KeyedStateStore):
    """The context of ``open``: facts about the task, and state on keyed streams."""

    @abstractmethod
    def get_task_name(self) -> str:
        """The name of the vertex, without subtask numbers."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """For instance ``map (2/4)``."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int: ...

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int: ...

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """From 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """0 at first, one more after each restart."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str: ...

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Counters and the like of your own; they appear with the job's metrics."""

    @abstractmethod
    def is_cancelled(self) -> bool:
        """Whether the task is to end; for loops that wait for something outside of the job."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Wait so long; raises TaskCancelled as soon as the task is cancelled: let it pass."""


class OperatorStateStore(ABC):
    """Lists and broadcast maps that belong to the task, not to a key."""

    @abstractmethod
    def get_list_state(self, descriptor: ListStateDescriptor[V]) -> ListState[V]:
        """A list; when the job is rescaled, its elements are split among the tasks."""

    @abstractmethod
    def get_union_list_state(self, descriptor: ListStateDescriptor[V]) -> ListState[V]:
        """A list; when the job is restored, every task gets the elements of all."""

    @abstractmethod
    def get_broadcast_state(
        self, state_descriptor: MapStateDescriptor[MK, V]
    ) -> BroadcastState[MK, V]:
        """A map that every task fills alike."""


class FunctionInitializationContext:
    """The context of ``initialize_state``."""

    def __init__(
        self, operator_states: OperatorStateStore, keyed_states: KeyedStateStore, is_restored: bool
    ) -> None:
        self._operator_states = operator_states
        self._keyed_states = keyed_states
        self._is_restored = is_restored

    def is_restored(self) -> bool:
        """Whether the states hold what an earlier run left."""
        return self._is_restored

    def get_operator_state_store(self) -> OperatorStateStore:
        """State of the task."""
        return self._operator_states

    def get_keyed_state_store(self) -> KeyedStateStore:
        """State by key, on a keyed stream."""
        return self._keyed_states


class FunctionSnapshotContext:
    """The context of ``snapshot_state``."""

    def __init__(self, checkpoint_id: int, timestamp_ms: int) -> None:
        self._checkpoint_id = checkpoint_id
        self._timestamp_ms = timestamp_ms

    def get_checkpoint_id(self) -> int:
        return self._checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        """Milliseconds since 1970."""
        return self._timestamp_ms


@dataclass(frozen=True, slots=True)
class SnapshotMoment:
    """Which checkpoint a snapshot is taken for."""

    checkpoint: int
    timestamp_ms: int
    """When the driver triggered it, in milliseconds since 1970."""
    is_savepoint: bool = False
    stop: Stop = Stop.NO
    """Whether the job ends with it."""
    incremental: bool = False
    """Keyed state may be left as database files, those that are not in the storage yet."""
    directory: str = ""
    """The folder of a savepoint, as the workers open it."""


class TimeDomain(Enum):
    """Which kind of time a timer fires in."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerService(ABC):
    """Event and processing time; on keyed streams timers, which belong to the current key.

    Law: a timer fires once for each time and key, however often it is registered.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Milliseconds since 1970."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The smallest of all times before the first watermark, the largest after the last."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """``on_timer`` is called when the watermark reaches the time."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """``on_timer`` is called when the clock reaches the time."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Nothing happens if there is none."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Nothing happens if there is none."""
