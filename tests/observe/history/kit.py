"""Archives of scripted jobs, and a real server that shows them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headgate.api.job import JobStatus
from headgate.host.checkpoints.folder import open_folder
from headgate.observe.history.archive import encode_archive, write_archive
from headgate.observe.history.history_server import HistoryServer
from headgate.observe.history.recorder import record_job
from headgate.observe.web.shown_jobs import ShownJobs
from tests.observe.web.kit import (
    Caller,
    ScriptedJob,
    a_failure,
    five_vertices,
    free_port_settings,
    some_checkpoints,
    some_lines,
)


def ended_job(job_id: str = "ab12", state: JobStatus = JobStatus.FAILED) -> ScriptedJob:
    """With something at every path."""
    job = ScriptedJob(five_vertices(), job_id=job_id, lines=some_lines())
    job.fail_once(a_failure())
    job.checkpoint_records = some_checkpoints()
    job.end(state)
    return job


def archive(job: ScriptedJob, folder: Path, at_ms: int = 1_000) -> Path:
    """Write the archive of a job; returns its path."""
    jobs = ShownJobs()
    try:
        jobs.watch(job)
        summary, answers = record_job(jobs, job.job_id)
    finally:
        jobs.close()
    data = encode_archive(summary, at_ms, answers)
    return folder / write_archive(open_folder(str(folder)), job.job_id, at_ms, data)


@contextmanager
def history_of(folder: Path, **settings: Any) -> Iterator[Caller]:
    server = HistoryServer(open_folder(str(folder)), free_port_settings(**settings))
    thread = threading.Thread(target=server.serve, name="history")
    thread.start()
    try:
        yield Caller(server)
    finally:
        server.close()
        thread.join(30)
        assert not thread.is_alive()
