"""Small jobs for the tests of control: numbers → a function → lines in files."""

import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.base.elements import Record
from headgate.core.operators.one_input import MapOperator
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.operators.source import SourceOperator
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader
from headgate.plan import ship_strategies as ships
from headgate.plan.job_graph import JobGraph, JobVertex, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamEdge, StreamGraph, StreamNode

Function = Callable[[Record], Record] | object


@dataclass(frozen=True)
class Numbers(Source):
    """A source of numbers; without a count it never ends, and is slow."""

    count: int | None
    bounded = True

    def open(self, split: object, position: object, context: ConnectorContext) -> "NumberReader":
        assert isinstance(split, int)
        return NumberReader(split, self.count)


class NumberReader(SplitReader):
    def __init__(self, split: int, count: int | None) -> None:
        self.next, self.count = split, count

    def poll(self, limit: int) -> Sequence[int] | None:
        if self.count is None:
            time.sleep(0.001)
            self.next += 1
            return [self.next]
        if self.next >= self.count:
            return None
        numbers = range(self.next, min(self.count, self.next + 100 * 2), 2)
        self.next = numbers[-1] + 2
        return list(numbers)

    def wait_ms(self) -> float:
        return 1.0

    def position(self) -> int:
        return self.next

    def close(self) -> None:
        pass


class LineFile:
    """Writes each record as a line, in a file of the subtask."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, context) -> None:  # type: ignore[no-untyped-def]
        self.file = (self.folder / f"part-{context.get_index_of_this_subtask()}").open("a")

    def invoke(self, value: Record, context: object) -> None:
        self.file.write(f"{value}\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def double(number: int) -> int:
    return 2 * number


def slow_double(number: int) -> int:
    time.sleep(0.002)
    return 2 * number


class FailLater:
    """Raises as soon as data has reached both tasks of the sink, so that all are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def map(self, number: int) -> int:
        if flows(self.folder):
            raise ValueError("that is too much")
        return number


class LoadsSlowly:
    """A function that takes its time to be unpickled, as large models and imports do."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __reduce__(self) -> tuple[object, ...]:
        return _load_slowly, (self.seconds,)

    def map(self, number: int) -> int:
        return double(number)


def _load_slowly(seconds: float) -> LoadsSlowly:
    time.sleep(seconds)
    return LoadsSlowly(seconds)


def hang(number: int) -> int:
    threading.Event().wait()
    return number


def written(folder: Path) -> list[str]:
    return sorted(line for part in folder.glob("part-*") for line in part.read_text().split())


def flows(folder: Path) -> bool:
    """Whether both tasks of the sink have written something."""
    parts = [folder / "part-0", folder / "part-1"]
    return all(part.exists() and part.stat().st_size > 0 for part in parts)


def job_of(
    folder: Path,
    function: Function = double,
    *,
    count: int | None = 1000,
    parallelism: int = 2,
    batch: bool = False,
) -> JobGraph:
    """Source (2 splits), map behind a shuffle, sink behind another."""
    graph = StreamGraph("numbers", batch=batch, buffer_timeout_ms=5)
    makers = [
        ("numbers", NodeKind.SOURCE, functools.partial(SourceOperator, Numbers(count), (0, 1))),
        ("map", NodeKind.OPERATOR, functools.partial(MapOperator, function)),
        ("lines", NodeKind.SINK, functools.partial(SinkFunctionOperator, LineFile(folder))),
    ]
    for number, (name, kind, make) in enumerate(makers, 1):
        graph.nodes[number] = StreamNode(number, name, kind, make, parallelism)
    for source in (1, 2):
        graph.edges.append(StreamEdge(source, source + 1, 0, ships.rebalance()))
    return build_job_graph(graph)


def vertices_of(graph: JobGraph) -> dict[int, JobVertex]:
    return {vertex.id: vertex for vertex in graph.vertices}
