"""The arena is cut once into equal, aligned pieces. Rows 37, 47."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.errors import MemoryShort
from headgate.core.buffers.buffer import PAGE_BYTES, cut_arena, stride_bytes


@pytest.mark.parametrize(
    ("segment_bytes", "stride"),
    [(1, 64), (64, 64), (65, 128), (4095, 4096), (4096, 4096), (4097, 8192), (32768, 32768)],
)
def test_small_segments_begin_at_cache_lines_and_large_ones_at_pages(
    segment_bytes: int, stride: int
) -> None:
    assert stride_bytes(segment_bytes) == stride


@given(st.integers(1, 3 * PAGE_BYTES), st.integers(0, 5))
def test_segments_have_the_asked_size_and_do_not_overlap(size: int, count: int) -> None:
    memory = memoryview(bytearray(stride_bytes(size) * count))
    segments = cut_arena(memory, size, count)
    assert [segment.index for segment in segments] == list(range(count))
    for segment in segments:
        assert len(segment.memory) == size
        segment.memory[:] = bytes([segment.index + 1]) * size
    for segment in segments:
        assert bytes(segment.memory) == bytes([segment.index + 1]) * size


def test_too_little_memory_is_refused_with_required_allocated_and_missing() -> None:
    with pytest.raises(MemoryShort) as caught:
        cut_arena(memoryview(bytearray(100)), 10, 3)
    error = caught.value
    assert (error.required, error.allocated, error.missing) == (192, 100, 92)


def test_a_segment_says_who_it_is() -> None:
    (segment,) = cut_arena(memoryview(bytearray(64)), 10, 1)
    assert repr(segment) == "<Segment 0, 10 bytes>"
