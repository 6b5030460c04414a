"""What the driver brings beside the network: stores and spill files in memory, and a codec."""

import zlib
from collections.abc import Callable

from headgate.base.elements import ByteLike


class MemoryStore:
    """A blocking subpartition's data, kept in a list. Used after its end it fails loudly."""

    def __init__(self, on_deleted: Callable[[], None]) -> None:
        self._entries: list[tuple[bytes, bool]] | None = []
        self._finished = False
        self._readers = 0
        self._on_deleted = on_deleted

    def append(self, data: ByteLike, is_event: bool) -> None:
        assert self._entries is not None and not self._finished, "written after its end"
        self._entries.append((bytes(data), is_event))

    def finish(self) -> None:
        assert not self._finished, "finished twice"
        self._finished = True

    def open_reader(self) -> "MemoryReader":
        assert self._entries is not None and self._finished, "read before its end, or deleted"
        self._readers += 1
        return MemoryReader(self._entries, self._closed)

    def delete(self) -> None:
        assert self._entries is not None, "deleted twice"
        assert not self._readers, "deleted under a reader"
        self._entries = None
        self._on_deleted()

    def _closed(self) -> None:
        self._readers -= 1


class MemoryReader:
    """One reading of a memory store."""

    def __init__(self, entries: list[tuple[bytes, bool]], on_closed: Callable[[], None]) -> None:
        self._entries = iter(entries)
        self._on_closed = on_closed

    def next(self) -> tuple[ByteLike, bool] | None:
        return next(self._entries, None)

    def close(self) -> None:
        self._on_closed()


class MemorySpill:
    """A large element, gathered aside."""

    def __init__(self, on_closed: Callable[[], None]) -> None:
        self._data: bytearray | None = bytearray()
        self._on_closed = on_closed

    def write(self, data: memoryview) -> None:
        assert self._data is not None, "written after its end"
        self._data += data

    def written(self) -> bytes:
        assert self._data is not None, "read after its end"
        return bytes(self._data)

    def view(self) -> memoryview:
        assert self._data is not None, "read after its end"
        return memoryview(self._data)

    def close(self) -> None:
        assert self._data is not None, "closed twice"
        self._data = None
        self._on_closed()


class MemorySpills:
    """Makes spills, and counts those that are open."""

    def __init__(self) -> None:
        self.open_now = 0

    def open(self) -> MemorySpill:
        self.open_now += 1
        return MemorySpill(self._closed)

    def _closed(self) -> None:
        self.open_now -= 1


class ZlibCodec:
    """Compression for the simulation: slow and everywhere."""

    def compress(self, data: ByteLike) -> bytes:
        return zlib.compress(data, 1)

    def decompress(self, data: ByteLike, size: int) -> bytes:
        return zlib.decompress(data)
