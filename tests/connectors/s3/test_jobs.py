"""A whole job with checkpoints and part files in S3: refused for a while, its worker killed."""

import ast
import functools
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headgate.base.settings import StateBackendKind, StateSettings
from headgate.connectors.files.sink import TextFileSink
from headgate.control.life_cycle import JobState
from headgate.core.chain.context import OperatorContext
from headgate.core.operators.one_input import MapOperator
from headgate.core.operators.reduce import ReduceOperator
from headgate.core.operators.sinks import TwoPhaseSinkOperator
from headgate.core.operators.source import SourceOperator
from headgate.functions.source import Source, SplitReader
from headgate.host.driver.control_server import ControlServer
from headgate.plan import ship_strategies as ships
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.plan.stream_graph import NodeKind, StreamEdge, StreamGraph, StreamNode
from tests.host.control_rig import SETTINGS, TIMES, ended, replace_times, workers
from tests.host.recovering_kit import Job, completed
from tests.host.rig import eventually
from tests.s3_kit import Fault, FaultProxy, Store

pytest.importorskip("moto.server")
pytest.importorskip("obstore")
pytest.importorskip("rocksdict")

COUNT = 600
KEYS = 5


class Numbers(Source):
    """Half of the numbers, and the rest when there is a file ``hurry``."""

    bounded = True

    def __init__(self, hurry: Path) -> None:
        self.hurry = hurry

    def open(self, split: int, position: int | None, context: OperatorContext) -> "NumberReader":
        return NumberReader(position or 0, self.hurry)


class NumberReader(SplitReader):
    def __init__(self, number: int, hurry: Path) -> None:
        self.number, self.hurry = number, hurry

    def poll(self, limit: int) -> Sequence[int] | None:
        if self.number == COUNT // 2 and not self.hurry.exists():
            return ()
        if self.number >= COUNT:
            return None
        time.sleep(0.002)
        found = range(self.number, self.number + 3)
        self.number += 3
        return found

    def wait_ms(self) -> float:
        return 5.0

    def position(self) -> int:
        return self.number

    def close(self) -> None:
        pass


def key_of(record: tuple[int, int]) -> int:
    return record[0]


def add(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    return left[0], left[1] + right[1]


def job_graph(hurry: Path, out: str) -> JobGraph:
    graph = StreamGraph("counts", buffer_timeout_ms=5)
    pair = functools.partial(MapOperator, lambda number: (number % KEYS, 1))
    makers: list[tuple[str, NodeKind, Any]] = [
        ("read", NodeKind.SOURCE, functools.partial(SourceOperator, Numbers(hurry), (0,))),
        ("pair", NodeKind.OPERATOR, pair),
        ("count", NodeKind.OPERATOR, functools.partial(ReduceOperator, add, key_of, False)),
        ("files", NodeKind.SINK, functools.partial(TwoPhaseSinkOperator, TextFileSink(out))),
    ]
    for number, (name, kind, make) in enumerate(makers, 1):
        graph.nodes[number] = StreamNode(number, name, kind, make, 1, uid=name)
    for source, ship in ((1, None), (2, ships.hash_by(key_of)), (3, None)):
        how = ship or ships.default_strategy()
        graph.edges.append(StreamEdge(source, source + 1, 0, how))
    return build_job_graph(graph)


def test_a_job_outlives_failed_checkpoints_and_a_killed_worker(
    store: Store, proxy: FaultProxy, tmp_path: Path
) -> None:
    hurry, where = tmp_path / "hurry", store.at("job/chk", proxy.port)
    graph = job_graph(hurry, store.at("job/out"))
    about = {
        "execution.checkpointing.dir": where,
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.tolerable-failed-checkpoints": "100",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    state = StateSettings(backend=StateBackendKind.ROCKSDB)
    times = replace_times(TIMES, cancel_ms=2_000, settle_ms=50, loss_ms=10)
    with ControlServer(times=times) as server, ExitStack() as opened:
        job = Job(server, graph, **about)
        opened.callback(job.close)

        def begin(stage: str) -> tuple[Any, Any]:
            run, (process,) = job.begin(stage), opened.enter_context(workers(1))
            process.serve(server.contact("x", SETTINGS, stage, state=state), 0)
            return run, process

        run, process = begin("")
        eventually(lambda: completed(job) >= 1, "a checkpoint")
        proxy.choose = lambda method, path: Fault(403, "AccessDenied")  # which is not tried again
        eventually(lambda: job.keeper.statistics().failed >= 1, "a checkpoint that failed")
        proxy.choose = lambda method, path: None
        before = completed(job)
        eventually(lambda: completed(job) >= before + 2, "checkpoints after the trouble")
        assert [name for name in store.names("job/chk") if "/shared/" in name]
        process.signal(signal.SIGKILL)
        outcome = ended(run)
        assert outcome.restart_in_ms is not None, outcome
        assert job.keeper.settled().wait(20)
        hurry.touch()
        run, _ = begin("again")
        outcome = ended(run)
        assert outcome.state is JobState.FINISHED, outcome
        job.keeper.close(JobState.FINISHED)
    lines = b"".join(
        store.read(f"job/out/{name}") for name in store.names("job/out") if name[0] != "."
    ).decode()
    expected = [(key, count) for key in range(KEYS) for count in range(1, COUNT // KEYS + 1)]
    assert sorted(ast.literal_eval(line) for line in lines.splitlines()) == expected
    assert "x/owner" not in store.names("job/chk")
