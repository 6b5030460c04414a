"""Fixed test vectors of the wire format, one or more for every message; docs/protocol.md has them.

A vector is a message and its whole frame in hex. They change only with the protocol's version.
"""

from typing import Final

from headgate.base.checkpoints import CheckpointKind, Stop
from headgate.base.events import END_OF_PARTITION, CheckpointBarrier, encode_event
from headgate.base.ids import ChannelId, PartitionId
from headgate.core.exchange.frames import (
    AddCredit,
    Alive,
    Backlog,
    BufferSize,
    CancelReceiver,
    Close,
    ErrorCode,
    ErrorReport,
    LinkChallenge,
    LinkHello,
    LinkProof,
    LinkWelcome,
    Message,
    PartitionRequest,
    TaskEventRequest,
)

_NONCE: Final = bytes(range(16))
_PROOF: Final = bytes(range(32))
_PARTITION: Final = PartitionId("a/b/0#1")

VECTORS: Final[list[tuple[Message, str]]] = [
    (LinkHello(0, 32768, _NONCE), "16000000474803010000800000000102030405060708090a0b0c0d0e0f00"),
    (
        LinkHello(1, 1, _PROOF[16:], 2),
        "16000000474803010101000000101112131415161718191a1b1c1d1e1f02",
    ),
    (
        LinkChallenge(_NONCE, _PROOF),
        "3000000047480302"
        "000102030405060708090a0b0c0d0e0f000102030405060708090a0b0c0d0e0f"
        "101112131415161718191a1b1c1d1e1f",
    ),
    (
        LinkProof(_PROOF),
        "2000000047480303000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    ),
    (LinkWelcome(), "0000000047480304"),
    (
        PartitionRequest(ChannelId(7), 2, 3, _PARTITION),
        "1900000047480310070000000000000002000000030000000700612f622f302331",
    ),
    (
        PartitionRequest(ChannelId(2**64 - 1), 2**32 - 1, 2**32 - 1, PartitionId("")),
        "1200000047480310ffffffffffffffffffffffffffffffff0000",
    ),
    (
        PartitionRequest(ChannelId(0), 0, 0, PartitionId("größe")),
        "19000000474803100000000000000000000000000000000007006772c3b6c39f65",
    ),
    (AddCredit(((ChannelId(7), 5),)), "0c00000047480311070000000000000005000000"),
    (
        AddCredit(((ChannelId(7), 5), (ChannelId(8), 2**32 - 1))),
        "18000000474803110700000000000000050000000800000000000000ffffffff",
    ),
    (CancelReceiver(ChannelId(7)), "08000000474803120700000000000000"),
    (Close(), "0000000047480313"),
    (
        TaskEventRequest(ChannelId(7), _PARTITION, b"\x05\x03\x00m:E\x80"),
        "180000004748031407000000000000000700612f622f3023310503006d3a4580",
    ),
    (
        TaskEventRequest(ChannelId(7), _PARTITION, b""),
        "110000004748031407000000000000000700612f622f302331",
    ),
    (BufferSize(ChannelId(7), 4096), "0c00000047480315070000000000000000100000"),
    (
        ErrorReport(None, ErrorCode.PROTOCOL, PartitionId(""), "why"),
        "11000000474803210000000000000000000400000300776879",
    ),
    (
        ErrorReport(None, ErrorCode.BUSY, PartitionId(""), "later"),
        "130000004748032100000000000000000007000005006c61746572",
    ),
    (
        ErrorReport(ChannelId(0), ErrorCode.PARTITION_NOT_FOUND, _PARTITION, ""),
        "1500000047480321010000000000000000010700612f622f3023310000",
    ),
    (
        ErrorReport(ChannelId(7), ErrorCode.PRODUCER_FAILED, _PARTITION, "ü"),
        "1700000047480321010700000000000000020700612f622f3023310200c3bc",
    ),
    (Backlog(ChannelId(7), 9), "0c00000047480322070000000000000009000000"),
    (Alive(), "0000000047480330"),
]

SAVEPOINT: Final = CheckpointBarrier(1, 2, False, CheckpointKind.SAVEPOINT, Stop.DRAIN, "s")

Head = tuple[int, int, int, int]
"""Receiver, sequence number, backlog, flags (1 event, 2 compressed)."""

BUFFER_VECTORS: Final[list[tuple[Head, bytes, str]]] = [
    (
        (7, 0, 3, 0),
        b"data",
        "1c0000004748032007000000000000000000000000000000030000000000000064617461",
    ),
    (
        (7, 1, 0, 2),
        bytes(4) + b"xy",
        "1e00000047480320070000000000000001000000000000000000000002000000000000007879",
    ),
    (
        (2**64 - 1, 2**64 - 1, 2**32 - 1, 0),
        b"",
        "1800000047480320ffffffffffffffffffffffffffffffffffffffff00000000",
    ),
    (
        (7, 2, 0, 1),
        encode_event(END_OF_PARTITION),
        "190000004748032007000000000000000200000000000000000000000100000001",
    ),
    (
        (7, 3, 1, 1),
        encode_event(CheckpointBarrier(1, 2)),
        "2c00000047480320"
        "070000000000000003000000000000000100000001000000"
        "0301000000000000000200000000000000000000",
    ),
    (
        (7, 4, 0, 1),
        encode_event(SAVEPOINT),
        "2d00000047480320"
        "070000000000000004000000000000000000000001000000"
        "030100000000000000020000000000000000010273",
    ),
]
