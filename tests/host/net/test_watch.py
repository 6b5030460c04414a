"""The descriptors of a source in the event loop, with real sockets and pipes."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.base.errors import ConnectorError
from headgate.host.net.loop import Loop, LoopWatch


@pytest.fixture(params=["epoll", "poll"])
def loop(request: pytest.FixtureRequest) -> Iterator[Loop]:
    made = Loop(request.param)
    yield made
    made.close()


class Pair:
    """A socket that is watched, and its other side."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()

    def close(self) -> None:
        self.near.close()
        self.far.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


class Report:
    """What the watch has reported; like a source, it ends the watch."""

    def __init__(self, loop: Loop) -> None:
        self.found: list[int] = []
        self.watch = LoopWatch(loop, self._ready)

    def _ready(self, fd: int) -> None:
        self.found.append(fd)
        self.watch.end()


def test_a_readable_descriptor_is_reported_once(loop: Loop, pair: Pair) -> None:
    report = Report(loop)
    assert report.watch.begin([pair.near.fileno()]) == []
    loop.poll(0)
    assert report.found == []
    pair.far.send(b"x")
    loop.poll(1000)
    loop.poll(0)
    assert report.found == [pair.near.fileno()]


def test_bytes_that_were_there_before_are_reported_too(loop: Loop, pair: Pair) -> None:
    pair.far.send(b"x")
    report = Report(loop)
    for round_number in (1, 2):
        report.watch.begin([pair.near.fileno()])
        loop.poll(1000)
        assert len(report.found) == round_number


def test_a_peer_that_hangs_up_is_reported(loop: Loop, pair: Pair) -> None:
    report = Report(loop)
    report.watch.begin([pair.near.fileno()])
    pair.far.close()
    loop.poll(1000)
    assert report.found == [pair.near.fileno()]


def test_after_the_end_nothing_is_reported(loop: Loop, pair: Pair) -> None:
    report = Report(loop)
    report.watch.begin([pair.near.fileno()])
    report.watch.end()
    report.watch.end()
    pair.far.send(b"x")
    loop.poll(0)
    assert report.found == []


def test_the_reader_may_close_a_descriptor_that_is_watched(loop: Loop, pair: Pair) -> None:
    report = Report(loop)
    fd = pair.near.fileno()
    report.watch.begin([fd])
    pair.near.close()
    loop.poll(0)
    pair.far.close()
    loop.poll(1000)
    assert report.found == [fd]


def test_a_number_that_the_system_gave_to_a_connection_is_not_taken_for_the_old_one(
    loop: Loop, pair: Pair
) -> None:
    class Connection:
        heard = 0

        def ready(self, mask: int) -> None:
            self.heard += 1

    report, connection, other = Report(loop), Connection(), Pair()
    fd = pair.near.fileno()
    report.watch.begin([fd])
    os.dup2(other.near.fileno(), fd)  # closed by the reader, and the number is taken again
    loop.add(fd, connection)
    pair.far.send(b"x")
    loop.poll(1000)
    assert connection.heard == 0
    other.far.send(b"x")
    loop.poll(1000)
    loop.poll(0)
    loop.remove(fd)
    other.close()
    assert report.found == [fd], "the watch has the old socket"
    assert connection.heard == 2


def test_a_closed_descriptor_cannot_be_watched_and_the_others_are(loop: Loop, pair: Pair) -> None:
    closed = Pair()
    fd = closed.near.fileno()
    closed.close()
    report = Report(loop)
    assert report.watch.begin([-1, fd, 2**40, pair.near.fileno()]) == [-1, fd, 2**40]
    pair.far.send(b"x")
    loop.poll(1000)
    assert report.found == [pair.near.fileno()]


def test_the_descriptor_of_a_file_is_refused_with_advice(tmp_path: Path, pair: Pair) -> None:
    loop = Loop("epoll")
    report = Report(loop)
    with open(tmp_path / "file", "w+") as file:
        with pytest.raises(ConnectorError, match=rf"descriptor {file.fileno()} of a file.*or None"):
            report.watch.begin([pair.near.fileno(), file.fileno()])
        report.watch.end()
    loop.close()


def test_a_watch_can_end_after_its_loop(pair: Pair) -> None:
    loop = Loop()
    report = Report(loop)
    before = len(os.listdir("/proc/self/fd"))
    report.watch.begin([pair.near.fileno()])
    loop.close()
    report.watch.end()
    assert len(os.listdir("/proc/self/fd")) < before


def test_a_nudge_after_the_end_of_the_loop_does_no_harm() -> None:
    loop = Loop()
    loop.close()
    loop.nudge()
    loop.post(lambda: None)
