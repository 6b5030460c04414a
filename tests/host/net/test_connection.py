"""A connection between a link and a transport that do what the test says."""

import socket
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from headgate.base.errors import HeadgateError
from headgate.base.ids import PeerName
from headgate.core.exchange.link import LinkState
from headgate.core.exchange.outbox import MAX_PARTS, Outbox
from headgate.host.net.connection import Connection
from headgate.host.net.loop import Loop
from tests.host.rig import eventually


class StubDecoder:
    paused = False


class StubLink:
    """Sends what its outbox holds, and remembers what it is told."""

    def __init__(self) -> None:
        self.peer = PeerName("stub")
        self.state = LinkState.OPEN
        self.error: HeadgateError | None = None
        self.outbox = Outbox(1 << 30, 1 << 30)
        self.decoder = StubDecoder()
        self.on_dirty: Callable[[object], None]
        self.calls: list[str] = []
        self.failed_with: list[HeadgateError] = []
        self.target = bytearray(10)

    @property
    def is_alive(self) -> bool:
        return self.state is LinkState.OPEN

    @property
    def is_deaf(self) -> bool:
        return self.decoder.paused

    def targets(self) -> list[memoryview]:
        return [] if self.decoder.paused else [memoryview(self.target)]

    def received(self, count: int, now_ms: float) -> None:
        self.calls.append(bytes(self.target[:count]).decode())

    def outgoing(self) -> list[bytes | bytearray | memoryview]:
        return self.outbox.gather()

    def sent(self, count: int, now_ms: float) -> None:
        self.outbox.sent(count)

    def ended(self, reason: str, *, may_pass: bool = True) -> None:
        self.calls.append(f"ended: {reason}")
        self.state = LinkState.CLOSED

    def fail(self, error: HeadgateError) -> None:
        self.failed_with.append(error)
        self.state = LinkState.CLOSED


class StubTransport:
    """Reads and writes as the test says."""

    awaits_read = awaits_write = has_buffered = False

    most_bytes = 1 << 40

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.waiting: list[bytes] = []
        self.written = 0
        self.write_error: Exception | None = None

    def read(self, targets: Sequence[memoryview]) -> int:
        if not self.waiting:
            raise BlockingIOError
        data = self.waiting.pop(0)
        self.has_buffered = False
        targets[0][: len(data)] = data
        return len(data)

    def write(self, parts: Sequence[bytes | bytearray | memoryview]) -> int:
        if self.write_error is not None:
            raise self.write_error
        count = sum(map(len, parts))
        self.written += count
        return count

    def close(self) -> None:
        self.sock.close()


class Stage:
    """A loop, a connection, its stubs, and the socket at the other end."""

    def __init__(self) -> None:
        self.loop = Loop()
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self.link = StubLink()
        self.transport = StubTransport(ours)
        self.connection = Connection(
            self.loop,
            ours,
            self.transport,
            self.link,  # type: ignore[arg-type]
            connecting=False,
        )

    def close(self) -> None:
        self.connection.close()
        self.theirs.close()
        self.loop.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.close()


def test_more_parts_than_a_flush_sends_go_at_the_next_polls(stage: Stage) -> None:
    for _ in range(10 * MAX_PARTS):
        stage.link.outbox.add(b"x")
    stage.loop.mark_dirty(stage.connection)
    for _ in range(3):
        stage.loop.poll(0)
    assert stage.transport.written == 10 * MAX_PARTS
    assert stage.link.outbox.pending_bytes == 0


def test_the_last_words_of_a_peer_are_read_after_a_broken_write(stage: Stage) -> None:
    stage.link.outbox.add(b"x")
    stage.transport.write_error = BrokenPipeError(32, "Broken pipe")
    stage.transport.waiting = [b"because", b"of you"]
    stage.connection.flush()
    assert stage.link.calls == ["because", "of you", "ended: Broken pipe"]


def test_an_error_with_a_reason_is_told_as_it_is(stage: Stage) -> None:
    stage.link.outbox.add(b"x")
    stage.transport.write_error = OSError(71, "certificate refused")
    stage.transport.waiting = [b"more"]
    stage.connection.flush()
    assert stage.link.calls == ["ended: certificate refused"]


def test_bytes_above_the_socket_are_read_when_there_is_room_again(stage: Stage) -> None:
    stage.transport.waiting = [b"left over"]
    stage.transport.has_buffered = True
    stage.link.decoder.paused = True
    stage.connection.flush()
    assert stage.link.calls == []
    stage.link.decoder.paused = False
    stage.connection.flush()
    assert stage.link.calls == ["left over"]


def test_a_bug_while_sending_ends_the_link(stage: Stage) -> None:
    stage.link.outbox.add(b"x")
    stage.transport.write_error = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        stage.connection.flush()
    assert "a bug" in str(stage.link.failed_with[0])
    assert stage.connection._closed


def test_a_link_that_says_farewell_does_not_spin_over_what_it_will_not_read(stage: Stage) -> None:
    stage.link.outbox.add(b"last words")
    stage.transport.write_error = BlockingIOError()
    stage.link.state = LinkState.CLOSING
    stage.connection.flush()
    stage.theirs.send(b"nobody reads this")
    stage.connection._blocked = False  # as if the kernel took nothing for a long time
    stage.connection._settle()
    started = time.monotonic()
    stage.loop.poll(50)
    assert time.monotonic() - started > 0.04


def test_a_hang_up_during_the_farewell_ends_it(stage: Stage) -> None:
    stage.link.outbox.add(b"last words")
    stage.transport.write_error = BlockingIOError()
    stage.link.state = LinkState.CLOSING
    stage.connection.flush()
    stage.theirs.close()
    eventually(lambda: stage.loop.poll(0) or stage.connection._closed, "the connection is closed")
    assert stage.link.outbox.pending_bytes == 0


def test_a_closed_connection_ignores_what_comes_later(stage: Stage) -> None:
    stage.connection.close()
    stage.connection.close()
    stage.link.outbox.add(b"x")
    stage.connection.flush()
    assert stage.transport.written == 0
