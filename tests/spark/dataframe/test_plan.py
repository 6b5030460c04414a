"""The input plan: Spark's own hash, a partition for each slot, rows only where they are read."""

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.spark.dataframe.plan import (
    FrameInput,
    input_plan,
    output_plan,
    partition_keys,
    spark_hash,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ON, OFF = "true", "false"
ADAPTIVE = "spark.sql.adaptive.enabled"


def test_hash_is_sparks(spark: "SparkSession") -> None:
    values = [0, 1, 2, 41, 42, 2**31 - 1]
    columns = [f"hash({value})" for value in values]
    (row,) = spark.range(1).selectExpr(*columns).collect()
    assert list(row) == list(map(spark_hash, values))


@given(st.integers(1, 300))
def test_there_is_a_key_for_every_partition(slots: int) -> None:
    keys = partition_keys(slots)
    assert [spark_hash(key) % slots for key in keys] == list(range(slots))


def rows_by_partition(plan: "DataFrame") -> list[list[Any]]:
    return [[row for row in rows if row["source"] >= 0] for rows in plan.rdd.glom().collect()]


@pytest.mark.parametrize("adaptive", [ON, OFF])
@pytest.mark.parametrize("query", ["SELECT 1L AS id WHERE false", "SELECT id FROM range(100)"])
def test_there_are_as_many_partitions_as_slots(
    spark: "SparkSession", adaptive: str, query: str
) -> None:
    spark.conf.set(ADAPTIVE, adaptive)
    try:
        for slots in (1, 3, 6):
            plan = input_plan(spark, [FrameInput(spark.sql(query), range(slots))], slots)
            assert len(rows_by_partition(plan)) == slots
            assert output_plan(plan, slots).rdd.getNumPartitions() == slots
    finally:
        spark.conf.unset(ADAPTIVE)


def test_rows_come_only_to_slots_that_read_them(spark: "SparkSession") -> None:
    inputs = [
        FrameInput(spark.range(100), range(1, 3)),
        FrameInput(spark.range(50).selectExpr("'x' AS word"), range(3, 4)),
        FrameInput(spark.range(0), range(5)),
    ]
    found = rows_by_partition(input_plan(spark, inputs, 5))
    assert [{row["source"] for row in rows} for rows in found] == [set(), {0}, {0}, {1}, set()]
    assert sorted(row["d0"]["c0"] for rows in found[1:3] for row in rows) == list(range(100))
    assert [row["d1"]["c0"] for row in found[3]] == 50 * ["x"]
    assert min(map(len, found[1:3])) >= 40


def test_output_stays_in_the_partition_and_order_of_its_task(spark: "SparkSession") -> None:
    rows = spark.range(0, 1000, 1, 4)
    assert output_plan(rows, 4).rdd.glom().collect() == rows.rdd.glom().collect()
