"""A job that tests of checkpoints look into: numbers, counted by key, as lines in files.

Half of the numbers come at once, the rest when ``flood`` is set; ``slow`` fills the buffers, and
without ``may_write`` the threads that write state are held up.
"""

import functools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.core.operators.one_input import MapOperator
from headgate.core.operators.reduce import ReduceOperator
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.operators.source import SourceOperator
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader
from headgate.host.checkpoints.snapshot_writer import WRITER_NAMES
from headgate.plan import ship_strategies as ships
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamEdge, StreamGraph, StreamNode
from tests.host.jobs import LineFile, written

KEYS = 7
COUNT = 4000

flood = threading.Event()
slow = threading.Event()
may_write = threading.Event()


class Kept(int):
    """A count that is written when the test lets it, as if the storage took its time."""

    def __reduce__(self) -> tuple[Any, ...]:
        if threading.current_thread().name in WRITER_NAMES:
            assert may_write.wait(20)
        return Kept, (int(self),)


@dataclass(frozen=True)
class Halting(Source):
    """Numbers of two splits; half of them come, the rest when the test says so."""

    count: int = COUNT
    bounded = True

    def open(self, split: Any, position: Any, context: ConnectorContext) -> "HaltingReader":
        return HaltingReader(split if position is None else position, self.count)


class HaltingReader(SplitReader):
    def __init__(self, start: int, count: int) -> None:
        self.next, self.count = start, count

    def poll(self, limit: int) -> Sequence[int] | None:
        end = self.count if flood.is_set() else self.count // 2
        found = range(self.next, end, 2)[: min(limit, 50)]
        if not found:
            return None if flood.is_set() else []
        self.next = found[-1] + 2
        return list(found)

    def wait_ms(self) -> float:
        return 1.0

    def position(self) -> int:
        return self.next

    def close(self) -> None:
        pass


def pair(number: int) -> tuple[int, int, bytes]:
    """Key, one, and ballast so that buffers fill; slow if the test says so."""
    if slow.is_set():
        time.sleep(0.002)
    return number % KEYS, 1, b"x" * 200


def key_of(record: tuple[int, int, bytes]) -> int:
    return record[0]


def add(left: Any, right: Any) -> tuple[int, int, bytes]:
    return left[0], Kept(left[1] + right[1]), b""


def shown(record: Any) -> str:
    return f"{record[0]}:{record[1]}"


def counts_of(folder: Path) -> dict[int, int]:
    """The last count of each key."""
    found: dict[int, int] = {}
    for line in written(folder):
        key, count = map(int, line.split(":"))
        found[key] = max(count, found.get(key, 0))
    return found


HALF = dict(Counter(number % KEYS for number in range(COUNT // 2)))
EXPECTED = dict(Counter(number % KEYS for number in range(COUNT)))


def count_job(folder: Path, parallelism: int = 2, show: Any = shown) -> JobGraph:
    """Source, map behind a shuffle, count by key, lines in files; three vertices."""
    graph = StreamGraph("counts", buffer_timeout_ms=5)
    makers: list[tuple[str, NodeKind, Any, int]] = [
        ("read", NodeKind.SOURCE, functools.partial(SourceOperator, Halting(), (0, 1)), 2),
        ("pair", NodeKind.OPERATOR, functools.partial(MapOperator, pair), parallelism),
        (
            "count",
            NodeKind.OPERATOR,
            functools.partial(ReduceOperator, add, key_of, False),
            parallelism,
        ),
        ("show", NodeKind.OPERATOR, functools.partial(MapOperator, show), parallelism),
        (
            "lines",
            NodeKind.SINK,
            functools.partial(SinkFunctionOperator, LineFile(folder)),
            parallelism,
        ),
    ]
    for number, (name, kind, make, tasks) in enumerate(makers, 1):
        graph.nodes[number] = StreamNode(number, name, kind, make, tasks, uid=name)
    for source, ship in ((1, ships.rebalance()), (2, ships.hash_by(key_of)), (3, None), (4, None)):
        how = ship or ships.default_strategy()
        graph.edges.append(StreamEdge(source, source + 1, 0, how))
    return build_job_graph(graph)
