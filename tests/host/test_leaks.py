"""The watch over descriptors itself: it names what stays open, and knows lines to a JVM."""

import socket
import sys
import threading
from types import SimpleNamespace

import pytest

from tests.host import leaks
from tests.host.leaks import descriptors, left_open


def test_what_stays_open_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "PATIENCE_S", 0.0)
    before = descriptors()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as idle:
        port = server.getsockname()[1]
        left = dict(line.split(": ", 1) for line in left_open(before))
        assert f"tcp 127.0.0.1:{port} to 0.0.0.0:0, listening" in left[str(server.fileno())]
        assert left[str(idle.fileno())].endswith("that is not connected")
    assert left_open(before) == []


def test_what_is_closed_soon_is_no_leak() -> None:
    before = descriptors()
    pair = socket.socketpair()
    assert len(before) + 2 == len(descriptors())
    for end in pair:
        threading.Timer(0.1, end.close).start()
    assert left_open(before) == []


def test_lines_to_a_jvm_are_left_out_even_when_it_has_reset_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaks, "PATIENCE_S", 0.0)
    before = descriptors()
    with socket.create_server(("127.0.0.1", 0)) as jvm, socket.socket() as line:
        port = jvm.getsockname()[1]
        gateway = SimpleNamespace(
            gateway_parameters=SimpleNamespace(port=port), get_callback_server=lambda: None
        )
        context = SimpleNamespace(_gateway=gateway)
        line.connect(("127.0.0.1", port))
        assert len(left_open(before)) == 2
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "pyspark", SimpleNamespace(SparkContext=context))
            assert left_open(before) == []
        assert left_open(before) == []
