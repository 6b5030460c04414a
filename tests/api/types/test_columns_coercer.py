"""Coercion by columns gives the fields of what coercion gives, or leaves the records to it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.row import names_of, values_of
from headgate.api.types.coercion import ColumnsCoercer
from headgate.api.types.types import TypeInformation
from headgate.base.fields import TUPLES, Place, RecordFields, Same
from headgate.base.shapes import field_shape
from headgate.common import Row, RowKind, Types
from tests.api.type_samples import alike, records_with_fields

PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])

ODD = st.sampled_from(
    [
        True,
        np.int64(5),
        1.5,
        2**40,
        "a",
        None,
        [1],
        b"a",
        -0.0,
        float("nan"),
        np.str_("b"),
        ("a", 1),
    ]
)


def coercer_of(kind: TypeInformation) -> ColumnsCoercer:
    found = kind.fields_coercer()
    assert found is not None
    return found


def expected_of(kind: TypeInformation, records: list[Any]) -> list[Any] | None:
    try:
        return list(map(alike, kind.coercer()(records)))
    except TypeError:
        return None


def changed(record: Any, draw: Any) -> Any:
    """The same record in another form, or with another value."""
    values, names = [*record], names_of(record) if isinstance(record, Row) else None
    if draw(st.booleans()):
        values[draw(st.integers(0, len(values) - 1))] = draw(ODD)
    how = draw(st.integers(0, 7))
    if how < 2 or names is None:
        return values if how == 7 else tuple(values) if names is None or how == 1 else Row(*values)
    pairs = dict(zip(names, values, strict=True))
    turned = dict(reversed(pairs.items()))
    if how in (2, 3):
        return Row(**turned)
    if how == 4:
        return Row.of_kind(RowKind.DELETE, **pairs)
    return turned if how == 5 else Row(**pairs)


@given(st.data())
def test_records_that_fit_are_taken_apart(data: st.DataObject) -> None:
    kind, records = data.draw(records_with_fields())
    fields = coercer_of(kind).of_records(records)
    assert fields is not None and fields.count == len(records)
    assert (fields.shape, len(fields.places)) == (coercer_of(kind).shape, coercer_of(kind).count)
    assert list(map(alike, fields.records())) == expected_of(kind, records)


@given(st.data())
def test_columns_are_coerced_as_records_are_or_left_to_them(data: st.DataObject) -> None:
    kind, records = data.draw(records_with_fields())
    records = [changed(record, data.draw) for record in records]
    before = list(map(alike, records))
    fields = coercer_of(kind).of_records(records)
    assert list(map(alike, records)) == before
    if fields is not None:
        assert list(map(alike, fields.records())) == expected_of(kind, records)


@given(st.data())
def test_fields_of_every_shape_are_coerced_as_their_records_are(data: st.DataObject) -> None:
    kind, records = data.draw(records_with_fields())
    columns: list[Place] = [list(column) for column in zip(*records, strict=True)]
    for place in columns:
        if data.draw(st.booleans()):
            assert isinstance(place, list)
            place[data.draw(st.integers(0, len(place) - 1))] = data.draw(ODD)
    places = [
        Same(place[0]) if at and data.draw(st.booleans()) else place
        for at, place in enumerate(columns)
    ]
    shape, count = TUPLES, len(records)
    if isinstance(records[0], Row) and data.draw(st.booleans()):
        order = data.draw(st.permutations(range(len(places))))
        names = tuple(f"n{at}" for at in order)
        if 0 in order[:1]:  # a list is there for sure
            places = [places[at] for at in order]
            found = field_shape(data.draw(st.sampled_from([dict, Row])), names)
            assert found is not None
            shape = found
    coercer = coercer_of(kind)
    given_fields = RecordFields(places, count, None, shape)
    expected = expected_of(kind, given_fields.copy().records())
    assert coercer.takes(shape, len(places))
    fields = coercer.of_fields(given_fields)
    assert (fields is None) == (expected is None)
    if fields is not None:
        assert list(map(alike, fields.records())) == expected


@pytest.mark.parametrize(
    ("kind", "shape", "count"),
    [
        (PERSON, TUPLES, 3),
        (PERSON, field_shape(Row, ("name", "years")), 2),
        (PERSON, field_shape(dict, ("name",)), 1),
        (PAIR, field_shape(Row, ("a", "b")), 2),
        (PAIR, field_shape(dict, ("a", "b")), 2),
        (PAIR, TUPLES, 1),
    ],
)
def test_other_shapes_are_not_taken(kind: TypeInformation, shape: Any, count: int) -> None:
    assert not coercer_of(kind).takes(shape, count)
    assert coercer_of(kind).of_fields(RecordFields([["a"]] * count, 1, None, shape)) is None


def test_types_without_columns_have_none() -> None:
    odd = Types.ROW_NAMED(["as_dict"], [Types.INT()])  # the name of a method
    twice = Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()])
    anything = Types.TUPLE([Types.PICKLED_BYTE_ARRAY()])
    for kind in (Types.INT(), Types.ROW([]), Types.TUPLE([]), odd, twice, anything):
        assert kind.fields_coercer() is None and kind.fields_wire() is None


def test_a_row_of_another_kind_or_none_is_left_to_the_coercer() -> None:
    coercer = coercer_of(PERSON)
    good = Row(name="a", age=1)
    assert coercer.of_records([good, Row("b", 2)]) is None  # mixed
    assert coercer.of_records([good, None]) is None
    assert coercer.of_records([good, Row.of_kind(RowKind.DELETE, name="b", age=2)]) is None
    assert coercer.of_records([Row("a", 1), Row.of_kind(RowKind.DELETE, "b", 2)]) is None
    fields = coercer.of_records([Row("a", 1), Row("b", 2)])
    assert fields is not None and fields.records() == [Row(name="a", age=1), Row(name="b", age=2)]
    assert values_of(good) == ["a", 1]


def test_a_row_with_more_fields_is_left_to_the_coercer() -> None:
    more = Row(name="a", age=1, city="b")
    assert coercer_of(PERSON).of_records([more]) is None
    assert coercer_of(PERSON).of_records([Row(name="a", years=1)]) is None
    with pytest.raises(TypeError, match="3 fields"):
        PERSON.coercer()([more])


def test_fields_in_another_order_are_those_of_their_names() -> None:
    shape = field_shape(dict, ("age", "name"))
    assert shape is not None
    found = coercer_of(PERSON).of_fields(RecordFields([[1], ["a"]], 1, None, shape))
    assert found is not None and found.records() == [Row(name="a", age=1)]
