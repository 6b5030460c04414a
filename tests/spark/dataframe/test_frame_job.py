"""Actions on a DataFrame that ends a stream, as the page shows them."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.base.checkpoints import Stop
from headgate.base.errors import InspectionFailed, JobCancelled, JobFailed, SavepointFailed
from headgate.base.inspections import ReadChannels
from headgate.base.settings import RestSettings
from headgate.common import Configuration
from headgate.datastream import StreamExecutionEnvironment
from headgate.observe.observed import ObservedJob
from headgate.observe.web.server import PageServer, close_page_server, page_server
from tests.spark.cluster import until
from tests.spark.frames import FailAt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def page() -> Iterator[PageServer]:
    server = page_server(RestSettings(enabled=True))
    assert server is not None
    yield server
    close_page_server()


def rows_with(spark: "SparkSession", function: Any, count: int = 100) -> Any:
    shown = Configuration().set_string("rest.enabled", "true")
    env = StreamExecutionEnvironment.get_execution_environment(shown)
    stream = env.set_parallelism(2).from_dataframe(spark.range(count))
    numbers = stream.map(lambda row: (row.id,)).rebalance()
    return numbers.map(function).name("checked").to_dataframe("n long")


def jobs(page: PageServer) -> list[ObservedJob]:
    """The newest first."""
    return [shown.job for shown in page.jobs.all()]


def test_each_action_is_a_job_that_can_be_observed_and_goes_its_own_way(
    spark: "SparkSession", page: PageServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = rows_with(spark, lambda row: row)
    assert jobs(page) == [], "nothing runs before an action"
    assert result.count() == 100
    assert len(result.collect()) == 100
    assert until(lambda: all(job.has_ended() for job in jobs(page)), 30)
    newest, oldest = jobs(page)
    assert newest.job_id != oldest.job_id
    for job in (newest, oldest):
        assert job.status().name == "FINISHED"
        assert sum(figures.records_made for figures in job.figures()) == 100
        assert {"CREATED", "RUNNING", "FINISHED"} <= job.state_times().keys()
        assert job.ended_at_ms is not None and job.started_at_ms <= job.ended_at_ms
        assert job.failures() == job.task_managers() == []
        assert job.checkpoints().records == () and job.restarts() == 0
        with pytest.raises(SavepointFailed, match="has no savepoints"):
            job.savepoint(None, Stop.NO).result(0)
        with pytest.raises(InspectionFailed, match="the job is finished"):
            job.inspect("0.0", ReadChannels()).result(0)
    assert capsys.readouterr().err.count("headgate: job unnamed: http") == 1

    with pytest.raises(JobFailed):
        rows_with(spark, FailAt(tmp_path / "count", 50)).collect()
    failed = jobs(page)[0]
    assert until(failed.has_ended, 30) and failed.status().name == "FAILED"
    [failure] = failed.failures()
    assert failure.operator == "checked" and "50 is a bad number" in failure.message


def test_an_action_can_be_cancelled_and_its_user_is_told(
    spark: "SparkSession", page: PageServer
) -> None:
    result = rows_with(spark, lambda row: time.sleep(0.01) or row, 30_000)
    raised: list[BaseException] = []

    def act() -> None:
        try:
            result.collect()
        except BaseException as error:
            raised.append(error)

    action = threading.Thread(target=act)
    action.start()
    assert until(lambda: bool(jobs(page)) and jobs(page)[0].status().name == "RUNNING", 60)
    [job] = jobs(page)
    assert until(lambda: len(job.task_managers()) == 2 and bool(job.figures()), 30)
    job.inspect(job.figures()[-1].task, ReadChannels()).result(30)
    job.cancel_soon("somebody pressed the button")
    action.join(60)
    assert not action.is_alive() and isinstance(raised[0], JobCancelled)
    assert raised[0].reason == "somebody pressed the button"
    assert job.status().name == "CANCELED"
    assert len(jobs(page)) == 1, "Spark has not tried again"


def test_an_action_that_wants_a_few_rows_does_not_fail(
    spark: "SparkSession", page: PageServer
) -> None:
    result = rows_with(spark, lambda row: row, 100_000)
    assert len(result.take(3)) == 3
    assert until(lambda: all(job.has_ended() for job in jobs(page)), 30)
    assert {job.status().name for job in jobs(page)} == {"FINISHED"}
