"""Base classes of a user's functions; most methods also take a plain callable instead.

A function is copied to every task; ``open`` is called there once before the first record and
``close`` once after the last. Attributes set in ``__init__`` travel along and must be picklable.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from headgate.core.chain.runtime import RuntimeContext

IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")


class Function(ABC):  # noqa: B024 - each kind of function has its own abstract method
    """Base of all functions."""

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027
        """Before the first record of a task: connect, load a model, and so on."""

    def close(self) -> None:  # noqa: B027
        """After the last record, and after a failure."""


class MapFunction(Function, Generic[IN, OUT]):
    """One record out for each record in."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """The new record; None is refused."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """Any number of records out for each record in."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT]:
        """The new records: return a list, or yield them."""


class FilterFunction(Function, Generic[IN]):
    """Says which records go on."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """True: it goes on."""


class ReduceFunction(Function, Generic[IN]):
    """Makes one record out of two."""

    @abstractmethod
    def reduce(self, value1: IN, value2: IN) -> IN:
        """``value1`` is the result so far, ``value2`` the next record."""


class KeySelector(Function, Generic[IN, KEY]):
    """Takes the key out of a record. The same record must always give the same key."""

    @abstractmethod
    def get_key(self, value: IN) -> KEY:
        """The key; it need not be hashable."""


class Partitioner(Function, Generic[KEY]):
    """Says which task of the next operator gets the records of a key."""

    @abstractmethod
    def partition(self, key: KEY, num_partitions: int) -> int:
        """A number from 0 to ``num_partitions`` - 1."""


class ProcessFunction(Function, Generic[IN, OUT]):
    """Any number of records out for each record in, side outputs among them."""

    class Context(Protocol):
        """What is known about the record at hand."""

        def timestamp(self) -> int:
            """Its event time; the smallest of all times if it has none."""

    @abstractmethod
    def process_element(self, value: IN, ctx: "ProcessFunction.Context") -> "Iterable[OUT] | None":
        """Yield records, or ``(tag, record)`` for a side output; None: nothing."""


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """A process function that knows the key of each record."""

    class Context(ProcessFunction.Context, Protocol):
        """What is known about the record at hand."""

        def get_current_key(self) -> object:
            """What the key selector has returned for it."""

    @abstractmethod
    def process_element(
        self, value: IN, ctx: "KeyedProcessFunction.Context"
    ) -> "Iterable[OUT] | None":
        """Yield records, or ``(tag, record)`` for a side output; None: nothing."""


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """A map for each of two connected streams. None is dropped."""

    @abstractmethod
    def map1(self, value: IN1) -> OUT | None:
        """For records of the first stream."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT | None:
        """For records of the second stream."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """A flat map for each of two connected streams."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None:
        """For records of the first stream."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None:
        """For records of the second stream."""


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """A process function with a method for each of two connected streams."""

    class Context(ProcessFunction.Context, Protocol):
        """What is known about the record at hand."""

    @abstractmethod
    def process_element1(
        self, value: IN1, ctx: "CoProcessFunction.Context"
    ) -> "Iterable[OUT] | None":
        """For records of the first stream."""

    @abstractmethod
    def process_element2(
        self, value: IN2, ctx: "CoProcessFunction.Context"
    ) -> "Iterable[OUT] | None":
        """For records of the second stream."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """The same for two connected streams that have keys."""

    class Context(KeyedProcessFunction.Context, Protocol):
        """What is known about the record at hand."""

    @abstractmethod
    def process_element1(
        self, value: IN1, ctx: "KeyedCoProcessFunction.Context"
    ) -> "Iterable[OUT] | None":
        """For records of the first stream."""

    @abstractmethod
    def process_element2(
        self, value: IN2, ctx: "KeyedCoProcessFunction.Context"
    ) -> "Iterable[OUT] | None":
        """For records of the second stream."""


class SinkFunction(Function, Generic[IN]):
    """Does something with each record and sends nothing on."""

    class Context(Protocol):
        """What is known beside the value."""

        def timestamp(self) -> int:
            """The record's event time; the smallest of all times if it has none."""

        def current_processing_time(self) -> int:
            """Milliseconds since 1970."""

    @abstractmethod
    def invoke(self, value: IN, context: "SinkFunction.Context") -> None:
        """Called for each record."""


class SourceFunction(Function, Generic[OUT]):
    """Makes records in a thread of its own until it returns or is cancelled."""

    class SourceContext(Protocol):
        """Where the records go."""

        def collect(self, element: object) -> None:
            """Send one record; waits while those behind are slower."""

        def collect_with_timestamp(self, element: object, timestamp: int) -> None:
            """The same with the event time, in milliseconds since 1970."""

    @abstractmethod
    def run(self, ctx: "SourceFunction.SourceContext") -> None:
        """Call ``ctx.collect`` for each record; return at the end."""

    @abstractmethod
    def cancel(self) -> None:
        """Make ``run`` return soon; called from another thread."""
