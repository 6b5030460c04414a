"""Peers made of a bare socket, which say whatever a test wants."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from headgate.base.ids import ChannelId, PeerName
from headgate.base.settings import ExchangeSettings
from headgate.core.exchange.frames import (
    NONCE_BYTES,
    PREFIX,
    Kind,
    Message,
    decode,
    encode,
    encode_buffer_head,
)
from headgate.core.exchange.handshake import Handshake
from headgate.core.exchange.link import Address, make_handshake
from tests.host.rig import PATIENCE_S, SECRET


class RawPeer:
    """One end of a connection, by hand."""

    def __init__(self, sock: socket.socket, settings: ExchangeSettings) -> None:
        sock.settimeout(PATIENCE_S)
        self.sock = sock
        self.settings = settings

    def send(self, *parts: Message | bytes) -> None:
        self.sock.sendall(
            b"".join(part if isinstance(part, bytes) else encode(part) for part in parts)
        )

    def receive(self) -> Message:
        length, _, _, kind = PREFIX.unpack(self._exactly(PREFIX.size))
        return decode(Kind(kind), memoryview(self._exactly(length)), PeerName("test"))

    def read_to_the_end(self) -> bytes:
        """All that comes; a reset is an end too."""
        data = b""
        try:
            while more := self.sock.recv(65536):
                data += more
        except ConnectionResetError:
            pass
        return data

    def reset(self) -> None:
        """Close with a reset instead of a farewell."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def greet_as_client(self, secret: bytes = SECRET) -> None:
        handshake = self._handshake(secret, is_client=True)
        self.send(handshake.first_word())
        answer = handshake.received(self.receive())
        assert answer is not None
        self.send(answer)
        handshake.received(self.receive())
        assert handshake.is_done

    def greet_as_server(self, secret: bytes = SECRET) -> None:
        handshake = self._handshake(secret, is_client=False)
        while not handshake.is_done:
            answer = handshake.received(self.receive())
            assert answer is not None
            self.send(answer)

    def _handshake(self, secret: bytes, *, is_client: bool) -> Handshake:
        nonce = (b"c" if is_client else b"s") * NONCE_BYTES
        return make_handshake(self.settings, secret, nonce, PeerName("test"), is_client)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            assert more, f"the connection ended after {len(data)} of {count} bytes"
            data += more
        return data


def buffer_frame(
    receiver: int, sequence: int, payload: bytes, *, backlog: int = 0, flags: int = 0
) -> bytes:
    head = encode_buffer_head(ChannelId(receiver), sequence, backlog, flags, len(payload))
    return bytes(head) + payload


@contextmanager
def raw_client(address: Address, settings: ExchangeSettings) -> Iterator[RawPeer]:
    """A stranger that connects to an exchange."""
    with socket.create_connection(address, PATIENCE_S) as sock:
        yield RawPeer(sock, settings)


@contextmanager
def raw_server() -> Iterator[tuple[socket.socket, Address]]:
    """A stranger that an exchange connects to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)
        host, port = listening.getsockname()
        yield listening, (host, port)
