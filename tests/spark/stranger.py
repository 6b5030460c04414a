"""Somebody without any secret who speaks to Spark's block service, through a plain socket."""

import socket
import struct

from headgate.base.messages import Address

CHUNK_REQUEST, CHUNK, RPC_REQUEST, RPC_RESPONSE = 0, 1, 3, 4
OPEN_BLOCKS = 0
TIMEOUT_S = 5.0


def fetch(address: Address, app: str, executor: str, block: str) -> bytes | None:
    """The bytes of a block; None: the service has not given them."""
    with socket.create_connection(address, TIMEOUT_S) as sock:
        try:
            texts = b"".join(map(_text, (app, executor))) + struct.pack(">i", 1) + _text(block)
            body = bytes([OPEN_BLOCKS]) + texts
            _send(sock, bytes([RPC_REQUEST]) + struct.pack(">qi", 1, len(body)) + body)
            answer = _receive(sock)
            if answer[0] != RPC_RESPONSE:
                return None
            stream, chunks = struct.unpack(">qi", answer[-12:])
            if chunks != 1:
                return None
            _send(sock, bytes([CHUNK_REQUEST]) + struct.pack(">qi", stream, 0))
            answer = _receive(sock)
        except (OSError, EOFError):
            return None
    return answer[13:] if answer[0] == CHUNK else None


def _text(words: str) -> bytes:
    return struct.pack(">i", len(words)) + words.encode()


def _send(sock: socket.socket, message: bytes) -> None:
    sock.sendall(struct.pack(">q", 8 + len(message)) + message)


def _receive(sock: socket.socket) -> bytes:
    (length,) = struct.unpack(">q", _exactly(sock, 8))
    return _exactly(sock, length - 8)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
