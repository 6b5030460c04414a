"""Buffers in flight as bytes: another deserializer goes on where the first one stood."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import (
    Bundle,
    Element,
    PickleSerializer,
    Watermark,
    encode_element,
)
from headgate.core.buffers.buffer import (
    Buffer,
    BufferBuilder,
    BufferConsumer,
    Lease,
    begun_bytes,
    buffer_bytes,
    bundle_bytes,
    waiting_bytes,
)
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer
from tests.arena import assert_all_home, plain_pool

PICKLE = PickleSerializer()


def elements_of(deserializer: Deserializer, data: bytes) -> list[Element]:
    """All that comes out when ``data`` goes in."""
    found: list[Element] = []
    if data:
        deserializer.feed(Buffer(data))
    result = DeserializationResult.MIDDLE
    while data and result is DeserializationResult.MIDDLE:
        result, element = deserializer.next()
        if element is not None:
            found.append(element)
    return found


def unread(deserializer: Deserializer) -> bytes:
    """What a deserializer holds: the begun element, then the rest of its buffer."""
    begun = begun_bytes(deserializer._length, deserializer._gathered, deserializer._missing)
    return begun + bytes(deserializer._view[deserializer._at :])


@given(
    st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=3), max_size=6),
    st.data(),
)
def test_unread_bytes_lead_on_from_any_place(
    bundles: list[list[bytes]], data: st.DataObject
) -> None:
    elements: list[Element] = [Bundle(list(records)) for records in bundles]
    elements.append(Watermark(7))
    stream = b"".join(part for element in elements for part in encode_element(element, PICKLE))
    cut = data.draw(st.integers(0, len(stream)))
    end = data.draw(st.integers(cut, len(stream)))
    first, second = Deserializer(PICKLE), Deserializer(PICKLE)
    before = elements_of(first, stream[:cut])
    if cut < end:
        first.feed(Buffer(stream[cut:end]))
        _, element = first.next()
        before += [element] if element is not None else []
    after = elements_of(second, unread(first) + stream[end:])
    assert before + after == elements
    first.close()
    assert second.is_between_elements


def test_records_handed_over_become_the_bytes_that_a_writer_would_have_written() -> None:
    bundle = Bundle([1, 2], [10, None])
    handed_over = Buffer(b"", bundle=bundle)
    assert elements_of(Deserializer(PICKLE), buffer_bytes(handed_over, PICKLE)) == [bundle]
    assert buffer_bytes(handed_over, PICKLE) == bundle_bytes(bundle, PICKLE)


def test_bytes_are_copied_before_the_segment_is_used_again() -> None:
    memory = bytearray(b"before")
    kept = buffer_bytes(Buffer(memoryview(memory)), PICKLE)
    memory[:] = b"later!"
    assert kept == b"before"


def test_waiting_bytes_are_those_between_reader_and_writer() -> None:
    pool = plain_pool(1)
    local = pool.create_pool("test", 1, 1)
    lease = local.try_request()
    assert isinstance(lease, Lease)
    builder = BufferBuilder(lease)
    consumer = builder.consumer()
    builder.append(memoryview(b"read"))
    read = consumer.build()
    assert read is not None
    builder.append(memoryview(b"waits"))
    assert waiting_bytes(consumer, PICKLE) == b"waits"
    rest = consumer.build()
    assert rest is not None and bytes(rest.view) == b"waits", "looking has moved the reader"
    assert waiting_bytes(consumer, PICKLE) == b""
    builder.finish()
    for held in (read, rest):
        held.release()
    consumer.close()
    assert_all_home(pool)


def test_waiting_bytes_of_a_complete_buffer_are_all_of_it_until_it_is_read() -> None:
    consumer = BufferConsumer.of(Buffer(b"stored"))
    assert waiting_bytes(consumer, PICKLE) == b"stored"
    consumer.build()
    assert waiting_bytes(consumer, PICKLE) == b""
