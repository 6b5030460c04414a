"""Data connections and the data server: sockets on one side, links on the other.

Law: a connection owns its socket and closes it on every path: when its link has ended, or when the
connection itself fails.
"""

import contextlib
import errno
import logging
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final

from headgate.base.errors import ConnectFailed, PeerBusy, PeerLost, SettingsInvalid
from headgate.base.ids import PeerName
from headgate.base.settings import ExchangeSettings
from headgate.core.exchange.link import Address, Link, LinkState, ProducerEnd
from headgate.host.net.loop import READ, WRITE, Loop, now_ms
from headgate.host.net.throttled_log import ThrottledLog
from headgate.host.net.transport import HANG_UPS, PlainTransport, Tls, Transport

_WRITES_PER_FLUSH: Final = 4
_LAST_READS: Final = 64
_ACCEPT_PAUSE_MS: Final = 200
_ACCEPTS_AT_ONCE: Final = 32


class Connection:
    """Moves the bytes of one link."""

    def __init__(
        self, loop: Loop, sock: socket.socket, transport: Transport, link: Link, connecting: bool
    ) -> None:
        self.link = link
        self.on_closed: Callable[[Connection], None] = lambda connection: None
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._transport = transport
        self._connecting = connecting
        self._blocked = False
        self._mask = WRITE if connecting else READ
        self._closed = False
        link.on_dirty = self._link_dirty
        loop.add(self._fd, self, self._mask)

    def ready(self, mask: int) -> None:
        """The poll reports events for the socket."""
        try:
            if self._connecting:
                if self.link.is_alive:
                    self._finish_connecting()
            elif not self.link.is_alive and mask & ~(READ | WRITE):
                self._hung_up()
            elif mask & ~WRITE or self._transport.awaits_write:
                self._read()
            if (mask & WRITE or self._transport.awaits_read) and not self._closed:
                self._blocked = False
                self.flush()
        except OSError as error:
            self._lost(error)
        except Exception as error:
            self.link.fail(PeerLost(self.link.peer, f"a failure on this side: {error!r}"))
            raise
        finally:
            self._settle()

    def flush(self) -> None:
        """Send what the link has, as far as the socket takes it."""
        link = self.link
        if self._closed or self._connecting:
            self._settle()  # the link may have ended while it was connecting
            return
        try:
            if self._transport.has_buffered:  # the decoder had paused; no poll sees these bytes
                self._read()
            for _ in range(_WRITES_PER_FLUSH):
                if self._blocked:
                    break
                parts = link.outgoing()
                if not parts:
                    break
                self._write(parts)
            else:
                if link.outbox.pending_bytes and not self._blocked:
                    self._loop.mark_dirty(self)
            if self._transport.has_buffered and not link.is_deaf:  # it reads again
                self._loop.mark_dirty(self)
        except OSError as error:
            self._lost(error)
        except Exception as error:
            link.fail(PeerLost(link.peer, f"a failure on this side: {error!r}"))
            raise
        finally:
            self._settle()

    def tick(self) -> None:
        """Time has passed."""
        self.link.tick(now_ms())
        self._settle()

    def close(self) -> None:
        """Close the socket now; the link must have ended."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove(self._fd)
        self._transport.close()
        self.link.outbox.close()  # recycles the buffers of unsent frames
        self.link.on_dirty = _ignore  # so that the link does not keep this connection alive
        self.on_closed(self)

    def _write(self, parts: list[bytes | bytearray | memoryview]) -> None:
        try:
            sent = self._transport.write(parts)
        except BlockingIOError:
            self._blocked = True
            return
        self.link.sent(sent, now_ms())
        self._blocked = self.link.outbox.pending_bytes > 0 and sent < min(
            sum(map(len, parts)), self._transport.most_bytes
        )

    def _read(self) -> None:
        link = self.link
        while link.is_alive:
            targets = link.targets()
            if not targets:
                return
            try:
                count = self._transport.read(targets)
            except BlockingIOError:
                self._blocked = self._blocked or self._transport.awaits_write
                return
            if count == 0:
                link.ended("it closed the connection")
                return
            link.received(count, now_ms())
            if not self._transport.has_buffered:
                return

    def _finish_connecting(self) -> None:
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self._connecting = False
        self.link.connected(now_ms())

    def _hung_up(self) -> None:
        """The peer has gone while something was left to send."""
        self.link.ended("it closed the connection")

    def _lost(self, error: OSError) -> None:
        reason, may_pass = _describe(error), _may_pass(error)
        if isinstance(error, HANG_UPS) and not self._connecting:
            try:
                self._read_last_words()
            except BlockingIOError:
                pass
            except OSError as last:  # not kept: its traceback refers to this frame, and the link
                reason, may_pass = _describe(last), _may_pass(last)
        self.link.ended(reason, may_pass=may_pass)

    def _read_last_words(self) -> None:
        """The reason why the peer has gone, or refused us, may still be in the socket."""
        for _ in range(_LAST_READS):
            targets = self.link.targets()
            count = self._transport.read(targets) if targets else 0
            if not count:
                break
            self.link.received(count, now_ms())

    def _link_dirty(self, link: Link) -> None:
        self._loop.mark_dirty(self)

    def _settle(self) -> None:
        """Update the poll mask to the link's state, or close after its end."""
        if self._closed:
            return
        link = self.link
        if link.state is LinkState.CLOSED:
            self.close()
            return
        if self._connecting:
            return
        mask = READ if link.is_alive and not link.is_deaf else 0
        if self._blocked and not self._transport.awaits_read:
            mask |= WRITE
        if mask != self._mask:
            self._watch(mask)

    def _watch(self, mask: int) -> None:
        before, self._mask = self._mask, mask
        if not mask:  # a poll reports a hang-up again and again, whatever the mask
            self._loop.remove(self._fd)
        elif not before:
            self._loop.add(self._fd, self, mask)
        else:
            self._loop.change(self._fd, mask)


def _ignore(link: Link) -> None:
    """The link's connection is closed."""


class Server:
    """Accepts connections at the data port."""

    def __init__(
        self,
        loop: Loop,
        settings: ExchangeSettings,
        tls: Tls | None,
        make_link: Callable[[PeerName], Link],
        on_connection: Callable[[Connection, str], None],
        warnings: ThrottledLog,
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._tls = tls
        self._make_link = make_link
        self._on_connection = on_connection
        self._warnings = warnings
        self._sock = _listen(settings)
        self.address: Address = self._sock.getsockname()[:2]
        self._closed = False
        self._listen_again()

    def ready(self, mask: int) -> None:
        """Peers connect."""
        for _ in range(_ACCEPTS_AT_ONCE):  # then existing connections get their turn
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # mostly no descriptor left: the poll would report for ever
                reason = _describe(error)
                self._warnings.log(
                    logging.WARNING, f"cannot accept connections for a while: {reason}"
                )
                self._loop.remove(self._sock.fileno())
                self._loop.later(_ACCEPT_PAUSE_MS, self._listen_again)
                return
            try:
                tune(sock, self._settings)
                link = self._make_link(PeerName(f"{address[0]}:{address[1]}"))
                connection = open_connection(self._loop, sock, self._tls, link, True)
            except OSError as error:
                where, reason = f"{address[0]}:{address[1]}", _describe(error)
                self._warnings.log(
                    logging.INFO, f"a connection from {where} was lost at once: {reason}"
                )
                sock.close()
            else:
                self._on_connection(connection, address[0])
                connection.ready(READ)  # a genuine peer has sent its greeting already

    def close(self) -> None:
        """Accept no more. Idempotent."""
        if not self._closed:
            self._closed = True
            self._loop.remove(self._sock.fileno())
            self._sock.close()

    def _listen_again(self) -> None:
        if not self._closed:
            self._loop.add(self._sock.fileno(), self)


def connect(
    loop: Loop, settings: ExchangeSettings, tls: Tls | None, address: Address, link: Link
) -> Connection | None:
    """Start to connect; if that fails the link has ended and there is no connection."""
    sock: socket.socket | None = None
    try:
        found = socket.getaddrinfo(address[0], address[1], type=socket.SOCK_STREAM)
        ours = _family(settings)  # prefer the family that task managers bind
        found.sort(key=lambda entry: entry[0] != ours)
        family, kind, protocol, _, target = found[0]
        sock = socket.socket(family, kind, protocol)
        tune(sock, settings)
        with contextlib.suppress(BlockingIOError):
            sock.connect(target)
        return open_connection(loop, sock, tls, link, False)
    except Exception as error:  # a NUL in the host or a port out of range is no OSError
        if sock is not None:
            sock.close()
        problem = f"cannot connect: {_describe(error)}"
        link.fail(ConnectFailed(link.peer, problem), may_pass=_may_pass(error))
        return None


def open_connection(
    loop: Loop, sock: socket.socket, tls: Tls | None, link: Link, is_server: bool
) -> Connection:
    """Join a socket and a link."""
    if tls is None:
        return Connection(loop, sock, PlainTransport(sock), link, connecting=not is_server)
    return TlsConnection(loop, sock, tls, link, is_server)


class TlsConnection(Connection):
    """A connection whose socket becomes a TLS one when it is connected."""

    def __init__(
        self, loop: Loop, sock: socket.socket, tls: Tls, link: Link, is_server: bool
    ) -> None:
        self._tls = tls
        transport: Transport = PlainTransport(sock)
        if is_server:
            transport = tls.wrap(sock, is_server=True)
            sock = transport.socket
        super().__init__(loop, sock, transport, link, connecting=not is_server)

    def _finish_connecting(self) -> None:
        super()._finish_connecting()
        self._loop.remove(self._fd)
        wrapped = self._tls.wrap(self._sock, is_server=False)
        self._transport, self._sock = wrapped, wrapped.socket
        self._loop.add(self._fd, self, self._mask)


class UnprovenConnections:
    """Connections of the data port that have not proven themselves yet, the oldest first.

    Law: there are never more than the limit. The one that is closed for another comes from the
    address that holds most of them, so that a crowd on one machine does not push others out; of
    those preferably one without a greeting, and of these the oldest. A genuine peer greets at once
    and is proven as soon as its process is scheduled; if it is closed all the same, it reconnects.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._hosts: dict[Connection, str] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    def add(self, connection: Connection, host: str) -> None:
        """Add a new connection; another one is closed if there are too many."""
        if len(self._hosts) >= self._limit():
            self._drop_proven()
            while len(self._hosts) >= self._limit():
                self._evict(self._next_victim())
        self._hosts[connection] = host

    def forget(self, connection: Connection) -> None:
        """It has ended, or is proven."""
        self._hosts.pop(connection, None)

    def _drop_proven(self) -> None:
        self._hosts = {
            connection: host
            for connection, host in self._hosts.items()
            if connection.link.state is LinkState.GREETING
        }

    def _next_victim(self) -> Connection:
        (crowd, _), *_ = Counter(self._hosts.values()).most_common(1)
        of_crowd = [connection for connection, host in self._hosts.items() if host == crowd]
        return min(of_crowd, key=_has_greeted)  # of equals the first, which is the oldest

    def _evict(self, connection: Connection) -> None:
        link, count = connection.link, len(self._hosts)
        self.forget(connection)
        problem = f"{count} connections wait to be proven here, and it is not proven yet"
        link.fail(PeerBusy(link.peer, problem), last_words=f"{problem}; try again")
        connection.flush()
        connection.close()  # whether or not the reason could be sent


def _has_greeted(connection: Connection) -> bool:
    assert isinstance(connection.link, ProducerEnd)
    return connection.link.has_greeted


def tune(sock: socket.socket, settings: ExchangeSettings) -> None:
    """Set the options of a data socket: no delay, keep-alive, buffer sizes."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if settings.socket_buffer_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_buffer_bytes)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.socket_buffer_bytes)


def _listen(settings: ExchangeSettings) -> socket.socket:
    sock = socket.socket(_family(settings), socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((settings.bind_host, settings.bind_port))
        sock.listen(max(settings.accept_backlog, socket.SOMAXCONN))
        sock.setblocking(False)
    except (OSError, OverflowError, TypeError, ValueError) as error:
        sock.close()
        is_host = isinstance(error, socket.gaierror | TypeError | ValueError) or (
            isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL
        )
        raise SettingsInvalid(
            "taskmanager.bind-host" if is_host else "taskmanager.data.port",
            f"cannot listen at {settings.bind_host}:{settings.bind_port}: {_describe(error)}",
        ) from error
    return sock


def _may_pass(error: Exception) -> bool:
    """Whether another attempt may succeed: not if nobody listens, or a certificate is wrong."""
    if not isinstance(error, OSError) or isinstance(error, ConnectionRefusedError):
        return False
    if isinstance(error, socket.gaierror):
        return False
    return not isinstance(error, ssl.SSLError) or isinstance(error, HANG_UPS)


def _family(settings: ExchangeSettings) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in settings.bind_host else socket.AF_INET


def _describe(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
