"""The arena: all exchange memory of a task manager, cut once into segments of equal size.

Segments begin on a page boundary (64 bytes for ones smaller than a page), because copies to
addresses that are not aligned are many times slower. The memory itself comes from the driver.
"""

from typing import Final

from headgate.base.errors import MemoryShort

PAGE_BYTES: Final = 4096
_LINE_BYTES: Final = 64


class Segment:
    """One piece of the arena. Who holds the object may write to its memory."""

    __slots__ = ("index", "memory")

    def __init__(self, index: int, memory: memoryview) -> None:
        self.index = index
        self.memory = memory

    def __repr__(self) -> str:
        return f"<Segment {self.index}, {len(self.memory)} bytes>"


def stride_bytes(segment_bytes: int) -> int:
    """How far apart segments begin in the arena."""
    unit = PAGE_BYTES if segment_bytes >= PAGE_BYTES else _LINE_BYTES
    return -(-segment_bytes // unit) * unit


def cut_arena(memory: memoryview, segment_bytes: int, count: int) -> list[Segment]:
    """Cut page-aligned memory into ``count`` segments; says what is missing if it is too small."""
    stride = stride_bytes(segment_bytes)
    if len(memory) < stride * count:
        raise MemoryShort(required=stride * count, allocated=len(memory))
    return [
        Segment(index, memory[index * stride : index * stride + segment_bytes])
        for index in range(count)
    ]
