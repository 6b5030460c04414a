"""Codecs from pyarrow, one for each compression that a setting may name."""

from headgate.base.elements import ByteLike
from headgate.base.settings import Compression
from headgate.core.exchange.compression import CompressionCodec

_NAMES = {Compression.LZ4: "lz4_raw", Compression.ZSTD: "zstd"}


class ArrowCodec:
    """LZ4 (raw blocks) or Zstandard."""

    def __init__(self, compression: Compression) -> None:
        import pyarrow  # noqa: PLC0415 - only who compresses pays for the import

        self._codec = pyarrow.Codec(_NAMES[compression])

    def compress(self, data: ByteLike) -> bytes:
        packed: bytes = self._codec.compress(data, asbytes=True)
        return packed

    def decompress(self, data: ByteLike, size: int) -> bytes:
        original: bytes = self._codec.decompress(data, decompressed_size=size, asbytes=True)
        return original


def make_codec(compression: Compression) -> CompressionCodec | None:
    """The codec for a setting, or None for no compression."""
    return None if compression is Compression.NONE else ArrowCodec(compression)
