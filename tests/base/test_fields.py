"""Tuples that are taken apart are the same tuples when they are put together. Row 26."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.base.elements import (
    FIELDS,
    RECORDS,
    TIMED_FIELDS,
    TIMED_RECORDS,
    Bundle,
    PickleSerializer,
    decode_element,
    encode_element,
)
from headgate.base.errors import ElementBroken
from headgate.base.fields import RecordFields, Same
from tests.base.kit import apart, bundles_apart

PICKLE = PickleSerializer()


def as_seen(bundle: Bundle) -> tuple[str, Any]:
    """With kinds and signs, which equality would pass over."""
    return repr(bundle.records), bundle.timestamps


def decoded(bundle: Bundle) -> tuple[int, Bundle]:
    prefix, body = encode_element(bundle, PICKLE)
    element = decode_element(prefix[-1], memoryview(bytes(body)), PICKLE)
    assert isinstance(element, Bundle)
    return prefix[-1], element


@given(bundles_apart(), st.integers(0, 9), st.integers(0, 9))
def test_a_part_of_the_fields_is_that_part_of_the_tuples(
    bundle: Bundle, start: int, length: int
) -> None:
    part = bundle.part(start, start + length)
    assert part.fields is not None
    assert len(part) == len(part.copy().records) == len(bundle.records[start : start + length])
    assert as_seen(part) == as_seen(Bundle(*_rows(bundle)).part(start, start + length))


@given(bundles_apart(timed=True), bundles_apart(timed=True))
def test_added_fields_are_added_tuples(first: Bundle, second: Bundle) -> None:
    rows = Bundle(*_rows(first))
    rows.add(Bundle(*_rows(second)))
    whole, before = first.copy(), as_seen(second.copy())
    whole.add(second.copy())
    assert len(whole) == len(rows)
    assert as_seen(whole) == as_seen(rows)
    assert as_seen(second) == before


def test_a_copy_is_not_changed_with_its_original() -> None:
    bundle = Bundle.of_fields(RecordFields([["a"], Same(1)], 1), [5])
    copy = bundle.copy()
    bundle.add(Bundle.of_fields(RecordFields([["b"], Same(2)], 1), [6]))
    assert copy == Bundle([("a", 1)], [5])
    assert bundle == Bundle([("a", 1), ("b", 2)], [5, 6])


@given(bundles_apart())
def test_fields_come_back_as_they_went(bundle: Bundle) -> None:
    before = as_seen(bundle.copy())
    tag, after = decoded(bundle)
    assert as_seen(after) == before
    expected = (FIELDS, RECORDS) if bundle.timestamps is None else (TIMED_FIELDS, TIMED_RECORDS)
    assert tag in expected


def test_plain_tuples_go_apart_and_stay_so() -> None:
    bundle = Bundle.of_fields(RecordFields([["a", "b"], Same(1), [None, b"x"]], 2), [7, None])
    tag, after = decoded(bundle)
    assert tag == TIMED_FIELDS
    assert after.fields is not None and after.fields.are_plain()
    assert after == Bundle([("a", 1, None), ("b", 1, b"x")], [7, None])


def test_fields_are_written_as_the_protocol_says() -> None:
    prefix, body = encode_element(Bundle.of_fields(RecordFields([["a", "b"], Same(1)], 2)), PICKLE)
    assert (prefix + body).hex() == "0c00000006929292a161a162c092c001"


class Word(str):
    """MessagePack would make a plain text of it."""


@pytest.mark.parametrize(
    "item", [Word("a"), 2**64, -(2**63) - 1, "\ud800", ("a",), ["a"], 1j, {"a": 1}, math.inf]
)
@pytest.mark.parametrize("same", [False, True])
def test_what_only_pickle_gives_back_goes_as_tuples(item: object, same: bool) -> None:
    place = Same(item) if same else ["x", item]
    tag, after = decoded(Bundle.of_fields(RecordFields([[1, 2], place], 2)))
    assert tag == (FIELDS if item == math.inf else RECORDS)
    assert after.records == [(1, item), (2, item)] if same else [(1, "x"), (2, item)]
    assert type(after.records[-1][1]) is type(item)


class Moment(int):
    """A time of a source's own."""


@pytest.mark.parametrize("time", [Moment(5), True, 5.0])
def test_times_that_are_no_plain_numbers_come_back_as_they_went(time: Any) -> None:
    tag, after = decoded(Bundle.of_fields(RecordFields([["a"], Same(1)], 1), [time]))
    assert tag == TIMED_RECORDS
    assert after == Bundle([("a", 1)], [time])
    assert after.timestamps is not None and type(after.timestamps[0]) is type(time)


def test_a_serializer_of_a_declared_type_gets_tuples() -> None:
    class Reversed(PickleSerializer):
        pass

    bundle = Bundle.of_fields(RecordFields([["a"], Same(1)], 1))
    assert encode_element(bundle, Reversed())[0][-1] == RECORDS


@pytest.mark.parametrize(
    "form",
    [
        [[["a"], [1, 2]], [None, None]],
        [[["a"]], [None], [1]],
        [[None], [1]],
        [[], []],
        [[["a"]], []],
        [["ab"], [None]],
        [5, [None]],
        [[["a"]]],
        [[["a", ["b"]]], [None]],
        [[["a"], None], [None, [1]]],
        [[["a"]], {}],
        {"a": 1},
        7,
    ],
)
def test_fields_that_do_not_fit_together_are_broken(form: object) -> None:
    with pytest.raises(ElementBroken, match="tag 6"):
        decode_element(FIELDS, memoryview(msgspec.msgpack.encode(form)), PICKLE)


@pytest.mark.parametrize("times", [[], [[1, 2]], [None], [5], [[1], [1]]])
def test_times_that_do_not_fit_the_fields_are_broken(times: list[object]) -> None:
    body = msgspec.msgpack.encode([[["a"]], [None], *times])
    with pytest.raises(ElementBroken, match="tag 7"):
        decode_element(TIMED_FIELDS, memoryview(body), PICKLE)


def test_what_is_known_of_fields_holds_for_their_parts_and_no_longer() -> None:
    fields = apart([("a", 1), ("b", 2)])
    assert fields.known_plain is None
    assert fields.are_plain()
    assert fields.part(0, 1).known_plain
    fields.add(apart([("c", [3])]))
    assert not fields.are_plain()
    assert fields.part(0, 1).are_plain()


def _rows(bundle: Bundle) -> tuple[list[Any], list[int | None] | None]:
    copy = bundle.copy()
    return copy.records, copy.timestamps
