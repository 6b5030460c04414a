"""Somebody on the way between a worker and the driver, who does not know the secret."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from headgate.control.frames import SEALED_BYTES

GREETINGS = 2
"""Unsealed frames of each direction: Hello and Proof, Challenge and Welcome."""

Tamper = Callable[[int, bytes], list[bytes]]
"""What becomes of a sealed frame, by its number."""


def as_it_is(number: int, frame: bytes) -> list[bytes]:
    return [frame]


class Relay:
    """Passes the handshake of each connection on, and then does to frames what the test wants."""

    def __init__(
        self,
        target: tuple[str, int],
        to_worker: Tamper = as_it_is,
        to_driver: Tamper = as_it_is,
    ) -> None:
        self._target = target
        self._tampers = to_worker, to_driver
        self._port = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._port.getsockname()
        self._sockets: list[socket.socket] = [self._port]
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def __enter__(self) -> "Relay":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for sock in self._sockets:
            sock.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                worker, _ = self._port.accept()
                driver = socket.create_connection(self._target)
                self._sockets += worker, driver
                to_worker, to_driver = self._tampers
                for ends in ((driver, worker, to_worker), (worker, driver, to_driver)):
                    self._threads.append(threading.Thread(target=self._pump, args=ends))
                    self._threads[-1].start()

    def _pump(self, source: socket.socket, target: socket.socket, tamper: Tamper) -> None:
        number = -GREETINGS
        with suppress(OSError, EOFError), source.makefile("rb") as stream:
            while True:
                frame = _frame(stream.read, number >= 0)
                for part in tamper(number, frame) if number >= 0 else [frame]:
                    target.sendall(part)
                number += 1
        for sock in (source, target):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _frame(read: Callable[[int], bytes], is_sealed: bool) -> bytes:
    front = read(SEALED_BYTES if is_sealed else 4)
    if len(front) < 4:
        raise EOFError
    return front + read(int.from_bytes(front[:4], "little"))
