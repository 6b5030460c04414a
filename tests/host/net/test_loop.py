"""The loop fires timers in order, wakes up when nudged, and outlives what its handlers do."""

import logging
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from headgate.base.settings import TransportKind
from headgate.host.net.baton import Baton
from headgate.host.net.loop import READ, WRITE, Loop
from headgate.host.net.runner import TaskThread
from tests.host.rig import PATIENCE_S


@pytest.fixture
def loop(transport: TransportKind) -> Iterator[Loop]:
    loop = Loop(transport.value)
    yield loop
    loop.close()


class Reader:
    """Counts how often its socket could be read, and reads it empty."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.masks: list[int] = []

    def ready(self, mask: int) -> None:
        self.masks.append(mask)
        if mask & READ:
            self.sock.recv(4096)


class Broken:
    def ready(self, mask: int) -> None:
        raise ValueError("a bug in a handler")

    def flush(self) -> None:
        raise ValueError("a bug in a flush")


def poll_until_called(loop: Loop, fired: list[str], count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(fired) < count:
        assert time.monotonic() < deadline
        loop.poll(1000)


def test_timers_fire_in_the_order_of_their_time_and_equal_ones_in_that_of_setting(
    loop: Loop,
) -> None:
    fired: list[str] = []
    for name, delay in (("c", 20), ("a", 5), ("b", 10), ("d", 20)):
        loop.later(delay, lambda name=name: fired.append(name))  # type: ignore[misc]
    poll_until_called(loop, fired, 4)
    assert fired == ["a", "b", "c", "d"]


def test_a_timer_does_not_fire_early(loop: Loop) -> None:
    started, fired = time.monotonic(), list[float]()
    loop.later(30, lambda: fired.append(time.monotonic() - started))
    while not fired:
        loop.poll(None)
    assert fired[0] >= 0.030


def test_a_timer_set_by_a_timer_waits_for_the_next_poll(loop: Loop) -> None:
    fired: list[str] = []
    loop.later(0, lambda: loop.later(0, lambda: fired.append("inner")))
    loop.poll(0)
    assert fired == []
    poll_until_called(loop, fired, 1)


def test_a_timer_may_be_further_away_than_a_poll_can_wait(loop: Loop) -> None:
    fired: list[str] = []
    loop.later(40 * 24 * 60 * 60 * 1000, lambda: fired.append("in forty days"))
    loop.later(2**63, lambda: fired.append("never"))
    loop.nudge()
    loop.poll(None)
    assert fired == []


def test_a_nudge_from_another_thread_ends_a_wait(loop: Loop) -> None:
    started = threading.Event()

    def nudge() -> None:
        started.wait(PATIENCE_S)
        loop.nudge()

    thread = threading.Thread(target=nudge)
    thread.start()
    started.set()
    loop.poll(None)
    thread.join()


def test_many_nudges_without_a_poll_block_nobody(loop: Loop) -> None:
    for _ in range(50_000):
        loop.nudge()
    loop.poll(0)


def test_a_nudge_after_the_end_is_ignored(transport: TransportKind) -> None:
    loop = Loop(transport.value)
    loop.close()
    loop.nudge()
    loop.close()


def test_sockets_are_told_what_can_be_done_with_them(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = Reader(ours)
        loop.add(ours.fileno(), reader)
        loop.poll(0)
        assert reader.masks == []
        theirs.send(b"x")
        loop.poll(1000)
        assert reader.masks == [READ]
        loop.change(ours.fileno(), WRITE)
        loop.poll(1000)
        assert reader.masks == [READ, WRITE]
        loop.remove(ours.fileno())
        loop.remove(ours.fileno())
        theirs.send(b"x")
        loop.poll(0)
        assert reader.masks == [READ, WRITE]


def test_the_bug_of_one_handler_does_not_stop_the_others(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = [socket.socketpair() for _ in range(3)]
    try:
        readers = [Reader(pairs[0][0]), Reader(pairs[2][0])]
        loop.add(pairs[0][0].fileno(), readers[0])
        loop.add(pairs[1][0].fileno(), Broken())
        loop.add(pairs[2][0].fileno(), readers[1])
        for _, theirs in pairs:
            theirs.send(b"x")
        fired: list[str] = []
        loop.later(0, Broken().flush)
        loop.later(0, lambda: fired.append("timer"))
        loop.mark_dirty(Broken())
        with caplog.at_level(logging.ERROR):
            loop.poll(1000)
        assert [reader.masks for reader in readers] == [[READ], [READ]]
        assert fired == ["timer"]
        assert caplog.text.count("a bug in a flush") >= 2
        assert caplog.text.count("a bug in a handler") >= 1
    finally:
        for ours, theirs in pairs:
            ours.close()
            theirs.close()


class Dirty:
    """Flushes, and marks itself again a few times."""

    def __init__(self, loop: Loop, again: int) -> None:
        self.loop = loop
        self.again = again
        self.flushes = 0

    def flush(self) -> None:
        self.flushes += 1
        if self.again:
            self.again -= 1
            self.loop.mark_dirty(self)


def test_a_flush_that_wakes_a_task_ends_the_wait_of_its_poll(loop: Loop) -> None:
    baton = Baton(loop.nudge)
    task_thread = TaskThread("task", baton, loop)

    class Waking:
        def flush(self) -> None:
            task_thread.wake()

    loop.mark_dirty(Waking())
    started = time.monotonic()
    loop.poll(15_000)
    assert time.monotonic() - started < 10
    assert task_thread.woken


def test_what_marks_itself_dirty_while_flushed_is_flushed_without_waiting(loop: Loop) -> None:
    dirty = Dirty(loop, again=5)
    loop.mark_dirty(dirty)
    for _ in range(3):
        loop.poll(60_000)
    assert dirty.flushes == 6


def test_a_posted_call_wakes_the_loop_and_runs_in_its_poll(loop: Loop) -> None:
    fired: list[str] = []

    def post() -> None:
        for number in range(3):
            loop.post(lambda number=number: fired.append(f"{number}"))  # type: ignore[misc]

    threading.Timer(0.02, post).start()
    poll_until_called(loop, fired, 3)
    assert fired == ["0", "1", "2"]


def test_a_posted_call_that_fails_stops_no_other(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    fired: list[str] = []
    loop.post(Broken().flush)
    loop.post(lambda: fired.append("after"))
    with caplog.at_level(logging.ERROR):
        loop.poll(0)
    assert fired == ["after"]
    assert "a bug in a flush" in caplog.text
