"""What waits in a channel, copied and decoded: in order, bounded, and never an error."""

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import (
    LENGTH,
    Bundle,
    Element,
    LatencyMarker,
    PickleSerializer,
    StreamStatus,
    Watermark,
    encode_element,
)
from headgate.base.errors import ElementBroken
from headgate.base.events import END_OF_PARTITION, CheckpointBarrier, encode_event
from headgate.core.buffers.buffer import Buffer
from headgate.core.exchange.compression import decompress, try_compress
from headgate.core.ingress.deserializer import Deserializer
from headgate.core.ingress.waiting import (
    LARGEST_ELEMENT_BYTES,
    Place,
    Undecoded,
    WaitingCopier,
    WaitingPiece,
    decode_waiting,
)
from tests.core.ingress.kit import CountingSpillRoom

BARRIER = CheckpointBarrier(3, 1234, unaligned=True)
SOME: list[Element] = [
    Bundle([1, "two", None]),
    Watermark(77),
    Bundle(["x", "y"], [5, None]),
    StreamStatus(False),
    LatencyMarker(1, 2, 3),
]


class Zlib:
    def compress(self, data: Any) -> bytes:
        return zlib.compress(data)

    def decompress(self, data: Any, size: int) -> bytes:
        return zlib.decompress(data)


class Unloadable:
    def __reduce__(self) -> tuple[Any, ...]:
        return exit, ()


def encoded(*elements: Element) -> bytes:
    return b"".join(
        prefix + bytes(body)
        for prefix, body in (encode_element(element, PickleSerializer()) for element in elements)
    )


def refuse(data: Any) -> Any:
    raise AssertionError("nothing is compressed")


def decoded(*pieces: WaitingPiece, complete: bool = True) -> list[tuple[Place, Any]]:
    return list(decode_waiting(pieces, PickleSerializer(), refuse, complete))


def pieces_of(data: bytes, cuts: list[int]) -> list[WaitingPiece]:
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)})
    starts = [0, *ends[:-1]]
    return [
        WaitingPiece(Place.ARRIVED, data[start:end])
        for start, end in zip(starts, ends, strict=True)
    ]


@given(st.lists(st.sampled_from(SOME), max_size=6), st.lists(st.integers(0, 500), max_size=6))
def test_elements_come_out_however_they_were_cut(elements: list[Element], cuts: list[int]) -> None:
    found = decoded(*pieces_of(encoded(*elements), cuts))
    assert [thing for _, thing in found] == elements


def test_an_element_has_the_place_where_it_begins_and_a_barrier_may_stand_within_it() -> None:
    data = encoded(Bundle(["first"]), Bundle(["second"]))
    found = decoded(
        WaitingPiece(Place.BEGUN, data[:9]),
        WaitingPiece(Place.ARRIVED, encode_event(BARRIER), is_event=True),
        WaitingPiece(Place.PRODUCER, data[9:]),
        WaitingPiece(Place.PRODUCER, bundle=Bundle(["third"])),
        WaitingPiece(Place.PRODUCER, encode_event(END_OF_PARTITION), is_event=True),
    )
    assert found == [
        (Place.ARRIVED, BARRIER),
        (Place.BEGUN, Bundle(["first"])),
        (Place.PRODUCER, Bundle(["second"])),
        (Place.PRODUCER, Bundle(["third"])),
        (Place.PRODUCER, END_OF_PARTITION),
    ]


def test_compressed_buffers_are_expanded() -> None:
    codec, data = Zlib(), encoded(Bundle(["long " * 100]))
    packed = try_compress(codec, data)
    assert packed is not None
    pieces = [WaitingPiece(Place.ARRIVED, packed, compressed=True)]

    def expand(payload: Any) -> Any:
        return decompress(codec, payload, 10_000)

    found = list(decode_waiting(pieces, PickleSerializer(), expand))
    assert found == [(Place.ARRIVED, Bundle(["long " * 100]))]

    def broken(payload: Any) -> Any:
        raise ElementBroken("no codec")

    found = list(decode_waiting(pieces, PickleSerializer(), broken))
    assert found == [(Place.ARRIVED, Undecoded("no codec"))]


def test_what_cannot_be_decoded_is_told_and_the_next_element_is_shown() -> None:
    bad = encoded(Bundle([Unloadable()]))
    (_, problem), *rest = decoded(WaitingPiece(Place.ARRIVED, bad + encoded(Watermark(1))))
    assert isinstance(problem, Undecoded)
    assert "SystemExit" in problem.problem
    assert rest == [(Place.ARRIVED, Watermark(1))]
    (_, event), *rest = decoded(WaitingPiece(Place.ARRIVED, b"?", is_event=True))
    assert isinstance(event, Undecoded)
    assert not rest


def test_a_stream_that_is_none_ends_the_answer() -> None:
    zero = LENGTH.pack(0) + bytes(9)
    found = decoded(WaitingPiece(Place.ARRIVED, zero), WaitingPiece(Place.ARRIVED, zero))
    assert found == [(Place.ARRIVED, Undecoded("an element of 0 bytes"))]


@pytest.mark.parametrize("cut", [5, 1000, LARGEST_ELEMENT_BYTES + 50])
def test_a_long_element_is_mentioned_and_skipped(cut: int) -> None:
    data = encoded(Bundle([bytes(LARGEST_ELEMENT_BYTES)]), Watermark(1))
    found = decoded(*pieces_of(data, [cut]))
    (_, problem), following = found
    assert isinstance(problem, Undecoded)
    assert "too long to be shown" in problem.problem
    assert following == (Place.ARRIVED, Watermark(1))


def test_an_element_whose_rest_has_not_arrived_is_told_unless_the_copy_was_cut() -> None:
    piece = WaitingPiece(Place.ARRIVED, encoded(Bundle(["much"]))[:9])
    ((place, problem),) = decoded(piece)
    assert place is Place.ARRIVED
    assert isinstance(problem, Undecoded)
    assert "the first 9 bytes of an element" in problem.problem
    assert decoded(piece, complete=False) == []


def test_a_copier_stops_at_its_limit_and_takes_no_later_buffer() -> None:
    copier = WaitingCopier(100)
    assert copier.copy(Buffer(bytes(60)), Place.ARRIVED)
    assert copier.complete
    assert not copier.copy(Buffer(bytes(60)), Place.ARRIVED)
    assert not copier.copy(Buffer(bytes(10)), Place.ARRIVED)
    assert not copier.complete
    assert [len(piece.data) for piece in copier.pieces] == [60]
    assert copier.copied_bytes == 60


@given(st.integers(0, 200))
def test_the_begun_element_is_copied_and_the_deserializer_goes_on_as_before(cut: int) -> None:
    data = encoded(Bundle(["a record", "another"]), Bundle(["the last"]))
    cut %= len(data)
    deserializer = Deserializer()
    seen: list[Any] = []
    if cut:
        deserializer.feed(Buffer(data[:cut]))
        seen = [deserializer.next()[1]]
    copier = WaitingCopier(10_000)
    deserializer.copy_begun(copier)
    rest = WaitingPiece(Place.ARRIVED, data[cut:])
    shown = [thing for _, thing in decoded(*copier.pieces, rest)]
    while not deserializer.is_between_elements and deserializer._buffer is not None:
        seen.append(deserializer.next()[1])
    deserializer.feed(Buffer(data[cut:]))
    while deserializer._buffer is not None:
        seen.append(deserializer.next()[1])
    elements = [element for element in seen if element is not None]
    assert elements == [Bundle(["a record", "another"]), Bundle(["the last"])]
    assert shown == elements[len(elements) - len(shown) :]


def test_a_begun_element_on_disk_is_skipped_and_not_read() -> None:
    room = CountingSpillRoom()
    deserializer = Deserializer(spill_room=room, spill_bytes=10)
    data = encoded(Bundle(["a record that is longer"]), Watermark(1))
    deserializer.feed(Buffer(data[:20]))
    deserializer.next()
    assert room.open_files == 1
    copier = WaitingCopier(10_000)
    deserializer.copy_begun(copier)
    assert not copier.complete
    (_, problem), following = decoded(*copier.pieces, WaitingPiece(Place.ARRIVED, data[20:]))
    assert isinstance(problem, Undecoded)
    assert following == (Place.ARRIVED, Watermark(1))
    deserializer.close()
    assert room.open_files == 0
