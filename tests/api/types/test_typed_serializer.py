"""Typed serializers: what comes back is what went, and broken bytes are told."""

import math
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.types.types import TypeInformation
from headgate.api.types.wires import (
    FIELDS,
    PICKLED,
    PLAIN,
    TIMED,
    TIMED_FIELDS,
    TypedSerializer,
)
from headgate.base.elements import Bundle, Serializer, decode_element, encode_element
from headgate.base.errors import ElementBroken
from headgate.base.fields import RecordFields, Same
from headgate.common import Row, RowKind, Types
from tests.api.type_samples import alike, records_with_fields, typed_values

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])


def serializer_of(kind: TypeInformation) -> Serializer:
    found = kind.serializer()
    assert found is not None
    return found


def there_and_back(bundle: Bundle, kind: TypeInformation) -> Bundle:
    prefix, body = encode_element(bundle, serializer_of(kind))
    twin = pickle.loads(pickle.dumps(serializer_of(kind)))  # as it travels to the reader
    element = decode_element(prefix[-1], memoryview(bytes(body)), twin)
    assert isinstance(element, Bundle)
    return element


@given(st.data())
def test_records_come_back_as_they_went(data: st.DataObject) -> None:
    kind, values = data.draw(typed_values())
    records = data.draw(st.lists(values, max_size=5))
    times = st.lists(
        st.none() | st.integers(-(2**63), 2**63 - 1), min_size=len(records), max_size=len(records)
    )
    bundle = Bundle(records, data.draw(st.none() | times))
    found = there_and_back(bundle, kind)
    assert [alike(record) for record in found.records] == [alike(record) for record in records]
    assert found.timestamps == bundle.timestamps


@given(st.data())
def test_fields_come_back_as_they_went(data: st.DataObject) -> None:
    kind, records = data.draw(records_with_fields())
    fields = kind.fields_coercer().of_records(records)
    assert fields is not None
    fields.places = [
        Same(place[0]) if at and data.draw(st.booleans()) else place
        for at, place in enumerate(fields.places)
    ]
    expected = fields.copy().records()
    times = data.draw(st.sampled_from([None, [None, 7] * len(records)]))
    times = times and times[: len(records)]
    found = there_and_back(Bundle.of_fields(fields, times), kind)
    assert found.fields is not None and found.timestamps == times
    if found.fields.known_plain:
        assert RecordFields(found.fields.places, found.fields.count).are_plain()
    assert list(map(alike, found.records)) == list(map(alike, expected))


@pytest.mark.parametrize(
    "parts",
    [
        ([["a"], [1, 2]], [None, None]),
        ([None, None], ["a", 1]),
        ([["a"]], [None]),
        ([["a"], [1], [2]], [None] * 3),
        ([["a"], ["b"]], [None, None]),
        ([[1], [1]], [None, None]),
        ([["a"], [1.5]], [None, None]),
        ([["a"], [1]],),
        ([["a"], None], [None, "b"]),
    ],
)
def test_fields_of_other_kinds_or_lengths_are_broken(parts: Any) -> None:
    for kind in (PAIR, PERSON):
        body = FIELDS + msgspec.msgpack.encode(parts)
        timed = TIMED_FIELDS + msgspec.msgpack.encode([*parts, [1]])
        for tag, data in ((1, body), (2, timed), (1, timed), (2, body)):
            with pytest.raises(ElementBroken):
                decode_element(tag, memoryview(data), serializer_of(kind))
    for data in (FIELDS, FIELDS + b"\x92\x90\x90"):
        with pytest.raises(ElementBroken):
            decode_element(1, memoryview(data), serializer_of(Types.INT()))


def test_fields_with_more_or_fewer_times_are_broken() -> None:
    good = ([["a"], [1]], [None, None], [1])
    assert decode_element(
        2, memoryview(TIMED_FIELDS + msgspec.msgpack.encode(good)), serializer_of(PAIR)
    ) == Bundle([("a", 1)], [1])
    for times in ([], [1, 2], ["x"]):
        data = TIMED_FIELDS + msgspec.msgpack.encode([*good[:2], times])
        with pytest.raises(ElementBroken):
            decode_element(2, memoryview(data), serializer_of(PAIR))


@pytest.mark.parametrize("broken", [["a", "\ud800"], ["a", Row.of_kind(RowKind.DELETE, "x")]])
def test_fields_that_msgpack_cannot_write_are_written_as_records(broken: list[Any]) -> None:
    shape = PERSON.fields_coercer().shape
    bundle = Bundle.of_fields(RecordFields([broken, [1, 2]], 2, None, shape))
    expected = bundle.copy().records
    prefix, body = encode_element(bundle, serializer_of(PERSON))
    assert bytes(body)[:1] == PICKLED and bundle.fields is None
    found = decode_element(prefix[-1], memoryview(bytes(body)), serializer_of(PERSON))
    assert alike(found.records) == alike(expected)  # type: ignore[union-attr]


@given(st.data())
def test_bytes_that_were_cut_off_are_broken(data: st.DataObject) -> None:
    kind, values = data.draw(typed_values())
    records = data.draw(st.lists(values, max_size=3))
    prefix, body = encode_element(Bundle(records, [1] * len(records)), serializer_of(kind))
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(ElementBroken):
        decode_element(prefix[-1], memoryview(bytes(body))[:cut], serializer_of(kind))


@pytest.mark.parametrize(
    "body", [b"", b"\x07", PLAIN + b"\xa1x", PLAIN + b"\x91\xa1x", TIMED + b"\x90", PICKLED + b"x"]
)
def test_bytes_of_something_else_are_broken(body: bytes) -> None:
    with pytest.raises(ElementBroken):
        decode_element(1, memoryview(body), serializer_of(Types.INT()))


@pytest.mark.parametrize(
    ("kind", "records", "how"),
    [
        (Types.INT(), [1, -2], PLAIN),
        (Types.DOUBLE(), [-0.0, math.inf], PLAIN),
        (PAIR, [("a", None), (None, 1)], PLAIN),
        (PERSON, [Row("name", "age")("Ada", None)], FIELDS),
        (Types.STRING(), ["\0", "\x80", "𐍈"], PLAIN),
        (Types.STRING(), ["a", "\ud800"], PICKLED),
        (Types.BIG_INT(), [2**64], PICKLED),
        (Types.BIG_INT(), [2**64 - 1], PLAIN),
        (PERSON, [PERSON.coerced(Row.of_kind(RowKind.DELETE, "Ada", 1))], PICKLED),
        (Types.LIST(PERSON), [[PERSON.coerced(Row.of_kind(RowKind.DELETE, "A", 1))]], PICKLED),
    ],
)
def test_what_msgpack_cannot_write_is_pickled(
    kind: TypeInformation, records: list[Any], how: bytes
) -> None:
    serializer = serializer_of(kind)
    data = serializer.dumps(records)
    assert data[:1] == how
    found = serializer.loads(memoryview(data))
    assert alike(found.records() if how == FIELDS else found) == alike(records)


def test_types_with_any_object_inside_are_left_to_pickle() -> None:
    for kind in (
        Types.PICKLED_BYTE_ARRAY(),
        Types.TUPLE([Types.INT(), Types.PICKLED_BYTE_ARRAY()]),
        Types.ROW([Types.LIST(Types.PICKLED_BYTE_ARRAY())]),
        Types.MAP(Types.STRING(), Types.PICKLED_BYTE_ARRAY()),
    ):
        assert kind.serializer() is None


def test_records_do_not_refer_to_the_bytes() -> None:
    kind = Types.PRIMITIVE_ARRAY(Types.BYTE())
    data = bytearray(serializer_of(kind).dumps([b"abc"]))
    found = serializer_of(kind).loads(memoryview(data))
    data[:] = bytes(len(data))
    assert found == [b"abc"]


def test_a_serializer_travels_as_its_type() -> None:
    twin = pickle.loads(pickle.dumps(serializer_of(PERSON)))
    assert isinstance(twin, TypedSerializer) and twin.kind == PERSON
