"""The client of running jobs: finds a job by its id or name, and asks its driver.

Law: asking needs the file that the driver has written, so only the job's user can. The file of a
driver that is gone is removed; a driver that only hangs up removes its file itself.
"""

import ssl
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from headgate.api.job import ENDED
from headgate.base.errors import (
    DriverUnreachable,
    HeadgateError,
    PeerBrokeProtocol,
    PeerUnproven,
    SettingsInvalid,
)
from headgate.base.inspections import Answer, JobAnswer, JobQuestion, Question
from headgate.base.messages import CONTROL_VERSION, ControlTimes, Heartbeat, Refused
from headgate.base.settings import ExchangeSettings
from headgate.control.frames import TO_VISITOR
from headgate.host.driver.job_directory import JobEntry, entries
from headgate.host.net.contact import DriverContact
from headgate.host.net.control_client import (
    ProvenConnection,
    connect_to_driver,
    prove_to_driver,
    receive_by,
)

TIMES: Final = ControlTimes(prove_ms=5_000, connect_ms=500, heartbeat_timeout_ms=30_000)
"""The driver is on this machine, but it may be busy."""
AGAIN_S: Final = 0.2
"""Before a driver that hung up, perhaps because of too many connections, is asked again."""
SILENT: Final = "SILENT"
"""The state of a job whose driver does not answer."""
NOTHING_RUNS: Final = "no job of yours runs on this machine"
START: Final = "start one with `headgate run`, or with Python"


class JobNotFound(HeadgateError):
    """No running job has this id or name, or several do."""

    def __init__(self, called: str | None, problem: str, running: Sequence["JobOverview"]) -> None:
        named = ", ".join(f"{job.entry.job} ({job.entry.name})" for job in running)
        there = f"running are {named}" if named else NOTHING_RUNS
        super().__init__(
            f"{there}; {problem}" if called is None else f"{called!r} {problem}; {there}"
        )


class JobSilent(HeadgateError):
    """The driver of a job exists, but does not answer."""

    def __init__(self, entry: JobEntry, problem: str) -> None:
        super().__init__(
            f"the driver of job {entry.job} (process {entry.pid}) gives no answer: {problem}; "
            f"see its output"
        )


class JobGone(HeadgateError):
    """The job has ended; ``is_certain``: its driver, too, so its file can be removed."""

    def __init__(self, entry: JobEntry, *, is_certain: bool = False) -> None:
        super().__init__(f"job {entry.job} ({entry.name}) has ended")
        self.is_certain = is_certain


@dataclass(frozen=True, slots=True)
class JobOverview:
    """A running job and its state."""

    entry: JobEntry
    state: str


def running_jobs(times: ControlTimes = TIMES) -> list[JobOverview]:
    """This user's jobs on this machine, the oldest first."""
    found = []
    for entry, announcement in entries():
        try:
            answer = ask(entry, JobQuestion(), times)
        except JobGone as gone:
            if gone.is_certain:  # a driver short of threads hangs up, too
                announcement.close()
        except JobSilent:
            found.append(JobOverview(entry, SILENT))
        else:
            assert isinstance(answer, JobAnswer)
            if answer.state not in ENDED:
                found.append(JobOverview(entry, answer.state or SILENT))
    return found


def find_job(called: str | None) -> JobEntry:
    """The running job with this id, name or prefix of an id; None: the only one that runs.

    Raises JobNotFound, which lists the running jobs.
    """
    running = running_jobs()
    if called is None:
        if len(running) == 1:
            return running[0].entry
        raise JobNotFound(None, "name the one you mean" if running else START, running)
    for fits in (
        [job for job in running if job.entry.job == called],
        [job for job in running if job.entry.name == called],
        [job for job in running if called and job.entry.job.startswith(called)],
    ):
        if len(fits) == 1:
            return fits[0].entry
        if fits:
            raise JobNotFound(called, f"may be any of {len(fits)} jobs", fits)
    raise JobNotFound(called, "is no running job", running)


def ask(entry: JobEntry, question: Question, times: ControlTimes = TIMES) -> Answer:
    """Ask the job's driver, however long the answer takes; raises JobSilent or JobGone."""
    if entry.version != CONTROL_VERSION:
        problem = "it runs another version of Headgate; use the command of that one"
        raise JobSilent(entry, problem)
    contact = DriverContact(entry.address, entry.job, entry.secret, _tls(entry), times)
    with ExitStack() as open_sockets:
        driver = _connect(entry, contact, open_sockets)
        try:
            driver.socket.sendall(driver.writer.encode(question))
            while True:
                deadline = time.monotonic() + times.heartbeat_timeout_ms / 1000
                answer = receive_by(driver.socket, driver.reader, TO_VISITOR, deadline)
                if isinstance(answer, Refused):
                    raise JobGone(entry)
                if not isinstance(answer, Heartbeat):
                    return answer
        except (OSError, PeerBrokeProtocol) as error:
            raise JobSilent(entry, str(error)) from error


def _tls(entry: JobEntry) -> ExchangeSettings:
    if entry.tls is None:
        return ExchangeSettings()
    certificate, key, authority = entry.tls
    return ExchangeSettings(
        tls_enabled=True, tls_certificate=certificate, tls_key=key, tls_authority=authority
    )


def _connect(entry: JobEntry, contact: DriverContact, open_sockets: ExitStack) -> ProvenConnection:
    for pause_s in (AGAIN_S, None):
        try:
            sock = connect_to_driver(contact)
            open_sockets.callback(sock.close)
            return prove_to_driver(sock, contact)
        except (DriverUnreachable, PeerUnproven) as error:
            if isinstance(error.__cause__, TimeoutError):
                raise JobSilent(entry, "it is busy or stopped") from error
            if isinstance(error.__cause__, ssl.SSLError):
                raise JobSilent(entry, str(error.__cause__)) from error
            if pause_s is None:  # there is no driver, or it knows no such job
                refused = isinstance(error.__cause__, ConnectionRefusedError)
                raise JobGone(entry, is_certain=refused) from error
            time.sleep(pause_s)
        except (PeerBrokeProtocol, SettingsInvalid) as error:
            raise JobSilent(entry, str(error)) from error
    raise AssertionError("the last attempt returns or raises")
