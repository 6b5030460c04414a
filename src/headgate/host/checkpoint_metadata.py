"""The metadata file of a checkpoint as bytes.

A header (magic, version, length and checksum of what belongs together), then the metadata as
msgpack. Law: what is decoded is what was encoded; bytes that were cut or changed anywhere, or that
another version wrote, are refused.
"""

import struct
import zlib
from typing import Final

import msgspec

from headgate.base.checkpoint_errors import CheckpointCorrupt
from headgate.base.checkpoints import METADATA_VERSION, Metadata

METADATA_FILE: Final = "_metadata"

_MAGIC: Final = b"HgCk"
_HEADER: Final = struct.Struct("<4sHQ")
_CHECKSUM: Final = struct.Struct("<I")
_DECODER: Final = msgspec.msgpack.Decoder(Metadata)


def encode_metadata(metadata: Metadata) -> bytes:
    """The bytes of the file."""
    body = msgspec.msgpack.encode(metadata)
    header = _HEADER.pack(_MAGIC, METADATA_VERSION, len(body))
    checksum = zlib.crc32(body, zlib.crc32(header))
    return b"".join([header, _CHECKSUM.pack(checksum), body])


def decode_metadata(path: str, data: bytes) -> Metadata:
    """What the bytes stand for; raises CheckpointCorrupt with the path."""
    start = _HEADER.size + _CHECKSUM.size
    if len(data) < start:
        raise CheckpointCorrupt(path, f"is cut: it has {len(data)} bytes and no whole header")
    magic, version, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise CheckpointCorrupt(path, f"is no metadata of a checkpoint: it begins with {magic!r}")
    if len(data) - start != length:
        raise CheckpointCorrupt(path, f"has {len(data)} bytes instead of {start + length}")
    (checksum,) = _CHECKSUM.unpack_from(data, _HEADER.size)
    body = memoryview(data)[start:]
    if zlib.crc32(body, zlib.crc32(data[: _HEADER.size])) != checksum:
        raise CheckpointCorrupt(path, "was changed: its checksum is wrong")
    if version != METADATA_VERSION:
        raise CheckpointCorrupt(
            path,
            f"has the version {version}, this side reads {METADATA_VERSION}",
            "restore it with the Headgate that wrote it",
        )
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise CheckpointCorrupt(path, f"is no metadata of this Headgate ({error})") from error
