"""Compression of single buffers, only where it pays. Rows 46, 121."""

import zlib

import pytest

from headgate.base.elements import ByteLike
from headgate.base.errors import ElementBroken
from headgate.core.exchange.compression import MIN_BYTES, decompress, try_compress
from tests.core.exchange.kit import Deflate


class Padding:
    """A codec that makes everything ``by`` bytes shorter, or longer."""

    def __init__(self, by: int) -> None:
        self.by = by

    def compress(self, data: ByteLike) -> bytes:
        return bytes(len(data) - self.by)

    def decompress(self, data: ByteLike, size: int) -> bytes:
        return bytes(len(data) + self.by)


def test_buffer_comes_back_as_it_was() -> None:
    data = b"headgate " * 100
    packed = try_compress(Deflate(), data)
    assert packed is not None and len(packed) < len(data)
    assert decompress(Deflate(), packed, len(data)) == data


def test_small_buffer_is_not_tried() -> None:
    assert try_compress(Deflate(), bytes(MIN_BYTES - 1)) is None
    assert try_compress(Deflate(), bytes(MIN_BYTES)) is not None


@pytest.mark.parametrize(("gain", "profits"), [(-3, False), (4, False), (5, True)])
def test_buffer_that_does_not_become_smaller_goes_as_it_is(gain: int, profits: bool) -> None:
    assert (try_compress(Padding(gain), bytes(MIN_BYTES)) is not None) == profits


@pytest.mark.parametrize("size", range(4))
def test_payload_without_a_size_is_broken(size: int) -> None:
    with pytest.raises(ElementBroken, match=f"{size} bytes"):
        decompress(Deflate(), bytes(size), 64)


def test_payload_that_claims_more_than_a_segment_is_refused_before_it_is_expanded() -> None:
    class Bomb(Deflate):
        def decompress(self, data: ByteLike, size: int) -> bytes:
            raise AssertionError("it must not come to this")

    with pytest.raises(ElementBroken, match="claims 65 bytes, the limit is 64"):
        decompress(Bomb(), (65).to_bytes(4, "little") + b"x", 64)


def test_garbage_is_broken_with_the_codecs_reason() -> None:
    with pytest.raises(ElementBroken, match="cannot be decompressed") as caught:
        decompress(Deflate(), (10).to_bytes(4, "little") + b"garbage", 64)
    assert isinstance(caught.value.__cause__, zlib.error)


def test_payload_of_another_size_than_it_says_is_broken() -> None:
    packed = (11).to_bytes(4, "little") + zlib.compress(bytes(10))
    with pytest.raises(ElementBroken, match="to 10 bytes, not 11"):
        decompress(Deflate(), packed, 64)
