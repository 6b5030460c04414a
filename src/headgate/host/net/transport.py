"""Bytes through a socket, plain or within mutual TLS.

Data connections use a ``Transport``, which never blocks: BlockingIOError means "not now", OSError
trouble, 0 bytes read the end of the stream. Control connections use a ``Socket``, which blocks,
for one thread that reads and one that writes. Law of ``TlsSocket``: after the end of the stream
nothing is read past TLS, whichever thread shuts it down.
"""

import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from headgate.base.elements import ByteLike
from headgate.base.errors import SettingsInvalid
from headgate.base.settings import ExchangeSettings

HANG_UPS: Final = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors that say that the peer has gone, not why."""

_TLS_CHUNK: Final = 256 * 1024
_RECORD_BYTES: Final = 16 * 1024
"""What is encrypted at once; TLS wants the same bytes again if the socket took none of them."""

_T = TypeVar("_T")


class Transport(Protocol):
    """How a data connection moves bytes."""

    def read(self, targets: Sequence[memoryview]) -> int: ...

    def write(self, parts: Sequence[ByteLike]) -> int: ...

    most_bytes: int
    """About how many bytes one write offers to the socket at most."""

    @property
    def has_buffered(self) -> bool:
        """Whether bytes wait above the socket, where a poll does not see them."""

    awaits_read: bool
    """Whether the last write can continue only after a read (a TLS handshake)."""

    awaits_write: bool
    """Whether the last read can continue only after a write."""

    def close(self) -> None: ...


class PlainTransport:
    """One system call fills many segments, one sends many frames."""

    most_bytes = sys.maxsize

    awaits_read = awaits_write = False

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def read(self, targets: Sequence[memoryview]) -> int:
        return self._sock.recvmsg_into(targets)[0]

    def write(self, parts: Sequence[ByteLike]) -> int:
        return self._sock.sendmsg(parts)

    @property
    def has_buffered(self) -> bool:
        return False

    def close(self) -> None:
        self._sock.close()


class TlsTransport:
    """TLS can neither scatter nor gather: parts are joined, targets filled one by one."""

    most_bytes = _TLS_CHUNK

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.socket = sock
        self.awaits_read = self.awaits_write = False
        self._greeted = False

    def read(self, targets: Sequence[memoryview]) -> int:
        total = 0
        self.awaits_write = False
        try:
            self._greet()
            for target in targets:
                count = self.socket.recv_into(target)
                total += count
                if count < len(target):
                    break
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            self.awaits_write = isinstance(error, ssl.SSLWantWriteError)
            if not total:
                raise BlockingIOError from None
        return total

    def write(self, parts: Sequence[ByteLike]) -> int:
        joined = bytearray()
        for part in parts:
            joined += part
            if len(joined) >= _TLS_CHUNK:
                break
        self.awaits_read = False
        try:
            self._greet()
            return self.socket.send(joined)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            self.awaits_read = isinstance(error, ssl.SSLWantReadError)
            raise BlockingIOError from None

    @property
    def has_buffered(self) -> bool:
        return self._greeted and self.socket.pending() > 0

    def close(self) -> None:
        self.socket.close()

    def _greet(self) -> None:
        if not self._greeted:
            self.socket.do_handshake()
            self._greeted = True


class Tls:
    """The two contexts of mutual TLS; unusable files fail here, at the start, with their path."""

    def __init__(self, settings: ExchangeSettings) -> None:
        self._server = self._context(settings, ssl.PROTOCOL_TLS_SERVER)
        self._client = self._context(settings, ssl.PROTOCOL_TLS_CLIENT)

    def wrap(self, sock: socket.socket, *, is_server: bool) -> TlsTransport:
        sock.getpeername()  # raises if the peer is gone: wrapping such a socket would leak it
        context = self._server if is_server else self._client
        wrapped = context.wrap_socket(sock, server_side=is_server, do_handshake_on_connect=False)
        return TlsTransport(wrapped)

    def _context(self, settings: ExchangeSettings, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = False  # workers come and go; the authority and the secret decide
        context.verify_mode = ssl.CERT_REQUIRED
        self._load_identity(context, settings)
        self._load_authority(context, settings)
        return context

    def _load_identity(self, context: ssl.SSLContext, settings: ExchangeSettings) -> None:
        certificate, key = settings.tls_certificate, settings.tls_key
        _check_readable("security.ssl.internal.certificate", certificate)
        _check_readable("security.ssl.internal.key", key)
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise SettingsInvalid(
                "security.ssl.internal.key",
                f"the certificate {certificate!r} and the key {key!r} cannot be used together: "
                f"{error}",
            ) from error

    def _load_authority(self, context: ssl.SSLContext, settings: ExchangeSettings) -> None:
        path = settings.tls_authority
        _check_readable("security.ssl.internal.authority", path)
        try:
            context.load_verify_locations(path)
        except (ssl.SSLError, OSError) as error:
            raise SettingsInvalid(
                "security.ssl.internal.authority", f"{path!r} holds no certificate: {error}"
            ) from error


class TlsSocket:
    """The part of a blocking socket that control connections need; a timeout of 0 never waits.

    OpenSSL allows one call at a time on a connection. The socket below therefore never blocks:
    each call is short and under a lock, and a thread that has to wait does so outside the lock.
    """

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self._timeout: float | None = None
        self._lock = threading.Lock()

    def do_handshake(self) -> None:
        self._retry(self._sock.do_handshake)

    def recv(self, size: int) -> bytes:
        try:
            return self._retry(partial(self._sock.recv, size))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def send(self, data: ByteLike) -> int:
        return self._retry(partial(self._sock.send, memoryview(data)[:_RECORD_BYTES]))

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
        # SSLSocket.shutdown() would make it a plain socket: readers would get ciphertext.
        socket.socket.shutdown(self._sock, how)

    def close(self) -> None:
        with self._lock:
            self._sock.close()

    def _retry(self, call: Callable[[], _T]) -> _T:
        """Make a call on the TLS connection, again whenever the socket is ready for it."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while True:
            with self._lock:
                try:
                    return call()
                except ssl.SSLWantReadError:
                    event = select.POLLIN
                except ssl.SSLWantWriteError:
                    event = select.POLLOUT
            self._await(event, deadline)

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
"""A control connection, whether or not it is encrypted."""


def has_pending(sock: Socket) -> bool:
    """Whether more can be read although a poll of the socket might not say so."""
    return isinstance(sock, TlsSocket) and sock.has_pending


def secured(sock: socket.socket, tls: Tls | None, *, is_server: bool) -> Socket:
    """The socket as it is, or within TLS before its handshake; it is closed if that fails."""
    if tls is None:
        return sock
    try:
        return TlsSocket(tls.wrap(sock, is_server=is_server).socket)
    except BaseException:
        sock.close()
        raise


def greet(sock: Socket, timeout_s: float) -> None:
    """Make the TLS handshake if there is TLS; raises OSError."""
    if isinstance(sock, TlsSocket):
        sock.settimeout(timeout_s)
        sock.do_handshake()


def _no_password() -> str:
    raise ValueError("the key is encrypted; give an unencrypted one")


def _check_readable(key: str, path: str) -> None:
    if not path:
        raise SettingsInvalid(key, "is not set, but security.ssl.internal.enabled is true")
    try:
        with open(path, "rb"):
            pass
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise SettingsInvalid(key, f"{path!r} cannot be read: {reason}") from error
