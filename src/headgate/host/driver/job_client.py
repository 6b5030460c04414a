"""A visit to a running job: find it by what its user calls it, ask its driver, hear the answer.

Law: a visit needs the file that the driver has written, so nobody but the job's user makes one; a
driver that is gone is found out, and its file removed. One that only hangs up removes it itself.
"""

import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from headgate.api.job import JobStatus
from headgate.base.errors import (
    DriverUnreachable,
    HeadgateError,
    PeerBrokeProtocol,
    PeerUnproven,
    SettingsInvalid,
)
from headgate.base.messages import (
    CONTROL_VERSION,
    Answer,
    ControlTimes,
    Heartbeat,
    JobAnswer,
    JobQuestion,
    Question,
    Refused,
)
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
"""Before a driver that hung up, perhaps among too many strangers, is asked once more."""
SILENT: Final = "SILENT"
"""The state of a job whose driver does not answer."""
ENDED: Final = {status.name for status in JobStatus if status.is_globally_terminal_state()}


class JobNotFound(HeadgateError):
    """No running job is called so, or several are."""

    def __init__(self, called: str, problem: str, running: Sequence["JobOverview"]) -> None:
        named = ", ".join(f"{one.entry.job} ({one.entry.name})" for one in running)
        there = f"running are {named}" if named else "no job of yours runs on this machine"
        super().__init__(f"{called!r} {problem}; {there}")


class JobSilent(HeadgateError):
    """The driver of a job is there, but does not answer, or left before it did."""

    def __init__(self, entry: JobEntry, problem: str) -> None:
        super().__init__(
            f"the driver of job {entry.job} (process {entry.pid}) gives no answer: {problem}; "
            f"see its output"
        )


class JobGone(HeadgateError):
    """The job has ended; ``is_certain``: its driver, too, so that its file can be removed."""

    def __init__(self, entry: JobEntry, *, is_certain: bool = False) -> None:
        super().__init__(f"job {entry.job} ({entry.name}) has ended")
        self.is_certain = is_certain


@dataclass(frozen=True, slots=True)
class JobOverview:
    """A running job and how it is."""

    entry: JobEntry
    state: str


def running_jobs(times: ControlTimes = TIMES) -> list[JobOverview]:
    """All jobs of this user on this machine, the oldest first."""
    found = []
    for entry, announcement in entries():
        try:
            answer = ask(entry, JobQuestion(), times)
        except JobGone as gone:
            if gone.is_certain:  # a driver that is short of threads hangs up, too
                announcement.close()
        except JobSilent:
            found.append(JobOverview(entry, SILENT))
        else:
            assert isinstance(answer, JobAnswer), "a question of how a job is, and its answer"
            if answer.state not in ENDED:
                found.append(JobOverview(entry, answer.state or SILENT))
    return found


def find_job(called: str) -> JobEntry:
    """The running job with this id, name, or beginning of an id; raises JobNotFound."""
    running = running_jobs()
    for fits in (
        [one for one in running if one.entry.job == called],
        [one for one in running if one.entry.name == called],
        [one for one in running if called and one.entry.job.startswith(called)],
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
    with _introduced(entry, contact) as line:
        try:
            line.socket.sendall(line.writer.encode(question))
            while True:
                deadline = time.monotonic() + times.heartbeat_timeout_ms / 1000
                answer = receive_by(line.socket, line.reader, TO_VISITOR, deadline)
                if isinstance(answer, Refused):
                    raise JobGone(entry)
                if not isinstance(answer, Heartbeat):
                    return answer
        except (OSError, PeerBrokeProtocol) as error:
            raise JobSilent(entry, str(error)) from error


@contextmanager
def _introduced(entry: JobEntry, contact: DriverContact) -> Iterator[ProvenConnection]:
    """A proven connection."""
    with ExitStack() as open_sockets:
        yield _connect(entry, contact, open_sockets)


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
            if pause_s is None:  # nobody is there, or one that knows no such job
                refused = isinstance(error.__cause__, ConnectionRefusedError)
                raise JobGone(entry, is_certain=refused) from error
            time.sleep(pause_s)
        except (PeerBrokeProtocol, SettingsInvalid) as error:
            raise JobSilent(entry, str(error)) from error
    raise AssertionError("the last attempt returns or raises")
