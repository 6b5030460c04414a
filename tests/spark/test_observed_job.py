"""A job on Spark as observers see it, while it runs and after its end."""

import gc
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.base.checkpoints import Stop
from headgate.base.errors import InspectionFailed, SavepointFailed
from headgate.base.inspections import ReadChannels
from headgate.base.redaction import HIDDEN
from headgate.common import Configuration
from headgate.datastream import MapFunction, StreamExecutionEnvironment
from headgate.datastream.connectors import DiscardSink, NumberSequenceSource
from headgate.observe.observed import ObservedJob
from headgate.spark.job import SparkJob
from headgate.spark.submission import on_launched
from tests.spark.cluster import until

pytestmark = pytest.mark.usefixtures("spark")

ENDLESS = 10**12


class FailsTwice(MapFunction[int, int]):
    """Raises in the first two attempts, as soon as some checkpoints of the attempt are there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def map(self, value: int) -> int:
        time.sleep(0.001)
        marks = sorted(int(mark.suffix[1:]) for mark in self.folder.glob("mark.*"))
        if len(marks) < 2:
            stored = self.folder.glob("checkpoints/*/chk-*/_metadata")
            newest = max((int(path.parent.name[4:]) for path in stored), default=0)
            if newest > sum(marks) + 3:
                (self.folder / f"mark.{newest}").touch()
                raise ValueError(f"failure {len(marks)}")
        return value


@contextmanager
def launched() -> Iterator[list[SparkJob]]:
    jobs: list[SparkJob] = []
    on_launched.append(jobs.append)
    try:
        yield jobs
    finally:
        on_launched.remove(jobs.append)


def start(folder: Path) -> tuple[SparkJob, "weakref.ref[FailsTwice]"]:
    """The job, and its function, which nobody else holds."""
    configuration = Configuration()
    settings = {
        "execution.checkpointing.interval": "20 ms",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "10 ms",
        "restart-strategy.fixed-delay.attempts": "3",
        "execution.checkpointing.hmac.secret": "do not show me, whoever asks for it",
    }
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    function = FailsTwice(folder)
    numbers = env.from_source(NumberSequenceSource(1, ENDLESS), None, "numbers")
    # In one chain with the source: no barrier waits behind records that the function sleeps over.
    numbers.map(function).name("fails").rebalance().sink_to(DiscardSink())
    with launched() as jobs:
        env.execute_async("observed")
    return jobs[0], weakref.ref(function)


def is_gone(function: "weakref.ref[FailsTwice]") -> bool:
    gc.collect()
    return function() is None


def test_a_job_that_fails_twice_can_be_observed_while_it_runs_and_after_its_end(
    tmp_path: Path,
) -> None:
    before = time.time_ns() // 1_000_000
    spark_job, function = start(tmp_path)
    job: ObservedJob = spark_job
    assert until(lambda: job.restarts() == 2, 120)
    assert until(lambda: job.status().name == "RUNNING", 60)
    done = job.checkpoints().completed
    assert until(lambda: job.checkpoints().completed > done + 2, 60)
    assert until(lambda: len(job.task_managers()) == 2, 60)
    newest, oldest = job.failures()
    for number, failure in enumerate((oldest, newest)):
        assert failure.message.endswith(f"ValueError: failure {number}")
        assert (failure.attempt, failure.vertex, failure.restarted) == (number, 0, True)
        assert failure.operator == "fails" and failure.record
        assert "in map\n" in failure.traceback
        hosts = {f"{manager.host}:{manager.pid}" for manager in job.task_managers()}
        assert failure.host in hosts
    checkpoints = job.checkpoints()
    assert checkpoints.restored_from.startswith(str(tmp_path))
    stored = [record for record in checkpoints.records if record.status == "completed"]
    assert len({part.task for part in stored[0].parts}) == stored[0].tasks == len(job.figures())
    assert job.configuration["execution.checkpointing.hmac.secret"] == HIDDEN
    assert job.configuration["restart-strategy.type"] == "fixed-delay"
    assert before <= job.started_at_ms <= oldest.at_ms
    assert job.ended_at_ms is None
    task = job.figures()[-1].task
    job.inspect(task, ReadChannels()).result(30)

    spark_job.cancel("enough")
    assert job.has_ended() and job.ended_at_ms is not None
    assert job.state_times()["CANCELED"] <= job.ended_at_ms
    assert {"CREATED", "RUNNING", "RESTARTING", "CANCELED"} <= job.state_times().keys()
    assert len(job.failures()) == job.restarts() == 2
    assert sum(figures.records_in for figures in job.figures()) > 0
    assert job.checkpoints().completed >= checkpoints.completed
    assert all(not record.path for record in job.checkpoints().records), "they went with the job"
    assert job.task_managers() == []
    assert spark_job.metrics()["job.restarts"] == 2
    with pytest.raises(InspectionFailed, match="the job is canceled"):
        job.inspect(task, ReadChannels()).result(0)
    with pytest.raises(SavepointFailed, match="the job is canceled"):
        job.savepoint(str(tmp_path / "savepoints"), Stop.NO).result(0)
    assert not (tmp_path / "savepoints").exists()
    job.cancel_soon("once more")
    assert until(lambda: is_gone(function), 30), "an ended job holds no function"
