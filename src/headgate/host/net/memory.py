"""The memory of a task manager: its arena, and how often Python looks for what is left of objects.

The arena is anonymous, page-aligned, allocated once, and freed with its last view.
"""

import gc
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for cyclic garbage less often: streams make many short-lived tuples.

    What is loaded already is not looked at again; cycles are still found, after more allocations.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
