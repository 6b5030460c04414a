"""Jobs from stream to stream in worker processes, killed, stopped, rescaled: each entry once."""

import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("redis")

from headgate.api.environment import StreamExecutionEnvironment
from headgate.base.checkpoints import Stop
from headgate.connectors.formats.schemas import SimpleStringSchema
from headgate.connectors.redis.sink import RedisStreamSink
from headgate.connectors.redis.source import RedisStreamSource
from headgate.control.life_cycle import JobState
from headgate.functions.sink import DeliveryGuarantee
from headgate.plan.job_graph import JobGraph
from tests.connectors.job_kit import begin, begin_again, open_job
from tests.connectors.redis.kit import RedisBench
from tests.host.control_rig import ended
from tests.host.recovering_kit import completed
from tests.host.rig import eventually

INPUTS = ["in-0", "in-1", "in-2"]


class StreamToStream:
    """Texts from three streams to one, exactly once."""

    def __init__(self, bench: RedisBench) -> None:
        self.bench = bench
        self.written: list[str] = []

    def write(self, count: int) -> None:
        for number in range(len(self.written), len(self.written) + count):
            self.bench.add(INPUTS[number % 3], f"{number:06}")
            self.written.append(f"{number:06}")

    def graph(self, parallelism: int) -> JobGraph:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism)
        schema, once = SimpleStringSchema(), DeliveryGuarantee.EXACTLY_ONCE
        source = RedisStreamSource(self.bench.url, INPUTS, schema=schema)
        sink = RedisStreamSink(self.bench.url, "out", schema=schema, guarantee=once)
        env.from_source(source, source_name="in").uid("in").sink_to(sink).uid("out")
        graph = env.get_job_graph()
        env.close()
        return graph

    def all_are_in(self) -> None:
        """Waits until each entry has come, and once."""
        eventually(lambda: self.bench.client.xlen("out") >= len(self.written), "the last entries")
        assert sorted(self.bench.values("out")) == self.written


def test_each_entry_is_written_once_over_killed_workers_savepoints_and_another_parallelism(
    bench: RedisBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    streams = StreamToStream(bench)
    streams.write(300)
    with ExitStack() as opened:
        job = open_job(opened, tmp_path, streams.graph(2))
        run, processes = begin(opened, job, 2)
        eventually(lambda: completed(job) >= 2, "checkpoints")
        streams.write(300)
        processes[1].signal(signal.SIGKILL)
        run = begin_again(opened, job, 2, run, "again")
        streams.write(300)
        streams.all_are_in()
        streams.write(300)
        saved = run.savepoint(str(tmp_path / "savepoint"), Stop.SUSPEND).result(30)
        assert ended(run).state is JobState.FINISHED
    streams.write(300)
    with ExitStack() as opened:
        settings = {"execution.savepoint.path": str(saved)}
        job = open_job(opened, tmp_path / "later", streams.graph(1), **settings)
        run, _ = begin(opened, job, 1)
        streams.all_are_in()
        run.cancel("the test is over")
        ended(run)
