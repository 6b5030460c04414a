"""Adversaries at the page's port: what they hold is bounded, and others get their answers."""

import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from headgate.observe.web import connections, event_streams
from tests.observe.web.kit import (
    DEADLINE_S,
    Caller,
    ScriptedJob,
    five_vertices,
    serving,
    until,
)

DETAILS = b"GET /jobs/ab12 HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connected(ask: Caller) -> socket.socket:
    return socket.create_connection(("127.0.0.1", ask.server.port), DEADLINE_S)


def connected_narrowly(ask: Caller) -> socket.socket:
    """Little fits into the buffers between server and peer, so that they are full soon."""
    peer = socket.socket()
    peer.settimeout(DEADLINE_S)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    peer.connect(("127.0.0.1", ask.server.port))
    return peer


def is_connected(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return bool(peer.recv(1))
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def is_cut_off(peer: socket.socket) -> bool:
    """Whether the server hangs up on a peer that reads nothing and sends what it can."""
    peer.setblocking(False)
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            peer.send(DETAILS * 20)
        except BlockingIOError:
            pass
        except OSError:
            return True
        time.sleep(0.01)  # the server runs in this process
    return False


def test_a_peer_that_asks_on_and_on_and_takes_no_answer_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.3)
    with serving(ScriptedJob(five_vertices())) as ask, connected_narrowly(ask) as peer:
        assert is_cut_off(peer)
        assert ask("/jobs").status == 200


def test_a_slow_reader_that_takes_its_answers_gets_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.5)
    with serving(ScriptedJob(five_vertices())) as ask, connected(ask) as peer:
        count, found = 60, b""
        peer.sendall(DETAILS * count)
        while found.count(b"HTTP/1.1 200") < count or not found.endswith(b"}"):
            part = peer.recv(20_000)
            assert part, "it was cut off"
            found += part
            time.sleep(0.005)


def test_who_comes_to_a_full_house_replaces_one_that_has_no_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 8)
    with serving(ScriptedJob(five_vertices())) as ask, ExitStack() as stack:
        follower = stack.enter_context(connected(ask))
        follower.sendall(b"GET /jobs/ab12/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert follower.recv(12) == b"HTTP/1.1 200"
        assert ask("/jobs").status == 200
        threads, crowd = threading.active_count(), []
        for _ in range(5):
            crowd += [stack.enter_context(connected(ask)) for _ in range(20)]
            assert ask("/jobs").status == 200, "the crowd locks nobody out"
        until(lambda: sum(map(is_connected, crowd)) < 8)
        assert not is_connected(crowd[0]), "the oldest made room"
        assert threading.active_count() <= threads
        received = b""
        while received.count(b"event: job") < 2:
            part = follower.recv(65_536)
            assert part, "who is being answered is not replaced"
            received += part


def test_who_comes_while_all_are_answered_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(event_streams, "MAX_FOLLOWERS", 4)
    with serving(ScriptedJob(five_vertices())) as ask, ExitStack() as stack:
        followers = [stack.enter_context(connected(ask)) for _ in range(4)]
        for follower in followers:
            follower.sendall(b"GET /jobs/ab12/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert follower.recv(12) == b"HTTP/1.1 200"
        assert not _answers(ask)
        followers[0].close()
        until(lambda: _answers(ask))


def _answers(ask: Caller) -> bool:
    try:
        return ask("/jobs").status == 200
    except OSError:
        return False


CONNECT_AND_CLOSE = """
import contextlib, socket, sys
for _ in range(3000):
    with contextlib.suppress(TimeoutError):  # the queue is full
        socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.02).close()
"""


def is_running(process: "subprocess.Popen[bytes]", for_s: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(for_s)
    return process.poll() is None


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_page_answers_beside_thousands_that_connect_and_leave_and_afterwards(
    address: str,
) -> None:
    with serving(ScriptedJob(five_vertices()), bind_address=address) as ask:
        assert ask("/jobs").status == 200
        command = [sys.executable, "-I", "-c", CONNECT_AND_CLOSE]
        began_s = time.process_time()
        flood = subprocess.Popen([*command, address, str(ask.server.port)])
        try:
            while is_running(flood, for_s=0.05):
                assert ask("/jobs").status == 200
        finally:
            flood.kill()
            flood.wait()
        asked = time.monotonic()
        assert ask("/jobs").status == 200
        assert time.monotonic() - asked < 5
        assert time.process_time() - began_s < 10, "of the driver's own time"


@pytest.mark.parametrize(
    "words",
    [
        b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /jobs?" + b"a=b&" * 15_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /jobs HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
        b"POST /jobs/ab12/stop HTTP/1.1\r\nHost: localhost\r\nX-Requested-With: x\r\n"
        b"Content-Length: 1099511627776\r\n\r\n",
        b"POST /jobs/ab12/stop HTTP/1.1\r\nHost: localhost\r\nX-Requested-With: x\r\n"
        b"Content-Length: -5\r\n\r\n",
        b"POST /jobs/ab12/stop HTTP/1.1\r\nHost: localhost\r\nX-Requested-With: x\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    ],
    ids=["path", "query", "headers", "length", "negative length", "chunk"],
)
def test_a_giant_request_is_refused_and_the_next_is_answered(
    words: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.5)
    job = ScriptedJob(five_vertices())
    with serving(job) as ask:
        with connected(ask) as peer:
            with suppress(ConnectionError):
                peer.sendall(words)
            with suppress(ConnectionResetError):
                answer = peer.recv(100)
                assert not answer or answer.startswith(b"HTTP/1.1 4"), answer
        assert ask("/jobs").status == 200
        assert not job.savepoints
