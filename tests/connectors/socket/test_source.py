"""Lines from a real server on the loopback, cut and broken in every way."""

import math
import pickle
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import LineTooLong, LineUndecodable, PlanInvalid, ServerUnreachable
from headgate.connectors.socket import LineAssembly, SocketTextReader, SocketTextSource
from tests.connectors.kit import read_some, read_to_end, read_until, task_context


class Server:
    """Listens, and is one side of the connections to it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(30)
        self.source = SocketTextSource("127.0.0.1", self.listener.getsockname()[1])
        self.connections: list[socket.socket] = []

    def accept(self) -> socket.socket:
        connection, _ = self.listener.accept()
        self.connections.append(connection)
        return connection

    def close(self) -> None:
        for connection in [*self.connections, self.listener]:
            connection.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def readers() -> Iterator[list[SocketTextReader]]:
    made: list[SocketTextReader] = []
    yield made
    for reader in made:
        reader.close()


def open_reader(source: SocketTextSource, readers: list[SocketTextReader]) -> SocketTextReader:
    [split] = source.splits(4)
    readers.append(source.open(split, None, task_context()))
    return readers[-1]


def dial(
    server: Server, readers: list[SocketTextReader], source: SocketTextSource | None = None
) -> tuple[SocketTextReader, socket.socket]:
    reader = open_reader(source or server.source, readers)
    assert read_some(reader) == []
    return reader, server.accept()


def reset(connection: socket.socket) -> None:
    """Break the connection instead of ending it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_lines_come_as_they_are_sent(server: Server, readers: list[SocketTextReader]) -> None:
    reader, peer = dial(server, readers)
    peer.sendall(b"one\ntwo\r\n\nth")
    assert read_until(reader, lambda lines: len(lines) == 3) == ["one", "two", ""]
    peer.sendall("ree\nvier ü\n".encode())
    assert read_until(reader, lambda lines: len(lines) == 2) == ["three", "vier ü"]
    assert reader.position() is None


def test_the_server_ends_the_source_and_the_last_line(
    server: Server, readers: list[SocketTextReader]
) -> None:
    reader, peer = dial(server, readers)
    peer.sendall(b"one\nunfinished")
    peer.close()
    assert read_to_end(reader) == ["one", "unfinished"]
    assert reader.poll(1) is None


def test_a_poll_gives_no_more_than_its_limit(
    server: Server, readers: list[SocketTextReader]
) -> None:
    reader, peer = dial(server, readers)
    peer.sendall(b"a\nb\nc\nd\ne\n")
    peer.close()
    assert read_to_end(reader, limit=2) == list("abcde")


def test_a_connected_reader_is_polled_when_something_has_arrived(
    server: Server, readers: list[SocketTextReader]
) -> None:
    reader, peer = dial(server, readers)
    assert [read_some(reader) for _ in range(3)] == [[], [], []]
    assert reader.wait_ms() == math.inf
    assert select.select([reader.fileno()], [], [], 0) == ([], [], [])
    peer.sendall(b"a\n")
    assert select.select([reader.fileno()], [], [], 30)[0] == [reader.fileno()]
    assert read_some(reader) == ["a"]
    peer.close()
    assert select.select([reader.fileno()], [], [], 30)[0] == [reader.fileno()]


def test_a_long_line_is_received_without_a_pause(
    server: Server, readers: list[SocketTextReader]
) -> None:
    reader, peer = dial(server, readers)
    peer.sendall(b"x" * 100)
    assert select.select([reader.fileno()], [], [], 30)[0]
    assert read_some(reader) == []
    assert reader.wait_ms() == 0
    assert read_some(reader) == []
    assert reader.wait_ms() == math.inf


def test_a_reader_without_a_connection_is_polled_by_the_clock(
    server: Server, readers: list[SocketTextReader]
) -> None:
    source = replace(server.source, max_retry=-1, retry_delay_ms=60_000)
    reader, peer = dial(server, readers, source)
    peer.close()
    assert select.select([reader.fileno()], [], [], 30)[0] == [reader.fileno()]
    assert read_some(reader) == []
    assert reader.fileno() is None
    assert 0 < reader.wait_ms() <= 60_000


def test_it_connects_again_after_the_server_hung_up(
    server: Server, readers: list[SocketTextReader]
) -> None:
    source = replace(server.source, max_retry=1, retry_delay_ms=1)
    reader, peer = dial(server, readers, source)
    peer.sendall(b"one\nhalf")
    peer.close()
    assert read_until(reader, lambda lines: len(lines) == 2) == ["one", "half"]
    # Queued before the reader asks again, so that its lines are there when it is accepted.
    while not server.connections[1:]:
        read_some(reader)
        server.listener.settimeout(0.01)
        try:
            server.accept()
        except TimeoutError:
            continue
    server.connections[1].sendall(b" line\n")
    server.connections[1].close()
    assert read_to_end(reader) == [" line"]


def test_a_server_that_does_not_come_back_ends_the_source(
    server: Server, readers: list[SocketTextReader]
) -> None:
    reader, peer = dial(server, readers, replace(server.source, max_retry=3, retry_delay_ms=1))
    server.listener.close()
    peer.sendall(b"one\n")
    peer.close()
    assert read_to_end(reader) == ["one"]


def test_a_server_that_is_not_there_is_an_error_after_the_retries(
    server: Server, readers: list[SocketTextReader]
) -> None:
    server.listener.close()
    reader = open_reader(replace(server.source, max_retry=2, retry_delay_ms=1), readers)
    with pytest.raises(ServerUnreachable, match=r"after 3 attempts.*max_retry") as caught:
        read_to_end(reader)
    assert caught.value.address == server.source.address
    assert caught.value.attempts == 3


def test_a_server_that_comes_late_is_found(readers: list[SocketTextReader]) -> None:
    late = Server()
    late.listener.close()
    source = replace(late.source, max_retry=-1, retry_delay_ms=1)
    reader = open_reader(source, readers)
    for _ in range(3):
        assert read_some(reader) == []
    late.listener = socket.create_server(("127.0.0.1", source.port))
    while not late.connections:
        read_some(reader)
        late.listener.settimeout(0.01)
        try:
            late.accept().sendall(b"at last\n")
        except TimeoutError:
            continue
    assert read_until(reader, bool) == ["at last"]
    late.close()


def test_a_broken_connection_is_an_error_and_no_end(
    server: Server, readers: list[SocketTextReader]
) -> None:
    reader, peer = dial(server, readers)
    reset(peer)
    with pytest.raises(ServerUnreachable, match="reset"):
        read_to_end(reader)


def test_a_name_that_nobody_knows_is_an_error(readers: list[SocketTextReader]) -> None:
    with pytest.raises(ServerUnreachable, match=r"no\.such\.host\.invalid:9"):
        open_reader(SocketTextSource("no.such.host.invalid", 9), readers)


def test_the_next_address_is_tried(server: Server, readers: list[SocketTextReader]) -> None:
    # Nobody listens on the IPv6 side, which comes first on many machines.
    source = replace(server.source, host="localhost")
    reader, peer = dial(server, readers, source)
    peer.sendall(b"hello\n")
    assert read_until(reader, bool) == ["hello"]


def test_a_line_without_end_is_refused(server: Server, readers: list[SocketTextReader]) -> None:
    reader, peer = dial(server, readers, replace(server.source, max_line_bytes=10))
    peer.sendall(b"ok\n" + b"x" * 11)
    with pytest.raises(LineTooLong, match="more than 10 bytes; raise max_line_bytes"):
        read_to_end(reader)


def test_bytes_that_are_no_text_name_the_line(
    server: Server, readers: list[SocketTextReader]
) -> None:
    reader, peer = dial(server, readers)
    peer.sendall(b"good\n")
    assert read_until(reader, bool) == ["good"]
    peer.sendall(b"good\nbad \xff\ngood\n")
    with pytest.raises(LineUndecodable, match="line 3: no utf-8 text") as caught:
        read_to_end(reader)
    assert caught.value.line == 3


def test_bytes_that_are_no_text_can_be_replaced(
    server: Server, readers: list[SocketTextReader]
) -> None:
    reader, peer = dial(server, readers, replace(server.source, errors="replace"))
    peer.sendall(b"bad \xff\n")
    assert read_until(reader, bool) == ["bad �"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"port": 0}, "port is 0"),
        ({"delimiter": ""}, "delimiter is ''"),
        ({"max_retry": -2}, "max_retry is -2"),
        ({"max_line_bytes": 0}, "max_line_bytes is 0"),
        ({"encoding": "utf-99"}, "unknown encoding: utf-99"),
        ({"encoding": "utf-16"}, "convert the text to UTF-8"),
        ({"errors": "hope"}, "unknown error handler name 'hope'"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(PlanInvalid, match=words):
        replace(SocketTextSource("localhost", 9), **changes)  # type: ignore[arg-type]


def test_the_description_travels() -> None:
    source = SocketTextSource("localhost", 9999, max_retry=3)
    assert pickle.loads(pickle.dumps(source)) == source
    assert not source.bounded


@given(
    delimiter=st.sampled_from(["\n", "||", "aa", "aba", "é"]),
    text=st.text(alphabet="ab|\n\ré", min_size=10, max_size=60),
    chunk_bytes=st.integers(1, 9),
)
def test_how_the_bytes_are_cut_makes_no_difference(
    delimiter: str, text: str, chunk_bytes: int
) -> None:
    assembly = LineAssembly(SocketTextSource("localhost", 9, delimiter), task_context().malformed)
    data = text.encode()
    lines: list[str] = []
    for begin in range(0, len(data), chunk_bytes):
        lines += assembly.received(data[begin : begin + chunk_bytes])
    lines += assembly.ended()
    expected = text.split(delimiter)
    if not expected[-1]:
        expected.pop()
    if delimiter == "\n":
        expected = [line.removesuffix("\r") for line in expected]
    assert lines == expected


def test_a_delimiter_that_overlaps_itself_is_found_from_the_left() -> None:
    assembly = LineAssembly(SocketTextSource("localhost", 9, "aa"), task_context().malformed)
    assert assembly.received(b"xaaa") == ["x"]
    assert assembly.received(b"a") == [""]


@given(
    lines=st.lists(st.sampled_from([b"good", b"\xff", b"far too long", b""]), min_size=1),
    chunk_bytes=st.integers(1, 30),
)
def test_lines_that_are_none_are_reported_and_the_others_come(
    lines: list[bytes], chunk_bytes: int
) -> None:
    reported: list[tuple[object, Exception]] = []
    source = SocketTextSource("localhost", 9, max_line_bytes=5)
    assembly = LineAssembly(source, lambda raw, error: reported.append((raw, error)))
    data = b"".join(line + b"\n" for line in lines)
    found: list[str] = []
    for begin in range(0, len(data), chunk_bytes):
        found += assembly.received(data[begin : begin + chunk_bytes])
    found += assembly.ended()
    assert found == [line.decode() for line in lines if line in (b"good", b"")]
    bad = [line for line in lines if line in (b"\xff", b"far too long")]
    assert len(reported) == len(bad)
    for line, (raw, _) in zip(bad, reported, strict=True):
        assert isinstance(raw, bytes) and line.startswith(raw)
    assert [isinstance(error, LineTooLong) for _, error in reported] == [
        line != b"\xff" for line in bad
    ]
    numbers = [number for number, line in enumerate(lines, 1) if line == b"\xff"]
    assert [error.line for _, error in reported if isinstance(error, LineUndecodable)] == numbers


def test_a_server_that_sends_no_text_is_passed_over(
    server: Server, readers: list[SocketTextReader]
) -> None:
    reported: list[object] = []
    context = replace(task_context(), malformed=lambda raw, error: reported.append(raw))
    reader = server.source.open("", None, context)
    readers.append(reader)
    assert read_some(reader) == []
    connection = server.accept()
    connection.sendall(b"a\n\xff\nb\n")
    assert read_until(reader, lambda lines: len(lines) == 2) == ["a", "b"]
    assert reported == [b"\xff"]
