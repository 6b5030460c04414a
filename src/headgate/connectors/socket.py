"""Lines of text from a server's socket, as ``nc -lk 9999`` serves them by hand.

The reader never waits: it connects and receives what is there whenever it is polled; once it is
connected, it is polled when something has arrived. Law: lines
come whole and in order, and none is put together out of two connections. A socket cannot be read
twice, so there is no position: after a restart the source goes on with what the server sends then.
"""

import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias

from headgate.base.errors import LineTooLong, LineUndecodable, ServerUnreachable
from headgate.connectors.checks import TEXT, Check, check_settings, whole
from headgate.connectors.formats.lines import MAX_LINE_BYTES, check_text
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader

WAIT_MS: Final = 5.0
"""Between two looks at a connection that is being made."""
RECEIVE_BYTES: Final = 64 * 1024

Malformed: TypeAlias = Callable[[object, Exception], None]
"""``malformed`` of a ConnectorContext."""

Address: TypeAlias = "tuple[int, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]"
"""Family and address, as ``getaddrinfo`` tells them."""


CHECKS: Final = {
    "port": whole(1, 65_535),
    "delimiter": Check("what ends a line", TEXT.is_right),
    "max_retry": whole(-1),
}


@dataclass(frozen=True)
class SocketTextSource(Source[str]):
    """Lines from ``host:port``, read by one task. It ends when the server hangs up.

    Before it ends it connects ``max_retry`` times more (-1: for ever), each time after
    ``retry_delay_ms``. A server that was never reached is an error, as is a broken connection.
    """

    host: str
    port: int
    delimiter: str = "\n"
    max_retry: int = 0
    retry_delay_ms: int = 500
    connect_timeout_ms: int = 10_000
    max_line_bytes: int = MAX_LINE_BYTES
    encoding: str = "utf-8"
    errors: str = "strict"

    bounded = False
    untimed = True
    rewinds = False
    rewind_advice = (
        "a server sends its lines once; let it write them to files or to a log that keeps them, "
        "or take no checkpoints"
    )

    def __post_init__(self) -> None:
        check_text("SocketTextSource", self.encoding, self.errors, self.max_line_bytes)
        check_settings(self, CHECKS)

    @property
    def default_name(self) -> str:
        return f"socket {self.address}"

    def splits(self, parallelism: int) -> Sequence[str]:
        return [self.address]

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def open(
        self, split: object, position: object, context: ConnectorContext
    ) -> "SocketTextReader":
        return SocketTextReader(self, resolve(self), context.malformed)


def resolve(source: SocketTextSource) -> list[Address]:
    """Looking up a name may take long, so it is done once, before the first poll."""
    try:
        found = socket.getaddrinfo(source.host, source.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ServerUnreachable(source.address, 1, str(error)) from error
    return [(family, address) for family, _, _, _, address in found]


class SocketTextReader(SplitReader):
    """Keeps the connection and what was received; cuts it into lines."""

    def __init__(
        self, source: SocketTextSource, addresses: list[Address], malformed: Malformed
    ) -> None:
        self._source = source
        self._dialler = Dialler(addresses, source.connect_timeout_ms / 1000)
        self._assembly = LineAssembly(source, malformed)
        self._socket: socket.socket | None = None
        self._lines: list[str] = []
        self._has_more = False
        """The last bytes ended no line, and more of them may have arrived."""
        self._failures = 0
        self._retry_at = 0.0
        self._reached = False
        self._broken: OSError | None = None
        """Why the last connection ended, if not in order."""
        self._ended = False

    def poll(self, limit: int) -> list[str] | None:
        if not self._lines:
            if self._ended:
                return None
            self._lines = self._read()
        taken, self._lines = self._lines[:limit], self._lines[limit:]
        return taken

    def wait_ms(self) -> float:
        if self._ended or self._has_more:
            return 0.0
        if self._socket is not None:
            return inf
        return max(WAIT_MS, 1000 * (self._retry_at - time.monotonic()))

    def fileno(self) -> int | None:
        return None if self._socket is None else self._socket.fileno()

    def close(self) -> None:
        self._ended = True
        self._dialler.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _read(self) -> list[str]:
        connection = self._socket or self._connect()
        self._has_more = False
        if connection is None:
            return []
        try:
            data = connection.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            self._disconnected(error)
            return []
        if data:
            self._has_more = True
            return self._assembly.received(data)
        self._disconnected(None)
        return self._assembly.ended()

    def _connect(self) -> socket.socket | None:
        if time.monotonic() < self._retry_at:
            return None
        try:
            self._socket = self._dialler.dial()
        except OSError as error:
            if not self._reached:
                self._broken = error
            self._failed()
            return None
        self._reached = self._reached or self._socket is not None
        return self._socket

    def _disconnected(self, error: OSError | None) -> None:
        assert self._socket is not None
        self._socket.close()
        self._socket = None
        self._broken = error
        if error is not None:
            self._assembly.forget()
        self._failed()

    def _failed(self) -> None:
        """A connection ended or did not come about: try again later, end, or give up."""
        self._failures += 1
        retries = self._source.max_retry
        if retries == -1 or self._failures <= retries:
            self._retry_at = time.monotonic() + self._source.retry_delay_ms / 1000
            return
        self._ended = True
        if self._broken is not None:
            raise ServerUnreachable(
                self._source.address, self._failures, str(self._broken)
            ) from self._broken


class Dialler:
    """Connects to the first of some addresses that answers, without waiting."""

    def __init__(self, addresses: list[Address], timeout_s: float) -> None:
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._left: list[Address] = []
        self._pending: socket.socket | None = None
        self._deadline = 0.0

    def dial(self) -> socket.socket | None:
        """The connection; None: not yet; raises the last address's error if none answers."""
        if self._pending is None and not self._left:
            self._left = list(self._addresses)
        while True:
            try:
                return self._dial_one()
            except OSError:
                self._hang_up()
                if not self._left:
                    raise

    def close(self) -> None:
        self._left = []
        self._hang_up()

    def _dial_one(self) -> socket.socket | None:
        if self._pending is None:
            family, address = self._left.pop(0)
            self._pending = socket.socket(family, socket.SOCK_STREAM)
            self._pending.setblocking(False)
            self._deadline = time.monotonic() + self._timeout_s
            with contextlib.suppress(BlockingIOError):
                self._pending.connect(address)
        dialled = self._pending
        if not _writable(dialled):
            if time.monotonic() < self._deadline:
                return None
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {self._timeout_s:g} s")
        problem = dialled.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            raise OSError(problem, os.strerror(problem))
        # A server that vanished without a word is noticed by the kernel in the end.
        dialled.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._pending = None
        self._left = []
        return dialled

    def _hang_up(self) -> None:
        if self._pending is not None:
            self._pending.close()
            self._pending = None


class LineAssembly:
    """Bytes in, lines out. Law: how the bytes were cut makes no difference.

    ``malformed`` takes lines that are too long or no text; it raises, or they are left out. Of a
    line that is too long it gets as many bytes as may wait, and the rest is dropped as it comes.
    """

    def __init__(self, source: SocketTextSource, malformed: Malformed) -> None:
        self._malformed = malformed
        self._drops = False
        """Up to the next delimiter: it belongs to a line that was too long."""
        self._where = source.address
        self._limit = source.max_line_bytes
        self._encoding = source.encoding
        self._errors = source.errors
        self._delimiter = source.delimiter
        self._end = source.delimiter.encode(source.encoding)
        self._rest = bytearray()
        self._lines = 0

    def received(self, data: bytes) -> list[str]:
        rest, end = self._rest, self._end
        searched = max(0, len(rest) - len(end) + 1)
        rest += data
        cut = rest.rfind(end, searched)
        if cut < 0:
            self._check_rest()
            return []
        if len(end) > 1:  # found from the left, or it would matter how "aaa" was cut by "aa"
            cut = len(rest) - len(rest.split(end)[-1]) - len(end)
        whole = bytes(rest[:cut])
        del rest[: cut + len(end)]
        if self._drops:  # the first line of these is the end of one that was too long
            self._drops = False
            _, found, whole = whole.partition(end)
            if not found:
                self._check_rest()
                return []
        lines = self._cut(whole)
        self._check_rest()
        return lines

    def ended(self) -> list[str]:
        """The connection is over; what came without a delimiter is its last line."""
        whole = bytes(self._rest)
        drops = self._drops
        self.forget()
        return self._cut(whole) if whole and not drops else []

    def forget(self) -> None:
        """The connection broke in the middle of a line."""
        self._rest.clear()
        self._drops = False

    def _check_rest(self) -> None:
        """The line that is not whole yet must not grow beyond the limit."""
        rest = self._rest
        if self._drops:
            del rest[: max(0, len(rest) - len(self._end) + 1)]  # a delimiter may have begun
        elif len(rest) > self._limit:
            self._lines += 1
            self._malformed(bytes(rest), LineTooLong(self._where, self._limit))
            self._drops = True
            self._check_rest()

    def _cut(self, whole: bytes) -> list[str]:
        if len(whole) <= self._limit:
            try:
                return self._split(whole.decode(self._encoding, self._errors))
            except UnicodeDecodeError:
                pass  # each line alone, to learn which one it is
        lines = []
        for line in whole.split(self._end):
            try:
                if len(line) > self._limit:
                    raise LineTooLong(self._where, self._limit)
                lines += self._split(line.decode(self._encoding, self._errors))
            except UnicodeDecodeError as error:
                self._lines += 1
                problem = LineUndecodable(self._where, self._lines, self._encoding, error.reason)
                problem.__cause__ = error
                self._malformed(line, problem)
            except LineTooLong as error:
                self._lines += 1
                self._malformed(line, error)
        return lines

    def _split(self, text: str) -> list[str]:
        lines = text.split(self._delimiter)
        if self._delimiter == "\n" and "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        self._lines += len(lines)
        return lines


def _writable(connection: socket.socket) -> bool:
    poller = select.poll()  # not select(), which knows no descriptor above 1023
    poller.register(connection, select.POLLOUT)
    return bool(poller.poll(0))
