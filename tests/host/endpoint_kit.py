"""A job with an endpoint at a real control port; the job is a double that records its calls.

What SparkJob makes of the same calls is tested on Spark.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

import msgspec

from headgate.api.job import JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.errors import HeadgateError, StateUnreadable
from headgate.base.inspections import ShownState, ShownValue
from headgate.host.driver.checkpoint_setup import plan_run
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.job_directory import JobEntry, here
from headgate.host.driver.job_endpoint import JobEndpoint
from headgate.host.net.contact import DriverContact
from headgate.host.shipping.code import ship
from tests.host.control_rig import SECRET
from tests.host.jobs import job_of, vertices_of


def job_entry(job: str = "ab12", **more: object) -> JobEntry:
    """What the directory of running jobs holds about a job of this process."""
    entry = JobEntry(job, "orders", 1_000, os.getpid(), here(), ("127.0.0.1", 9), b"s" * 32, 2)
    return msgspec.structs.replace(entry, **more)


class RecordingJob:
    """Takes savepoints at once unless it is told to be slow."""

    def __init__(self, job_id: str = "ab12cd", name: str = "orders") -> None:
        self.job_id = job_id
        self.name = name
        self.state = JobStatus.RUNNING
        self.asked: list[tuple[str | None, Stop]] = []
        self.reasons: list[str] = []
        self.reads: list[tuple[str, str, float]] = []
        self.slow: Future[str] | None = None
        self.trouble: Exception | None = None

    def status(self) -> JobStatus:
        return self.state

    def has_ended(self) -> bool:
        return self.state.is_globally_terminal_state()

    def savepoint(self, directory: str | None, stop: Stop) -> "Future[str]":
        self.asked.append((directory, stop))
        if self.trouble is not None:
            raise self.trouble
        if self.slow is not None:
            return self.slow
        if stop.ends:
            self.state = JobStatus.FINISHED
        done: Future[str] = Future()
        done.set_result(f"{directory}/savepoint-{self.job_id}")
        return done

    def shown_state(
        self, operator: str, state: str, keys: Sequence[str], key_type: str, timeout_s: float
    ) -> ShownState:
        if operator != "counts":
            raise StateUnreadable(f"the job has no operator {operator!r}; it has 'counts'")
        self.reads.append((state, key_type, timeout_s))
        shown = [
            ShownValue(key, True, {"n": n}) if key != "none" else ShownValue(key, False)
            for n, key in enumerate(keys)
        ]
        return ShownState(operator, "count", state, "value", shown)

    def cancel(self, reason: str) -> None:
        self.reasons.append(reason)
        if self.trouble is not None:
            raise HeadgateError(str(self.trouble))
        self.state = JobStatus.CANCELED


@contextmanager
def served_endpoint(server: ControlServer, job: RecordingJob) -> Iterator[JobEndpoint]:
    """The job is open at the control port, and announced."""
    graph = job_of([1])
    code = ship(vertices_of(graph))
    endpoint = JobEndpoint()
    server.open_job(
        job.job_id,
        SECRET,
        lambda key: plan_run(str(key), graph, code, key.generation),
        on_question=endpoint.answer,
    )
    try:
        endpoint.open(job, DriverContact(server.address, "job", SECRET))
        yield endpoint
    finally:
        endpoint.close()
        server.close_job(job.job_id)
