"""Mutual TLS between workers and driver: it covers control, results and clients of jobs alike."""

import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.base.errors import DriverLost, PeerUnproven
from headgate.base.inspections import JobAnswer, JobQuestion
from headgate.base.messages import (
    CONTROL_VERSION,
    Cancel,
    ControlTimes,
    Register,
    TaskChanged,
    TaskState,
    ToTaskManager,
)
from headgate.base.settings import ExchangeSettings
from headgate.control.life_cycle import JobState
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.job_client import JobSilent, ask
from headgate.host.driver.job_directory import JobEntry
from headgate.host.driver.results import ResultServer, ResultWriter
from headgate.host.driver.state_reads import StateRead
from headgate.host.net.contact import DriverContact
from headgate.host.net.control_client import ConnectionLost, ControlConnection, connect_and_prove
from headgate.host.net.transport import Tls
from tests.host.certificates import Authority, settings_of
from tests.host.control_rig import (
    SECRET,
    TIMES,
    Launcher,
    ended,
    is_hung_up,
    replace_times,
    task_states,
    workers,
)
from tests.host.jobs import job_of
from tests.host.reading_kit import KEYS, ReadJob, counted_job
from tests.host.rig import eventually

PLAIN = ExchangeSettings(memory_min_bytes=8 << 20, memory_max_bytes=8 << 20)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@pytest.fixture
def secured(authority: Authority) -> ExchangeSettings:
    return settings_of(authority, authority.issue("driver"))


@pytest.fixture
def server(no_leaks: None, secured: ExchangeSettings) -> Iterator[ControlServer]:
    times = replace_times(TIMES, prove_ms=1_000)
    with ControlServer(times=times, tls=Tls(secured)) as server:
        yield server


@pytest.fixture
def results(no_leaks: None, secured: ExchangeSettings) -> Iterator[ResultServer]:
    server = ResultServer(settings=secured)
    yield server
    server.close()


def over_tls(contact: DriverContact, settings: ExchangeSettings) -> DriverContact:
    return replace(contact, settings=settings)


def test_a_job_runs_with_all_its_connections_in_tls(
    server: ControlServer, secured: ExchangeSettings, tmp_path: Path
) -> None:
    launcher = Launcher(server)
    run, contact = launcher.begin(job_of(tmp_path, parallelism=2, count=100))
    contact = over_tls(contact, replace(secured, memory_min_bytes=8 << 20))
    with workers(2) as started:
        for slot, worker in enumerate(started):
            worker.serve(contact, slot)
        assert ended(run).state is JobState.FINISHED
        for worker in started:
            worker.returned()


def test_state_is_read_over_a_line_in_tls(server: ControlServer, secured: ExchangeSettings) -> None:
    graph = counted_job(parallelism=1)
    run, contact = Launcher(server).begin(graph)
    job = ReadJob(graph, run)
    with workers(1) as (worker,):
        worker.serve(over_tls(contact, replace(secured, memory_min_bytes=8 << 20)), 0)
        keys = list(range(KEYS))
        eventually(
            lambda: StateRead(job, "counts", "count", keys, 60).result() == [10] * KEYS, "all"
        )
        eventually(lambda: len(run._lines) == 1, "a line to the task manager")
        for _ in range(20):
            assert StateRead(job, "counts", "count", keys, 60).result() == [10] * KEYS
        run.cancel("enough")
        ended(run)
        worker.returned()


def test_long_messages_cross_both_ways_at_once(
    server: ControlServer, secured: ExchangeSettings, tmp_path: Path
) -> None:
    long, count = "x" * (4 << 20), 5
    run, contact = Launcher(server).begin(job_of(tmp_path, parallelism=1))
    heard: list[ToTaskManager | ConnectionLost] = []
    with ControlConnection(over_tls(contact, secured), heard.append) as line:
        line.send(Register("", 0, ("127.0.0.1", 9)))
        eventually(lambda: len(heard) == 1, "its tasks")
        (peer,) = run._peers.values()
        for _ in range(count):
            line.send(TaskChanged(long, "0.0", TaskState.RUNNING))  # of another run: read, ignored
            peer.post(Cancel("another", long))
        for task in task_states(run):
            line.send(TaskChanged(str(run.key), task, TaskState.FINISHED))
        assert ended(run).state is JobState.FINISHED
        eventually(lambda: len(heard) == count + 2, "all of it")
    names = [type(message).__name__ for message in heard]
    assert names == ["Deploy", *["Cancel"] * count, "Shutdown"]


@pytest.mark.parametrize("who", ["plain", "stranger"])
def test_who_has_no_certificate_of_the_authority_is_refused_though_it_knows_the_secret(
    server: ControlServer, authority: Authority, tmp_path: Path, who: str
) -> None:
    other = Authority(tmp_path, "another")
    settings = {"plain": PLAIN, "stranger": settings_of(authority, other.issue("x"))}[who]
    contact = Launcher(server).open(job_of(tmp_path))
    contact = replace(contact, settings=settings, times=ControlTimes(prove_ms=1_000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headgate.host.net.control_client.RETRIES_S", ())
        with pytest.raises(PeerUnproven):
            connect_and_prove(contact)


def test_a_driver_without_a_certificate_of_the_authority_is_refused(
    no_leaks: None, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.host.net.control_client.RETRIES_S", ())
    other = Authority(tmp_path, "another")
    trusting = settings_of(authority, authority.issue("worker"))
    for tls in (None, Tls(settings_of(authority, other.issue("driver")))):
        with ControlServer(times=replace_times(TIMES, prove_ms=500), tls=tls) as server:
            contact = Launcher(server).open(job_of(tmp_path))
            contact = replace(contact, settings=trusting, times=ControlTimes(prove_ms=2_000))
            with pytest.raises(PeerUnproven):
                connect_and_prove(contact)


def test_strangers_and_silence_harm_nobody(
    server: ControlServer, secured: ExchangeSettings, tmp_path: Path
) -> None:
    contact = over_tls(Launcher(server).open(job_of(tmp_path)), secured)
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b""):
        with socket.create_connection(server.address) as stranger:
            stranger.sendall(words)
            assert is_hung_up(stranger)
    connect_and_prove(contact).socket.close()


def test_results_cannot_be_read_on_the_way(
    results: ResultServer, secured: ExchangeSettings
) -> None:
    taken: list[Any] = []
    result_address = results.open(taken.extend)
    with Tap(results.address) as tap:
        writer = ResultWriter(replace(result_address, address=tap.address))
        sent = [b"known words" * 100, bytes(3 << 20)]
        writer.write(sent)
        writer.flush()
        writer.close()
    assert taken == sent
    assert len(tap.seen) > 3 << 20 and b"known words" not in tap.seen
    assert pickle.loads(pickle.dumps(result_address)).settings == secured


def test_results_without_tls_are_refused(
    results: ResultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.host.net.control_client.RETRIES_S", ())
    with pytest.raises(PeerUnproven):
        ResultWriter(replace(results.open(lambda records: None), settings=ExchangeSettings()))


def test_a_writer_that_waits_in_tls_ends_with_its_stream(results: ResultServer) -> None:
    blocked = threading.Event()
    free = threading.Event()

    def take(records: list[Any]) -> None:
        blocked.set()
        free.wait(20)

    result_address = results.open(take)
    writer = ResultWriter(result_address)
    errors: list[BaseException] = []

    def fill() -> None:
        try:
            while True:
                writer.write([bytes(1 << 20)])
        except DriverLost as error:
            errors.append(error)

    thread = threading.Thread(target=fill)
    thread.start()
    assert blocked.wait(10)
    results.close_stream(result_address)
    free.set()
    thread.join(20)
    assert len(errors) == 1
    writer.close()


def test_visitors_come_through_tls_as_the_jobs_file_says(
    server: ControlServer, secured: ExchangeSettings
) -> None:
    answer = JobAnswer("job", "name", "RUNNING", 0)
    server.open_job("job", SECRET, lambda key: None, on_question=lambda question: answer)  # type: ignore[arg-type,return-value]
    files = secured.tls_certificate, secured.tls_key, secured.tls_authority
    entry = JobEntry("job", "name", 0, 1, "here", server.address, SECRET, CONTROL_VERSION, files)
    assert ask(entry, JobQuestion()) == answer
    for wrong in (("nowhere", *files[1:]), (files[0], files[1], files[0])):
        with pytest.raises(JobSilent):
            ask(msgspec.structs.replace(entry, tls=wrong), JobQuestion())


class Tap:
    """Passes one connection on, and keeps what it has seen of it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.seen = b""
        self._target = target
        self._port = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._port.getsockname()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Tap":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._thread.join(20)
        self._port.close()

    def _run(self) -> None:
        here, _ = self._port.accept()
        with closing(here), socket.create_connection(self._target) as there:
            back = threading.Thread(target=self._pump, args=(there, here, []))
            seen: list[bytes] = []
            back.start()
            self._pump(here, there, seen)
            back.join()
            self.seen = b"".join(seen)

    def _pump(self, source: socket.socket, target: socket.socket, seen: list[bytes]) -> None:
        try:
            while data := source.recv(1 << 16):
                seen.append(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass
