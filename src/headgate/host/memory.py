"""The arena's memory: anonymous, page-aligned, allocated once. Freed with its last view."""

import mmap

from headgate.base.errors import MemoryShort
from headgate.core.buffers.segment import PAGE_BYTES, Segment, cut_arena, stride_bytes


def allocate_arena(segment_bytes: int, count: int) -> list[Segment]:
    """All segments of a task manager; MemoryShort says what was asked for."""
    size = max(PAGE_BYTES, stride_bytes(segment_bytes) * count)
    try:
        memory = mmap.mmap(-1, size)
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        raise MemoryShort(required=size, allocated=0) from error
    return cut_arena(memoryview(memory), segment_bytes, count)
