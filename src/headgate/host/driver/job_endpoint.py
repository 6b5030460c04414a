"""The endpoint of one job: announced to its user's commands, it answers their questions.

Law: questions come on threads of the control server, one per client, and delay nobody else; every
client gets an answer, at the latest when the endpoint closes.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from headgate.api.job import JobStatus, Promise
from headgate.base.checkpoints import Stop
from headgate.base.errors import HeadgateError
from headgate.base.inspections import (
    Answer,
    CancelAsked,
    JobAnswer,
    JobQuestion,
    Question,
    SavepointAnswer,
    SavepointAsked,
    ShownState,
    StateAsked,
    StateShown,
)
from headgate.base.messages import CONTROL_VERSION
from headgate.core.chain.log_facts import logged_with
from headgate.host.driver.job_directory import Announcement, JobEntry, announce, here
from headgate.host.net.contact import DriverContact
from headgate.host.net.loop import wall_ms

log = logging.getLogger(__name__)

LOOK_S: Final = 0.02
"""Between two looks at whether a savepoint is complete, or the job has ended."""
LAST_WORD_S: Final = 2.0
"""How long a savepoint of a job that has ended may take to be answered."""

LONGEST_READ_S: Final = 20.0
"""A client that hears nothing for longer gives up; a thread of the driver waits as long."""

OnQuestion: TypeAlias = Callable[[Question], Answer]
"""Answers a client; it may take its time."""


class ControlledJob(Protocol):
    """What the endpoint needs of a running job."""

    @property
    def job_id(self) -> str: ...

    @property
    def name(self) -> str: ...

    def status(self) -> JobStatus: ...

    def has_ended(self) -> bool: ...

    def savepoint(self, directory: str | None, stop: Stop) -> Promise[str]: ...

    def shown_state(
        self, operator: str, state: str, keys: Sequence[str], key_type: str, timeout_s: float
    ) -> ShownState:
        """Waits; raises StateUnreadable."""

    def cancel(self, reason: str) -> None:
        """Returns when the job has ended."""


class JobEndpoint:
    """Made before its job, opened with it, closed at its end."""

    def __init__(self) -> None:
        self._job: ControlledJob | None = None
        self._since_ms = 0
        self._announcement: Announcement | None = None
        self._closed = threading.Event()

    def open(
        self,
        job: ControlledJob,
        contact: DriverContact,
        page: tuple[str, str] | None = None,
        streams: tuple[tuple[str, str, str], ...] = (),
    ) -> None:
        """Announce the job and answer its clients; ``contact`` is that of its workers.

        ``page``: the URL of the driver's web page, and the token that it asks for; ``streams``:
        see ``JobEntry``.
        """
        settings = contact.settings
        files = settings.tls_certificate, settings.tls_key, settings.tls_authority
        web, token = page or ("", "")
        self._since_ms = wall_ms()
        self._job = job
        entry = JobEntry(
            job=job.job_id,
            name=job.name,
            since_ms=self._since_ms,
            pid=os.getpid(),
            host=here(),
            address=contact.address,
            secret=contact.secret,
            version=CONTROL_VERSION,
            tls=files if settings.tls_enabled else None,
            web=web,
            token=token,
            streams=streams,
        )
        self._announcement = announce(entry)
        if self._closed.is_set():  # the job has ended meanwhile
            self._announcement.close()

    def close(self) -> None:
        """The job has ended. Idempotent."""
        self._closed.set()
        if self._announcement is not None:
            self._announcement.close()

    def answer(self, question: Question) -> Answer:
        """For a thread that may wait; never raises."""
        job = self._job
        if job is None:
            return _refusal(question, "the job has not been started yet, or cannot be asked")
        with logged_with({"job": job.name, "job_id": job.job_id}):
            try:
                return self._answer(job, question)
            except HeadgateError as error:
                return _refusal(question, str(error), job.status().name)
            except Exception as error:
                log.exception("job %s cannot answer", job.job_id)
                return _refusal(question, f"{type(error).__name__}: {error}", job.status().name)

    def _answer(self, job: ControlledJob, question: Question) -> Answer:
        match question:
            case SavepointAsked(directory, stop):
                log.info("a savepoint of job %s is requested (%s)", job.job_id, stop.value)
                return self._savepoint(job, directory, stop)
            case CancelAsked(reason):
                log.info("job %s is cancelled by a command: %s", job.job_id, reason)
                job.cancel(reason)
            case StateAsked(operator, state, keys, key_type, timeout_s):
                within_s = min(timeout_s, LONGEST_READ_S)
                return StateShown(job.shown_state(operator, state, keys, key_type, within_s))
            case JobQuestion():
                pass
        return JobAnswer(job.job_id, job.name, job.status().name, self._since_ms)

    def _savepoint(self, job: ControlledJob, directory: str | None, stop: Stop) -> SavepointAnswer:
        promise = job.savepoint(directory, stop)
        self._wait_until(promise.done)
        deadline = time.monotonic() + LAST_WORD_S
        while not promise.done() and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        if not promise.done():
            return SavepointAnswer("", job.status().name, "the job has ended before it was there")
        path = promise.result()
        if stop.ends:
            self._wait_until(job.has_ended)
        return SavepointAnswer(path, job.status().name)

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        """Or until the endpoint closes."""
        while not is_so() and not self._closed.wait(LOOK_S):
            pass


def _refusal(question: Question, problem: str, state: str = "") -> Answer:
    if isinstance(question, SavepointAsked):
        return SavepointAnswer("", state, problem)
    if isinstance(question, StateAsked):
        return StateShown(None, problem)
    return JobAnswer("", "", state, 0, problem)
