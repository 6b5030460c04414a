"""Helpers of the tests of the exchange: a codec, a store, the frames of a stream."""

import zlib

from headgate.base.elements import ByteLike
from headgate.base.ids import PeerName
from headgate.core.egress.blocking import StoreReader
from headgate.core.exchange.frames import (
    BUFFER_HEAD,
    PREFIX,
    Kind,
    Message,
    decode,
)


class Deflate:
    def compress(self, data: ByteLike) -> bytes:
        return zlib.compress(data)

    def decompress(self, data: ByteLike, size: int) -> bytes:
        return zlib.decompress(data)


def parse(stream: bytes) -> list[tuple[int, int, int, int, bytes] | Message]:
    found: list[tuple[int, int, int, int, bytes] | Message] = []
    while stream:
        length, _, _, kind = PREFIX.unpack_from(stream)
        end = PREFIX.size + length
        if kind == Kind.BUFFER:
            head = BUFFER_HEAD.unpack_from(stream)
            found.append((*head[4:8], stream[BUFFER_HEAD.size : end]))
        else:
            found.append(
                decode(Kind(kind), memoryview(stream)[PREFIX.size : end], PeerName("peer"))
            )
        stream = stream[end:]
    return found


class ListStore:
    """Keeps entries in a list."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, bool]] = []
        self.deleted = 0

    def append(self, data: bytes, is_event: bool) -> None:
        self.entries.append((bytes(data), is_event))

    def finish(self) -> None:
        pass

    def open_reader(self) -> StoreReader:
        entries = iter(list(self.entries))

        class Reader:
            def next(self) -> tuple[bytes, bool] | None:
                return next(entries, None)

            def close(self) -> None:
                pass

        return Reader()

    def delete(self) -> None:
        self.deleted += 1
