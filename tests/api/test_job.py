"""The face of a running job: futures, status, savepoints, result."""

from collections.abc import Mapping
from concurrent.futures import Future

import pytest

from headgate.api.job import JobClient
from headgate.base.checkpoints import Stop
from headgate.base.errors import FutureCancelled, HeadgateError, PlanInvalid
from headgate.common import JobExecutionResult, JobID, JobStatus


class Job:
    """Fails when somebody waits for it."""

    job_id = "j1"

    def __init__(self) -> None:
        self.state = JobStatus.RUNNING
        self.asked: list[tuple[str | None, Stop]] = []
        self.promise: Future[str] = Future()

    def status(self) -> JobStatus:
        return self.state

    def cancel(self) -> None:
        self.state = JobStatus.CANCELED

    def wait(self) -> JobExecutionResult:
        if self.state is JobStatus.CANCELED:
            raise HeadgateError("cancelled")
        return JobExecutionResult(self.job_id, 12, {"errors": 3})

    def metrics(self) -> Mapping[str, object]:
        return {"records": 5}

    def savepoint(self, directory: str | None, stop: Stop) -> "Future[str]":
        self.asked.append((directory, stop))
        return self.promise


def test_client_asks_the_job() -> None:
    client = JobClient(Job())
    assert client.get_job_id() == "j1"
    assert client.get_job_status().result() is JobStatus.RUNNING
    assert client.get_job_status().done()
    assert not client.get_job_execution_result().done()
    assert client.get_metrics() == {"records": 5}


def test_result_says_what_is_left() -> None:
    result = JobClient(Job()).get_job_execution_result().result()
    assert (result.get_job_id(), result.get_net_runtime()) == ("j1", 12)
    assert result.is_job_execution_result()
    assert result.get_accumulator_result("errors") == 3
    assert result.get_all_accumulator_results() == {"errors": 3}


def test_future_of_a_cancelled_job_tells_why() -> None:
    client = JobClient(Job())
    future = client.get_job_execution_result()
    assert future.exception() is None
    cancelled = client.cancel()
    assert cancelled.result() is None and cancelled.done() and future.done()
    assert str(future.exception()) == "cancelled"


def test_a_savepoint_is_asked_for_at_once_and_its_path_comes_later() -> None:
    job = Job()
    future = JobClient(job).trigger_savepoint("s3://bucket")
    assert job.asked == [("s3://bucket", Stop.NO)]
    assert not future.done()
    job.promise.set_result("s3://bucket/savepoint-j1-0")
    assert future.done() and future.exception() is None
    assert future.result() == "s3://bucket/savepoint-j1-0"


def test_a_savepoint_that_came_to_nothing_tells_why() -> None:
    job = Job()
    future = JobClient(job).trigger_savepoint()
    assert job.asked == [(None, Stop.NO)]
    job.promise.set_exception(HeadgateError("the disk is full"))
    assert str(future.exception()) == "the disk is full"
    with pytest.raises(HeadgateError, match="the disk is full"):
        future.result()


def test_a_job_stops_with_a_savepoint_before_or_after_the_end_of_event_time() -> None:
    job = Job()
    JobClient(job).stop_with_savepoint(False, "here")
    JobClient(job).stop_with_savepoint(advance_to_end_of_event_time=True)
    assert job.asked == [("here", Stop.SUSPEND), (None, Stop.DRAIN)]
    with pytest.raises(PlanInvalid, match="give True, so that windows and timers fire, or False"):
        JobClient(job).stop_with_savepoint("here")  # type: ignore[arg-type]
    assert len(job.asked) == 2


def test_three_states_are_for_good() -> None:
    ends = [status for status in JobStatus if status.is_globally_terminal_state()]
    assert ends == [JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED]
    assert JobStatus.SUSPENDED.is_terminal_state()
    assert not JobStatus.RESTARTING.is_terminal_state()


def test_a_future_that_is_cancelled_has_no_result_and_the_job_goes_on() -> None:
    job = Job()
    future = JobClient(job).get_job_execution_result()
    assert (future.cancelled(), future.done()) == (False, False)
    assert future.cancel()
    assert (future.cancelled(), future.done()) == (True, True)
    assert isinstance(future.exception(), FutureCancelled)
    with pytest.raises(FutureCancelled, match="ask its client again"):
        future.result()
    assert job.status() is JobStatus.RUNNING


def test_a_future_that_is_done_is_not_cancelled() -> None:
    future = JobClient(Job()).get_job_status()
    assert not future.cancel()
    assert future.result() is JobStatus.RUNNING


def test_the_name_of_a_job_is_a_text() -> None:
    job_id = JobClient(Job()).get_job_id()
    assert isinstance(job_id, JobID)
    assert str(job_id) == job_id == "j1"
    assert JobExecutionResult("j1").get_job_id() == JobID("j1")
