"""A TLS connection that blocks like a plain socket, for one thread that reads and one that writes.

OpenSSL allows one call at a time on a connection, so the socket below never blocks: every call is
short and under a lock, and whoever has to wait does so outside of it. ``shutdown`` may come from
any thread and ends both. Law: after the end of the stream nothing is ever read past TLS.
"""

import select
import socket
import ssl
import threading
import time
from typing import Final, TypeAlias

from headgate.base.elements import ByteLike
from headgate.host.net.transport import Tls

_RECORD_BYTES: Final = 16 * 1024
"""What is encrypted at once; TLS wants the same bytes again if the socket took none of them."""


class TlsSocket:
    """The part of a socket that connections with the driver need; a time-out of 0 never waits."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._timeout: float | None = None
        self._lock = threading.Lock()

    def greet(self) -> None:
        """The handshake of TLS."""
        deadline = self._deadline()
        while True:
            with self._lock:
                try:
                    self._sock.do_handshake()
                    return
                except ssl.SSLWantReadError:
                    event = select.POLLIN
                except ssl.SSLWantWriteError:
                    event = select.POLLOUT
            self._await(event, deadline)

    def recv(self, size: int) -> bytes:
        deadline = self._deadline()
        while True:
            with self._lock:
                try:
                    return self._sock.recv(size)
                except ssl.SSLWantReadError:
                    event = select.POLLIN
                except ssl.SSLWantWriteError:
                    event = select.POLLOUT
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    return b""
            self._await(event, deadline)

    def send(self, data: ByteLike) -> int:
        deadline = self._deadline()
        piece = memoryview(data)[:_RECORD_BYTES]
        while True:
            with self._lock:
                try:
                    return self._sock.send(piece)
                except ssl.SSLWantReadError:
                    event = select.POLLIN
                except ssl.SSLWantWriteError:
                    event = select.POLLOUT
            self._await(event, deadline)

    def sendall(self, data: ByteLike) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self.send(rest) :]

    @property
    def has_pending(self) -> bool:
        """Whether bytes wait above the socket, where a poll does not see them."""
        with self._lock:
            return self._sock.pending() > 0

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def setblocking(self, flag: bool) -> None:
        self._timeout = None if flag else 0.0

    def fileno(self) -> int:
        return self._sock.fileno()

    def getsockname(self) -> tuple[str, int]:
        host, port = self._sock.getsockname()[:2]
        return str(host), int(port)

    def shutdown(self, how: int) -> None:
        # SSLSocket.shutdown() would make it a plain socket, and readers take ciphers for messages.
        socket.socket.shutdown(self._sock, how)

    def close(self) -> None:
        with self._lock:
            self._sock.close()

    def _deadline(self) -> float | None:
        return None if self._timeout is None else time.monotonic() + self._timeout

    def _await(self, event: int, deadline: float | None) -> None:
        if self._timeout == 0:
            raise BlockingIOError
        left_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        number = self._sock.fileno()
        if number < 0:
            raise ConnectionError("it was closed on this side")
        waiting = select.poll()
        waiting.register(number, event)
        if not waiting.poll(left_ms):
            raise TimeoutError("timed out")


Socket: TypeAlias = socket.socket | TlsSocket
"""A connection with the driver, whether or not it is encrypted."""


def has_pending(sock: Socket) -> bool:
    """Whether more can be read, although a poll of the socket might not say so."""
    return isinstance(sock, TlsSocket) and sock.has_pending


def secured(sock: socket.socket, tls: Tls | None, *, is_server: bool) -> Socket:
    """The socket as it is, or within TLS, before its handshake; it is closed if that fails."""
    if tls is None:
        return sock
    try:
        return TlsSocket(tls.wrap(sock, is_server=is_server).socket)
    except BaseException:
        sock.close()
        raise


def greet(sock: Socket, timeout_s: float) -> None:
    """The handshake of TLS, if there is TLS; raises OSError."""
    if isinstance(sock, TlsSocket):
        sock.settimeout(timeout_s)
        sock.greet()
