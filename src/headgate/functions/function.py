"""Base classes of a user's functions; most methods also take a plain callable instead.

A function is copied to every task; ``open`` is called there once before the first record and
``close`` once after the last. Attributes set in ``__init__`` travel along and must be picklable.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import GenericAlias
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from headgate.base.elements import Watermark
from headgate.functions.context import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    RuntimeContext,
    TimeDomain,
    TimerService,
)
from headgate.functions.state import TypeOf
from headgate.functions.type_variables import IN, IN1, IN2, KEY, OUT, K, T, V

_Method = TypeVar("_Method", bound=Callable[..., None])


def does_nothing(method: _Method) -> _Method:
    """Marks the ``open`` of a base class: a function that only inherits it needs no state."""
    method.does_nothing = True  # type: ignore[attr-defined] # a note on the function object
    return method


class Function(ABC):  # noqa: B024 - each kind of function has its own abstract method
    """Base of all functions."""

    @does_nothing  # noqa: B027
    def open(self, runtime_context: RuntimeContext, /) -> None:
        """Before the first record of a task: connect, load a model, and so on."""

    def close(self) -> None:  # noqa: B027
        """After the last record, and after a failure."""


class MapFunction(Function, Generic[IN, OUT]):
    """One record out for each record in."""

    @abstractmethod
    def map(self, value: IN, /) -> OUT:
        """The new record; None is refused."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """Any number of records out for each record in."""

    @abstractmethod
    def flat_map(self, value: IN, /) -> Iterable[OUT]:
        """The new records: return a list, or yield them."""


class FlatMaps(Protocol[IN, OUT]):
    """A FlatMapFunction, or another object with its method, such as a deserialization schema."""

    def flat_map(self, value: IN, /) -> Iterable[OUT]: ...


class FilterFunction(Function, Generic[IN]):
    """Says which records go on."""

    @abstractmethod
    def filter(self, value: IN, /) -> bool:
        """True: it goes on."""


class ReduceFunction(Function, Generic[V]):
    """Makes one record out of two."""

    @abstractmethod
    def reduce(self, value1: V, value2: V, /) -> V:
        """``value1`` is the result so far, ``value2`` the next record."""


class Reduces(Protocol[IN, OUT]):
    """A ReduceFunction to checkers: it may take more than the records of a stream.

    pyright says of ``map(lambda word: (word, 1))`` that it gives pairs with a literal 1.
    """

    def reduce(self, value1: IN, value2: IN, /) -> OUT: ...


class KeySelector(Function, Generic[IN, K]):
    """Takes the key out of a record. The same record must always give the same key."""

    @abstractmethod
    def get_key(self, value: IN, /) -> K:
        """The key; it need not be hashable."""


class NullByteKeySelector(KeySelector[IN, int]):
    """One key for all records, so that they meet in one task."""

    def get_key(self, value: IN) -> int:
        return 0


class Partitioner(Function, Generic[KEY]):
    """Says which task of the next operator gets the records of a key."""

    @abstractmethod
    def partition(self, key: KEY, num_partitions: int, /) -> int:
        """A number from 0 to ``num_partitions`` - 1."""


class OutputTag(Generic[T]):
    """Names a side output. Tags with the same id are the same tag, wherever they were made."""

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: TypeOf[T] | None = None) -> None:
        if not tag_id:
            raise ValueError("an output tag needs a text that is not empty as its id")
        self.tag_id = tag_id
        self.type_info = type_info

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        return self.tag_id.__hash__()

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"


Tagged: TypeAlias = tuple[OutputTag, Any]
"""What goes to a side output: ``yield tag, record``."""


class Timed(Protocol):
    """Base of all contexts. They can be subscripted, as some programs annotate them."""

    def __class_getitem__(cls, item: object) -> GenericAlias:
        return GenericAlias(cls, item)

    def timestamp(self) -> int:
        """The record's event time; the smallest of all times if it has none."""


class Keyed(Timed, Protocol):
    """Base of the contexts on keyed streams."""

    def timer_service(self) -> TimerService:
        """Event and processing time, and timers for the current key."""

    def get_current_key(self) -> Any:
        """What the key selector has returned for the record, or for that of the timer."""


class OnTimer(Keyed, Protocol):
    """What is known about a timer that fires; ``timestamp()`` is its time."""

    def time_domain(self) -> TimeDomain:
        """Whether it is a timer of event time or of processing time."""


class ProcessFunction(Function, Generic[IN, OUT]):
    """Any number of records out for each record in, side outputs among them."""

    class Context(Timed, Protocol):
        """What is known about the record at hand."""

        def timer_service(self) -> TimerService:
            """Event and processing time; without keys there are no timers."""

    @abstractmethod
    def process_element(
        self, value: IN, ctx: "ProcessFunction.Context", /
    ) -> "Iterable[OUT | Tagged] | None":
        """Yield records, or ``(tag, record)`` for a side output; None: nothing."""


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """A process function with the key of each record, keyed state and timers.

    ::

        class Alarm(KeyedProcessFunction):
            def open(self, runtime_context):
                self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

            def process_element(self, value, ctx):
                self.last.update(ctx.timestamp())
                ctx.timer_service().register_event_time_timer(ctx.timestamp() + 60_000)

            def on_timer(self, timestamp, ctx):
                if timestamp >= self.last.value() + 60_000:
                    yield ctx.get_current_key(), "silent for a minute"
    """

    class Context(Keyed, Protocol):
        """What is known about the record at hand."""

    class OnTimerContext(OnTimer, Protocol):
        """What is known about the timer."""

    @abstractmethod
    def process_element(
        self, value: IN, ctx: "KeyedProcessFunction.Context", /
    ) -> "Iterable[OUT | Tagged] | None":
        """Yield records, or ``(tag, record)`` for a side output; None: nothing."""

    def on_timer(
        self, timestamp: int, ctx: "KeyedProcessFunction.OnTimerContext", /
    ) -> Iterable[OUT | Tagged]:
        """A timer that was registered for the current key is due. Yield, or return a list."""
        return ()


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """A map for each of two connected streams. None is dropped."""

    @abstractmethod
    def map1(self, value: IN1, /) -> OUT | None:
        """For records of the first stream."""

    @abstractmethod
    def map2(self, value: IN2, /) -> OUT | None:
        """For records of the second stream."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """A flat map for each of two connected streams."""

    @abstractmethod
    def flat_map1(self, value: IN1, /) -> Iterable[OUT] | None:
        """For records of the first stream."""

    @abstractmethod
    def flat_map2(self, value: IN2, /) -> Iterable[OUT] | None:
        """For records of the second stream."""


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """A process function with a method for each of two connected streams."""

    class Context(ProcessFunction.Context, Protocol):
        """What is known about the record at hand."""

    @abstractmethod
    def process_element1(
        self, value: IN1, ctx: "CoProcessFunction.Context", /
    ) -> "Iterable[OUT | Tagged] | None":
        """For records of the first stream."""

    @abstractmethod
    def process_element2(
        self, value: IN2, ctx: "CoProcessFunction.Context", /
    ) -> "Iterable[OUT | Tagged] | None":
        """For records of the second stream."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """A CoProcessFunction of two streams that have keys: both sides share state and timers."""

    class Context(Keyed, Protocol):
        """What is known about the record at hand."""

    class OnTimerContext(OnTimer, Protocol):
        """What is known about the timer."""

    @abstractmethod
    def process_element1(
        self, value: IN1, ctx: "KeyedCoProcessFunction.Context", /
    ) -> "Iterable[OUT | Tagged] | None":
        """For records of the first stream."""

    @abstractmethod
    def process_element2(
        self, value: IN2, ctx: "KeyedCoProcessFunction.Context", /
    ) -> "Iterable[OUT | Tagged] | None":
        """For records of the second stream."""

    def on_timer(
        self, timestamp: int, ctx: "KeyedCoProcessFunction.OnTimerContext", /
    ) -> Iterable[OUT | Tagged]:
        """A timer that was registered for the current key is due. Yield, or return a list."""
        return ()


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Makes records of a pair that an interval join has found."""

    class Context(Timed, Protocol):
        """What is known about the pair; ``timestamp()`` is the later time of both."""

        def get_left_timestamp(self) -> int: ...

        def get_right_timestamp(self) -> int: ...

    @abstractmethod
    def process_element(
        self, left: IN1, right: IN2, ctx: "ProcessJoinFunction.Context", /
    ) -> "Iterable[OUT | Tagged] | None":
        """Yield records, or ``(tag, record)`` for a side output; None: nothing."""


class SinkFunction(Function, Generic[IN]):
    """Does something with each record and sends nothing on."""

    class Context(Protocol):
        """What is known beside the value."""

        def timestamp(self) -> int:
            """The record's event time; the smallest of all times if it has none."""

        def current_processing_time(self) -> int:
            """Milliseconds since 1970."""

    @abstractmethod
    def invoke(self, value: IN, context: "SinkFunction.Context", /) -> None:
        """Called for each record."""


class SourceFunction(Function, Generic[OUT]):
    """Makes records in a thread of its own until it returns or is cancelled.

    One that is a CheckpointedFunction, too, goes on from its state after a failure. Checkpoints are
    taken on the task's thread, between two blocks under the lock.

    ::

        def run(self, ctx):
            while self.running:
                with ctx.get_checkpoint_lock():
                    ctx.collect(self.next)
                    self.next += 1
    """

    class SourceContext(Protocol):
        """Where the records go."""

        def collect(self, element: object) -> None:
            """Send one record; waits while those downstream are slower."""

        def collect_with_timestamp(self, element: object, timestamp: int) -> None:
            """Send one record with its event time, in milliseconds since 1970."""

        def emit_watermark(self, mark: Watermark) -> None:
            """No record with this timestamp or an earlier one follows."""

        def mark_as_temporarily_idle(self) -> None:
            """Nobody shall wait for this source until its next record or watermark."""

        def get_checkpoint_lock(self) -> AbstractContextManager[object]:
            """Hold it while a record is collected and the function's own position follows."""

    @abstractmethod
    def run(self, ctx: "SourceFunction.SourceContext", /) -> None:
        """Call ``ctx.collect`` for each record; return at the end."""

    @abstractmethod
    def cancel(self) -> None:
        """Make ``run`` return soon; called from another thread."""


class CheckpointedFunction(ABC):
    """To be inherited beside a function's own base class.

    ::

        class Buffering(CheckpointedFunction, MapFunction):
            def initialize_state(self, context):
                states = context.get_operator_state_store()
                self.kept = states.get_list_state(ListStateDescriptor("kept"))
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext, /) -> None:
        """Before ``open``: ask for the states, which hold what an earlier run has left."""

    def snapshot_state(self, context: FunctionSnapshotContext, /) -> None:  # noqa: B027
        """Before each snapshot: bring the states up to date."""


class CheckpointListener(ABC):
    """A function that is told what became of checkpoints; inherited beside its own base class.

    Not told of savepoints with which the job does not end. A call may be missed: then that for a
    later checkpoint says the same of all earlier ones.
    """

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int, /) -> None:
        """The checkpoint is stored for good; no later failure goes back to before it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int, /) -> None:  # noqa: B027
        """The checkpoint came to nothing."""
