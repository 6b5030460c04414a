"""Values of Kafka's protocol as bytes, both ways; used by the broker's requests and answers.

A version of an API is *flexible* or not: then lengths are varints and structures end with tags.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class Reader:
    """Takes values from the front of a request."""

    def __init__(self, data: bytes, flexible: bool = False) -> None:
        self._data = data
        self._at = 0
        self.flexible = flexible

    def int8(self) -> int:
        return int(self._take(">b", 1))

    def int16(self) -> int:
        return int(self._take(">h", 2))

    def int32(self) -> int:
        return int(self._take(">i", 4))

    def int64(self) -> int:
        return int(self._take(">q", 8))

    def boolean(self) -> bool:
        return self.int8() != 0

    def varint(self) -> int:
        """Unsigned."""
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self) -> str:
        found = self.nullable_text()
        if found is None:
            raise ValueError("null where a string must be")
        return found

    def nullable_text(self) -> str | None:
        found = self._bytes(self.varint() - 1 if self.flexible else self.int16())
        return None if found is None else found.decode()

    def data(self) -> bytes:
        return self._bytes(self.varint() - 1 if self.flexible else self.int32()) or b""

    def array(self, item: Callable[[], T], plain: bool = False) -> list[T]:
        return self.nullable_array(item, plain) or []

    def nullable_array(self, item: Callable[[], T], plain: bool = False) -> list[T] | None:
        """``plain``: of numbers or strings, which have no tags."""
        count = self.varint() - 1 if self.flexible else self.int32()
        if count < 0:
            return None
        found = []
        for _ in range(count):
            found.append(item())
            if not plain:
                self.tags()
        return found

    def tags(self) -> None:
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self._at += self.varint()

    def rest(self) -> bytes:
        return self._data[self._at :]

    def _take(self, form: str, size: int) -> Any:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return value

    def _bytes(self, size: int) -> bytes | None:
        if size < 0:
            return None
        if self._at + size > len(self._data):
            raise ValueError("a length beyond the end of the request")
        self._at += size
        return self._data[self._at - size : self._at]


class Writer:
    """Puts values at the end of an answer."""

    def __init__(self, flexible: bool = False) -> None:
        self._parts: list[bytes] = []
        self.flexible = flexible

    def int8(self, value: int) -> "Writer":
        return self._put(struct.pack(">b", value))

    def int16(self, value: int) -> "Writer":
        return self._put(struct.pack(">h", value))

    def int32(self, value: int) -> "Writer":
        return self._put(struct.pack(">i", value))

    def int64(self, value: int) -> "Writer":
        return self._put(struct.pack(">q", value))

    def boolean(self, value: bool) -> "Writer":
        return self.int8(int(value))

    def text(self, value: str | None) -> "Writer":
        found = None if value is None else value.encode()
        return self._sized(found, self.int16)

    def data(self, value: bytes | None) -> "Writer":
        return self._sized(value, self.int32)

    def array(
        self, items: Iterable[T], write: Callable[[T], object], plain: bool = False
    ) -> "Writer":
        there = list(items)
        self._put(varint(len(there) + 1)) if self.flexible else self.int32(len(there))
        for item in there:
            write(item)
            if not plain:
                self.tags()
        return self

    def tags(self) -> "Writer":
        return self._put(b"\0") if self.flexible else self

    def done(self) -> bytes:
        return b"".join(self._parts)

    def _sized(self, value: bytes | None, length: Callable[[int], object]) -> "Writer":
        size = -1 if value is None else len(value)
        self._put(varint(size + 1)) if self.flexible else length(size)
        return self._put(value or b"")

    def _put(self, data: bytes) -> "Writer":
        self._parts.append(data)
        return self


def varint(value: int) -> bytes:
    """Unsigned."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def zigzag(value: int) -> bytes:
    """A signed varint, as records have them."""
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)
