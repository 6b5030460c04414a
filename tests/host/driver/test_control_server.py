"""The control port among strangers: garbage, silence and floods harm nobody who is proven."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from headgate.base.errors import SettingsInvalid
from headgate.base.messages import (
    CONTROL_VERSION,
    Failure,
    Heartbeat,
    Hello,
    Refused,
    Register,
    Shutdown,
    TaskChanged,
    TaskManagerFailed,
    TaskState,
    ToDriver,
    ToTaskManager,
)
from headgate.control.frames import TO_TASK_MANAGER, encode
from headgate.control.life_cycle import JobState
from headgate.host.driver.checkpoint_setup import plan_run
from headgate.host.driver.control_peer import ControlPeer
from headgate.host.driver.control_server import ControlServer
from headgate.host.net import listener
from headgate.host.net.contact import DriverContact
from headgate.host.net.control_client import (
    ConnectionLost,
    ControlConnection,
    ProvenConnection,
    connect_and_prove,
    receive_by,
)
from tests.host.control_rig import (
    SECRET,
    TIMES,
    Launcher,
    ended,
    is_hung_up,
    replace_times,
    task_states,
)
from tests.host.jobs import job_of
from tests.host.rig import eventually

BOOM = Failure("ValueError", "boom")


@pytest.fixture
def launcher(no_leaks: None) -> Iterator[Launcher]:
    with ControlServer(
        times=replace_times(TIMES, prove_ms=300, cancel_ms=200, leave_ms=200)
    ) as server:
        yield Launcher(server)


class Line:
    """A task manager by hand: it is proven, says what it is told to, and keeps what it hears."""

    def __init__(self, contact: DriverContact) -> None:
        self.heard: list[ToTaskManager | ConnectionLost] = []
        self.line = ControlConnection(contact, self.heard.append)

    def register(self, slot: int, stage: str = "") -> None:
        self.line.send(Register(stage, slot, ("127.0.0.1", 9), os.getpid(), "here"))

    def expect(self, *kinds: str) -> None:
        eventually(lambda: [type(m).__name__ for m in self.heard] == list(kinds), f"{kinds}")


@pytest.fixture
def lines(launcher: Launcher) -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def connect(opened: ExitStack, contact: DriverContact) -> Line:
    line = Line(contact)
    opened.enter_context(line.line)
    return line


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: driver\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\xff" * 5000,
        b"\x10\x00\x00\x00" + b"\xc1" * 16,
        encode(Register("", 0, ("127.0.0.1", 1))),
        encode(Hello(CONTROL_VERSION, "nobody's", bytes(32))),
        encode(Hello(99, "job", bytes(32))),
        os.urandom(3000),
    ],
    ids=["http", "empty", "long", "malformed", "early", "unknown", "version", "random"],
)
def test_garbage_is_dropped(launcher: Launcher, data: bytes) -> None:
    with socket.create_connection(launcher.server.address) as stranger:
        stranger.sendall(data)
        assert is_hung_up(stranger)


def test_a_silent_stranger_is_dropped_after_the_time_for_a_proof(launcher: Launcher) -> None:
    with (
        socket.create_connection(launcher.server.address) as silent,
        socket.create_connection(launcher.server.address) as slow,
    ):
        began = time.monotonic()
        while time.monotonic() < began + 0.2:  # a byte now and then is no proof
            slow.sendall(b"\x00"[:1])
            time.sleep(0.05)
        assert is_hung_up(silent)
        assert is_hung_up(slow)


def test_strangers_do_not_keep_task_managers_out(
    launcher: Launcher, lines: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_STRANGERS", 3)
    run, contact = launcher.begin(job_of(tmp_path, parallelism=2))
    early = connect(lines, contact)  # proven, but it needs time before it registers
    strangers = [
        lines.enter_context(socket.create_connection(launcher.server.address)) for _ in range(10)
    ]
    line = connect(lines, contact)
    line.register(0)
    line.expect("Deploy")
    early.register(1)
    early.expect("Deploy")
    assert all(is_hung_up(stranger) for stranger in strangers)
    run.cancel("enough")


def test_a_stranger_who_repeats_what_it_has_overheard_is_not_believed(
    launcher: Launcher, tmp_path: Path
) -> None:
    launcher.open(job_of(tmp_path))
    with socket.create_connection(launcher.server.address) as stranger:
        stranger.sendall(encode(Hello(CONTROL_VERSION, "job", bytes(32))))
        answer = stranger.recv(1 << 16)
        stranger.sendall(answer)  # the driver's own challenge
        assert is_hung_up(stranger)


def test_a_slot_is_given_once(launcher: Launcher, lines: ExitStack, tmp_path: Path) -> None:
    run, contact = launcher.begin(job_of(tmp_path, parallelism=1))
    first, second, third = (connect(lines, contact) for _ in range(3))
    first.register(0)
    first.expect("Deploy")
    second.register(0)
    eventually(lambda: second.heard[:1] == [Refused("slot 0 is taken")], "refused")
    third.register(5)
    eventually(lambda: third.heard[:1] == [Refused("there is no slot 5; the job has 1")], "no slot")
    assert run.state is JobState.DEPLOYING
    run.cancel("enough")


def test_one_that_does_not_read_delays_nobody_else(
    launcher: Launcher, lines: ExitStack, tmp_path: Path
) -> None:
    big = bytes(16 << 20)
    run, contact = launcher.begin(job_of(tmp_path, lambda number: (number, big)[0]), "big")
    other, other_contact = launcher.begin(job_of(tmp_path, parallelism=1), "other")
    with raw_task_manager(contact) as frozen:
        frozen.say(Register("", 0, ("127.0.0.1", 9)))
        eventually(lambda: run.state is JobState.DEPLOYING, "registered; it never reads its code")
        line = connect(lines, other_contact)
        line.register(0)
        line.expect("Deploy")
        for task in task_states(other):
            line.line.send(TaskChanged(str(other.key), task, TaskState.FINISHED))
        assert ended(other).state is JobState.FINISHED
        run.cancel("enough")
        assert ended(run).state is JobState.CANCELLED
        launcher.server.close()  # the writer that is stuck in its socket ends too


class RawTaskManager:
    """A proven connection that nobody reads."""

    def __init__(self, line: ProvenConnection) -> None:
        self.line = line

    def say(self, message: ToDriver) -> None:
        self.line.socket.sendall(self.line.writer.encode(message))


@contextmanager
def raw_task_manager(contact: DriverContact) -> Iterator[RawTaskManager]:
    line = connect_and_prove(contact)
    try:
        yield RawTaskManager(line)
    finally:
        line.socket.close()


def test_what_a_proven_peer_says_wrongly_ends_its_connection_alone(
    launcher: Launcher, lines: ExitStack, tmp_path: Path
) -> None:
    run, contact = launcher.begin(job_of(tmp_path))
    good = connect(lines, contact)
    good.register(0)
    with raw_task_manager(contact) as bad:
        bad.say(Register("", 1, ("127.0.0.1", 9)))
        eventually(lambda: len(good.heard) == 2, "registered")
        bad.line.socket.sendall(bad.line.writer.head(b"abc") + b"abc")
        eventually(lambda: run.state is JobState.FAILING, "it is lost")
    good.line.send(TaskChanged(str(run.key), "0.0", TaskState.FAILED, BOOM))
    outcome = ended(run)
    assert outcome.failure == BOOM


def test_a_task_manager_that_cannot_start_is_heard(
    launcher: Launcher, lines: ExitStack, tmp_path: Path
) -> None:
    run, contact = launcher.begin(job_of(tmp_path))
    line = connect(lines, contact)
    line.line.send(TaskManagerFailed("", 1, BOOM))
    assert ended(run).failure == BOOM


def test_reports_of_another_run_are_ignored(
    launcher: Launcher, lines: ExitStack, tmp_path: Path
) -> None:
    run, contact = launcher.begin(job_of(tmp_path, parallelism=1))
    line = connect(lines, contact)
    line.register(0)
    line.expect("Deploy")
    line.line.send(TaskChanged("job//7", "0.0", TaskState.FAILED, BOOM))
    for task in task_states(run):
        line.line.send(TaskChanged(str(run.key), task, TaskState.FINISHED))
    assert ended(run).state is JobState.FINISHED
    line.expect("Deploy", "Shutdown")


def test_no_run_no_registration(launcher: Launcher, lines: ExitStack, tmp_path: Path) -> None:
    contact = launcher.open(job_of(tmp_path))
    line = connect(lines, contact)
    line.register(0, stage="9")
    eventually(lambda: bool(line.heard), "an answer")
    assert line.heard[0] == Refused("no run has begun for stage '9'")


def test_nobody_joins_a_lazy_run_that_is_failing(
    launcher: Launcher, lines: ExitStack, tmp_path: Path
) -> None:
    contact = launcher.open(job_of(tmp_path), lazy=True)
    with connect(lines, contact).line as dying:
        dying.send(Register("7", 0, ("127.0.0.1", 9)))
        eventually(lambda: len(launcher.server.runs("job")) == 1, "the first run")
    (run,) = launcher.server.runs("job")
    eventually(lambda: run.state is JobState.FAILING, "the loss is noticed")
    late = connect(lines, contact)
    late.register(1, stage="7")  # of the next attempt: nobody has served this slot before
    late.expect("Deploy")
    assert [str(run.key) for run in launcher.server.runs("job")] == ["job/7/1"]
    assert launcher.begun == ["job/7/0", "job/7/1"], "each run is told when it begins"


def test_a_plan_that_cannot_be_made_is_told_to_the_task_manager(
    launcher: Launcher, lines: ExitStack
) -> None:
    def broken(key: object) -> None:
        raise ValueError("no plan")

    launcher.server.open_job("broken", SECRET, broken, lazy=True)  # type: ignore[arg-type]
    line = connect(lines, DriverContact(launcher.server.address, "broken", SECRET, times=TIMES))
    line.register(0)
    eventually(lambda: bool(line.heard), "an answer")
    assert line.heard[0] == Refused("no run can begin: ValueError: no plan")


def test_one_that_does_not_leave_after_the_end_is_hung_up_on(
    launcher: Launcher, tmp_path: Path
) -> None:
    run, contact = launcher.begin(job_of(tmp_path, parallelism=1))
    with raw_task_manager(contact) as raw:
        raw.say(Register("", 0, ("127.0.0.1", 9)))
        eventually(lambda: run.state is JobState.DEPLOYING, "registered")
        run.cancel("enough")
        ended(run)
        deadline = time.monotonic() + 20
        heard = []
        with suppress(ConnectionError):
            while True:
                message = receive_by(raw.line.socket, raw.line.reader, TO_TASK_MANAGER, deadline)
                heard.append(type(message).__name__)
        assert [name for name in heard if name != "Heartbeat"] == ["Deploy", "Cancel", "Shutdown"]


def test_one_has_time_to_leave_however_little_a_cancellation_has(
    no_leaks: None, tmp_path: Path
) -> None:
    with ControlServer(times=replace_times(TIMES, cancel_ms=1, leave_ms=60_000)) as server:
        run, contact = Launcher(server).begin(job_of(tmp_path, parallelism=1))
        with raw_task_manager(contact) as raw:
            raw.say(Register("", 0, ("127.0.0.1", 9)))
            eventually(lambda: run.state is JobState.DEPLOYING, "registered")
            run.cancel("enough")
            ended(run)
            time.sleep(0.3)
            deadline = time.monotonic() + 20
            heard = ""
            while heard != "Shutdown":
                message = receive_by(raw.line.socket, raw.line.reader, TO_TASK_MANAGER, deadline)
                heard = type(message).__name__
            raw.say(Heartbeat())
            assert (
                type(receive_by(raw.line.socket, raw.line.reader, TO_TASK_MANAGER, deadline))
                is Heartbeat
            ), "the line is still open"


def test_whoever_sees_the_end_of_a_run_sees_its_outcome(
    launcher: Launcher, lines: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, contact = launcher.begin(job_of(tmp_path, parallelism=1))
    seen: list[tuple[JobState, JobState | None]] = []

    def look() -> None:
        state = run.state
        seen.append((state, run.outcome and run.outcome.state))

    observer = threading.Thread(target=look)
    post = ControlPeer.post

    def look_and_post(peer: ControlPeer, message: ToTaskManager) -> None:
        if isinstance(message, Shutdown):  # the machine has ended, but the run has not heard of it
            observer.start()
            observer.join(0.2)
        post(peer, message)

    monkeypatch.setattr(ControlPeer, "post", look_and_post)
    connect(lines, contact).register(0)
    eventually(lambda: run.state is JobState.DEPLOYING, "registered")
    run.fail(Failure("Py4JJavaError", "no slots"))
    ended(run)
    observer.join(20)
    assert seen == [(JobState.FAILED, JobState.FAILED)]


def test_callbacks_that_fail_harm_nobody(launcher: Launcher, tmp_path: Path) -> None:
    def angry(key: object, outcome: object) -> None:
        raise ValueError("no")

    graph = job_of(tmp_path)
    launcher.server.open_job(
        "angry", SECRET, lambda key: plan_run(str(key), graph, b""), on_ended=angry
    )
    run = launcher.server.begin("angry")
    run.cancel("enough")
    assert ended(run).state is JobState.CANCELLED


def test_the_launcher_may_fail_a_run(launcher: Launcher, tmp_path: Path) -> None:
    run, _ = launcher.begin(job_of(tmp_path))
    run.fail(Failure("Py4JJavaError", "no slots"))
    outcome = ended(run)
    assert outcome.failure is not None
    assert outcome.failure.message == "no slots"


def test_a_secret_must_be_long(launcher: Launcher) -> None:
    with pytest.raises(SettingsInvalid, match="16 bytes"):
        launcher.server.open_job("weak", b"short", lambda key: None)  # type: ignore[arg-type,return-value]


def test_closing_twice_and_with_strangers_connected_is_fine(launcher: Launcher) -> None:
    with socket.create_connection(launcher.server.address) as stranger:
        launcher.server.close()
        assert is_hung_up(stranger)
        launcher.server.close()
