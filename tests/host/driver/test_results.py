"""Results on their way to the driver: what cannot be read there fails its sink, with a reason."""

import os
import pickle
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.base.errors import DriverLost, ResultsRefused
from headgate.host.driver import results
from headgate.host.driver.results import ResultServer, ResultWriter, StreamClosed
from headgate.host.net.contact import DriverContact, secret_of_job
from tests.host.control_rig import is_hung_up
from tests.host.rig import eventually


@pytest.fixture
def server(no_leaks: None) -> Iterator[ResultServer]:
    server = ResultServer()
    yield server
    server.close()


class Raises:
    """Raises when it is unpickled."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise, (type(self.error), self.error.args)


def _raise(kind: type[BaseException], args: tuple[object, ...]) -> None:
    raise kind(*args)


@pytest.mark.parametrize(
    "error",
    [ValueError("no"), SystemExit(3), KeyboardInterrupt(), MemoryError(), GeneratorExit()],
    ids=lambda error: type(error).__name__,
)
def test_a_pickle_that_raises_is_told_to_its_sink(
    server: ResultServer, error: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    taken: list[Any] = []
    result_address = server.open(taken.extend)
    bad, good = ResultWriter(result_address), ResultWriter(result_address)
    bad.write([Raises(error)])
    with pytest.raises(ResultsRefused, match=f"cannot read them .{type(error).__name__}"):
        bad.flush()
    bad.close()
    good.write([1])
    good.flush()
    good.close()
    assert taken == [1]
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("data", [b"\x80", b"garbage", b"\x80\x05cno.such\nthing\n.", b"]" * 9])
def test_bytes_that_are_no_pickle_are_told_to_their_sink(server: ResultServer, data: bytes) -> None:
    writer = ResultWriter(server.open(lambda records: None))
    writer._send(data)
    with pytest.raises(ResultsRefused, match="cannot read them"):
        writer.flush()
    writer.close()


def test_a_sink_that_goes_on_writing_hears_why_nobody_takes_it(server: ResultServer) -> None:
    writer = ResultWriter(server.open(lambda records: None))
    writer._send(b"garbage")
    with pytest.raises((ResultsRefused, DriverLost)):
        write_on(writer)
    writer.close()


def write_on(writer: ResultWriter) -> None:
    for _ in range(100):
        writer.write(["more"] * 1000)
    writer.flush()


@pytest.mark.parametrize("error", [BrokenPipeError("standard output is gone"), SystemExit("gone")])
def test_a_taker_that_raises_is_told_to_the_sink(
    server: ResultServer, error: BaseException
) -> None:
    def take(records: list[Any]) -> None:
        raise error

    writer = ResultWriter(server.open(take))
    writer.write([1])
    with pytest.raises(ResultsRefused, match=f"cannot take them .{type(error).__name__}: .*gone"):
        writer.flush()
    writer.close()


def test_a_list_is_cut_to_fit_and_a_record_that_does_not_is_told(
    server: ResultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "MAX_FRAME_BYTES", 10_000)
    taken: list[bytes] = []
    writer = ResultWriter(server.open(taken.extend))
    records = [bytes([number]) * 3_000 for number in range(20)]
    writer.write(records)
    writer.flush()
    assert taken == records
    with pytest.raises(ResultsRefused, match="10,000 bytes at most, and one has 20,0"):
        writer.write([b"x" * 20_000])
    writer._send(pickle.dumps([b"x" * 20_000]))
    with pytest.raises(DriverLost):
        writer.flush()
    assert taken == records
    writer.close()


def test_a_taker_that_wants_no_more_hangs_up(server: ResultServer) -> None:
    def take(records: list[Any]) -> None:
        raise StreamClosed("enough")

    writer = ResultWriter(server.open(take))
    writer.write([1])
    with pytest.raises(DriverLost):
        writer.flush()
    writer.close()


def test_lists_of_many_sizes_arrive_whole_and_in_order(server: ResultServer) -> None:
    taken: list[bytes] = []
    sent = [os.urandom(size) for size in (0, 1, 100, 65_500, 65_536, 300_000, 5 << 20, 3)]
    writer = ResultWriter(server.open(taken.extend))
    for data in sent:
        writer.write([data])
    writer.flush()
    assert taken == sent
    writer.flush()
    writer.close()


def test_what_follows_the_handshake_unsealed_is_not_unpickled(server: ResultServer) -> None:
    """A peer of the version before, or somebody who has taken over its connection."""
    taken: list[Any] = []
    writer = ResultWriter(server.open(taken.extend))
    sock = writer._driver.socket
    data = pickle.dumps([1])
    sock.sendall(len(data).to_bytes(4, "little") + data + bytes(100))
    assert isinstance(sock, socket.socket) and is_hung_up(sock)
    writer.close()
    assert taken == []


def test_a_process_that_works_for_another_job_cannot_reach_the_stream(
    server: ResultServer,
) -> None:
    result_address = pickle.loads(
        pickle.dumps(server.open(lambda records: None, "mine", b"m" * 32))
    )
    with pytest.raises(Exception, match="no task manager of job 'mine'"):
        ResultWriter(result_address)
    first, second = (DriverContact(server.address, "mine", b"m" * 32) for _ in range(2))
    with first.in_use():
        with second.in_use():
            assert secret_of_job("mine") == b"m" * 32
        ResultWriter(result_address).close()
    with pytest.raises(Exception, match="no task manager"):
        secret_of_job("mine")


def test_a_closed_stream_ends_its_connections(server: ResultServer) -> None:
    result_address = server.open(lambda records: None)
    writer = ResultWriter(result_address)
    writer.flush()
    server.close_stream(result_address)
    server.close_stream(result_address)
    with pytest.raises(DriverLost):
        writer.flush()
    writer.close()
    eventually(lambda: not server._connections, "it is forgotten")
