"""Bytes through a socket: plain with scatter and gather, or through TLS.

Both raise BlockingIOError for "not now" and OSError for trouble; 0 bytes read is the end.
"""

import socket
import ssl
import sys
from collections.abc import Sequence
from typing import Final, Protocol

from headgate.base.elements import ByteLike
from headgate.base.errors import SettingsInvalid
from headgate.base.settings import ExchangeSettings

HANG_UPS: Final = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors that say that the peer has gone, not why."""

_TLS_CHUNK: Final = 256 * 1024


class Transport(Protocol):
    """How a connection moves bytes."""

    def read(self, targets: Sequence[memoryview]) -> int: ...

    def write(self, parts: Sequence[ByteLike]) -> int: ...

    most_bytes: int
    """What one write offers to the socket at the most, about."""

    @property
    def has_buffered(self) -> bool:
        """Whether bytes wait above the socket, where a poll does not see them."""

    awaits_read: bool
    """Whether the last write can go on only after something was read (a TLS handshake)."""

    awaits_write: bool
    """Whether the last read can go on only after something was written."""

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
    """TLS has neither scatter nor gather: parts are joined, targets filled one by one."""

    most_bytes = _TLS_CHUNK

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.socket = self._sock = sock
        self.awaits_read = self.awaits_write = False
        self._greeted = False

    def read(self, targets: Sequence[memoryview]) -> int:
        total = 0
        self.awaits_write = False
        try:
            self._greet()
            for target in targets:
                count = self._sock.recv_into(target)
                total += count
                if count < len(target):
                    break
        except ssl.SSLWantReadError:
            if not total:
                raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.awaits_write = True
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
            return self._sock.send(joined)
        except ssl.SSLWantReadError:
            self.awaits_read = True
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None

    @property
    def has_buffered(self) -> bool:
        return self._greeted and self._sock.pending() > 0

    def close(self) -> None:
        self._sock.close()

    def _greet(self) -> None:
        if not self._greeted:
            self._sock.do_handshake()
            self._greeted = True


class Tls:
    """The two contexts of mutual TLS; wrong files fail here, at the start, with their path."""

    def __init__(self, settings: ExchangeSettings) -> None:
        self._server = self._context(settings, ssl.PROTOCOL_TLS_SERVER)
        self._client = self._context(settings, ssl.PROTOCOL_TLS_CLIENT)

    def wrap(self, sock: socket.socket, *, is_server: bool) -> TlsTransport:
        sock.getpeername()  # raises if it is lost already; wrapping a lost socket leaks it
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


def _no_password() -> str:
    raise ValueError("the key is encrypted; give an unencrypted one")


def _check_readable(key: str, path: str) -> None:
    if not path:
        raise SettingsInvalid(key, "is not set, but security.ssl.internal.enabled is true")
    try:
        with open(path, "rb"):
            pass
    except (OSError, ValueError) as error:  # the latter for a NUL in it
        reason = getattr(error, "strerror", None) or error
        raise SettingsInvalid(key, f"{path!r} cannot be read: {reason}") from error
