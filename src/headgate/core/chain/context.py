"""What an operator and its user's function know about the task they run in.

``OperatorContext`` is handed to the operator, ``OperatorRuntimeContext`` to the user's function: it
gives out keyed state by descriptor, on a keyed stream only; there the operator hands in an opener.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from headgate.base.elements import Record
from headgate.base.spilling import SpillRoom
from headgate.core.chain.async_calls import StartCalls
from headgate.core.chain.immediate_calls import immediate_calls
from headgate.core.chain.snapshots import OperatorRestored
from headgate.core.loops.definitions import Definition
from headgate.core.state.backend import Backends, KeyedBackend
from headgate.core.state.keys import groups_of
from headgate.core.state.memory import MemoryBackends
from headgate.core.state.migration import StateShapes
from headgate.functions.context import KeyedStateStore, RuntimeContext, TaskInfo
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


def _cannot_wait(ready: Callable[[], bool]) -> None:
    raise AssertionError("an operator without a task waits in the middle of a bundle")


def _raise(raw: object, error: Exception) -> None:
    raise error


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """Handed to ``Operator.open``. ``now_ms`` is wall-clock time since 1970, as users expect it."""

    operator: str
    task: TaskInfo
    now_ms: Callable[[], int]
    later: Callable[[float, Callable[[], None]], object] = lambda delay_ms, action: None
    """Run ``action`` on the task's thread after ``delay_ms``, as a mail."""
    uid: str = ""
    """The operator's uid; state is kept under it."""
    backends: Backends = field(default_factory=MemoryBackends)
    metrics: MetricGroup = field(default_factory=lambda: MetricGroup(lambda: 0))
    """Figures of the user's functions in the operator."""
    async_calls: StartCalls = immediate_calls
    """Begins asynchronous calls; reports by mail that some have ended."""
    wait_until: Callable[[Callable[[], bool]], None] = _cannot_wait
    """Wait in the middle of a bundle; ``ready`` is asked inside the baton after every wake."""
    held_up_ms: Callable[[], float] = lambda: 0.0
    """How long backpressure has kept the task from working, all in all."""
    elapsed_ms: Callable[[], float] = lambda: 0.0
    """Time of which only differences count."""
    tell_time: Callable[[str, int | None], None] = lambda group, watermark_ms: None
    """A source reports its event time to its alignment group; None: it is idle."""
    wake: Callable[[], None] = lambda: None
    """Polls the source of the task again; from any thread, at any time."""
    want_splits: Callable[[int, int], None] = lambda count, held: None
    """A source asks the driver for more splits, and tells how many it has not read yet."""
    tell_source_time: Callable[[int, int, bool], None] = lambda received, watermark_ms, rests: None
    """A source whose splits the driver hands out reports its event time: see the message."""

    spills: SpillRoom | None = None
    """Where a batch operator puts what is too much for memory; None: it stays in memory."""

    restored: OperatorRestored | None = None
    """The operator's state from an earlier run; None: it starts without state."""
    checkpoints: bool = False
    """Whether checkpoints are taken by the clock: sinks then commit with them, not at the end."""
    key_type: object = None
    """What the program has declared of the keys of its input; None: nothing."""
    record_type: object = None
    """What the program has declared of the records of its only input; None: nothing."""
    malformed: Callable[[object, Exception], None] = _raise
    """See ``ConnectorContext``."""
    is_cancelled: Callable[[], bool] = lambda: False
    sleep: Callable[[float], None] = lambda seconds: None
    when_cancelled: Callable[[Callable[[], None]], None] = lambda call: None
    """See ``ConnectorContext``."""
    warn: Callable[[str, BaseException | None], None] = lambda text, error: None
    """Write a line to the log, with the traceback of ``error``."""
    definitions: tuple[Definition, ...] = ()
    """The source of its functions, as far as it is known: short ones are inlined."""
    shapes: StateShapes = field(init=False, compare=False)
    """Kinds and types of its states: what a checkpoint has noted, and what it opens."""

    def __post_init__(self) -> None:
        restored = self.restored or OperatorRestored()
        shapes = StateShapes(restored.shapes, self.operator, restored.checkpoint)
        object.__setattr__(self, "shapes", shapes)

    def keyed_backend(self) -> KeyedBackend:
        """A backend with what was restored of the operator; whoever asks closes it. Ask once."""
        task = self.task
        groups = groups_of(task.subtask, task.parallelism, task.max_parallelism)
        backend = self.backends.keyed(self.uid or self.operator, groups, task.max_parallelism)
        if self.restored is not None:
            try:
                if self.restored.databases:
                    backend.restore_files(self.restored.databases)
                backend.restore(self.restored.keyed())
            except BaseException:
                backend.close()
                raise
        return backend


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as the driver brings it."""

    now_ms: Callable[[], float]
    """Only good for differences."""
    wall_ms: Callable[[], int]
    """Since 1970."""
    later: Callable[[float, Callable[[], None]], object]
    """Call back inside the baton after so many milliseconds."""
    runnable_ms: Callable[[], float] = lambda: 0.0
    """How long the threads of the worker have waited for a core so far, all together; 0: the
    platform does not tell. One that waits may hold what the task's thread needs."""
    round_ms: Callable[[], float] = lambda: 0.0
    """About how long it takes until every task of the worker had its turn."""


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
