"""Actions that have to wait for slots, and those that are interrupted."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from headgate.base.errors import JobCancelled
from headgate.cli.run import run_program
from headgate.spark.dataframe.actions import INTERRUPTED, _cell_ended
from headgate.spark.dataframe.frame_job import FrameJob
from headgate.spark.executors import query_stages
from tests.cli.kit import write
from tests.spark.cluster import until
from tests.spark.programs import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = """
import pathlib, sys, time
mark = pathlib.Path(sys.argv[1])

def stay(number):
    mark.touch()
    time.sleep(0.05)
    return number

env.set_parallelism(2)
env.from_collection(range(1_000_000)).map(stay).to_dataframe("n long", "rows").collect()
"""
pytestmark = pytest.mark.timeout(300)
MANY = 1_000_000
WAITS = "waiting for 2 slots; 3 of 4 are taken by other jobs of this application"


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[Any]:
    """A job that has three of the four slots."""
    seen = tmp_path / "seen"
    env = environment(3)
    stream = env.from_collection(range(100_000)).rebalance()
    stream.map(lambda value: seen.touch() or time.sleep(0.05)).add_sink(lambda value: None)
    client = env.execute_async("holds the slots")
    assert until(seen.exists, 60)
    yield client
    client.cancel().result()


class Call:
    """An action on a thread of its own, as another cell or a program has it."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.found: Any = None
        self.error: BaseException | None = None
        self._act = act
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.found = self._act()
        except BaseException as error:
            self.error = error

    def join(self) -> "Call":
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self


def rows(spark: "SparkSession", function: Any = lambda row: row.id, count: int = 100) -> Any:
    stream = environment().from_dataframe(spark.range(count))
    return stream.map(function).to_dataframe("n long", "rows")


def interrupt_cell() -> None:
    """What IPython tells after a cell that was interrupted."""
    _cell_ended(SimpleNamespace(error_in_exec=KeyboardInterrupt()))


def test_an_action_says_that_it_waits_for_slots_and_then_runs(
    spark: "SparkSession", taken: Any, begun: list[FrameJob], caplog: pytest.LogCaptureFixture
) -> None:
    call = Call(rows(spark).collect)
    assert until(lambda: bool(begun), 60)
    (job,) = begun
    assert (job.waits_for(), job.status().name, job.figures()) == (WAITS, "CREATED", [])
    assert f"job rows is {WAITS}" in caplog.messages
    taken.cancel().result()
    assert sorted(row.n for row in call.join().found) == list(range(100))
    assert until(job.has_ended, 30)
    assert (job.waits_for(), job.status().name) == ("", "FINISHED")
    assert begun == [job], "it is one job, before and after"


def test_an_action_that_waits_can_be_cancelled(
    spark: "SparkSession", taken: Any, begun: list[FrameJob]
) -> None:
    call = Call(rows(spark).count)
    assert until(lambda: bool(begun), 60)
    begun[0].cancel("somebody pressed the button")
    error = call.join().error
    assert isinstance(error, JobCancelled) and error.reason == "somebody pressed the button"
    assert begun[0].status().name == "CANCELED"


def test_an_interrupted_cell_ends_actions_that_run_wait_or_compute_their_input(
    spark: "SparkSession", begun: list[FrameJob], tmp_path: Path
) -> None:
    seen, read = tmp_path / "seen", tmp_path / "read"

    def stay(row: Any) -> int:
        seen.touch()
        time.sleep(0.05)
        return int(row.id)

    def slow_input(batches: Any) -> Any:
        read.touch()
        for batch in batches:
            time.sleep(600)
            yield batch

    runs = Call(rows(spark, stay, MANY).collect)
    assert until(seen.exists, 60)
    source = spark.range(0, 10, 1, 1).mapInArrow(slow_input, "id long")
    reads = Call(environment().from_dataframe(source).to_dataframe("n long", "reads").collect)
    assert until(read.exists, 60)
    waits = Call(rows(spark).collect)
    assert until(lambda: len(begun) == 2, 60)
    interrupt_cell()
    for call in (runs, reads, waits):
        error = call.join().error
        assert isinstance(error, JobCancelled) and error.reason == INTERRUPTED
    assert {job.status().name for job in begun} == {"CANCELED"}
    assert until(lambda: not query_stages(spark.sparkContext), 30)
    assert rows(spark).count() == 100, "the next cell works"


def test_an_action_that_spark_is_just_planning_ends_when_its_run_begins(
    spark: "SparkSession", begun: list[FrameJob], tmp_path: Path
) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    planned, go_on = tmp_path / "planned", tmp_path / "go_on"

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:  # in another process, while Spark plans
            planned.touch()
            until(go_on.exists, 60)
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (1,)

    class SlowToPlan(DataSource):
        def schema(self) -> str:
            return "id long"

        def reader(self, schema: Any) -> Reader:
            return Reader()

    spark.dataSource.register(SlowToPlan)
    source = spark.read.format("SlowToPlan").load()
    call = Call(environment().from_dataframe(source).map(id).to_dataframe("n long").collect)
    assert until(planned.exists, 60)
    assert not query_stages(spark.sparkContext)
    interrupt_cell()
    go_on.touch()
    error = call.join().error
    assert isinstance(error, JobCancelled) and error.reason == INTERRUPTED
    states = {job.status().name for job in begun}  # one may have been planned and never begun
    assert "CANCELED" in states and states <= {"CANCELED", "INITIALIZING"}


def test_ctrl_c_ends_the_action_of_a_program_with_130(
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    mark, main = tmp_path / "it_runs", threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        assert until(mark.exists, 60)
        signal.pthread_kill(main, signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    sender = threading.Thread(target=interrupt)
    sender.start()
    try:
        assert run_program(write(tmp_path, PROGRAM), [str(mark)]) == 130
    finally:
        sender.join()
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.splitlines()[-1] == "headgate: interrupted"
    assert until(lambda: not query_stages(spark.sparkContext), 30)
    assert sorted(row.n for row in rows(spark).collect()) == list(range(100))
