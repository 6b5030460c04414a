"""Elements survive their way to bytes and back; broken bytes are told apart. Rows 26, 30."""

import pickle
import struct
import sys
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import (
    LENGTH,
    PREFIX,
    RECORDS,
    TIMED_RECORDS,
    Bundle,
    Element,
    LatencyMarker,
    PickleSerializer,
    StreamStatus,
    Watermark,
    decode_element,
    encode_element,
)
from headgate.base.errors import ElementBroken
from headgate.base.fields import RecordFields, Same

PICKLE = PickleSerializer()
INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES = st.none() | st.integers() | st.text() | st.binary() | st.lists(st.integers())


@st.composite
def bundles(draw: st.DrawFn) -> Bundle:
    records = draw(st.lists(VALUES))
    times = st.lists(st.none() | INT64, min_size=len(records), max_size=len(records))
    return Bundle(records, draw(st.none() | times))


ELEMENTS = (
    bundles()
    | st.builds(Watermark, INT64)
    | st.builds(StreamStatus, st.booleans(), st.booleans(), st.booleans())
    | st.builds(LatencyMarker, INT64, INT64, st.integers(-(2**31), 2**31 - 1))
)


def as_bytes(element: Element) -> bytes:
    prefix, body = encode_element(element, PICKLE)
    return prefix + bytes(body)


@given(ELEMENTS)
def test_an_element_comes_back_as_it_went(element: Element) -> None:
    data = as_bytes(element)
    length, tag = PREFIX.unpack_from(data)
    assert length == len(data) - LENGTH.size
    decoded = decode_element(tag, memoryview(data)[PREFIX.size :], PICKLE)
    assert type(decoded) is type(element)
    assert decoded == element


@given(ELEMENTS, st.data())
def test_an_element_that_is_cut_off_is_broken(element: Element, data: st.DataObject) -> None:
    prefix, body = encode_element(element, PICKLE)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(ElementBroken, match=f"tag {prefix[-1]} and {cut} bytes"):
        decode_element(prefix[-1], memoryview(bytes(body))[:cut], PICKLE)


def test_the_records_of_a_bundle_can_be_replaced() -> None:
    bundle = Bundle.of_fields(RecordFields([["a"], Same(1)], 1))
    bundle.records = ["b", "c"]
    assert bundle.fields is None
    assert len(bundle) == 2
    bundle.records += ["d"]
    assert bundle == Bundle(["b", "c", "d"])


def test_untimed_and_timed_records_have_tags_of_their_own() -> None:
    assert encode_element(Bundle([1]), PICKLE)[0][-1] == RECORDS
    assert encode_element(Bundle([1], [None]), PICKLE)[0][-1] == TIMED_RECORDS
    assert encode_element(Bundle([], []), PICKLE)[0][-1] == TIMED_RECORDS


@pytest.mark.parametrize("tag", [0, 10, 255])
def test_a_tag_that_no_element_has_is_broken(tag: int) -> None:
    with pytest.raises(ElementBroken, match=f"no element has tag {tag}"):
        decode_element(tag, memoryview(b"12345678"), PICKLE)


def test_a_timed_bundle_of_the_wrong_shape_is_broken() -> None:
    body = pickle.dumps(([1], [2], [3]))
    with pytest.raises(ElementBroken, match="tag 2"):
        decode_element(TIMED_RECORDS, memoryview(body), PICKLE)


def test_the_error_keeps_its_cause() -> None:
    with pytest.raises(ElementBroken) as caught:
        decode_element(3, memoryview(b"123"), PICKLE)
    assert isinstance(caught.value.__cause__, struct.error)


def test_the_length_counts_bytes_even_if_a_serializer_answers_with_wider_items() -> None:
    class Wide:
        def dumps(self, records: object) -> memoryview:
            return memoryview(array("q", [1, 2, 3]))

        def loads(self, data: memoryview) -> list[int]:
            return list(data.cast("q"))

    prefix, body = encode_element(Bundle([1, 2, 3]), Wide())
    assert PREFIX.unpack(prefix) == (1 + 24, RECORDS)
    assert len(body) == 24
    assert decode_element(RECORDS, memoryview(bytes(body)), Wide()) == Bundle([1, 2, 3])


def test_one_pickler_serves_all_bundles_and_keeps_nothing_of_them() -> None:
    serializer = PickleSerializer()
    word = "the same object in two bundles"
    for records in ([(word, 1)], [(word, 2)], [b"x" * 200_000, word], []):
        data = serializer.dumps(records)
        assert data == pickle.dumps(records, 5)
        assert serializer.loads(memoryview(data)) == records


def test_a_pickler_survives_what_cannot_be_pickled() -> None:
    serializer = PickleSerializer()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        serializer.dumps([("a", 1), lambda: None])
    assert serializer.dumps(["b"]) == pickle.dumps(["b"], 5)


def test_a_very_large_bundle_leaves_a_fresh_pickler() -> None:
    serializer = PickleSerializer()
    before = serializer._pickler
    serializer.dumps([b"x" * (2 << 20)])
    assert serializer._pickler is not before
    assert serializer.dumps(["b"]) == pickle.dumps(["b"], 5)


def test_a_serializer_travels_to_another_process() -> None:
    serializer = pickle.loads(pickle.dumps(PickleSerializer()))
    assert serializer.loads(memoryview(serializer.dumps([1, 2]))) == [1, 2]


class Leaving:
    """Asks for the end of the process while it is read."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return sys.exit, (3,)


@pytest.mark.parametrize("held", [5, None, (1, 2), "abc", {"a": 1}, [Leaving()]])
def test_records_that_are_no_list_or_end_the_process_are_broken(held: object) -> None:
    body = memoryview(pickle.dumps(held, 5))
    with pytest.raises(ElementBroken, match="cannot be read"):
        decode_element(RECORDS, body, PickleSerializer())


@pytest.mark.parametrize("held", [([1], [2, 3]), ([1], None), ((1,), [1]), [1], ([1], [2], [3])])
def test_records_and_timestamps_that_do_not_fit_are_broken(held: object) -> None:
    body = memoryview(pickle.dumps(held, 5))
    with pytest.raises(ElementBroken, match="cannot be read"):
        decode_element(TIMED_RECORDS, body, PickleSerializer())
