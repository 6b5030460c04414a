"""Streams of result records from sinks to the driver, while the job runs.

The driver opens a stream and gives its ``ResultAddress`` to a sink; each task of the sink connects,
proves that it knows the stream's secret and sends lists of records, each in a sealed frame. The
driver consumes one list at a time, and back-pressures the sink through TCP. Law: when a writer's
``flush`` has returned, all its records were consumed; closing a stream in the driver ends its
connections; a list that cannot be unpickled or consumed ends one connection, and its sink hears
why.
"""

import hmac
import logging
import pickle
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from traceback import format_exception_only
from typing import Any, Final

from headgate.base.errors import DriverLost, HeadgateError, ResultsRefused
from headgate.base.messages import Address, ControlTimes
from headgate.base.settings import ExchangeSettings
from headgate.functions.sink import SinkWriter
from headgate.host.driver.control_peer import prove_stranger
from headgate.host.net.contact import DriverContact, secret_of_job
from headgate.host.net.control_client import CHUNK_BYTES, ProvenConnection, connect_and_prove
from headgate.host.net.listener import AcceptedConnection, Listener
from headgate.host.net.transport import Tls

log = logging.getLogger(__name__)

DONE: Final = b""
"""The frame after the last records. The driver answers with it when it has consumed everything."""
SECRET_BYTES: Final = 32
MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
"""Largest list of records, which is cut to fit, and largest single record."""
PROBLEM_CHARS: Final = 2000

Take = Callable[[list[Any]], None]
"""Consumes records in the driver; may block, raises ``StreamClosed`` to end the stream."""


class StreamClosed(HeadgateError):
    """Nobody in the driver consumes the records of this stream any more."""


@dataclass(frozen=True, slots=True)
class ResultAddress:
    """What a sink needs to reach its stream in the driver; it travels with the job's code.

    The secret does not: whoever intercepts the code must not be able to send results. A worker
    derives it from the secret of its job.
    """

    address: Address
    stream: str
    secret: bytes = field(repr=False)
    job: str = ""
    settings: ExchangeSettings = field(default_factory=ExchangeSettings, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return ResultAddress, (self.address, self.stream, b"", self.job, self.settings)

    @property
    def contact(self) -> DriverContact:
        """For a worker of the job, or the driver itself."""
        secret = self.secret or stream_secret(secret_of_job(self.job), self.stream)
        return DriverContact(self.address, self.stream, secret, self.settings)


def stream_secret(job_secret: bytes, stream: str) -> bytes:
    """The secret of one stream of a job."""
    return hmac.digest(job_secret, b"headgate results " + stream.encode(), "sha256")


class ResultServer:
    """One port of the driver for all its streams."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        advertised_host: str | None = None,
        settings: ExchangeSettings | None = None,
    ) -> None:
        """``settings`` decide on TLS, here and for the sinks."""
        self._settings = settings or ExchangeSettings()
        self._listener = Listener(
            host,
            port,
            self._serve,
            name="headgate-results",
            advertised_host=advertised_host,
            tls=Tls(self._settings) if self._settings.tls_enabled else None,
        )
        self.address: Address = self._listener.address
        self._times = ControlTimes()
        self._lock = threading.Lock()  # guards the two below
        self._streams: dict[str, tuple[bytes, Take]] = {}
        self._connections: dict[AcceptedConnection, str] = {}
        self._listener.start()

    def open(self, take: Take, job: str = "", job_secret: bytes | None = None) -> ResultAddress:
        """Open a stream; ``take`` is called on the threads of its connections."""
        stream = secrets.token_hex(16)
        secret = stream_secret(job_secret or secrets.token_bytes(SECRET_BYTES), stream)
        with self._lock:
            self._streams[stream] = secret, take
        return ResultAddress(self.address, stream, secret, job, self._settings)

    def close_stream(self, address: ResultAddress) -> None:
        """Stop consuming it and disconnect its sinks. Idempotent."""
        with self._lock:
            self._streams.pop(address.stream, None)
            ended = [peer for peer, stream in self._connections.items() if stream == address.stream]
        for accepted in ended:
            accepted.hang_up()

    def close(self) -> None:
        """End all streams and the port. Idempotent."""
        self._listener.close()
        with self._lock:
            self._streams.clear()
        self._listener.hang_up()

    def _serve(self, accepted: AcceptedConnection) -> None:
        """The thread of a connection."""
        try:
            timeout_s = self._times.prove_ms / 1000
            stream, proven = prove_stranger(
                accepted.socket,
                accepted.name,
                self._secret_of,
                timeout_s,
                lambda: self._listener.proven_or_ended(accepted),
                MAX_FRAME_BYTES,
            )
            with self._lock:
                self._connections[accepted] = stream
                entry = self._streams.get(stream)
            if entry is not None:
                accepted.socket.settimeout(None)
                _receive(accepted, proven, entry[1], timeout_s)
        except StreamClosed:
            pass
        except (OSError, HeadgateError) as error:
            self._listener.left(accepted, error)
        finally:
            with self._lock:
                self._connections.pop(accepted, None)

    def _secret_of(self, stream: str) -> bytes | None:
        with self._lock:
            entry = self._streams.get(stream)
        return None if entry is None else entry[0]


def _receive(
    accepted: AcceptedConnection, proven: ProvenConnection, take: Take, farewell_s: float
) -> None:
    """Consume what a sink sends until it disconnects, or its stream is closed."""
    sock, reader = proven.socket, proven.reader
    while not accepted.is_leaving:  # after a shutdown, what has arrived can still be read
        while (body := reader.next_body()) is not None:
            if body == DONE:
                sock.sendall(proven.writer.head(DONE))
                continue
            try:
                _hand_over(body, take)
            except ResultsRefused as refused:
                log.warning("%s: %s", reader.peer, refused)
                _turn_away(proven, refused.problem, farewell_s)
                return
        data = sock.recv(CHUNK_BYTES)
        if not data:
            return
        reader.received(data)


def _hand_over(body: bytes, take: Take) -> None:
    """Raises StreamClosed, or ResultsRefused for any other failure."""
    try:
        records = pickle.loads(body)  # the seal is valid: a task of our own job sent it
    except BaseException as error:  # a pickle may raise anything, SystemExit too
        raise ResultsRefused(f"cannot read them ({_shown(error)})") from error
    try:
        take(records)
    except (StreamClosed, ResultsRefused):
        raise
    except (Exception, SystemExit) as error:  # take() may unpickle, too
        raise ResultsRefused(f"cannot take them ({_shown(error)})") from error


def _shown(error: BaseException) -> str:
    return format_exception_only(type(error), error)[-1].strip()  # even if str() of it raises


def _turn_away(proven: ProvenConnection, problem: str, farewell_s: float) -> None:
    """Report to the sink, and read until it hangs up: closing earlier may discard the report."""
    text = problem[:PROBLEM_CHARS].encode("utf-8", "replace")
    deadline = time.monotonic() + farewell_s
    proven.socket.settimeout(farewell_s)
    with suppress(OSError):
        proven.socket.sendall(proven.writer.head(text) + text)
        while proven.socket.recv(CHUNK_BYTES) and time.monotonic() < deadline:
            pass


class ResultWriter(SinkWriter):
    """The writer of a sink whose records go to the driver."""

    def __init__(self, address: ResultAddress) -> None:
        self._contact = address.contact
        self._driver = connect_and_prove(self._contact)
        self._driver.socket.settimeout(None)

    def write(self, records: list[Any]) -> None:
        """Send records; waits while the driver is slow."""
        data = pickle.dumps(records, 5)
        if len(data) > MAX_FRAME_BYTES and len(records) == 1:
            raise ResultsRefused(
                f"takes records of {MAX_FRAME_BYTES:,} bytes at most, and one has {len(data):,}"
            )
        if len(data) > MAX_FRAME_BYTES:
            half = len(records) // 2
            self.write(records[:half])
            self.write(records[half:])
            return
        self._send(data)

    def send(self, message: object) -> None:
        """Send one value that the stream's consumer knows, instead of a list of records."""
        self._send(pickle.dumps(message, 5))

    def flush(self) -> None:
        """Returns when the driver has consumed everything; raises ResultsRefused, DriverLost."""
        self._send(DONE)
        try:
            problem = self._answer()
        except (OSError, HeadgateError) as error:
            raise DriverLost(self._contact.driver, str(error)) from error
        if problem:
            raise ResultsRefused(problem)

    def close(self) -> None:
        self._driver.socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._driver.socket.sendall(self._driver.writer.head(data))
            self._driver.socket.sendall(data)
        except OSError as error:
            problem = ""
            with suppress(OSError, HeadgateError):  # it may have sent the reason before
                self._driver.socket.settimeout(0.1)
                problem = self._answer()
            if problem:
                raise ResultsRefused(problem) from error
            raise DriverLost(self._contact.driver, str(error)) from error

    def _answer(self) -> str:
        """Why the driver refuses more; empty if it has consumed everything."""
        while (body := self._driver.reader.next_body()) is None:
            data = self._driver.socket.recv(CHUNK_BYTES)
            if not data:
                raise ConnectionError("it closed the stream")
            self._driver.reader.received(data)
        return body.decode("utf-8", "replace")
