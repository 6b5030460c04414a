"""One element into any number of buffers, byte for byte. Rows 25-28."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.buffers.buffer import BufferBuilder, Lease, Segment
from headgate.core.egress.writer import SerializationResult, SpanningSerializer
from tests.arena import plain_segments


class Nowhere:
    """A home that keeps nothing."""

    def segment_returned(self, segment: Segment) -> None: ...


def builder_of(size: int) -> BufferBuilder:
    return BufferBuilder(Lease(plain_segments(1, size)[0], Nowhere()))


def content(builder: BufferBuilder) -> bytes:
    return bytes(builder.memory[: builder.committed])


@pytest.mark.parametrize(
    ("size", "result", "copied"),
    [
        (8, SerializationResult.WHOLE, b"prebody"),
        (7, SerializationResult.WHOLE_AND_FULL, b"prebody"),
        (6, SerializationResult.PART_AND_FULL, b"prebod"),
        (3, SerializationResult.PART_AND_FULL, b"pre"),
        (2, SerializationResult.PART_AND_FULL, b"pr"),
    ],
)
def test_a_copy_says_how_far_it_came(size: int, result: SerializationResult, copied: bytes) -> None:
    serializer, builder = SpanningSerializer(), builder_of(size)
    serializer.begin(b"pre", b"body")
    assert serializer.copy_to(builder) is result
    assert content(builder) == copied
    assert serializer.has_rest == (result is SerializationResult.PART_AND_FULL)


def test_an_element_without_a_body_is_its_prefix() -> None:
    serializer, builder = SpanningSerializer(), builder_of(3)
    serializer.begin(b"pre", b"")
    assert serializer.copy_to(builder) is SerializationResult.WHOLE_AND_FULL
    assert content(builder) == b"pre"


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.binary(max_size=40)), max_size=8),
    st.integers(1, 50),
)
def test_buffers_hold_the_elements_one_after_the_other(
    elements: list[tuple[bytes, bytes]], size: int
) -> None:
    serializer = SpanningSerializer()
    builders = [builder_of(size)]
    for prefix, body in elements:
        serializer.begin(prefix, body)
        while serializer.copy_to(builders[-1]) is SerializationResult.PART_AND_FULL:
            builders.append(builder_of(size))
        if builders[-1].is_full:
            builders.append(builder_of(size))
    assert b"".join(map(content, builders)) == b"".join(map(b"".join, elements))
    assert all(builder.is_full for builder in builders[:-1])


def test_an_element_may_not_begin_before_the_last_is_complete() -> None:
    serializer = SpanningSerializer()
    serializer.begin(b"pre", b"body")
    serializer.copy_to(builder_of(5))
    with pytest.raises(AssertionError, match="before the last one was complete"):
        serializer.begin(b"pre", b"body")


def test_pruning_lets_go_of_the_bytes() -> None:
    body = bytearray(b"body")
    serializer = SpanningSerializer()
    serializer.begin(b"pre", body)
    with pytest.raises(BufferError):
        body.clear()  # still looked at
    serializer.prune()
    body.clear()
    assert not serializer.has_rest
    serializer.begin(b"pre", b"next")
