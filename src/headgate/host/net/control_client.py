"""The worker's end of the control connection, with a thread of its own.

So the driver gets heartbeats even while this worker loads the job's code, and its silence or end is
noticed at once. Messages are delivered in order; the end of the connection comes as
``ConnectionLost``, once. Law: after ``close`` there is no thread and no socket left.
"""

import logging
import secrets
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from headgate.base.errors import DriverUnreachable, PeerBrokeProtocol, PeerUnproven
from headgate.base.ids import PeerName
from headgate.base.messages import NONCE_BYTES, Heartbeat, ToDriver, ToTaskManager
from headgate.control.frames import (
    GREETINGS,
    MESSAGE_BYTES,
    TO_TASK_MANAGER,
    FrameReader,
    FrameWriter,
    encode,
)
from headgate.control.proof import WorkerProof
from headgate.host.net.contact import DriverContact
from headgate.host.net.transport import Socket, Tls, greet, has_pending, secured

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 256 * 1024
FLUSH_S: Final = 2.0
"""How long the last messages may take to be sent."""
RETRIES_S: Final = (0.2, 0.6, 1.8)
MAX_BACKLOG: Final = 64
"""With more unsent frames than that, optional messages are dropped."""

_READ: Final = selectors.EVENT_READ
_M = TypeVar("_M")


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection has ended."""

    problem: str


@dataclass(frozen=True, slots=True)
class ProvenConnection:
    """A connection on which both sides are proven, with its sealing reader and writer."""

    socket: Socket
    reader: FrameReader
    writer: FrameWriter

    def received(self) -> "Iterator[ToTaskManager]":
        """The driver's messages that have come, without waiting.

        Raises PeerBrokeProtocol, or OSError when the connection has ended.
        """
        is_more = True
        while is_more:
            try:
                data = self.socket.recv(CHUNK_BYTES)
            except BlockingIOError:
                is_more = False
            else:
                if not data:
                    raise ConnectionError("it closed the connection")
                self.reader.received(data)
                is_more = has_pending(self.socket)
            while (message := self.reader.next(TO_TASK_MANAGER)) is not None:
                yield message


class ControlConnection:
    """A proven connection to the driver."""

    def __init__(
        self,
        contact: DriverContact,
        deliver: Callable[[ToTaskManager | ConnectionLost], None],
        on_ignored_loss: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_ignored_loss``: called if ``heard`` is not, for twice ``lost_ms`` after the loss."""
        self._times = contact.times
        self._deliver = deliver
        self._on_ignored_loss = on_ignored_loss
        self._driver = connect_and_prove(contact)
        self._socket = self._driver.socket
        self.local_host: str = self._socket.getsockname()[0]
        self._outgoing: deque[memoryview] = deque()
        self._lock = threading.Lock()  # frames must be sent in the order they were sealed
        self._close_by: float | None = None
        self._heard = threading.Event()
        self._waker, self._woken = socket.socketpair()
        self._socket.setblocking(False)
        for sock in (self._waker, self._woken):
            sock.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="headgate-control", daemon=True)
        self._thread.start()

    @property
    def has_backlog(self) -> bool:
        """Whether the driver reads more slowly than messages are sent."""
        return len(self._outgoing) > MAX_BACKLOG

    def send(self, message: ToDriver) -> None:
        """From any thread; never waits. Without effect after the end of the connection."""
        with self._lock:
            self._outgoing.append(memoryview(self._driver.writer.encode(message)))
        self._wake()

    def heard(self) -> None:
        """The receiver of messages has noticed the loss."""
        self._heard.set()

    def close(self) -> None:
        """Send what is queued, as far as the driver reads it, and end. Idempotent."""
        self._close_by = self._close_by or time.monotonic() + FLUSH_S
        self._heard.set()
        self._wake()
        self._thread.join()
        self._socket.close()
        for sock in (self._waker, self._woken):
            sock.close()

    def __enter__(self) -> "ControlConnection":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _wake(self) -> None:
        with suppress(BlockingIOError, OSError):
            self._waker.send(b"!")

    # The thread.

    def _run(self) -> None:
        try:
            self._exchange_messages()
        except (OSError, PeerBrokeProtocol) as error:
            self._deliver(ConnectionLost(str(error)))
            if not self._heard.wait(2 * self._times.lost_ms / 1000):
                self._on_ignored_loss()

    def _exchange_messages(self) -> None:
        interval_s = self._times.heartbeat_interval_ms / 1000
        timeout_s = self._times.heartbeat_timeout_ms / 1000
        heard_at = spoke_at = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, _READ)
            selector.register(self._woken, _READ)
            while not self._may_end():
                if time.monotonic() - spoke_at >= interval_s and not self._outgoing:
                    self.send(Heartbeat())
                if self._write():
                    spoke_at = time.monotonic()
                writes = selectors.EVENT_WRITE if self._outgoing else 0
                selector.modify(self._socket, _READ | writes)
                ready = selector.select(min(interval_s, FLUSH_S) / 2)
                if any(key.fileobj is self._socket and mask & _READ for key, mask in ready):
                    for message in self._driver.received():
                        if not isinstance(message, Heartbeat):
                            self._deliver(message)
                    heard_at = time.monotonic()
                elif time.monotonic() - heard_at >= timeout_s:
                    raise TimeoutError(f"nothing was heard from it for {timeout_s:g} s")
                with suppress(BlockingIOError):
                    self._woken.recv(4096)

    def _may_end(self) -> bool:
        if self._close_by is None:
            return False
        return not self._outgoing or time.monotonic() >= self._close_by

    def _write(self) -> bool:
        wrote = False
        while self._outgoing:
            try:
                sent = self._socket.send(self._outgoing[0])
            except BlockingIOError:
                return wrote
            wrote = True
            with self._lock:
                rest = self._outgoing.popleft()[sent:]
                if rest:
                    self._outgoing.appendleft(rest)
        return wrote


def connect_and_prove(contact: DriverContact) -> ProvenConnection:
    """A proven connection; if the driver hangs up, perhaps overloaded, it is tried again."""
    for pause_s in (*RETRIES_S, None):
        sock = connect_to_driver(contact)
        try:
            return prove_to_driver(sock, contact)
        except PeerUnproven as error:
            sock.close()
            if pause_s is None or not isinstance(error.__cause__, OSError):
                raise
            time.sleep(pause_s)
        except BaseException:
            sock.close()
            raise
    raise AssertionError("the last attempt returns or raises")


def connect_to_driver(contact: DriverContact) -> Socket:
    """A connection before the proof and the TLS handshake; raises DriverUnreachable."""
    tls = Tls(contact.settings) if contact.settings.tls_enabled else None
    return secured(_connect(contact), tls, is_server=False)


def _connect(contact: DriverContact) -> socket.socket:
    started = time.monotonic()
    total_s = contact.times.connect_ms / 1000
    pause_s = 0.1
    attempts = 0
    while True:
        left_s = started + total_s - time.monotonic()
        attempts += 1
        try:
            sock = socket.create_connection(contact.address, timeout=max(0.1, left_s))
        except OSError as error:
            if left_s <= pause_s:
                raise DriverUnreachable(
                    contact.driver,
                    f"{error} ({attempts} attempts from {socket.gethostname()} "
                    f"within {total_s:g} s)",
                ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


def prove_to_driver(sock: Socket, contact: DriverContact) -> ProvenConnection:
    """Prove both sides to each other; raises PeerUnproven or PeerBrokeProtocol."""
    peer = PeerName(f"driver {contact.driver}")
    reader = FrameReader(peer)
    nonce = secrets.token_bytes(NONCE_BYTES)
    proof = WorkerProof(contact.job, contact.secret, nonce, peer)
    deadline = time.monotonic() + contact.times.prove_ms / 1000
    try:
        greet(sock, contact.times.prove_ms / 1000)
        sock.sendall(encode(proof.first_word()))
        while not proof.is_done:
            answer = proof.received(receive_by(sock, reader, GREETINGS, deadline))
            if answer is not None:
                sock.sendall(encode(answer))
    except OSError as error:
        problem = f"{error} before both sides were proven; the job may be over already"
        raise PeerUnproven(peer, problem) from error
    keys = proof.keys
    reader.proven(keys.receiving, MESSAGE_BYTES)
    return ProvenConnection(sock, reader, FrameWriter(keys.sending))


def receive_by(
    sock: Socket,
    reader: FrameReader,
    decoder: "msgspec.msgpack.Decoder[_M]",
    deadline: float,
) -> _M:
    """The next message on a blocking socket; raises OSError if it does not come in time."""
    while (message := reader.next(decoder)) is None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it did not answer in time")
        sock.settimeout(left_s)
        data = sock.recv(CHUNK_BYTES)
        if not data:
            raise ConnectionError("it closed the connection")
        reader.received(data)
    return message
