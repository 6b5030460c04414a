"""Who may ask the server: hosts, origins, tokens, headers, bodies, and peers that misbehave."""

import logging
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate.observe.web import access, connections
from headgate.observe.web.server import PageServer, is_loopback
from tests.observe.web.kit import (
    DEADLINE_S,
    Caller,
    ScriptedJob,
    five_vertices,
    free_port_settings,
    serving,
)

DATA = ["/jobs", "/jobs/overview", "/jobs/ab12", "/overview", "/metrics", "/openapi.json"]
BEARER = "Bearer t0ken"


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example", "evil.example:8081", "[::1", ""),
        *("127.0.0.2", "localhost.evil.example", "0.0.0.0"),
    ],
)
def test_a_name_that_somebody_has_pointed_here_is_not_ours(host: str) -> None:
    with serving(ScriptedJob(five_vertices())) as ask:
        for path in ("/", "/jobs", "/static/main.js"):
            reply = ask(path, host=host)
            assert reply.status == 403
            assert "Host header" in reply.json["errors"][0]


def test_our_own_names_are_known() -> None:
    with serving(ScriptedJob(five_vertices())) as ask:
        port = ask.server.port
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "LOCALHOST", f"[::1]:{port}"):
            assert ask("/jobs", host=host).status == 200


def test_a_page_of_another_origin_gets_nothing_and_changes_nothing() -> None:
    job = ScriptedJob(five_vertices())
    with serving(job) as ask:
        own = f"http://127.0.0.1:{ask.server.port}"
        for origin in ("http://evil.example", "http://127.0.0.1:1", "null", own + ".evil.example"):
            assert ask("/jobs", origin=origin).status == 403
            cancelled = ask("/jobs/ab12", "PATCH", origin=origin, x_requested_with="x")
            assert cancelled.status == 403
            preflight = ask(
                *("/jobs/ab12", "OPTIONS"),
                origin=origin,
                access_control_request_method="PATCH",
            )
            assert preflight.status == 403
            assert not [name for name in preflight.headers if name.startswith("access-control")]
        assert ask("/jobs", sec_fetch_site="cross-site").status == 403
        assert ask("/jobs", sec_fetch_site="same-site").status == 403
        assert ask("/", sec_fetch_site="cross-site").status == 200, "a link to the page is fine"
        assert ask("/jobs", origin=own, sec_fetch_site="same-origin").status == 200
        assert not job.reasons


def test_a_form_cannot_change_anything() -> None:
    job = ScriptedJob(five_vertices())
    with serving(job) as ask:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            reply = ask("/jobs/ab12/stop", "POST", body={}, content_type=kind)
            assert reply.status == 403
        assert not job.savepoints
        assert ask("/jobs/ab12/stop", "POST", body={}).status == 202


ASK_AS_STRANGER = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
headers = {"X-Requested-With": "x", **({"Authorization": sys.argv[4]} if sys.argv[4:] else {})}
connection.request(sys.argv[2], sys.argv[3], headers=headers)
reply = connection.getresponse()
print(reply.status, reply.read().decode())
"""


def ask_as_stranger(port: int, *arguments: str) -> str:
    """As another user of this machine."""
    command = [sys.executable, "-I", "-c", ASK_AS_STRANGER, str(port), *arguments]
    if not is_public(Path(sys.executable).resolve()):
        command[0] = shutil.which("python3", path="/usr/bin") or pytest.skip("no public Python")
    asked = subprocess.run(command, user="nobody", cwd="/", capture_output=True, text=True)
    assert not asked.returncode, asked.stderr
    return asked.stdout


def is_public(path: Path) -> bool:
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
@pytest.mark.parametrize("protocol", [access._SOCK_DIAG, 31], ids=["asked", "listed"])
def test_another_user_of_the_machine_sees_and_changes_nothing_without_a_token(
    protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_SOCK_DIAG", protocol)
    job = ScriptedJob(five_vertices())
    with serving(job) as ask:
        port = ask.server.port
        for path in DATA:
            assert ask(path).status == 200
            reply = ask_as_stranger(port, "GET", path)
            assert reply.startswith("403 ") and "setting rest.token" in reply
        assert ask_as_stranger(port, "PATCH", "/jobs/ab12").startswith("403 ")
        assert ask_as_stranger(port, "GET", "/").startswith("200 "), "it holds no data"
        assert not job.reasons
    with serving(job, token="t0ken") as ask:
        assert ask_as_stranger(ask.server.port, "GET", "/jobs", BEARER).startswith("200 ")


@pytest.mark.parametrize(
    "given", [None, "", "Bearer", "Bearer ", "Bearer t0ke", "Bearer t0kenn", "Basic t0ken", "t0ken"]
)
def test_data_needs_the_token_and_the_page_itself_does_not(given: str | None) -> None:
    headers = {} if given is None else {"authorization": given}
    with serving(ScriptedJob(five_vertices()), token="t0ken") as ask:
        for path in (*DATA, "/nothing", "/static", "/config/x"):
            reply = ask(path, **headers)
            assert reply.status == 401, path
            assert "the token is missing or wrong" in reply.json["errors"][0]
            assert reply.headers["www-authenticate"].startswith("Bearer")
        for path in ("/", "/config", "/static/main.js"):
            assert ask(path, **headers).status == 200, path
        assert ask("/config").json["needs-token"] is True


def test_with_the_token_everything_is_answered() -> None:
    with serving(ScriptedJob(five_vertices()), token="t0ken") as ask:
        for path in DATA:
            assert ask(path, authorization=BEARER).status == 200, path
        assert ask("/jobs", authorization="bearer t0ken").status == 200
        assert ask("/jobs?token=t0ken").status == 401, "an address ends up in logs"


def test_an_address_that_others_reach_is_never_without_a_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "headgate")
    with serving(ScriptedJob(five_vertices()), bind_address="0.0.0.0") as ask:
        token = ask.server.token
        assert len(token) >= 32
        assert ask("/jobs").status == 401
        assert ask("/jobs", authorization=f"Bearer {token}", host="driver.example").status == 200
        link = ask.server.show(ScriptedJob(five_vertices(), job_id="a b"))
        assert link.endswith(f"/#token={token}&path=/jobs/a%20b")
        assert ask.server.url == f"http://127.0.0.1:{ask.server.port}", "for commands here"
    assert token not in caplog.text
    with serving(bind_address="0.0.0.0", token="given") as ask:
        link = ask.server.show(ScriptedJob(five_vertices()))
        assert "given" not in link, "whoever has chosen it knows it"


def test_loopback_addresses_are_known() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "", "driver.example", "::2")))


def test_every_answer_keeps_browsers_in_bounds() -> None:
    with serving(ScriptedJob(five_vertices())) as ask:
        for path in ("/", "/jobs", "/nothing", "/static/main.js", "/jobs/nobody"):
            headers = ask(path).headers
            assert "default-src 'self'" in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cache-control"] == "no-store"
            assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/%2fetc/passwd",
        "/static//etc/passwd",
        "/static/views/../../server.py",
        "/static/",
        "/static/views",
        "/static/main.js%00",
        "/../server.py",
    ],
)
def test_only_files_of_the_page_are_served(path: str) -> None:
    with serving() as ask:
        assert ask(path).status == 404


def test_a_long_body_or_head_is_refused() -> None:
    job = ScriptedJob(five_vertices())
    with serving(job) as ask:
        long = {"target-directory": "x" * 70_000}
        assert ask("/jobs/ab12/savepoints", "POST", body=long).status == 413
        assert not job.savepoints
        with connected(ask) as peer:
            peer.sendall(
                b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000 + b"\r\n\r\n"
            )
            assert peer.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 431")
        with connected(ask) as peer:
            head = b"POST /jobs/ab12/stop HTTP/1.1\r\nHost: localhost\r\nX-Requested-With: x\r\n"
            peer.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
            chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
            peer.sendall(chunk * 3 + b"0\r\n\r\n")
            assert peer.recv(100).startswith(b"HTTP/1.1 413")
        assert not job.savepoints


def connected(ask: Caller) -> socket.socket:
    return socket.create_connection(("127.0.0.1", ask.server.port), DEADLINE_S)


def test_a_peer_that_sends_its_request_too_slowly_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.3)
    with serving(ScriptedJob(five_vertices())) as ask:
        assert ask("/jobs").status == 200
        beginnings = [
            b"",
            b"GET /jobs HTT",
            b"POST /jobs/ab12/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
            b"Content-Type: application/json\r\n\r\n{",
        ]
        for beginning in beginnings:
            with connected(ask) as peer:
                peer.sendall(beginning)
                assert _trickle(peer) == b"", beginning


def _trickle(peer: socket.socket) -> bytes:
    """Send a byte now and then, until the server has enough of it."""
    deadline = time.monotonic() + DEADLINE_S
    peer.settimeout(0.1)
    while time.monotonic() < deadline:
        try:
            return peer.recv(1000)
        except TimeoutError:
            try:
                peer.sendall(b"x")
            except OSError:
                return b""
        except ConnectionResetError:
            return b""
    raise AssertionError("it is still connected")


def test_a_stream_is_no_stalled_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.2)
    with serving(ScriptedJob(five_vertices())) as ask, connected(ask) as peer:
        peer.sendall(b"GET /jobs/ab12/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = b""
        while found.count(b"event: job") < 3:
            part = peer.recv(65_536)
            assert part, "it was cut off"
            found += part


def test_other_protocols_are_refused_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(ScriptedJob(five_vertices())) as ask:
        for words in (b"\x16\x03\x01\x02\x00\x01", b"SSH-2.0-x\r\n", b"GET / HTTP/9.9\r\n\r\n"):
            with connected(ask) as peer:
                peer.sendall(words + b"\r\n\r\n")
                assert b"HTTP/1.1 200" not in peer.recv(1000)
        upgrade = ask("/jobs", connection="Upgrade", upgrade="websocket")
        assert upgrade.status == 200, "it goes on as plain HTTP"
    assert "Invalid HTTP" not in caplog.text
    assert "uvicorn" not in {record.name.partition(".")[0] for record in caplog.records}


def test_no_header_of_a_proxy_is_believed() -> None:
    with serving(token="t0ken") as ask:
        reply = ask("/jobs", x_forwarded_for="127.0.0.1", forwarded="for=127.0.0.1")
        assert reply.status == 401
    with serving() as ask:
        assert ask("/jobs", host="evil.example", x_forwarded_host="localhost").status == 403


def test_a_server_says_nothing_about_its_token() -> None:
    server = PageServer(free_port_settings(token="t0ken"))
    try:
        assert "t0ken" not in repr(server) + repr(server.__dict__["_settings"])
    finally:
        server.close()
