"""The metadata file of a checkpoint as bytes.

A header (magic, version, length and checksum of what belongs together), in version 2 a signature,
then the metadata as msgpack. Law: what is decoded is what was encoded; bytes that were cut or
changed anywhere, or that another version wrote, are refused. Who has a key decodes nothing that was
not signed with it.
"""

import struct
import zlib
from typing import Final

import msgspec

from headgate.base.checkpoints import METADATA_VERSION, Metadata, pieces_of
from headgate.base.elements import ByteLike
from headgate.base.errors import CheckpointCorrupt
from headgate.base.recovery_settings import HMAC_UNSIGNED
from headgate.host.checkpoints.signing import SIGNATURE_BYTES, CheckpointKey

METADATA_FILE: Final = "_metadata"

SIGNED_VERSION: Final = 2
"""The same as the other, with a signature."""

_MAGIC: Final = b"HgCk"
_HEADER: Final = struct.Struct("<4sHQ")
_CHECKSUM: Final = struct.Struct("<I")
_DECODER: Final = msgspec.msgpack.Decoder(Metadata)


def encode_metadata(metadata: Metadata, signing: CheckpointKey | None = None) -> bytes:
    """The bytes of the file."""
    body = msgspec.msgpack.encode(metadata)
    version = METADATA_VERSION if signing is None else SIGNED_VERSION
    header = _HEADER.pack(_MAGIC, version, len(body))
    signature = b"" if signing is None else signing.sign(header, body)
    return b"".join([header, _checksum(header, signature, body), signature, body])


def decode_metadata(path: str, data: bytes, signing: CheckpointKey | None = None) -> Metadata:
    """What the bytes stand for; raises CheckpointCorrupt with the path."""
    start = _HEADER.size + _CHECKSUM.size
    if len(data) < start:
        raise CheckpointCorrupt(path, f"is cut: it has {len(data)} bytes and no whole header")
    magic, version, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise CheckpointCorrupt(path, f"is no metadata of a checkpoint: it begins with {magic!r}")
    middle = start + (SIGNATURE_BYTES if version == SIGNED_VERSION else 0)
    if len(data) - middle != length:
        raise CheckpointCorrupt(path, f"has {len(data)} bytes instead of {middle + length}")
    header, checksum = data[: _HEADER.size], data[_HEADER.size : start]
    signature, body = data[start:middle], memoryview(data)[middle:]
    if _checksum(header, signature, body) != checksum:
        raise CheckpointCorrupt(path, "was changed: its checksum is wrong")
    if version not in (METADATA_VERSION, SIGNED_VERSION):
        raise CheckpointCorrupt(
            path,
            f"has the version {version}, this side reads up to {SIGNED_VERSION}",
            "restore it with the Headgate that wrote it",
        )
    if signing is not None:
        _check_signature(path, signing, signature, header, body)
    metadata = _decode(path, body)
    if signing is not None and signature:
        _check_digests(path, metadata)
    return metadata


def unsigned_files(metadata: Metadata) -> list[str]:
    """Files that a signature of the metadata would say nothing about."""
    pieces = (piece for task in metadata.tasks for piece in pieces_of(task))
    return [piece.path for piece in pieces if piece.path and not piece.digest]


def _decode(path: str, body: memoryview) -> Metadata:
    try:
        return _DECODER.decode(body)
    except Exception as error:  # also text that is none, and numbers beyond all bounds
        raise CheckpointCorrupt(path, f"is no metadata of this Headgate ({error})") from error


def _check_signature(
    path: str, signing: CheckpointKey, signature: bytes, header: bytes, body: memoryview
) -> None:
    if signature and not signing.fits(signature, header, body):
        raise CheckpointCorrupt(
            path,
            "was changed, or signed with another key: its HMAC is wrong",
            "check the key of the job, or restore from another checkpoint",
        )
    if not signature and not signing.allows_unsigned:
        raise CheckpointCorrupt(
            path,
            "has no HMAC, and the job has a key and goes on from signed checkpoints alone",
            f"if you trust it, set {HMAC_UNSIGNED} to true for one start",
        )


def _check_digests(path: str, metadata: Metadata) -> None:
    if files := unsigned_files(metadata):
        raise CheckpointCorrupt(path, f"says no digest of {files[0]!r}, which anybody may change")


def _checksum(*parts: ByteLike) -> bytes:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return _CHECKSUM.pack(crc)
