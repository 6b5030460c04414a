"""The driver's ports among many strangers, and with no thread or file left for the next one."""

import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from headgate.base.messages import Address, ControlTimes
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.results import ResultServer, ResultWriter
from headgate.host.net import listener
from headgate.host.net.contact import DriverContact
from headgate.host.net.control_client import connect_and_prove
from headgate.host.net.listener import AcceptedConnection, Listener
from headgate.host.net.throttled_log import LINES
from tests.host.control_rig import SECRET, TIMES, is_hung_up, replace_times
from tests.host.rig import eventually

MANY = 60
FEW = 8


class Port:
    """A port of the driver, and a true peer for it."""

    def __init__(self, name: str, address: Address, use: Callable[[], None]) -> None:
        self.name = name
        self.address = address
        self.use = use

    def threads(self) -> int:
        names = [thread.name for thread in threading.enumerate()]
        return sum(name.startswith(f"{self.name}-127.0.0.1") for name in names)


@pytest.fixture(params=["control", "results"])
def port(request: pytest.FixtureRequest, no_leaks: None) -> Iterator[Port]:
    if request.param == "control":
        times = replace_times(TIMES, prove_ms=60_000)
        with ControlServer(times=times) as server:
            server.open_job("job", SECRET, lambda key: None)  # type: ignore[arg-type,return-value]
            contact = DriverContact(server.address, "job", SECRET, times=TIMES)
            yield Port(
                "headgate-control",
                server.address,
                lambda: connect_and_prove(contact).socket.close(),
            )
        return
    results = ResultServer()
    results._times = ControlTimes(prove_ms=60_000)
    taken: list[int] = []
    result_address = results.open(taken.extend)

    def deliver() -> None:
        writer = ResultWriter(result_address)
        writer.write([1])
        writer.flush()
        writer.close()
        assert taken.pop() == 1

    yield Port("headgate-results", results.address, deliver)
    results.close()


def connect(
    port: Port, count: int, opened: ExitStack, source: str = "127.0.0.1"
) -> list[socket.socket]:
    return [
        opened.enter_context(socket.create_connection(port.address, source_address=(source, 0)))
        for _ in range(count)
    ]


def test_strangers_are_bounded_and_a_true_peer_gets_through(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_STRANGERS", FEW)
    most = []
    with ExitStack() as opened:
        for _ in range(MANY // 10):
            connect(port, 10, opened)
            most.append(port.threads())
        port.use()
        most.append(port.threads())
    assert max(most) <= FEW + 1
    port.use()


def test_many_strangers_leave_few_lines_in_the_log(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []

    def keep(level: int, text: str, *parts: object) -> None:
        lines.append(text % parts)

    monkeypatch.setattr(listener.log, "log", keep)
    monkeypatch.setattr(listener.log, "isEnabledFor", lambda level: True)
    for _ in range(MANY // 10):
        with ExitStack() as opened:
            for stranger in connect(port, 10, opened):
                stranger.sendall(b"GET / HTTP/1.1\r\n")
    port.use()  # comes behind them
    eventually(lambda: port.threads() <= 1, "the end of all strangers", 10)
    eventually(lambda: len(lines) >= LINES, "the lines of the first strangers", 10)
    assert len(lines) == LINES


def test_an_address_has_a_bound_of_its_own(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_OF_ADDRESS", 3)
    with ExitStack() as opened:
        others = connect(port, 2, opened, "127.0.0.2")
        crowd = connect(port, MANY // 3, opened, "127.0.0.3")
        eventually(lambda: sum(map(is_open, crowd)) == 3, "the crowd has three places")
        assert all(map(is_open, others))
        port.use()


def is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def test_the_crowd_goes_first_when_all_places_are_taken(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_STRANGERS", 5)
    with ExitStack() as opened:
        (early,) = connect(port, 1, opened, "127.0.0.2")
        crowd = connect(port, MANY // 3, opened, "127.0.0.3")
        eventually(lambda: sum(map(is_open, crowd)) <= 4, "the crowd leaves")
        assert is_open(early)


def test_true_peers_that_come_all_at_once_do_not_push_each_other_out(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_STRANGERS", 4)
    monkeypatch.setattr(listener, "YOUNG_S", 5.0)
    monkeypatch.setattr("headgate.host.net.control_client.RETRIES_S", ())
    errors: list[BaseException] = []

    def come() -> None:
        try:
            port.use()
        except BaseException as error:
            errors.append(error)

    own = [threading.Thread(target=come) for _ in range(20)]
    if port.name == "headgate-results":
        own = own[:1]  # its true peer checks what was taken, alone
    for thread in own:
        thread.start()
    for thread in own:
        thread.join()
    assert errors == []


def test_a_thread_that_cannot_start_does_not_end_the_port(
    port: Port, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start
    refused = []

    def no_more(thread: threading.Thread) -> None:
        if thread.name.startswith(f"{port.name}-127"):
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    caplog.set_level(logging.WARNING, "headgate")
    with monkeypatch.context() as broken, ExitStack() as opened:
        broken.setattr(threading.Thread, "start", no_more)
        strangers = connect(port, 5, opened)
        assert all(map(is_hung_up, strangers))
    assert len(refused) == 5
    assert len([r for r in caplog.records if "can't start new thread" in r.message]) == 1
    port.use()


def exhaust(opened: ExitStack) -> None:
    while True:
        opened.callback(os.close, os.dup(0))


def test_no_file_left_for_a_connection_does_not_end_the_port(
    port: Port, caplog: pytest.LogCaptureFixture
) -> None:
    """A real shortage: the process may open no file more."""
    caplog.set_level(logging.WARNING, "headgate")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as opened:
        (stranger,) = connect(port, 1, opened)
        eventually(lambda: port.threads() == 1, "the first is served")
        sock = opened.enter_context(socket.socket())
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
        with pytest.raises(OSError, match="Too many open files"):
            exhaust(opened)
        try:
            sock.connect(port.address)
            eventually(lambda: bool(caplog.records), "it is told")
            assert is_hung_up(stranger), "it goes, so that there is room for another"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "open files" in caplog.text
    port.use()


def test_whatever_serving_raises_ends_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    def serve(accepted: AcceptedConnection) -> None:
        accepted.socket.recv(1)
        raise ValueError("no")

    port = Listener("127.0.0.1", 0, serve, name="headgate-test")
    port.start()
    try:
        for _ in range(3):
            with socket.create_connection(port.address) as stranger:
                stranger.sendall(b"x")
                assert is_hung_up(stranger)
    finally:
        port.close()
        port.hang_up()
        port.join(5)
    port.close()
    assert caplog.text.count("has failed") == 3


def test_a_closed_port_leaves_nobody_behind() -> None:
    waiting = threading.Event()

    def serve(accepted: AcceptedConnection) -> None:
        port.proven_or_ended(accepted)
        waiting.set()
        accepted.socket.recv(1)

    port = Listener("127.0.0.1", 0, serve, name="headgate-test")
    port.start()
    with socket.create_connection(port.address):
        assert waiting.wait(5)
        port.close()
        began = time.monotonic()
        port.hang_up()
        port.join(5)
        assert time.monotonic() - began < 5


def test_how_many_strangers_there_were_is_told_when_the_port_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(listener.log, "log", lambda level, text, *parts: lines.append(text % parts))
    monkeypatch.setattr(listener.log, "isEnabledFor", lambda level: True)

    def leave(accepted: AcceptedConnection) -> None:
        port.left(accepted, OSError("gone"))

    port = Listener("127.0.0.1", 0, leave, name="test")
    port.start()
    for _ in range(LINES + 3):
        socket.create_connection(port.address).close()
    eventually(lambda: len(lines) >= LINES, "the first lines", 10)
    eventually(lambda: not port._strangers, "the end of all", 10)
    time.sleep(0.1)
    port.close()
    port.join(5)
    assert "more such lines" in lines[-1] and len(lines) == LINES + 1
