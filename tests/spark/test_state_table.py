"""``spark.read.format("headgate-state")``: state of checkpoints as DataFrames, and back."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate import Types, ValueStateDescriptor, state
from headgate.api.row import Row
from tests.host.saved_state.kit import TOTAL, write_people

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

POINT = ValueStateDescriptor(
    "point", Types.ROW_NAMED(["x", "tags"], [Types.LONG(), Types.LIST(Types.STRING())])
)


@pytest.fixture
def people(tmp_path: Path) -> str:
    return write_people(tmp_path / "people")


def table(spark: "SparkSession", **options: str) -> "DataFrameReader":
    return spark.read.format("headgate-state").options(**options)


def rows(frame: "DataFrame") -> list[tuple[object, ...]]:
    return sorted(map(tuple, frame.collect()))


@pytest.mark.spark_smoke
def test_a_state_has_typed_columns_and_several_partitions(
    spark: "SparkSession", tmp_path: Path
) -> None:
    points = {number: (number, [str(number)] * (number % 3)) for number in range(500)}
    changes = state.operator("points", key_type=Types.INT()).put(POINT, points)
    path = state.write(str(tmp_path / "points"), changes)
    frame = table(spark, state="point", partitionBytes="9000").load(path)
    assert frame.dtypes == [("key", "int"), ("value", "struct<x:bigint,tags:array<string>>")]
    assert len(state.read(path).operator().parts(9000)) > 1
    found = {row.key: (row.value.x, row.value.tags) for row in frame.collect()}
    assert found == points


def test_every_kind_of_table_can_be_read(spark: "SparkSession", people: str) -> None:
    maps = table(spark, state="visits").load(people)
    assert rows(maps) == [("ada", "paris", 1), ("ada", "rome", 2), ("bob", "rome", 4)]
    assert table(spark, state="seen").load(people).first().value == ["x", "y"]
    timers = (
        table(spark, kind="timers", uid="people").load(people).select("domain", "time_ms", "key")
    )
    assert ("event", 3000, "bob") in rows(timers)
    plain = table(spark, kind="operator", state="waiting").load(people)
    assert [row.value for row in plain.collect()] == [1, 2, 3]
    everything = table(spark).load(people)
    assert everything.where("state = 'untyped'").first().value == "(1, None)"
    assert everything.where("state = 'fresh'").first().value == "9"


def test_a_state_that_holds_nothing_is_a_table_without_rows(
    spark: "SparkSession", tmp_path: Path
) -> None:
    path = state.write(str(tmp_path / "empty"), state.operator("people").put(TOTAL, {}))
    assert table(spark, uid="people", state="total").load(path).collect() == []


def test_a_schema_of_the_users_is_followed(spark: "SparkSession", people: str) -> None:
    typed = table(spark, state="total").schema("value decimal(10,0), key string").load(people)
    assert sorted(int(row.value) for row in typed.collect()) == [3, 5, 7]
    with pytest.raises(Exception, match="'ada' is no whole number|is no whole number"):
        table(spark, state="total").schema("key bigint").load(people).collect()


def test_an_operator_is_found_by_its_state(spark: "SparkSession", tmp_path: Path) -> None:
    path = state.write(
        str(tmp_path / "two"),
        state.operator("people").put(TOTAL, {"ada": 3}),
        state.operator("other").put(ValueStateDescriptor("n", Types.LONG()), {"ada": 4}),
    )
    assert rows(table(spark, state="total").load(path)) == [("ada", 3)]
    with pytest.raises(Exception, match=r"which operator\?.*option\('uid', '\w+'\) of a table"):
        table(spark).load(path)


def test_errors_are_one_sentence(spark: "SparkSession", people: str) -> None:
    with pytest.raises(
        Exception, match="operator 'people' has no keyed state 'nope'; it has 'total'"
    ):
        table(spark, state="nope").load(people)
    with pytest.raises(Exception, match="the kinds are keyed, timers, operator"):
        table(spark, kind="words").load(people)


def test_a_savepoint_is_written_from_a_dataframe(
    spark: "SparkSession", people: str, tmp_path: Path
) -> None:
    before = table(spark, state="total").load(people)
    doubled = before.selectExpr("key", "value * 2 as value")
    mended = state.write(
        str(tmp_path / "mended"), state.operator("people").put(TOTAL, doubled), base=people
    )
    found = {row.key: row.value for row in state.read(mended).operator("people").keyed("total")}
    assert found == {"ada": 6, "bob": 10, "eve": 14}
    points = spark.createDataFrame(
        [(1, (5, ["a"]))], "key int, value struct<x:long,tags:array<string>>"
    )
    path = state.write(str(tmp_path / "points"), state.operator("p").put(POINT, points))
    (row,) = state.read(path).operator().keyed("point")
    assert (row.key, row.value.x, row.value.tags) == (1, 5, ["a"])
    keys = Types.ROW([Types.STRING(), Types.LONG()])
    pairs = state.operator("pairs", key_type=keys).put(TOTAL, [(Row("a", 1), 5)])
    path = state.write(str(tmp_path / "pairs"), pairs)
    more = table(spark, state="total").load(path).selectExpr("key", "value + 1 as value")
    path = state.write(str(tmp_path / "more"), state.operator("pairs").put(TOTAL, more), base=path)
    assert [*state.read(path).operator().keyed("total")] == [state.KeyedRow(Row("a", 1), None, 6)]
