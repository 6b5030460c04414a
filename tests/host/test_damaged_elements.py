"""Damaged data of a channel: whatever the bytes are, its reader gets elements or ElementBroken.

The frames around them are in tests/core/exchange/test_fuzz.py.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hypothesis import given
from hypothesis import strategies as st

from headgate.api.types.types import Types
from headgate.api.types.wires import TypedSerializer
from headgate.base.elements import (
    Bundle,
    Element,
    LatencyMarker,
    PickleSerializer,
    Serializer,
    StreamStatus,
    Watermark,
    encode_element,
)
from headgate.base.errors import ElementBroken
from headgate.base.events import CancelMarker, CheckpointBarrier, decode_event, encode_event
from headgate.base.settings import Compression
from headgate.core.buffers.buffer import Buffer
from headgate.core.exchange.compression import decompress, try_compress
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer
from headgate.host.net.exchange import make_codec

ROOM_BYTES = 1 << 30
"""Damaged pickles may ask for any amount of memory: more than this is refused to them."""

PICKLED = PickleSerializer()
TYPED = TypedSerializer(Types.TUPLE([Types.STRING(), Types.LIST(Types.LONG())]))
PAIRS = st.tuples(st.text(max_size=4), st.lists(st.integers(-9, 2**40), max_size=3))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)


def bundles(records: st.SearchStrategy[object]) -> st.SearchStrategy[Bundle]:
    def timed(lists: list[tuple[object, int | None]]) -> Bundle:
        return Bundle([record for record, _ in lists], [time for _, time in lists])

    times = st.none() | st.integers(0, 99)
    return st.lists(st.tuples(records, times), max_size=4).map(timed) | st.builds(
        Bundle, st.lists(records, max_size=4)
    )


MARKS: st.SearchStrategy[Element] = st.sampled_from(
    [Watermark(7), StreamStatus(active=False), LatencyMarker(1, 2, 3)]
)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Some bytes are others, some are gone, some came in between."""
    stream = bytearray(data)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(0, len(stream) - 1)))
        match draw(st.sampled_from(["flip", "flip", "set", "cut", "insert"])):
            case "flip" if stream:
                stream[at] ^= 1 << draw(st.integers(0, 7))
            case "set" if stream:
                stream[at] = draw(st.integers(0, 255))
            case "cut":
                del stream[at : at + draw(st.integers(1, 9))]
            case _:
                stream[at:at] = draw(st.binary(min_size=1, max_size=9))
    return bytes(stream)


@contextmanager
def little_room() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def read(stream: bytes, cuts: list[int], serializer: Serializer) -> None:
    """All that a task does with the buffers of a channel."""
    deserializer = Deserializer(serializer, max_element_bytes=1 << 20)
    turn = 0
    try:
        while stream:
            size = cuts[turn % len(cuts)]
            deserializer.feed(Buffer(stream[:size]))
            stream, turn = stream[size:], turn + 1
            result = DeserializationResult.MIDDLE
            while result is DeserializationResult.MIDDLE:
                result, element = deserializer.next()
                if isinstance(element, Bundle):
                    assert type(element.records) is list
                    assert element.timestamps is None or type(element.timestamps) is list
    except ElementBroken:
        pass
    finally:
        deserializer.close()


CUTS = st.lists(st.integers(1, 60), min_size=1, max_size=4)


@given(st.lists(bundles(VALUES) | MARKS, min_size=1, max_size=3), CUTS, st.data())
def test_damaged_pickles_are_elements_or_broken(
    elements: list[Element], cuts: list[int], data: st.DataObject
) -> None:
    stream = b"".join(
        bytes(part) for element in elements for part in encode_element(element, PICKLED)
    )
    with little_room():
        read(data.draw(damaged(stream)), cuts, PICKLED)


@given(st.lists(bundles(PAIRS) | MARKS, min_size=1, max_size=3), CUTS, st.data())
def test_damaged_typed_records_are_elements_or_broken(
    elements: list[Element], cuts: list[int], data: st.DataObject
) -> None:
    stream = b"".join(
        bytes(part) for element in elements for part in encode_element(element, TYPED)
    )
    with little_room():
        read(data.draw(damaged(stream)), cuts, TYPED)


@given(st.sampled_from([Compression.LZ4, Compression.ZSTD]), st.binary(min_size=1), st.data())
def test_damaged_compressed_buffers_are_bytes_or_broken(
    compression: Compression, piece: bytes, data: st.DataObject
) -> None:
    codec = make_codec(compression)
    assert codec is not None
    packed = try_compress(codec, (piece * 4096)[:4096]) or b""
    payload = data.draw(damaged(packed))
    with suppress(ElementBroken):
        assert len(decompress(codec, payload, 4096)) <= 4096


@given(
    st.sampled_from([CheckpointBarrier(1, 2, directory="/savepoints/é"), CancelMarker(7)]),
    st.data(),
)
def test_damaged_events_are_events_or_broken(
    event: CheckpointBarrier | CancelMarker, data: st.DataObject
) -> None:
    with suppress(ElementBroken):
        decode_event(data.draw(damaged(encode_event(event))))
