"""Declared types become Spark's, and values of state become Arrow columns of them."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headgate import Types
from headgate.api.row import Row
from headgate.base.checkpoints import TypeShape
from headgate.base.errors import RecordUnfit
from headgate.functions.time import Instant
from headgate.functions.window import TimeWindow
from headgate.spark.state_table.tables import ArrowColumns, maker, spark_type

UTC = datetime.timezone.utc


@pytest.mark.parametrize(
    ("kind", "spark"),
    [
        (Types.LONG(), "bigint"),
        (Types.BIG_DEC(), "decimal(38,18)"),
        (Types.SQL_TIME(), "string"),
        (Types.PICKLED_BYTE_ARRAY(), "string"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "binary"),
        (Types.PRIMITIVE_ARRAY(Types.INT()), "array<int>"),
        (Types.MAP(Types.STRING(), Types.LIST(Types.DOUBLE())), "map<string, array<double>>"),
        (
            Types.ROW_NAMED(["a b", "c"], [Types.INT(), Types.STRING()]),
            "struct<`a b`: int, `c`: string>",
        ),
        (Types.TUPLE([Types.INT()]), "struct<`f0`: int>"),
    ],
)
def test_a_declared_type_has_its_name_in_spark(kind: Any, spark: str) -> None:
    assert spark_type(kind.shape()) == spark


def test_a_key_is_not_rounded() -> None:
    kind = Types.TUPLE([Types.FLOAT(), Types.LIST(Types.FLOAT())])
    assert spark_type(kind.shape(), "double") == "struct<`f0`: double, `f1`: array<double>>"


def test_a_row_with_other_names_is_refused() -> None:
    columns = ArrowColumns(pa.schema([("value", POINT)]), "points")
    with pytest.raises(RecordUnfit, match="is no row of x, y"):
        columns.batch([[Row(x=1, z="b")]])
    unnamed = pa.struct([("f0", pa.int64()), ("f1", pa.string())])
    assert maker(unnamed)([Row(x=1, z="b")]).to_pylist() == [{"f0": 1, "f1": "b"}]


def test_what_is_not_declared_is_text() -> None:
    assert spark_type(None) == "string"
    assert spark_type(TypeShape("shop.types.Money")) == "string"


POINT = pa.struct([("x", pa.int64()), ("y", pa.string())])


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [1, None, 2.0], [1, None, 2]),
        (
            pa.string(),
            ["a", 1, None, TimeWindow(0, 1)],
            ["a", "1", None, "TimeWindow(start=0, end=1)"],
        ),
        (pa.string(), [datetime.time(12, 30)], ["12:30:00"]),
        (pa.string(), ["a", None, "\ud800"], ["a", None, "\\ud800"]),
        (pa.decimal128(38, 0), [10**30], [Decimal(10**30)]),
        (
            pa.timestamp("us", tz="UTC"),
            [Instant.of_epoch_milli(1500)],
            [datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)],
        ),
        (
            POINT,
            [Row(x=1, y="a"), Row(2, "b"), (3, None)],
            [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}, {"x": 3, "y": None}],
        ),
        (POINT, [Row(y="a", x=1), None], [{"x": 1, "y": "a"}, None]),
        (pa.list_(pa.int64()), [[1, 2], [], None, (3,)], [[1, 2], [], None, [3]]),
        (pa.map_(pa.string(), pa.int64()), [{"a": 1}, {}, None], [[("a", 1)], [], None]),
        (pa.list_(POINT), [[Row(x=1, y="a")], []], [[{"x": 1, "y": "a"}], []]),
    ],
)
def test_values_become_arrays(kind: pa.DataType, values: list[Any], expected: list[Any]) -> None:
    array = maker(kind)(values)
    assert array.type == kind
    assert array.to_pylist() == expected
    assert maker(kind)([]).to_pylist() == []


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (pa.int64(), 2.5, "is no whole number"),
        (pa.int64(), 2**70, "is no int64"),
        (pa.int64(), "1", "is no whole number"),
        (POINT, Row(a=1), "is no row of x, y"),
        (pa.list_(pa.int64()), "ab", "is no list"),
        (pa.map_(pa.string(), pa.int64()), [1], "is no dict"),
    ],
)
def test_a_value_of_another_type_is_named(kind: pa.DataType, value: Any, words: str) -> None:
    columns = ArrowColumns(pa.schema([("value", kind)]), "totals")
    with pytest.raises(RecordUnfit, match=words) as refused:
        columns.batch([[None, value]])
    assert refused.value.column == "value"
    assert "read it as another type" in str(refused.value)
