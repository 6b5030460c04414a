"""Compression of single buffers: the seam to a codec, and the rule when to use it.

A compressed payload is the original size (4 bytes) and the compressed bytes. A buffer that does not
become smaller goes as it is, and small ones are not tried.
"""

import struct
from typing import Final, Protocol

from headgate.base.elements import ByteLike
from headgate.base.errors import ElementBroken

_SIZE: Final = struct.Struct("<I")
MIN_BYTES: Final = 128


class CompressionCodec(Protocol):
    """Compresses and expands bytes (the driver brings pyarrow's)."""

    def compress(self, data: ByteLike) -> ByteLike: ...

    def decompress(self, data: ByteLike, size: int) -> ByteLike: ...


def try_compress(codec: CompressionCodec, data: ByteLike) -> bytes | None:
    """The compressed payload, or None if the buffer does not profit."""
    if len(data) < MIN_BYTES:
        return None
    packed = codec.compress(data)
    if len(packed) + _SIZE.size >= len(data):
        return None
    return b"".join((_SIZE.pack(len(data)), packed))


def decompress(codec: CompressionCodec, payload: ByteLike, limit: int) -> ByteLike:
    """The original bytes of a compressed payload; refuses sizes that no buffer can have had."""
    if len(payload) < _SIZE.size:
        raise ElementBroken(f"a compressed buffer of {len(payload)} bytes")
    (size,) = _SIZE.unpack_from(payload)
    if size > limit:
        raise ElementBroken(f"a compressed buffer claims {size} bytes, the limit is {limit}")
    try:
        data = codec.decompress(memoryview(payload)[_SIZE.size :], size)
    except Exception as error:
        raise ElementBroken(f"a buffer cannot be decompressed: {error}") from error
    if len(data) != size:
        raise ElementBroken(f"a buffer decompressed to {len(data)} bytes, not {size}")
    return data
