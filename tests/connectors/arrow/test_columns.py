"""Records become columns: every shape of record, and what is refused, with column and value."""

import datetime
import decimal
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from headgate.api.row import Row, named_row
from headgate.base.errors import RecordUnfit
from headgate.connectors.arrow.columns import ColumnMaker, RowShape

UTC = datetime.timezone.utc
WORDS = pa.schema([("word", pa.string()), ("count", pa.int64())])
POINT = pa.struct([pa.field("x", pa.int64(), nullable=False), ("y", pa.int64())])


def made(schema: pa.Schema, records: list[Any]) -> list[Any]:
    shape = RowShape(schema, tuple(str(field.type) for field in schema), "Europe/Berlin")
    maker = ColumnMaker(shape, "out")
    batch = maker.batch([list(column) for column in maker.columns(records)])
    assert batch.schema == schema
    return batch.to_pylist()


def value(kind: pa.DataType, record: Any) -> Any:
    (row,) = made(pa.schema([("v", kind)]), [(record,)])
    return row["v"]


def problem(schema: pa.Schema, record: Any) -> str:
    with pytest.raises(RecordUnfit, match="operator 'out'") as caught:
        made(schema, [record])
    return str(caught.value)


def unfit(kind: pa.DataType, record: Any) -> str:
    text = problem(pa.schema([("v", kind)]), (record,))
    assert "column 'v'" in text
    return text


@pytest.mark.parametrize(
    "record",
    [
        ("a", 1),
        ["a", 1],
        Row("a", 1),
        Row(word="a", count=1),
        named_row(["f0", "f1"], ["a", 1]),
        {"count": 1, "word": "a"},
    ],
    ids=repr,
)
def test_record_of_every_shape_is_a_row(record: Any) -> None:
    wanted = {"word": "a", "count": 1}
    assert made(WORDS, [record]) == [wanted]
    assert made(WORDS, [record, ("b", 2), record]) == [wanted, {"word": "b", "count": 2}, wanted]


def test_what_a_dict_leaves_out_is_null() -> None:
    assert made(WORDS, [{"word": "a"}]) == [{"word": "a", "count": None}]


@dataclass
class Counted:
    word: str
    count: int


def test_a_dataclass_is_a_row_by_its_names() -> None:
    backwards = pa.schema([("count", pa.int64()), ("word", pa.string())])
    assert made(backwards, [Counted("a", 1), (2, "b")]) == [
        {"count": 1, "word": "a"},
        {"count": 2, "word": "b"},
    ]
    assert "has 'word'" in problem(
        pa.schema([("a", pa.int64()), ("b", pa.int64())]), Counted("", 0)
    )


@pytest.mark.parametrize("record", [5, (5,), Row(5), Row(n=5), {"n": 5}], ids=repr)
def test_with_one_column_the_value_itself_will_do(record: Any) -> None:
    assert made(pa.schema([("n", pa.int64())]), [record]) == [{"n": 5}]


def test_with_one_column_lists_and_dicts_are_values() -> None:
    assert made(pa.schema([("n", pa.list_(pa.int64()))]), [[1, 2]]) == [{"n": [1, 2]}]
    counts = pa.schema([("n", pa.map_(pa.string(), pa.int64()))])
    assert made(counts, [{"a": 1}]) == [{"n": [("a", 1)]}]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (("a",), "('a',) has 1 values; the schema has 2 columns: word, count"),
        (("a", 1, 2), "has 3 values"),
        (Row("a"), "<Row('a')> has 1 values"),
        (Row(word="a", n=1), "has other names than the schema"),
        ({"word": "a", "n": 1}, "has 'n'; the schema has 2 columns: word, count"),
        ("a", "'a' is no row; give a Row, tuple or dict with 2 columns: word, count"),
        (None, "None is no row"),
    ],
    ids=repr,
)
def test_record_of_another_shape_is_refused(record: Any, words: str) -> None:
    assert words in problem(WORDS, record)


def test_error_names_the_column_and_the_first_value_that_does_not_fit() -> None:
    with pytest.raises(RecordUnfit) as caught:
        made(WORDS, [("a", 1), (7, 2), (8, 3)])
    assert (caught.value.operator, caught.value.column) == ("out", "word")
    assert str(caught.value).startswith("operator 'out': column 'word': 7 is no string (")


@pytest.mark.parametrize(
    ("kind", "record", "words"),
    [
        (pa.int64(), 3.5, "3.5 is no whole number"),
        (pa.int64(), "3", "'3' is no whole number"),
        (pa.int64(), float("nan"), "nan is no whole number"),
        (pa.int64(), 2**70, "is no int64"),
        (pa.int8(), 300, "300 is no int8"),
        (pa.float64(), "x", "'x' is no double"),
        (pa.float32(), 1e300, "1e+300 is too large for a float"),
        (pa.list_(pa.float32()), [1e300], "is too large for a float"),
        (pa.bool_(), 1, "1 is no bool"),
        (pa.string(), "\ud800", "is no string"),
        (pa.decimal128(4, 1), 1.5, "1.5 is no decimal"),
        (pa.decimal128(4, 1), decimal.Decimal("1.55"), "is no decimal"),
        (pa.date32(), 5, "5 is no date"),
        (pa.date32(), datetime.datetime(2024, 1, 1), "use .date()"),
        (pa.timestamp("us", tz="UTC"), 5, "5 is no datetime"),
        (pa.timestamp("us", tz="UTC"), datetime.date(2024, 1, 1), "is no datetime"),
        (pa.timestamp("us"), datetime.datetime(2024, 1, 1, tzinfo=UTC), "has a time zone"),
        (pa.duration("us"), 5, "5 is not a timedelta"),
        (pa.list_(pa.int64()), "abc", "'abc' is no list"),
        (pa.list_(pa.int64()), [1, 2.5], "is no whole number"),
        (pa.map_(pa.string(), pa.int64()), [1], "[1] is no dict"),
        (POINT, 5, "5 is to be a struct of x, y; give a Row, tuple or dict"),
        (POINT, (1, 2, 3), "has 3 values and is to be a struct of x, y"),
        (POINT, {"z": 1}, "has other names than a struct of x, y"),
        (POINT, {"y": 1}, "has no value for 'x', which the schema calls not null"),
    ],
    ids=str,
)
def test_value_that_would_have_to_be_changed_is_refused(
    kind: pa.DataType, record: Any, words: str
) -> None:
    assert words in unfit(kind, record)


def test_null_in_a_column_that_is_not_null_is_refused() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    assert "None stands in a column that the schema calls not null" in problem(schema, (None,))


def test_whole_floats_and_numpys_numbers_fit() -> None:
    assert value(pa.int64(), 3.0) == 3
    assert value(pa.int32(), np.int64(3)) == 3
    assert value(pa.float64(), np.float32(0.5)) == 0.5
    assert value(pa.float64(), 3) == 3.0
    assert value(pa.bool_(), np.bool_(True)) is True
    assert value(pa.list_(pa.float64()), np.array([1.0, 2.0])) == [1.0, 2.0]


def test_datetime_without_a_zone_is_taken_in_the_sessions() -> None:
    kind = pa.timestamp("us", tz="UTC")
    local = datetime.datetime(2024, 7, 1, 12)
    assert value(kind, local) == local.replace(tzinfo=ZoneInfo("Europe/Berlin"))
    assert value(kind, local.replace(tzinfo=UTC)) == local.replace(tzinfo=UTC)
    assert value(pa.timestamp("us"), local) == local


@pytest.mark.parametrize("zone", ["+02:00", "Z", "UTC+02:00", "GMT"])
def test_spark_names_time_zones_by_their_offset_too(zone: str) -> None:
    shape = RowShape(pa.schema([("t", pa.timestamp("us", tz="UTC"))]), ("timestamp",), zone)
    maker = ColumnMaker(shape, "out")
    (row,) = maker.batch([[datetime.datetime(2024, 7, 1, 12)]]).to_pylist()
    hours = 2 if "2" in zone else 0
    assert row["t"] == datetime.datetime(2024, 7, 1, 12 - hours, tzinfo=UTC)


def test_nested_values_may_be_rows_tuples_and_dicts() -> None:
    wanted = {"x": 1, "y": 2}
    for point in (Row(1, 2), Row(y=2, x=1), (1, 2), [1, 2], {"x": 1, "y": 2}):
        assert value(POINT, point) == wanted
        assert value(pa.list_(POINT), [point, None]) == [wanted, None]
        assert value(pa.map_(pa.string(), POINT), {"p": point}) == [("p", wanted)]
    assert value(POINT, Row(x=1)) == {"x": 1, "y": None}
    assert value(POINT, None) is None


def test_infinity_and_the_largest_single_are_no_overflow() -> None:
    largest = float(np.finfo(np.float32).max)
    assert value(pa.float32(), float("inf")) == float("inf")
    assert value(pa.float32(), -largest) == -largest
