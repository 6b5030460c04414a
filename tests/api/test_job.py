"""The face of a running job: futures, status, result."""

from collections.abc import Mapping

from headgate.api.job import JobClient
from headgate.base.errors import HeadgateError
from headgate.common import JobExecutionResult, JobStatus


class Job:
    """Fails when somebody waits for it."""

    job_id = "j1"

    def __init__(self) -> None:
        self.state = JobStatus.RUNNING

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


def test_three_states_are_for_good() -> None:
    ends = [status for status in JobStatus if status.is_globally_terminal_state()]
    assert ends == [JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED]
    assert JobStatus.SUSPENDED.is_terminal_state()
    assert not JobStatus.RESTARTING.is_terminal_state()
