"""A job whose state is read while it runs: numbers by their remainder, in every kind of state.

Its driver and its workers are real; ``ReadJob`` is what stands for the job in the driver.
"""

import functools
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from headgate.base.elements import Record
from headgate.base.inspections import Found, Inspection
from headgate.core.operators.one_input import KeyedProcessOperator
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.operators.source import SourceOperator
from headgate.functions.context import ConnectorContext, RuntimeContext
from headgate.functions.source import Source, SplitReader
from headgate.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from headgate.host.driver.driver_run import DriverRun
from headgate.plan import ship_strategies as ships
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamEdge, StreamGraph, StreamNode

KEYS = 10


@dataclass(frozen=True)
class Counted(Source):
    """A source that gives numbers up to ``count``, and then nothing, for ever."""

    count: int
    bounded = False

    def open(self, split: object, position: object, context: ConnectorContext) -> "CountedReader":
        return CountedReader(self.count)


class CountedReader(SplitReader):
    def __init__(self, count: int) -> None:
        self._next, self._count = 0, count

    def poll(self, limit: int) -> Sequence[int]:
        first, self._next = self._next, min(self._count, self._next + 1000)
        return range(first, self._next)

    def wait_ms(self) -> float:
        return 5.0

    def position(self) -> int:
        return self._next

    def close(self) -> None:
        """Nothing is open."""


class Mean:
    """An aggregate: the mean of what was added."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        return [accumulator[0] + value, accumulator[1] + 1]

    def get_result(self, accumulator: list[int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return [left[0] + right[0], left[1] + right[1]]


class Shape:
    """A value of a class of the user's."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and other.number == self.number

    def __repr__(self) -> str:
        return f"Shape {self.number}"


class Remember:
    """Keeps what it has seen of each key in a state of each kind."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", None))
        self.last = context.get_list_state(ListStateDescriptor("last", None))
        self.tens = context.get_map_state(MapStateDescriptor("tens", None, None))
        self.sum = context.get_reducing_state(ReducingStateDescriptor("sum", _add, None))
        self.mean = context.get_aggregating_state(AggregatingStateDescriptor("mean", Mean(), None))
        self.shape = context.get_state(ValueStateDescriptor("shape", None))
        self.never = context.get_state(ValueStateDescriptor("never", None))

    def process_element(self, value: int, context: object) -> Iterable[int]:
        self.count.update((self.count.value() or 0) + 1)
        self.last.update([*self.last.get(), value][-3:])
        self.tens.put(f"{value // 10 % 10}", value)
        self.sum.add(value)
        self.mean.add(value)
        self.shape.update(Shape(value))
        return []


class Halt:
    """Does not come back from the record 7 until there is a file ``go``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", None))

    def process_element(self, value: int, context: object) -> Iterable[int]:
        self.count.update((self.count.value() or 0) + 1)
        if value == 7:
            (self.folder / "halted").touch()
            while not (self.folder / "go").exists():
                time.sleep(0.01)
        return []


def _add(left: int, right: int) -> int:
    return left + right


def remainder(number: int) -> int:
    return number % KEYS


def ignore(record: Record) -> None:
    """A sink."""


def counted_job(
    count: int = 100, parallelism: int = 2, function: object | None = None, key_type: object = None
) -> JobGraph:
    """A source, a keyed process function with the uid ``counts``, a sink in its chain."""
    graph = StreamGraph("counted", buffer_timeout_ms=5)
    makes = [
        ("numbers", NodeKind.SOURCE, functools.partial(SourceOperator, Counted(count), (0,)), 1),
        (
            "counts",
            NodeKind.OPERATOR,
            functools.partial(KeyedProcessOperator, function or Remember(), remainder),
            parallelism,
        ),
        ("sink", NodeKind.SINK, functools.partial(SinkFunctionOperator, ignore), parallelism),
    ]
    for number, (name, kind, make, tasks) in enumerate(makes, 1):
        uid = name if name == "counts" else None
        graph.nodes[number] = StreamNode(number, name, kind, make, tasks, uid=uid)
    graph.edges.append(StreamEdge(1, 2, 0, ships.hash_by(remainder, key_type=key_type)))
    graph.edges.append(StreamEdge(2, 3, 0, ships.forward()))
    return build_job_graph(graph)


class ReadJob:
    """See ``ReadableJob``; what SparkJob is there."""

    def __init__(self, graph: JobGraph, run: DriverRun) -> None:
        self.graph = graph.outline()
        self.run = run

    def has_ended(self) -> bool:
        return self.run.outcome is not None

    def inspect(self, task: str, what: Inspection, timeout_s: float) -> "Future[Found]":
        return self.run.inspect(task, what, timeout_s)
