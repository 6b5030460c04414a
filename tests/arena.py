"""Pools on plain memory for tests, and the question that ends every one: is everything back?

Tests take the fixture `make_pool`; Hypothesis twins, which have no fixtures, call `plain_pool`
and end with `assert_all_home`.
"""

from headgate.core.buffers.buffer import Segment, cut_arena, stride_bytes
from headgate.core.buffers.global_pool import GlobalPool


def plain_segments(count: int, segment_bytes: int = 64) -> list[Segment]:
    """Segments of a bytearray."""
    memory = memoryview(bytearray(stride_bytes(segment_bytes) * count))
    return cut_arena(memory, segment_bytes, count)


def plain_pool(segments: int, segment_bytes: int = 64) -> GlobalPool:
    """A global pool on plain memory."""
    return GlobalPool(plain_segments(segments, segment_bytes))


def assert_all_home(pool: GlobalPool) -> None:
    """End the local pools that are left; then every segment lies on the shelf, and only once."""
    for local in list(pool.pools):
        local.destroy()
    pool.check()
    at_home = sorted(segment.index for segment in pool.free)
    assert at_home == list(range(pool.total)), (
        f"{len(at_home)} of {pool.total} segments are back: {at_home}; "
        f"{pool.claimed} are claimed, a reader or builder may hold the others"
    )
    assert pool.claimed == 0, f"{pool.claimed} segments are still claimed"
