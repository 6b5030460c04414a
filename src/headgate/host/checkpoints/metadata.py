"""The metadata file of a checkpoint: its bytes, and the key that signs it.

A header (magic, version, length, checksum of all else), in versions 2 and 4 a signature, then the
metadata as msgpack. Law: what is decoded is what was encoded; bytes that were cut or changed, or
that another version wrote, are refused. With a key, only what was signed with it is decoded.

Only the driver has the key. Tasks report the digest of everything they write; the driver puts the
digests into the metadata and signs that. A driver that restores checks the signature before it
decodes a byte, and hands the digests to the tasks, which check what they read before they unpickle
it. So a signature binds each piece of state to its job, checkpoint, operator and key group.
"""

import hashlib
import hmac
import os
import stat
import struct
import zlib
from dataclasses import dataclass, field
from typing import Final, NoReturn

import msgspec

from headgate.base.checkpoints import METADATA_VERSION, Metadata, pieces_of
from headgate.base.elements import ByteLike
from headgate.base.errors import CheckpointCorrupt, SettingsInvalid
from headgate.base.recovery_settings import (
    HMAC_SECRET,
    HMAC_SECRET_FILE,
    HMAC_UNSIGNED,
    CheckpointSettings,
)

METADATA_FILE: Final = "_metadata"
SIGNATURE_BYTES: Final = 32
SHORTEST_KEY: Final = 16
"""Bytes; fewer can be guessed."""
_LARGEST_FILE: Final = 64 * 1024
_DOMAIN: Final = b"headgate checkpoint metadata\0"

SIGNED_VERSION: Final = 2
"""``METADATA_VERSION`` with a signature."""
SOURCES: Final = 2
"""Added to the version if the driver holds splits: a Headgate that would lose them refuses it."""

_SIGNED: Final = (SIGNED_VERSION, SIGNED_VERSION + SOURCES)
_MAGIC: Final = b"HgCk"
_HEADER: Final = struct.Struct("<4sHQ")
_CHECKSUM: Final = struct.Struct("<I")
_DECODER: Final = msgspec.msgpack.Decoder(Metadata)


@dataclass(frozen=True, slots=True)
class CheckpointKey:
    """Signs and checks a job's checkpoints. Law: no log, closure or plan ever holds it."""

    key: bytes = field(repr=False)
    allows_unsigned: bool = False
    """Whether the job may restore a checkpoint without a signature."""

    def sign(self, *parts: ByteLike) -> bytes:
        """The signature of the concatenated parts."""
        mac = hmac.new(self.key, _DOMAIN, hashlib.sha256)
        for part in parts:
            mac.update(part)
        return mac.digest()

    def fits(self, signature: ByteLike, *parts: ByteLike) -> bool:
        return hmac.compare_digest(bytes(signature), self.sign(*parts))

    def __reduce__(self) -> NoReturn:
        raise TypeError("the key of checkpoints stays in the driver, and is not pickled")


def checkpoint_key(settings: CheckpointSettings) -> CheckpointKey | None:
    """The key that the settings name, if they do. Raises SettingsInvalid."""
    if settings.hmac_secret and settings.hmac_secret_file:
        raise SettingsInvalid(HMAC_SECRET_FILE, f"is set, and so is {HMAC_SECRET}; set one of them")
    if settings.hmac_secret_file:
        key, name = _read_key(settings.hmac_secret_file), HMAC_SECRET_FILE
    elif settings.hmac_secret:
        key, name = settings.hmac_secret.encode(errors="surrogateescape"), HMAC_SECRET
    else:
        return None
    if len(key) < SHORTEST_KEY:
        raise SettingsInvalid(
            name, f"the key has less than {SHORTEST_KEY} bytes; make a longer one"
        )
    return CheckpointKey(key, settings.hmac_allows_unsigned)


def _read_key(path: str) -> bytes:
    """The stripped content of a file that nobody else may access."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            data = os.read(descriptor, _LARGEST_FILE) if stat.S_ISREG(found.st_mode) else b""
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise SettingsInvalid(HMAC_SECRET_FILE, f"{path!r} cannot be read: {problem}") from error
    if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_FILE:
        raise SettingsInvalid(HMAC_SECRET_FILE, f"{path!r} is no file with a key")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise SettingsInvalid(
            HMAC_SECRET_FILE, f"{path!r} can be used by others; take their rights (chmod 600)"
        )
    return data.strip()


def encode_metadata(metadata: Metadata, signing: CheckpointKey | None = None) -> bytes:
    body = msgspec.msgpack.encode(metadata)
    version = METADATA_VERSION if signing is None else SIGNED_VERSION
    version += SOURCES if metadata.sources else 0
    header = _HEADER.pack(_MAGIC, version, len(body))
    signature = b"" if signing is None else signing.sign(header, body)
    return b"".join([header, _checksum(header, signature, body), signature, body])


def decode_metadata(path: str, data: bytes, signing: CheckpointKey | None = None) -> Metadata:
    """Raises CheckpointCorrupt with the path."""
    start = _HEADER.size + _CHECKSUM.size
    if len(data) < start:
        raise CheckpointCorrupt(path, f"is cut: it has {len(data)} bytes and no whole header")
    magic, version, length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise CheckpointCorrupt(path, f"is no metadata of a checkpoint: it begins with {magic!r}")
    middle = start + (SIGNATURE_BYTES if version in _SIGNED else 0)
    if len(data) - middle != length:
        raise CheckpointCorrupt(path, f"has {len(data)} bytes instead of {middle + length}")
    header, checksum = data[: _HEADER.size], data[_HEADER.size : start]
    signature, body = data[start:middle], memoryview(data)[middle:]
    if _checksum(header, signature, body) != checksum:
        raise CheckpointCorrupt(path, "was changed: its checksum is wrong")
    if version not in (METADATA_VERSION, METADATA_VERSION + SOURCES, *_SIGNED):
        raise CheckpointCorrupt(
            path,
            f"has the version {version}, this side reads up to {SIGNED_VERSION + SOURCES}",
            "restore it with the Headgate that wrote it",
        )
    if signing is not None:
        _check_signature(path, signing, signature, header, body)
    metadata = _decode(path, body)
    if signing is not None and signature:
        _check_digests(path, metadata)
    return metadata


def unsigned_files(metadata: Metadata) -> list[str]:
    """Files that a signature of the metadata would not cover."""
    pieces = (piece for task in metadata.tasks for piece in pieces_of(task))
    return [piece.path for piece in pieces if piece.path and not piece.digest]


def _decode(path: str, body: memoryview) -> Metadata:
    try:
        return _DECODER.decode(body)
    except Exception as error:  # also invalid UTF-8, and integers out of range
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
