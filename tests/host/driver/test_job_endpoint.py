"""Clients of a running job: they find it, prove themselves, and are always answered."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
import pytest

from headgate.api.job import JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.errors import HeadgateError
from headgate.base.inspections import (
    Answer,
    CancelAsked,
    JobAnswer,
    JobQuestion,
    SavepointAnswer,
    SavepointAsked,
)
from headgate.base.messages import CONTROL_VERSION, Heartbeat
from headgate.control.frames import TO_VISITOR
from headgate.host.driver import job_client, job_endpoint
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.job_client import (
    JobGone,
    JobNotFound,
    JobSilent,
    ask,
    find_job,
    running_jobs,
)
from headgate.host.driver.job_directory import JobEntry, announce, entries, here
from headgate.host.driver.job_endpoint import JobEndpoint
from headgate.host.net.contact import DriverContact
from headgate.host.net.control_client import connect_and_prove, receive_by
from tests.host.control_rig import PATIENCE_S, SECRET, TIMES, replace_times
from tests.host.endpoint_kit import RecordingJob, served_endpoint
from tests.host.rig import eventually

IMPATIENT = replace_times(job_client.TIMES, prove_ms=300, heartbeat_timeout_ms=600)


@pytest.fixture
def server(
    no_leaks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ControlServer]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with ControlServer(times=replace_times(TIMES, prove_ms=2_000)) as server:
        yield server


def entry_of(job: RecordingJob) -> JobEntry:
    return next(entry for entry, _ in entries() if entry.job == job.job_id)


def test_a_visitor_is_told_how_the_job_is(server: ControlServer) -> None:
    job = RecordingJob()
    with served_endpoint(server, job):
        entry = entry_of(job)
        assert (entry.name, entry.pid, entry.host) == ("orders", os.getpid(), here())
        answer = ask(entry, JobQuestion())
        assert answer == JobAnswer("ab12cd", "orders", "RUNNING", entry.since_ms)
    assert entries() == []


def test_savepoints_and_cancellations_reach_the_job(server: ControlServer) -> None:
    job = RecordingJob()
    with served_endpoint(server, job):
        entry = entry_of(job)
        taken = ask(entry, SavepointAsked("/here"))
        assert taken == SavepointAnswer("/here/savepoint-ab12cd", "RUNNING")
        last = ask(entry, SavepointAsked(None, Stop.DRAIN))
        assert last == SavepointAnswer("None/savepoint-ab12cd", "FINISHED")
        assert job.asked == [("/here", Stop.NO), (None, Stop.DRAIN)]
        cancelled = ask(entry, CancelAsked("enough"))
        assert cancelled == JobAnswer("ab12cd", "orders", "CANCELED", entry.since_ms)
        assert job.reasons == ["enough"]


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (HeadgateError("the disk is full"), "the disk is full"),
        (KeyError("oops"), "KeyError: 'oops'"),
    ],
)
def test_trouble_is_reported_to_the_client(
    server: ControlServer, trouble: Exception, message: str
) -> None:
    job = RecordingJob()
    with served_endpoint(server, job):
        job.trouble = trouble
        assert ask(entry_of(job), SavepointAsked()) == SavepointAnswer("", "RUNNING", message)
        answer = ask(entry_of(job), CancelAsked("x"))
        assert isinstance(answer, JobAnswer) and str(trouble) in answer.problem


def in_background(
    entry: JobEntry, question: SavepointAsked
) -> tuple[threading.Thread, list[Answer]]:
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ask(entry, question)))
    thread.start()
    return thread, answers


def test_whoever_waits_for_long_hears_that_the_driver_lives(server: ControlServer) -> None:
    job = RecordingJob()
    job.slow = Future()
    with served_endpoint(server, job):
        contact = DriverContact(server.address, job.job_id, SECRET)
        line = connect_and_prove(contact)
        sock, reader = line.socket, line.reader
        with closing(sock):
            sock.sendall(line.writer.encode(SavepointAsked("/x")))
            deadline = time.monotonic() + PATIENCE_S
            assert receive_by(sock, reader, TO_VISITOR, deadline) == Heartbeat()
            job.slow.set_result("/x/savepoint")
            while (heard := receive_by(sock, reader, TO_VISITOR, deadline)) == Heartbeat():
                pass
            assert heard == SavepointAnswer("/x/savepoint", "RUNNING")


def test_a_savepoint_that_takes_long_holds_up_nobody(server: ControlServer) -> None:
    job = RecordingJob()
    job.slow = Future()
    with served_endpoint(server, job):
        entry = entry_of(job)
        thread, answers = in_background(entry, SavepointAsked("/x"))
        eventually(lambda: bool(job.asked), "the question")
        assert ask(entry, JobQuestion()) == JobAnswer("ab12cd", "orders", "RUNNING", entry.since_ms)
        assert answers == []
        job.slow.set_result("/x/savepoint")
        thread.join(10)
        assert answers == [SavepointAnswer("/x/savepoint", "RUNNING")]


def test_whoever_stops_a_job_is_answered_when_it_has_ended(server: ControlServer) -> None:
    job = RecordingJob()
    job.slow = Future()
    job.slow.set_result("/x/savepoint")
    with served_endpoint(server, job):
        thread, answers = in_background(entry_of(job), SavepointAsked("/x", Stop.SUSPEND))
        eventually(lambda: bool(job.asked), "the question")
        assert answers == []
        job.state = JobStatus.FINISHED
        thread.join(10)
        assert answers == [SavepointAnswer("/x/savepoint", "FINISHED")]


def test_an_endpoint_that_closes_answers_those_who_wait(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_endpoint, "LAST_WORD_S", 0.05)
    job = RecordingJob()
    job.slow = Future()
    with served_endpoint(server, job):
        thread, answers = in_background(entry_of(job), SavepointAsked("/x"))
        eventually(lambda: bool(job.asked), "the question")
    thread.join(10)
    (answer,) = answers
    assert isinstance(answer, SavepointAnswer)
    assert answer.problem == "the job has ended before it was there"


def test_a_savepoint_may_be_told_of_after_the_end_of_its_job(server: ControlServer) -> None:
    job = RecordingJob()
    job.slow = Future()
    with served_endpoint(server, job) as endpoint:
        thread, answers = in_background(entry_of(job), SavepointAsked("/x", Stop.SUSPEND))
        eventually(lambda: bool(job.asked), "the question")
        job.state = JobStatus.FINISHED
        endpoint.close()
        job.slow.set_result("/x/savepoint")
        thread.join(10)
    assert answers == [SavepointAnswer("/x/savepoint", "FINISHED")]


def test_a_failed_savepoint_tells_why_even_if_the_job_ends_with_it(server: ControlServer) -> None:
    job = RecordingJob()
    job.slow = Future()
    job.slow.set_exception(HeadgateError("task 0.0 declined it"))
    with served_endpoint(server, job):
        answer = ask(entry_of(job), SavepointAsked("/x", Stop.DRAIN))
    assert answer == SavepointAnswer("", "RUNNING", "task 0.0 declined it")


def test_an_endpoint_without_a_job_says_so() -> None:
    endpoint = JobEndpoint()
    answer = endpoint.answer(JobQuestion())
    assert isinstance(answer, JobAnswer) and "not been started yet" in answer.problem
    endpoint.close()


def test_a_job_that_ends_while_its_endpoint_opens_is_not_announced(server: ControlServer) -> None:
    endpoint = JobEndpoint()
    endpoint.close()
    endpoint.open(RecordingJob(), DriverContact(server.address, "job", SECRET))
    assert entries() == []


def test_jobs_are_found_by_id_name_and_beginning(server: ControlServer) -> None:
    with ExitStack() as stack:
        for job in (
            RecordingJob("ab12", "orders"),
            RecordingJob("ab34", "clicks"),
            RecordingJob("ab12-long", "clicks"),
        ):
            stack.enter_context(served_endpoint(server, job))
        assert find_job("ab12").job == "ab12", "an id, though it begins another one"
        assert find_job("orders").job == "ab12"
        assert find_job("ab3").job == "ab34"
        with pytest.raises(JobNotFound, match=r"'ab' may be any of 3 jobs; running are ab12 \(ord"):
            find_job("ab")
        with pytest.raises(JobNotFound, match=r"'clicks' may be any of 2 jobs; running are ab"):
            find_job("clicks")
        with pytest.raises(
            JobNotFound, match=r"'x' is no running job; running are ab12 \(orders\)"
        ):
            find_job("x")
        with pytest.raises(JobNotFound, match="'' is no running job"):
            find_job("")
    with pytest.raises(JobNotFound, match="no job of yours runs on this machine"):
        find_job("ab12")


def test_a_job_that_has_ended_runs_no_more_though_its_driver_does(server: ControlServer) -> None:
    job = RecordingJob()
    with served_endpoint(server, job):
        job.state = JobStatus.FAILED
        assert running_jobs() == []
        assert len(entries()) == 1, "its driver removes it"


def test_a_job_that_its_driver_knows_no_more_is_not_listed(server: ControlServer) -> None:
    job = RecordingJob()
    with served_endpoint(server, job):
        entry = entry_of(job)
        server.close_job(job.job_id)
        with pytest.raises(JobGone, match=r"job ab12cd \(orders\) has ended"):
            ask(entry, JobQuestion())
        assert running_jobs() == []
        assert entries() != [], "the driver lives, and removes what it has written"


def test_a_driver_that_hangs_up_for_a_moment_keeps_its_file(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    job = RecordingJob()
    with served_endpoint(server, job):
        with monkeypatch.context() as short:
            short.setattr(threading.Thread, "start", fail)
            assert running_jobs() == []
        assert [seen.entry.job for seen in running_jobs()] == [job.job_id]


def test_a_port_that_is_closed_is_a_driver_that_is_gone(server: ControlServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = other.getsockname()
    entry = JobEntry("old", "orders", 1, os.getpid(), here(), address, SECRET, CONTROL_VERSION)
    announce(entry)
    assert running_jobs() == []
    assert entries() == []


def test_whoever_does_not_know_the_secret_is_not_answered(server: ControlServer) -> None:
    job = RecordingJob()
    with served_endpoint(server, job):
        stranger = msgspec.structs.replace(entry_of(job), secret=b"x" * 32)
        with pytest.raises(JobGone):
            ask(stranger, CancelAsked("I may not"))
        assert job.reasons == []


def test_a_driver_of_another_version_is_left_alone(server: ControlServer) -> None:
    job = RecordingJob()
    with served_endpoint(server, job):
        other = msgspec.structs.replace(entry_of(job), version=99)
        with pytest.raises(JobSilent, match="runs another version of Headgate"):
            ask(other, JobQuestion())


def test_a_frozen_driver_is_listed_as_silent_and_keeps_its_file(
    no_leaks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    script = "import socket, time\ns = socket.create_server(('127.0.0.1', 0))\n"
    script += "print(s.getsockname()[1], flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            port = int(child.stdout.readline())
            child.send_signal(signal.SIGSTOP)
            entry = JobEntry(
                "ice", "orders", 1, child.pid, here(), ("127.0.0.1", port), SECRET, CONTROL_VERSION
            )
            announce(entry)
            (seen,) = running_jobs(IMPATIENT)
            assert (seen.entry, seen.state) == (entry, "SILENT")
            assert len(entries()) == 1
            with pytest.raises(JobSilent, match=rf"process {child.pid}\) gives no answer: it is"):
                ask(entry, JobQuestion(), IMPATIENT)
        finally:
            child.kill()
