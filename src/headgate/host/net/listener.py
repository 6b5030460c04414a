"""A port of the driver: it accepts connections, and gives each a thread.

Unproven connections (strangers) are bounded, in total and per address. A new one evicts the oldest
of the address that has most, once that has had a moment to prove itself; until then the new one
waits in the kernel's queue. Law: nothing that a stranger does, and no shortage of threads, files or
memory, ends the port; after ``close``, ``hang_up`` and ``join`` there is no thread and no socket
left.
"""

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headgate.base.messages import Address
from headgate.host.net.throttled_log import ThrottledLog
from headgate.host.net.transport import Socket, Tls, secured

log = logging.getLogger(__name__)

MAX_STRANGERS: Final = 512
"""Unproven connections at a time."""
MAX_OF_ADDRESS: Final = 256
"""Unproven connections of one address at a time."""
YOUNG_S: Final = 0.1
"""Younger strangers are not evicted: a job's own workers connect all at once."""
PAUSE_S: Final = 0.1
"""After a failed accept, perhaps because too many files are open."""
REPORT_S: Final = 10.0
"""Between two log lines about that."""
_BACKLOG: Final = 512


class AcceptedConnection:
    """A connection; a stranger until ``Listener.proven_or_ended``."""

    def __init__(self, sock: Socket, host: str, port: int) -> None:
        self.socket = sock
        self.host = host
        self.name = f"{host}:{port}"
        self.since = time.monotonic()
        self.is_leaving = False
        """It was shut down, and its thread has not ended yet."""

    def hang_up(self) -> None:
        """Shut it down from any thread; its reader and writer notice."""
        self.is_leaving = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


Serve = Callable[[AcceptedConnection], None]
"""Serves a connection to its end, on a thread of its own."""


class Listener:
    """Listens from its construction, serves from ``start`` to ``close``."""

    def __init__(
        self,
        host: str,
        port: int,
        serve: Serve,
        *,
        name: str,
        advertised_host: str | None = None,
        tls: Tls | None = None,
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._socket.settimeout(1.0)  # where a shutdown does not wake it
        bound = self._socket.getsockname()
        self.address: Address = (advertised_host or bound[0], bound[1])
        self._name = name
        self._serve = serve
        self._tls = tls
        self._strangers: dict[AcceptedConnection, None] = {}  # the oldest first
        self._threads: dict[threading.Thread, AcceptedConnection] = {}
        self._changed = threading.Condition()  # guards the two above, and whether it is closed
        self._closed = False
        self._lines = ThrottledLog(log, self._flush_later)
        self._flush_at: float | None = None
        self._troubles = 0
        self._reported_at = -REPORT_S
        self._acceptor = threading.Thread(target=self._accept, name=f"{name}-door", daemon=True)

    def start(self) -> None:
        self._acceptor.start()

    def proven_or_ended(self, accepted: AcceptedConnection) -> None:
        """The connection is no stranger any more: it is proven, or has ended."""
        with self._changed:
            self._strangers.pop(accepted, None)
            self._changed.notify_all()

    def left(self, accepted: AcceptedConnection, error: Exception) -> None:
        """Log why a connection ended; for strangers only a few lines, and their number."""
        line = f"{self._name}: {accepted.name} has left: {error}"
        with self._changed:
            if is_stranger := accepted in self._strangers:
                self._lines.log(logging.INFO, line)
        if not is_stranger:
            log.info("%s", line)

    def close(self) -> None:
        """Stop accepting, and disconnect strangers. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._socket.close()
        with self._changed:
            self._lines.flush()
            strangers = list(self._strangers)
        for stranger in strangers:
            stranger.hang_up()

    def hang_up(self) -> None:
        """End every connection, proven or not."""
        with self._changed:
            connections = list(self._threads.values())
        for accepted in connections:
            accepted.hang_up()

    def join(self, timeout_s: float | None) -> None:
        """Wait until all connections have ended, at most for so long."""
        with self._changed:
            threads = list(self._threads)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    # The accepting thread.

    def _accept(self) -> None:
        while not self._closed:
            self._flush_if_due()
            try:
                sock, address = self._socket.accept()
            except TimeoutError:
                continue
            except OSError as error:
                self._back_off("accept a connection", error)
                continue
            try:
                self._admit(sock, address[0], address[1])
            except Exception as error:  # no thread can be started, or no memory is left
                self._back_off(f"serve {address[0]}:{address[1]}", error)

    def _flush_later(self, in_ms: float, flush: Callable[[], None]) -> None:
        """The accepting thread checks it, at least once a second."""
        self._flush_at = time.monotonic() + in_ms / 1000

    def _flush_if_due(self) -> None:
        with self._changed:
            if self._flush_at is not None and time.monotonic() >= self._flush_at:
                self._flush_at = None
                self._lines.flush()

    def _admit(self, sock: socket.socket, host: str, port: int) -> None:
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            accepted = AcceptedConnection(secured(sock, self._tls, is_server=True), host, port)
        except OSError:  # it has gone already
            sock.close()
            return
        try:
            if self._make_room(host):
                self._start_thread(accepted)
            else:
                accepted.socket.close()
        except BaseException:
            self.proven_or_ended(accepted)
            accepted.socket.close()
            raise

    def _make_room(self, host: str) -> bool:
        """Wait until there is room for another stranger; False: the port is closed."""
        with self._changed:
            while not self._closed and (oldest := self._next_victim(host)) is not None:
                left_s = oldest.since + YOUNG_S - time.monotonic()
                if left_s <= 0 and not oldest.is_leaving:
                    oldest.hang_up()
                # Notified when the connection's thread ends.
                self._changed.wait(left_s if left_s > 0 else PAUSE_S)
            return not self._closed

    def _next_victim(self, host: str) -> AcceptedConnection | None:
        counts = Counter(stranger.host for stranger in self._strangers)
        if counts[host] < MAX_OF_ADDRESS:
            if len(self._strangers) < MAX_STRANGERS:
                return None
            host = counts.most_common(1)[0][0]
        return next(stranger for stranger in self._strangers if stranger.host == host)

    def _start_thread(self, accepted: AcceptedConnection) -> None:
        thread = threading.Thread(
            target=self._run, args=(accepted,), name=f"{self._name}-{accepted.name}", daemon=True
        )
        with self._changed:
            self._strangers[accepted] = None
            self._threads[thread] = accepted
        try:
            thread.start()
        except BaseException:
            with self._changed:
                del self._threads[thread]
            raise

    def _run(self, accepted: AcceptedConnection) -> None:
        """The thread of a connection."""
        try:
            self._serve(accepted)
        except Exception:
            log.exception("%s: the connection of %s has failed", self._name, accepted.name)
        finally:
            self.proven_or_ended(accepted)
            accepted.socket.close()
            with self._changed:
                self._threads.pop(threading.current_thread(), None)

    def _back_off(self, what: str, error: Exception) -> None:
        """Something is short: evict a stranger, wait a moment, and log that now and then."""
        with self._changed:
            if self._closed:
                return
            self._troubles += 1
            troubles, now = self._troubles, time.monotonic()
            if is_due := now - self._reported_at >= REPORT_S:
                self._troubles, self._reported_at = 0, now
            if self._strangers:
                next(iter(self._strangers)).hang_up()
        if is_due:
            log.warning(
                "%s cannot %s (%s; %d times since the last report): raise the limit of open files "
                "and threads, or keep strangers from the port %d",
                self._name, what, error, troubles, self.address[1],
            )  # fmt: skip
        with self._changed:
            self._changed.wait_for(lambda: self._closed, PAUSE_S)
