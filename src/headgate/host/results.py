"""Records on their way from sinks to the driver, while the job runs.

The driver opens a stream and gives its ``Uplink`` to a sink; each task of the sink connects, proves
that it knows the stream's secret and sends lists of records. The driver takes them one list at a
time, and a slow taker slows the sink down through TCP. Law: when a writer's ``flush`` has returned,
all its records were taken; a stream that is closed in the driver ends its connections.
"""

import logging
import pickle
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.api.source import SinkWriter
from headgate.base.errors import HeadgateError
from headgate.base.ids import PeerName
from headgate.base.job_errors import DriverLost
from headgate.base.messages import NONCE_BYTES, Address, ControlTimes
from headgate.control.frames import GREETINGS, FrameReader, encode
from headgate.control.proof import DriverProof
from headgate.host.contact import Contact
from headgate.host.control_client import connect_to_driver, prove_to_driver, receive_by

log = logging.getLogger(__name__)

LENGTH: Final = struct.Struct("<I")
DONE: Final = 0
"""Length that says: this was all; the driver answers with one byte when it is taken."""
SECRET_BYTES: Final = 32
MAX_FRAME_BYTES: Final = 2**31 - 1

Take = Callable[[list[Any]], None]
"""Takes a list of records in the driver; may block, raises ``StreamClosed`` to end the stream."""


class StreamClosed(HeadgateError):
    """Nobody in the driver takes the records of this stream any more."""


@dataclass(frozen=True, slots=True)
class Uplink:
    """What a sink needs to reach its stream in the driver; travels with the job."""

    address: Address
    stream: str
    secret: bytes = field(repr=False)


class ResultServer:
    """One port of the driver for all its streams."""

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, *, advertised_host: str | None = None
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=512)
        name = self._listener.getsockname()
        self.address: Address = (advertised_host or name[0], name[1])
        self._times = ControlTimes()
        self._lock = threading.Lock()  # of the two below
        self._streams: dict[str, tuple[bytes, Take]] = {}
        self._connections: dict[socket.socket, str] = {}
        self._closed = False
        self._door = threading.Thread(target=self._accept, name="headgate-results", daemon=True)
        self._door.start()

    def open(self, take: Take) -> Uplink:
        """A new stream; ``take`` is called on the threads of its connections."""
        uplink = Uplink(self.address, secrets.token_hex(16), secrets.token_bytes(SECRET_BYTES))
        with self._lock:
            self._streams[uplink.stream] = uplink.secret, take
        return uplink

    def close_stream(self, uplink: Uplink) -> None:
        """Take no more of it and hang up on its sinks. Idempotent."""
        with self._lock:
            self._streams.pop(uplink.stream, None)
            ended = [sock for sock, stream in self._connections.items() if stream == uplink.stream]
        for sock in ended:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all streams and the port. Idempotent."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._door.join()
        with self._lock:
            self._streams.clear()
            connections = list(self._connections)
        for sock in connections:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed:
            try:
                sock, address = self._listener.accept()
            except OSError:
                if not self._closed:
                    time.sleep(0.1)  # too many files are open, perhaps; it may pass
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name = f"{address[0]}:{address[1]}"
            threading.Thread(
                target=self._serve, args=(sock, name), name=f"headgate-results-{name}", daemon=True
            ).start()

    def _serve(self, sock: socket.socket, name: str) -> None:
        try:
            with sock:
                stream = self._prove(sock, name)
                with self._lock:
                    self._connections[sock] = stream
                    entry = self._streams.get(stream)
                if entry is not None:
                    sock.settimeout(None)
                    _receive(sock, entry[1])
        except StreamClosed:
            pass
        except (OSError, HeadgateError, EOFError) as error:
            log.info("a connection for results, %s, has ended: %s", name, error)
        except Exception:
            log.exception("results of %s could not be taken", name)
        finally:
            with self._lock:
                self._connections.pop(sock, None)

    def _prove(self, sock: socket.socket, name: str) -> str:
        deadline = time.monotonic() + self._times.prove_ms / 1000
        reader = FrameReader(PeerName(name))
        proof = DriverProof(self._secret_of, secrets.token_bytes(NONCE_BYTES), PeerName(name))
        while not proof.is_done:
            greeting = receive_by(sock, reader, GREETINGS, deadline)
            sock.sendall(encode(proof.received(greeting)))
        return proof.job

    def _secret_of(self, stream: str) -> bytes | None:
        with self._lock:
            entry = self._streams.get(stream)
        return None if entry is None else entry[0]


def _receive(sock: socket.socket, take: Take) -> None:
    with sock.makefile("rb") as file:
        while True:
            prefix = file.read(LENGTH.size)
            if len(prefix) < LENGTH.size:
                return
            (length,) = LENGTH.unpack(prefix)
            if length == DONE:
                sock.sendall(b"\1")
                continue
            data = file.read(length)
            if len(data) < length:
                return
            take(pickle.loads(data))  # the other side is proven: it is a task of our own job


class UplinkWriter(SinkWriter):
    """The writer of a sink whose records go to the driver."""

    def __init__(self, uplink: Uplink) -> None:
        self._contact = Contact(uplink.address, uplink.stream, uplink.secret)
        self._socket = connect_to_driver(self._contact)
        try:
            prove_to_driver(self._socket, self._contact)
            self._socket.settimeout(None)
        except BaseException:
            self._socket.close()
            raise

    def write(self, records: list[Any]) -> None:
        """Send them; waits while the driver has no room."""
        data = pickle.dumps(records, 5)
        if len(data) > MAX_FRAME_BYTES:
            half = len(records) // 2
            self.write(records[:half])
            self.write(records[half:])
            return
        self._send(data)

    def send(self, message: object) -> None:
        """One value that the stream's taker knows, instead of a list of records."""
        self._send(pickle.dumps(message, 5))

    def flush(self) -> None:
        """Returns when the driver has taken everything."""
        try:
            self._socket.sendall(LENGTH.pack(DONE))
            if not self._socket.recv(1):
                raise ConnectionError("it closed the stream")
        except OSError as error:
            raise DriverLost(self._contact.driver, str(error)) from error

    def close(self) -> None:
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(LENGTH.pack(len(data)))
            self._socket.sendall(data)
        except OSError as error:
            raise DriverLost(self._contact.driver, str(error)) from error
