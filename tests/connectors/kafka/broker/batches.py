"""Record batches of version 2: kept as they came, but for the offset that the broker gives them."""

import struct
from dataclasses import dataclass

from tests.connectors.kafka.broker.wire import zigzag

HEADER = struct.Struct(">qiibIhiqqqhii")
"""Offset, length, leader epoch, magic, CRC, attributes, last delta, two times, producer, epoch,
sequence, count.
"""
CHECKED_BYTES = 1 << 16
"""Larger batches are taken without their checksum: Python is slow at it."""
TRANSACTIONAL, CONTROL = 0x10, 0x20


class BatchCorrupt(Exception):
    """Bytes that are no batch of version 2."""


@dataclass
class Batch:
    """One batch; ``data`` begins with its offset."""

    data: bytes
    offset: int
    last_delta: int
    attributes: int
    max_timestamp: int
    producer: int
    epoch: int
    sequence: int
    count: int

    @property
    def last_offset(self) -> int:
        return self.offset + self.last_delta

    @property
    def last_sequence(self) -> int:
        return self.sequence + self.last_delta

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    def put_at(self, offset: int) -> None:
        self.offset = offset
        self.data = struct.pack(">q", offset) + self.data[8:]


def read_batches(data: bytes) -> list[Batch]:
    """All batches of a produce request for one partition."""
    found = []
    while data:
        if len(data) < HEADER.size:
            raise BatchCorrupt("a cut batch")
        head = HEADER.unpack_from(data)
        offset, length, _, magic, crc, attributes, last_delta = head[:7]
        max_timestamp, producer, epoch, sequence, count = head[8:]
        whole = data[: length + 12]
        if magic != 2 or len(whole) != length + 12:
            raise BatchCorrupt("no batch of version 2")
        if len(whole) <= CHECKED_BYTES and crc32c(whole[21:]) != crc:
            raise BatchCorrupt("the checksum is wrong")
        if attributes & CONTROL:
            raise BatchCorrupt("only the broker writes control batches")
        found.append(
            Batch(
                *(whole, offset, last_delta, attributes, max_timestamp),
                *(producer, epoch, sequence, count),
            )
        )
        data = data[length + 12 :]
    return found


def marker(producer: int, epoch: int, commit: bool, now_ms: int) -> Batch:
    """The control batch that ends a transaction in one partition."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0)
    record = b"\0" + zigzag(0) + zigzag(0) + zigzag(4) + key + zigzag(6) + value + zigzag(0)
    record = zigzag(len(record)) + record
    attributes = TRANSACTIONAL | CONTROL
    body = struct.pack(">hiqqqhii", attributes, 0, now_ms, now_ms, producer, epoch, -1, 1) + record
    data = struct.pack(">qiibI", 0, len(body) + 9, 0, 2, crc32c(body)) + body
    return Batch(data, 0, 0, attributes, now_ms, producer, epoch, -1, 1)


def _table() -> list[int]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        found.append(value)
    return found


_TABLE = _table()


def crc32c(data: bytes) -> int:
    value, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        value = value >> 8 ^ table[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF
