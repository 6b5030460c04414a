"""A Delta table is followed into another one by real workers: killed, stopped, rescaled."""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.api.environment import StreamExecutionEnvironment
from headgate.base.checkpoints import Stop
from headgate.control.life_cycle import JobState
from headgate.plan.job_graph import JobGraph
from tests.connectors.job_kit import begin, begin_again, open_job
from tests.host.control_rig import ended
from tests.host.recovering_kit import completed
from tests.host.rig import eventually

pytest.importorskip("deltalake")

from deltalake import write_deltalake

from headgate.connectors.delta.sink import DeltaSink
from headgate.connectors.delta.source import DeltaSource
from tests.connectors.delta import kit


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    """Closes what jobs have opened; their files go to a folder of the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with ExitStack() as stack:
        yield stack


class Tables:
    """The one that is followed, and the one that is written."""

    def __init__(self, folder: Path) -> None:
        self.source = kit.make_table(folder / "source")
        self.sink = kit.make_table(folder / "sink")
        self.count = 0

    def add(self, count: int) -> None:
        numbers = pa.array(range(self.count, self.count + count), pa.int64())
        rows = pa.table({"n": numbers, "word": [""] * count})
        write_deltalake(str(self.source), rows, mode="append")
        self.count += count

    def graph(self, parallelism: int) -> JobGraph:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism)
        source = DeltaSource(self.source, follow=True, discover_ms=50)
        stream = env.from_source(source, source_name="followed").uid("followed")
        stream.sink_to(DeltaSink(self.sink)).uid("written")
        graph = env.get_job_graph()
        env.close()
        return graph

    def all_are_in(self) -> None:
        eventually(lambda: len(kit.numbers(self.sink)) >= self.count, "the last rows")
        assert sorted(kit.numbers(self.sink)) == list(range(self.count))


def test_each_row_is_copied_once_over_a_killed_worker_a_savepoint_and_another_parallelism(
    opened: ExitStack, tmp_path: Path
) -> None:
    tables = Tables(tmp_path)
    for _ in range(4):
        tables.add(50)
    job = open_job(opened, tmp_path, tables.graph(1))
    run, processes = begin(opened, job, 1)
    eventually(lambda: completed(job) >= 2, "checkpoints")
    tables.add(50)
    processes[0].signal(signal.SIGKILL)
    run = begin_again(opened, job, 1, run, "again")
    tables.add(50)
    tables.all_are_in()
    saved = run.savepoint(str(tmp_path / "savepoint"), Stop.SUSPEND).result(30)
    assert ended(run).state is JobState.FINISHED
    tables.add(50)
    path = {"execution.savepoint.path": str(saved)}
    wider = open_job(opened, tmp_path / "wider", tables.graph(2), **path)
    begin(opened, wider, 2)
    tables.add(50)
    tables.all_are_in()
