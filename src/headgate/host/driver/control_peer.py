"""The driver's end of one control connection: blocking reads, and a thread that writes.

Messages wait in a bounded queue, so that a task manager that does not read delays nobody else; if
the queue is full, or nothing is heard for the heartbeat timeout, the connection is closed.
"""

import logging
import queue
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from headgate.base.errors import HeadgateError
from headgate.base.ids import PeerName
from headgate.base.inspections import Question
from headgate.base.messages import (
    NONCE_BYTES,
    ControlTimes,
    Heartbeat,
    Register,
    StateLineOpened,
    TaskManagerFailed,
    ToDriver,
    ToTaskManager,
    ToVisitor,
)
from headgate.control.frames import (
    GREETINGS,
    REPORT_BYTES,
    TO_DRIVER,
    FrameReader,
    FrameWriter,
    encode,
)
from headgate.control.proof import DriverProof
from headgate.host.net.control_client import CHUNK_BYTES, ProvenConnection, receive_by
from headgate.host.net.transport import Socket, greet

log = logging.getLogger(__name__)

QUEUE_LENGTH: Final = 10_000


class ControlPeer:
    """A task manager or a command with a question; unproven until ``prove``."""

    def __init__(self, sock: Socket, name: str, times: ControlTimes) -> None:
        self.name = name
        self.problem = ""
        """Why this side hung up, if it did."""
        self._socket = sock
        self._times = times
        self._reader = FrameReader(PeerName(name))  # until the connection is proven
        self._frames: FrameWriter | None = None
        self._queue: queue.Queue[ToTaskManager | ToVisitor | None] = queue.Queue(QUEUE_LENGTH)
        self._sending = threading.Lock()  # frames are sent in the order in which they are sealed
        self._writer: threading.Thread | None = None

    def prove(
        self,
        find_secret: Callable[[str], bytes | None],
        on_proven: Callable[[], None] = lambda: None,
    ) -> str:
        """Let it prove itself within ``prove_ms``; returns its job."""
        timeout_s = self._times.prove_ms / 1000
        job, proven = prove_stranger(self._socket, self.name, find_secret, timeout_s, on_proven)
        self._reader, self._frames = proven.reader, proven.writer
        self._socket.settimeout(self._times.heartbeat_timeout_ms / 1000)
        self._start_writer()
        return job

    def adopt(self, times: ControlTimes) -> None:
        """Use the times of its job."""
        self._times = times
        self._socket.settimeout(times.heartbeat_timeout_ms / 1000)

    def first_message(self) -> Register | TaskManagerFailed | StateLineOpened | Question:
        """The registration of a task manager, another line of one, or a question."""
        for message in self.messages():
            if isinstance(message, Register | TaskManagerFailed | StateLineOpened | Question):
                return message
        raise ConnectionError("it left before it had registered")

    def messages(self) -> Iterator[ToDriver]:
        """What it sends, without heartbeats, until it hangs up; raises OSError, HeadgateError."""
        while True:
            while (message := self._reader.next(TO_DRIVER)) is not None:
                if not isinstance(message, Heartbeat):
                    yield message
            try:
                data = self._socket.recv(CHUNK_BYTES)
            except TimeoutError:
                timeout_s = self._times.heartbeat_timeout_ms / 1000
                raise TimeoutError(f"nothing was heard from it for {timeout_s:g} s") from None
            if not data:
                return
            self._reader.received(data)

    def post(self, message: ToTaskManager | ToVisitor) -> None:
        """Queue a message; never waits."""
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            self.hang_up("it does not read what it is sent")

    def send_promptly(self, message: ToTaskManager) -> None:
        """As ``post``, from the calling thread if the socket takes a short message at once.

        It saves the turn of the writer's thread, which a read of state would wait for.
        """
        assert self._frames is not None, "an unproven peer gets nothing but the handshake"
        if not self._queue.empty() or not self._sending.acquire(blocking=False):
            self.post(message)
            return
        try:
            if not is_writable(self._socket):
                self.post(message)
                return
            self._send(memoryview(self._frames.encode(message)))
        except (OSError, HeadgateError) as error:
            self.hang_up(f"nothing can be sent to it: {error}")
        finally:
            self._sending.release()

    def dismiss(self, message: ToTaskManager | ToVisitor) -> None:
        """Send a last message and wait until the peer hangs up, for ``prove_ms`` at most."""
        self.post(message)
        self.finish()
        # Closing a socket with unread data would discard what was just sent.
        deadline = time.monotonic() + self._times.prove_ms / 1000
        with suppress(OSError, HeadgateError):
            while True:
                receive_by(self._socket, self._reader, TO_DRIVER, deadline)

    def finish(self) -> None:
        """Send nothing after what is queued."""
        with suppress(queue.Full):
            self._queue.put_nowait(None)

    def hang_up(self, problem: str) -> None:
        """Shut the connection down; its reader and writer notice."""
        self.problem = self.problem or problem
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Called by the reading thread at its end."""
        if self._writer is not None:
            self.finish()
            self._writer.join(self._times.heartbeat_interval_ms / 1000)
            self.hang_up("")
            self._writer.join()
        self._socket.close()

    def _start_writer(self) -> None:
        writer = threading.Thread(
            target=self._write, name=f"headgate-control-to-{self.name}", daemon=True
        )
        writer.start()
        self._writer = writer

    def _write(self) -> None:
        assert self._frames is not None, "an unproven peer gets nothing but the handshake"
        try:
            while True:
                try:
                    message = self._queue.get(timeout=self._times.heartbeat_interval_ms / 1000)
                except queue.Empty:
                    message = Heartbeat()
                if message is None:
                    return
                with self._sending:
                    self._send(memoryview(self._frames.encode(message)))
        except (OSError, HeadgateError) as error:
            self.hang_up(f"nothing can be sent to it: {error}")

    def _send(self, frame: memoryview) -> None:
        while frame:  # the timeout counts for each part, not for a whole large message
            frame = frame[self._socket.send(frame) :]


def is_writable(sock: Socket) -> bool:
    """Whether a short message can be sent without waiting."""
    try:
        waiting = select.poll()
        waiting.register(sock.fileno(), select.POLLOUT)
        return bool(waiting.poll(0))
    except (OSError, ValueError):  # it was closed just now
        return False


def prove_stranger(
    sock: Socket,
    name: str,
    find_secret: Callable[[str], bytes | None],
    timeout_s: float,
    on_proven: Callable[[], None] = lambda: None,
    limit: int = REPORT_BYTES,
) -> tuple[str, ProvenConnection]:
    """Let a new connection prove itself within this time; returns its job.

    ``limit``: the longest frame that it may send then.
    """
    deadline = time.monotonic() + timeout_s
    reader = FrameReader(PeerName(name))
    proof = DriverProof(find_secret, secrets.token_bytes(NONCE_BYTES), PeerName(name))
    greet(sock, timeout_s)
    while not proof.is_done:
        greeting = receive_by(sock, reader, GREETINGS, deadline)
        answer = encode(proof.received(greeting))
        if proof.is_done:  # the peer may send as soon as it has read the welcome
            reader.proven(proof.keys.receiving, limit)
            on_proven()  # before the welcome, from which on the peer counts as proven
        sock.sendall(answer)
    return proof.job, ProvenConnection(sock, reader, FrameWriter(proof.keys.sending))
