"""Each compression gives back what it was given, and broken bytes are a typed error."""

import random

import pytest

from headgate.base.errors import ElementBroken
from headgate.base.settings import Compression
from headgate.core.exchange.compression import decompress, try_compress
from headgate.host.net.exchange import make_codec

CODECS = [Compression.LZ4, Compression.ZSTD]


def test_no_compression_has_no_codec() -> None:
    assert make_codec(Compression.NONE) is None


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_data_comes_back_whole(compression: Compression, kind: type) -> None:
    codec = make_codec(compression)
    assert codec is not None
    data = b"the same words again and again " * 1000
    packed = try_compress(codec, kind(data))
    assert packed is not None
    assert len(packed) < len(data) / 10
    assert bytes(decompress(codec, memoryview(packed), len(data))) == data


@pytest.mark.parametrize("compression", CODECS)
def test_data_that_does_not_shrink_stays_as_it_is(compression: Compression) -> None:
    codec = make_codec(compression)
    assert codec is not None
    assert try_compress(codec, random.Random(3).randbytes(10_000)) is None
    assert try_compress(codec, b"short") is None


@pytest.mark.parametrize("compression", CODECS)
def test_broken_bytes_are_a_typed_error(compression: Compression) -> None:
    codec = make_codec(compression)
    assert codec is not None
    packed = try_compress(codec, b"word " * 1000)
    assert packed is not None
    chance = random.Random(4)
    for _ in range(200):
        broken = bytearray(packed)
        for _ in range(3):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        cut = broken[: chance.randrange(len(broken))]
        for payload in (broken, cut):
            try:
                data = decompress(codec, payload, 5000)
            except ElementBroken:
                continue
            assert len(data) <= 5000
    with pytest.raises(ElementBroken, match="limit"):
        decompress(codec, packed, 4999)


@pytest.mark.parametrize("compression", CODECS)
def test_a_buffer_that_claims_more_than_it_holds_is_a_typed_error(
    compression: Compression,
) -> None:
    """Arrow would fill up what is missing with whatever was in the memory of this process."""
    codec = make_codec(compression)
    assert codec is not None
    short = bytes(codec.compress(b"word " * 100))
    for claimed in (501, 600, 5000):
        with pytest.raises(ElementBroken):
            decompress(codec, claimed.to_bytes(4, "little") + short, 5000)
    assert bytes(decompress(codec, (500).to_bytes(4, "little") + short, 5000)) == b"word " * 100
