"""Strangers in great numbers at a port: silent, slow, or announcing frames without end."""

import contextlib
import socket
from random import Random

from tests.host.rig import PATIENCE_S

MOST = 2**32 - 1
GIANTS = [MOST.to_bytes(4, "little"), MOST.to_bytes(4, "little") + b"\x47\x48\x03\x01"]


def open_flood(
    stack: contextlib.ExitStack, address: tuple[str, int], count: int, chance: Random
) -> list[socket.socket]:
    """Connections that are silent, speak nonsense, or announce frames of 4 GiB."""
    opened = []
    for number in range(count):
        sock = stack.enter_context(socket.create_connection(address, PATIENCE_S))
        words = (b"", b"\x15", *GIANTS, chance.randbytes(100))[number % 5]
        with contextlib.suppress(OSError):
            sock.sendall(words)
        opened.append(sock)
    return opened


def drip(socks: list[socket.socket]) -> None:
    """A byte more of each: slow, but never silent."""
    for sock in socks:
        with contextlib.suppress(OSError):
            sock.send(b"\x01")
