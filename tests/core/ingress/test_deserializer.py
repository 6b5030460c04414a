"""The deserializer: elements come out as they went in, however cut. Rows 29, 30, 155."""

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
from headgate.base.errors import ElementBroken, ElementTooLarge
from headgate.core.buffers.buffer import Buffer
from headgate.core.ingress.deserializer import DeserializationResult, Deserializer
from tests.core.ingress.kit import CountingSpillRoom


class Counted(Buffer):
    """A buffer that knows how often it was released."""

    releases: int = 0

    def release(self) -> None:
        self.releases += 1


def encoded(*elements: Element) -> bytes:
    return b"".join(
        prefix + bytes(body)
        for prefix, body in (encode_element(element, PickleSerializer()) for element in elements)
    )


def read(
    deserializer: Deserializer, data: bytes
) -> list[tuple[DeserializationResult, Element | None]]:
    """Feed one buffer and read it to its end, as a task does."""
    buffer = Counted(data)
    deserializer.feed(buffer)
    seen = []
    while True:
        result, element = deserializer.next()
        seen.append((result, element))
        assert (element is None) == (result is DeserializationResult.PART)
        if result is not DeserializationResult.MIDDLE:
            assert buffer.releases == 1
            return seen


def elements_of(seen: list[tuple[DeserializationResult, Element | None]]) -> list[Element]:
    return [element for _, element in seen if element is not None]


A, B = Bundle([1, "two", None]), Watermark(77)
SOME: list[Element] = [
    A,
    B,
    Bundle(["x"], [5]),
    Bundle(["x", "y"], [5, None]),
    StreamStatus(False),
    LatencyMarker(1, 2, 3),
    Bundle([]),
]


def test_results_tell_middle_last_and_part() -> None:
    data = encoded(A, B, A)
    deserializer = Deserializer()
    assert read(deserializer, data[:-1]) == [
        (DeserializationResult.MIDDLE, A),
        (DeserializationResult.MIDDLE, B),
        (DeserializationResult.PART, None),
    ]
    assert read(deserializer, data[-1:]) == [(DeserializationResult.LAST, A)]
    assert read(deserializer, encoded(A)) == [(DeserializationResult.LAST, A)]


def test_result_of_a_spanning_element_tells_whether_the_buffer_holds_more() -> None:
    data = encoded(A, B)
    deserializer = Deserializer()
    read(deserializer, data[:3])
    assert read(deserializer, data[3:]) == [
        (DeserializationResult.MIDDLE, A),
        (DeserializationResult.LAST, B),
    ]


def test_elements_survive_a_cut_at_every_byte() -> None:
    data = encoded(*SOME)
    for cut in range(1, len(data)):
        deserializer = Deserializer()
        got = elements_of(read(deserializer, data[:cut])) + elements_of(
            read(deserializer, data[cut:])
        )
        assert got == SOME, f"cut at {cut}"


@given(
    st.lists(st.lists(st.integers() | st.text(max_size=20), max_size=4), max_size=5),
    st.lists(st.integers(1, 40), min_size=1),
    st.integers(1, 60),
)
def test_records_survive_any_cut_with_and_without_spilling(
    bundles: list[list[object]], cuts: list[int], spill_bytes: int
) -> None:
    room = CountingSpillRoom()
    deserializer = Deserializer(spill_room=room, spill_bytes=spill_bytes)
    data = encoded(*(Bundle(records) for records in bundles))
    got, at, turn = list[Element](), 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        got += elements_of(read(deserializer, data[at : at + size]))
        at, turn = at + size, turn + 1
    assert [element.records for element in got if isinstance(element, Bundle)] == bundles
    assert room.open_files == 0 and deserializer.is_between_elements


def test_empty_buffer_is_used_up_at_once() -> None:
    assert read(Deserializer(), b"") == [(DeserializationResult.PART, None)]


def test_without_a_buffer_there_is_nothing() -> None:
    assert Deserializer().next() == (DeserializationResult.PART, None)


def test_next_buffer_before_the_last_is_used_up_is_a_bug() -> None:
    deserializer = Deserializer()
    deserializer.feed(Buffer(encoded(A, B)))
    with pytest.raises(AssertionError, match="not used up"):
        deserializer.feed(Buffer(b""))


def test_large_spanning_element_is_gathered_on_disk_and_its_file_goes() -> None:
    room, big = CountingSpillRoom(), Bundle(["x" * 500])
    deserializer = Deserializer(spill_room=room, spill_bytes=100)
    data = encoded(big)
    read(deserializer, data[:200])
    assert (room.opened, room.open_files) == (1, 1)
    assert elements_of(read(deserializer, data[200:])) == [big]
    assert (room.opened, room.open_files) == (1, 0)


def test_element_at_the_limit_and_element_within_one_buffer_are_not_spilled() -> None:
    room, element = CountingSpillRoom(), Bundle(["x" * 500])
    data = encoded(element)
    whole = Deserializer(spill_room=room, spill_bytes=1)
    assert elements_of(read(whole, data)) == [element]
    spanning = Deserializer(spill_room=room, spill_bytes=len(data) - LENGTH.size)
    read(spanning, data[:9])
    assert elements_of(read(spanning, data[9:])) == [element]
    assert room.opened == 0


def test_without_a_room_large_elements_stay_in_memory() -> None:
    deserializer, big = Deserializer(spill_bytes=10), Bundle(["x" * 500])
    data = encoded(big)
    read(deserializer, data[:100])
    assert elements_of(read(deserializer, data[100:])) == [big]


@pytest.mark.parametrize("cut", [4, 6, 30])
def test_element_above_the_limit_is_refused_with_its_size(cut: int) -> None:
    data = encoded(Bundle(["x" * 100]))
    deserializer = Deserializer(max_element_bytes=50)
    deserializer.feed(Buffer(data[:cut]))
    with pytest.raises(ElementTooLarge) as caught:
        deserializer.next()
    assert (caught.value.size, caught.value.limit) == (len(data) - 4, 50)


def test_huge_length_is_refused_before_memory_is_taken_for_it() -> None:
    room = CountingSpillRoom()
    deserializer = Deserializer(spill_room=room, max_element_bytes=50)
    deserializer.feed(Buffer(LENGTH.pack(2**32 - 1)))
    with pytest.raises(ElementTooLarge):
        deserializer.next()
    assert room.opened == 0


@pytest.mark.parametrize(
    "data",
    [
        LENGTH.pack(0),
        LENGTH.pack(0) + b"more",
        LENGTH.pack(2) + b"\x09x",
        LENGTH.pack(3) + b"\x03xy",
        LENGTH.pack(5) + b"\x01junk",
        LENGTH.pack(1) + b"\x00",
    ],
)
@pytest.mark.parametrize("size", [1, 100])
def test_broken_bytes_are_an_error_and_close_gives_the_buffer_back(data: bytes, size: int) -> None:
    deserializer = Deserializer()
    buffers = [Counted(data[at : at + size]) for at in range(0, len(data), size)]

    def read_on() -> None:
        for buffer in buffers:
            deserializer.feed(buffer)
            while deserializer.next()[0] is DeserializationResult.MIDDLE:
                pass

    with pytest.raises(ElementBroken):
        read_on()
    deserializer.close()
    fed = [buffer.releases for buffer in buffers]
    assert set(fed) <= {0, 1} and fed == sorted(fed, reverse=True) and fed[0] == 1


def test_broken_spilled_element_closes_its_file() -> None:
    room = CountingSpillRoom()
    deserializer = Deserializer(spill_room=room, spill_bytes=5)
    read(deserializer, LENGTH.pack(20) + b"\x01")
    deserializer.feed(Buffer(bytes(19)))
    with pytest.raises(ElementBroken):
        deserializer.next()
    assert room.open_files == 0


def test_close_drops_what_is_begun_and_is_idempotent() -> None:
    room = CountingSpillRoom()
    deserializer = Deserializer(spill_room=room, spill_bytes=5)
    data, buffer = encoded(Bundle(["x" * 50])), Counted(b"never read")
    read(deserializer, data[:10])
    assert not deserializer.is_between_elements
    deserializer.feed(buffer)
    deserializer.close()
    deserializer.close()
    assert room.open_files == 0 and buffer.releases == 1
    assert deserializer.is_between_elements


def test_other_serializers_are_used_for_records() -> None:
    class Upper:
        def dumps(self, records: object) -> bytes:
            raise AssertionError

        def loads(self, data: memoryview) -> list[str]:
            return [bytes(data).decode().upper()]

    deserializer = Deserializer(Upper())  # type: ignore[arg-type]
    assert read(deserializer, LENGTH.pack(4) + b"\x01abc") == [
        (DeserializationResult.LAST, Bundle(["ABC"]))
    ]


@pytest.mark.parametrize("size", [1, 1000])
def test_records_are_counted_whole_or_spanning(size: int) -> None:
    """Row 172."""
    deserializer = Deserializer()
    data = encoded(Bundle([1, 2, 3]), Watermark(5), Bundle(["x"], [6]))
    for start in range(0, len(data), size):
        read(deserializer, data[start : start + size])
    assert deserializer.records_in == 4


# What is on its way in it.


def flat(elements: list[Element]) -> list[object]:
    """Records one by one: a bundle may be cut in two by a restore."""
    return [
        record
        for element in elements
        for record in (element.records if isinstance(element, Bundle) else [element])
    ]


@given(
    records=st.lists(st.binary(max_size=60), min_size=1, max_size=6),
    size=st.integers(1, 80),
    reads=st.integers(0, 30),
    spill=st.booleans(),
)
def test_what_was_not_read_goes_on_in_a_fresh_deserializer(
    records: list[bytes], size: int, reads: int, spill: bool
) -> None:
    data = encoded(*(Bundle([record]) for record in records))
    cuts = [data[at : at + size] for at in range(0, len(data), size)]
    room = CountingSpillRoom()
    first = Deserializer(spill_room=room if spill else None, spill_bytes=20)
    second = Deserializer()
    got: list[Element] = []
    result = DeserializationResult.LAST
    while reads and (cuts or result is DeserializationResult.MIDDLE):
        reads -= 1
        if result is not DeserializationResult.MIDDLE:
            first.feed(Buffer(cuts.pop(0)))
        result, element = first.next()
        got += [] if element is None else [element]
    unread = first.unread()
    assert unread == first.unread(), "asking changes nothing"
    for part in [unread, *cuts]:
        got += elements_of(read(second, part)) if part else []
    assert flat(got) == records
    assert second.is_between_elements
    first.close()
    assert room.open_files == 0


def test_begun_element_and_the_buffer_behind_it_are_unread_together() -> None:
    data = encoded(Bundle([b"spans two buffers"]))
    deserializer = Deserializer()
    deserializer.feed(Buffer(data[:9]))
    assert deserializer.next() == (DeserializationResult.PART, None)
    deserializer.feed(Buffer(data[9:]))
    assert deserializer.unread() == data
    deserializer.close()


def test_records_by_reference_that_were_not_read_become_bytes() -> None:
    deserializer = Deserializer()
    deserializer.feed(Buffer(b"", bundle=Bundle([1, 2], [3, None])))
    assert deserializer.unread() == encoded(Bundle([1, 2], [3, None]))
    assert deserializer.next() == (DeserializationResult.LAST, Bundle([1, 2], [3, None]))
    assert deserializer.unread() == b""
