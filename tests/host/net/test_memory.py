"""The arena is aligned, cut without overlap, and refused in full when it is too large."""

import ctypes
from itertools import pairwise

import pytest

from headgate.base.errors import MemoryShort
from headgate.host.net.exchange import allocate_arena


@pytest.mark.parametrize(
    ("segment_bytes", "alignment"),
    [(37, 64), (64, 64), (4095, 64), (4096, 4096), (5000, 4096), (32768, 4096)],
)
def test_segments_begin_where_copies_are_fast(segment_bytes: int, alignment: int) -> None:
    segments = allocate_arena(segment_bytes, 5)
    assert [segment.index for segment in segments] == [0, 1, 2, 3, 4]
    addresses = [
        ctypes.addressof(ctypes.c_char.from_buffer(segment.memory)) for segment in segments
    ]
    assert all(address % alignment == 0 for address in addresses)
    assert all(len(segment.memory) == segment_bytes for segment in segments)
    for near, far in pairwise(addresses):
        assert far - near >= segment_bytes


def test_segments_are_writable_and_apart() -> None:
    segments = allocate_arena(100, 3)
    for segment in segments:
        segment.memory[:] = bytes([segment.index + 1]) * 100
    for number, segment in enumerate(segments, 1):
        assert bytes(segment.memory) == bytes([number]) * 100


@pytest.mark.parametrize("count", [1 << 40, 1 << 60, 1 << 70])
def test_an_arena_that_does_not_fit_is_refused_with_the_sum(count: int) -> None:
    with pytest.raises(MemoryShort) as caught:
        allocate_arena(32768, count)
    error = caught.value
    assert (error.required, error.allocated, error.missing) == (32768 * count, 0, 32768 * count)
    assert str(32768 * count) in str(error)


def test_no_segments_is_an_arena_too() -> None:
    assert allocate_arena(4096, 0) == []
