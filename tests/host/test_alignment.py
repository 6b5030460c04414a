"""Sources in two processes wait for each other: a fast one is held back by a slow one."""

import functools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.core.chain.watermarks import time_plan
from headgate.core.operators.sinks import SinkFunctionOperator
from headgate.core.operators.source import SourceOperator
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader
from headgate.functions.time import Duration
from headgate.functions.watermarks import WatermarkStrategy
from headgate.host.driver.control_server import ControlServer
from headgate.plan import ship_strategies as ships
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamEdge, StreamGraph, StreamNode
from tests.host.control_rig import TIMES, Launcher, ended, serving
from tests.host.jobs import LineFile, written
from tests.host.rig import eventually

DRIFT_MS = 1000
PIECE = 10
LAST = 5000


@dataclass(frozen=True)
class Race(Source):
    """Two splits; ``go`` is a file that lets the slow one move on."""

    go: Path
    bounded = False

    def open(self, split: object, position: object, context: ConnectorContext) -> "Fast | Slow":
        return Fast(self.go) if split == "fast" else Slow(self.go)


class Fast(SplitReader):
    """Numbers as fast as they are asked for; it notices if nobody holds it back."""

    def __init__(self, go: Path) -> None:
        self.go, self.next = go, 0

    def poll(self, limit: int) -> list[int] | None:
        if self.next >= LAST:
            return None
        assert self.next <= DRIFT_MS + 2 * PIECE or self.go.exists(), "too far ahead"
        numbers = range(self.next, self.next + PIECE)
        self.next += PIECE
        return list(numbers)

    def wait_ms(self) -> float:
        return 1.0

    def position(self) -> object:
        return None

    def close(self) -> None:
        pass


class Slow(Fast):
    """One record, then nothing for long."""

    def poll(self, limit: int) -> list[int] | None:
        if self.next == 0:
            self.next = 1
            return [0]
        return None if self.go.exists() else []


def same(number: int, before: int) -> int:
    return number


def race(folder: Path, go: Path) -> JobGraph:
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(same)
        .with_watermark_alignment("race", Duration.of_millis(DRIFT_MS), Duration.of_millis(20))
    )
    plan = time_plan(strategy, interval_ms=10, batch=False)
    graph = StreamGraph("race", buffer_timeout_ms=5)
    source = functools.partial(SourceOperator, Race(go), ("fast", "slow"), plan)
    sink = functools.partial(SinkFunctionOperator, LineFile(folder))
    graph.nodes[1] = StreamNode(1, "race", NodeKind.SOURCE, source, 2)
    graph.nodes[2] = StreamNode(2, "lines", NodeKind.SINK, sink, 2)
    graph.edges.append(StreamEdge(1, 2, 0, ships.rebalance()))
    return build_job_graph(graph)


@pytest.fixture
def launcher(no_leaks: None) -> Iterator[Launcher]:
    with ControlServer(times=TIMES) as server:
        yield Launcher(server)


def test_a_fast_source_waits_for_a_slow_one_and_goes_on_after_its_end(
    launcher: Launcher, tmp_path: Path
) -> None:
    folder, go = tmp_path / "lines", tmp_path / "go"
    folder.mkdir()
    run, contact = launcher.begin(race(folder, go))
    with serving(contact) as (first, second):
        eventually(lambda: "1000" in written(folder) or run.outcome is not None, "the limit")
        time.sleep(0.2)  # it would run on now, if nobody held it back
        assert run.outcome is None
        assert max(map(int, written(folder))) <= DRIFT_MS + 2 * PIECE
        go.touch()
        outcome = ended(run)
        assert outcome.problem == ""
        first.returned()
        second.returned()
    assert written(folder) == sorted(["0", *map(str, range(LAST))])
