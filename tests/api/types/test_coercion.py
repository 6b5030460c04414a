"""Coercion: what a declared type takes, what it makes of it, what it refuses and how it says so."""

import array
import collections
import datetime
import enum
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.api.types.types import TypeInformation
from headgate.common import Instant, Row, RowKind, Types
from tests.api.type_samples import alike, typed_values

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
UTC = datetime.timezone.utc
FAR = datetime.timezone(datetime.timedelta(hours=2))
NOON = datetime.datetime(2024, 2, 29, 12)
PROBES: list[Any] = [
    None, True, 0, 1, -129, 2**31, 2**63, 2**200, 1.0, 1.5, 1e300, math.inf, math.nan, "", "a",
    "ab", b"a", bytearray(b"a"), Decimal("1.5"), Fraction(1, 2), NOON, NOON.date(), NOON.time(),
    NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=FAR), Instant(1, 2), (), ("a", 1), ["a", 1],
    ("a", None), ("a", True), ("a", 2**31), [1, 2], [1.5, None], {1}, {"a": 1}, {1: "a"},
    {"name": "Ada", "age": 3, "more": 1}, Row("a", 1), Row(name="a", age=1), Row(age="x", name=1),
    Row.of_kind(RowKind.DELETE, "a", 1), object(), np.int64(5), np.float32(1.5), np.bool_(True),
    np.array([1, 2]), array.array("d", [1.5]), range(2), collections.OrderedDict(a=1), [("a", 1)],
    (("a", 1),), [Row("a", 1)],
]  # fmt: skip
KINDS = [
    *(getattr(Types, name)() for name in
      ["STRING", "BYTE", "BOOLEAN", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "CHAR", "BIG_INT",
       "BIG_DEC", "INSTANT", "SQL_DATE", "SQL_TIME", "SQL_TIMESTAMP", "PICKLED_BYTE_ARRAY"]),
    PAIR, PERSON, Types.TUPLE([]), Types.TUPLE([PAIR]), Types.LIST(Types.INT()), Types.LIST(PAIR),
    Types.LIST(PERSON), Types.BASIC_ARRAY(Types.DOUBLE()), Types.PRIMITIVE_ARRAY(Types.FLOAT()),
    Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.OBJECT_ARRAY(PERSON),
    Types.MAP(Types.STRING(), Types.INT()), Types.MAP(Types.STRING(), Types.FLOAT()),
    Types.TUPLE([Types.STRING(), Types.FLOAT()]), Types.ROW([Types.STRING(), Types.DOUBLE()]),
    Types.TUPLE([Types.PICKLED_BYTE_ARRAY(), Types.INT()]), Types.TUPLE([PERSON]),
]  # fmt: skip


def outcome(act: Any) -> Any:
    try:
        return alike(act())
    except TypeError as error:
        return str(error)


@given(st.sampled_from(KINDS), st.lists(st.sampled_from(PROBES), min_size=1, max_size=4))
def test_a_bundle_becomes_what_its_records_become_one_by_one(
    kind: TypeInformation, records: list[Any]
) -> None:
    before = repr(records)
    many = outcome(lambda: kind.coercer()(records))
    single = outcome(lambda: [kind.coerced(record) for record in records])
    assert many == single
    assert repr(records) == before


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_each_probe_has_one_outcome_alone_and_between_others(kind: TypeInformation) -> None:
    coerce = kind.coercer()
    for probe in PROBES:
        alone = outcome(lambda: kind.coerced(probe))  # noqa: B023
        found = outcome(lambda: coerce([probe])[0])  # noqa: B023
        assert found == alone, probe


@given(st.data())
def test_a_value_of_the_type_stays_as_it_is(data: st.DataObject) -> None:
    kind, values = data.draw(typed_values())
    records = data.draw(st.lists(values, max_size=5))
    coerced = kind.coercer()(records)
    assert list(map(alike, coerced)) == list(map(alike, records))
    assert list(map(alike, kind.coercer()(coerced))) == list(map(alike, coerced))


@pytest.mark.parametrize(
    ("kind", "bits"),
    [(Types.BYTE(), 8), (Types.SHORT(), 16), (Types.INT(), 32), (Types.LONG(), 64)],
)
def test_whole_numbers_have_a_range(kind: TypeInformation, bits: int) -> None:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    assert kind.coercer()([low, 0, high]) == [low, 0, high]
    for beyond in (low - 1, high + 1):
        with pytest.raises(TypeError, match=f"an int from {low} to {high} is needed"):
            kind.coercer()([0, beyond])
    assert Types.BIG_INT().coerced(2**300) == 2**300


def test_what_counts_as_a_number_becomes_a_plain_one() -> None:
    class Level(enum.IntEnum):
        HIGH = 3

    found = Types.INT().coercer()([True, np.int64(5), Level.HIGH, 7])
    assert [(type(value), value) for value in found] == [(int, 1), (int, 5), (int, 3), (int, 7)]
    found = Types.DOUBLE().coercer()([1, np.float32(1.5), Fraction(1, 4), Decimal("0.5"), True])
    assert [(type(v), v) for v in found] == [
        (float, 1.0), (float, 1.5), (float, 0.25), (float, 0.5), (float, 1.0)
    ]  # fmt: skip
    assert Types.BOOLEAN().coerced(np.bool_(True)) is True


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Types.INT(), "1"),
        (Types.INT(), 1.0),
        (Types.STRING(), 1),
        (Types.STRING(), b"a"),
        (Types.BOOLEAN(), 1),
        (Types.DOUBLE(), "1.5"),
        (Types.DOUBLE(), 2**2000),
        (Types.CHAR(), "ab"),
        (Types.CHAR(), ""),
        (Types.BIG_DEC(), 1.5),
        (Types.INSTANT(), {"seconds": 1, "nanos": 2}),
        (Types.SQL_DATE(), "2024-02-29"),
        (Types.SQL_TIMESTAMP(), NOON.date()),
        (Types.SQL_TIMESTAMP(), NOON.replace(tzinfo=FAR)),
        (Types.LIST(Types.STRING()), "abc"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), [1, None]),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "abc"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [256]),
        (Types.MAP(Types.STRING(), Types.INT()), [("a", 1)]),
        (Types.MAP(Types.STRING(), Types.INT()), {None: 1}),
        (PERSON, "Ada"),
        (PAIR, {"a": 1}),
    ],
)
def test_a_value_of_another_kind_is_refused(kind: TypeInformation, value: object) -> None:
    for act in (lambda: kind.coerced(value), lambda: kind.coercer()([value])):
        with pytest.raises(TypeError, match="does not fit the declared type Types"):
            act()


def test_none_is_no_record_but_may_be_a_field() -> None:
    for kind in (Types.INT(), PAIR, PERSON, Types.LIST(Types.INT())):
        with pytest.raises(TypeError, match="this is None"):
            kind.coercer()([None])
    assert PAIR.coercer()([(None, 1), ("a", None)]) == [(None, 1), ("a", None)]
    assert PERSON.coerced({"name": "Ada"}) == Row("name", "age")("Ada", None)
    assert Types.LIST(Types.INT()).coerced([1, None]) == [1, None]
    assert Types.MAP(Types.STRING(), Types.INT()).coerced({"a": None}) == {"a": None}
    assert Types.PICKLED_BYTE_ARRAY().coerced(None) is None


def test_float_keeps_32_bits_wherever_it_stands() -> None:
    rounded = 1.100000023841858
    assert Types.FLOAT().coercer()([1.1, 2]) == [rounded, 2.0]
    assert Types.FLOAT().coerced(math.inf) == math.inf
    assert Types.FLOAT().coercer()([math.inf, 1.1]) == [math.inf, rounded]
    kind = Types.TUPLE([Types.STRING(), Types.LIST(Types.FLOAT()), Types.FLOAT()])
    assert kind.coercer()([("a", [1.1, None], None)]) == [("a", [rounded, None], None)]
    mapped = Types.MAP(Types.FLOAT(), Types.FLOAT())
    assert mapped.coercer()([{1.1: 1.1}]) == [{rounded: rounded}]
    assert Types.ROW([Types.FLOAT()]).coercer()([(1.1,)]) == [Row(f0=rounded)]
    with pytest.raises(TypeError, match="fits into 32 bits"):
        Types.FLOAT().coercer()([1.0, 1e300])


def test_times_lose_utc_and_dates_lose_their_hour() -> None:
    assert Types.SQL_TIMESTAMP().coerced(NOON.replace(tzinfo=UTC)) == NOON
    assert Types.SQL_TIME().coerced(NOON.time().replace(tzinfo=UTC)) == NOON.time()
    assert alike(Types.SQL_DATE().coerced(NOON)) == alike(NOON.date())
    assert alike(Types.BIG_DEC().coerced(5)) == alike(Decimal(5))


def test_containers_become_plain_ones() -> None:
    found = Types.LIST(Types.INT()).coercer()([(1, 2), np.array([3]), array.array("i", [4]), {5}])
    assert found == [[1, 2], [3], [4], [5]]
    assert Types.PRIMITIVE_ARRAY(Types.BYTE()).coercer()([bytearray(b"a"), [98]]) == [b"a", b"b"]
    ordered = Types.MAP(Types.STRING(), Types.INT()).coerced(collections.OrderedDict(a=1))
    assert type(ordered) is dict
    point = collections.namedtuple("Point", "x y")
    assert type(PAIR.coercer()([point("a", 1)])[0]) is tuple


def test_rows_that_fit_are_not_made_anew() -> None:
    rows = [Row("name", "age")("Ada", 36), Row("name", "age")("Bea", None)]
    assert all(coerced is row for coerced, row in zip(PERSON.coercer()(rows), rows, strict=True))
    priced = Types.ROW([Types.DOUBLE()])
    assert alike(priced.coercer()([Row(f0=1)])) == alike([Row(f0=1.0)])


def test_rows_of_any_make_become_rows_with_the_names() -> None:
    ada = Row("name", "age")("Ada", 36)
    for value in [("Ada", 36), ["Ada", 36], Row("Ada", 36), Row(age=36, name="Ada"),
                  {"age": 36, "name": "Ada"}, Row(a="Ada", b=36)]:  # fmt: skip
        assert PERSON.coercer()([value]) == [ada], value
        assert PERSON.coercer()([value, ("Bea", 1)])[0] == ada, value
    gone = Row.of_kind(RowKind.DELETE, "Ada", 36)
    assert PERSON.coercer()([gone])[0].get_row_kind() is RowKind.DELETE


def test_an_error_names_value_place_and_type() -> None:
    kind = Types.ROW_NAMED(["who", "scores"], [Types.STRING(), Types.LIST(PAIR)])
    with pytest.raises(TypeError) as caught:
        kind.coercer()([("Ada", [("x", 1), ("y", "z")])])
    text = str(caught.value)
    assert "field 'scores', element 1, field 1 is 'z', but an int from" in text
    assert repr(kind) in text and text.endswith("give such a value, or declare another type")
    with pytest.raises(TypeError, match="it has 3 fields, the type has 2"):
        PAIR.coerced(("a", 1, 2))
    with pytest.raises(TypeError, match="the value of 'k' is 'v'"):
        Types.MAP(Types.STRING(), Types.INT()).coerced({"k": "v"})


def test_an_error_shortens_large_values_and_survives_broken_ones() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise ValueError("no")

    with pytest.raises(TypeError) as caught:
        Types.INT().coerced("x" * 100_000)
    assert len(str(caught.value)) < 400
    with pytest.raises(TypeError, match="Broken"):
        Types.INT().coerced(Broken())


def test_rows_in_another_order_get_that_of_their_type() -> None:
    turned = Row(age=36, name="Ada")
    for records in ([turned], [Row(name="Bea", age=1), turned]):
        found = PERSON.coercer()(records)
        assert [row.get_field_names() for row in found] == [["name", "age"]] * len(records)
        assert (found[-1][0], found[-1]) == ("Ada", turned)
    assert turned.get_field_names() == ["age", "name"]


def test_rows_that_fit_are_not_made_again() -> None:
    records = [Row(name="Ada", age=36), Row(name=None, age=None)]
    assert PERSON.coercer()(records) is records
    numbers = Types.ROW_NAMED(["a"], [Types.DOUBLE()])
    assert [type(row.a) for row in numbers.coercer()([Row(a=1), Row(a=2.5)])] == [float, float]
