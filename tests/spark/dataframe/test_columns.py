"""Columns on Spark: DataFrames in and out as batches, by key, and through a failure."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headgate import (
    Duration,
    ErrorPolicy,
    OutputTag,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from headgate.api.columns import col
from headgate.base.elements import Watermark
from headgate.base.errors import JobFailed, PlanInvalid
from headgate.common import Configuration
from headgate.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from headgate.functions.watermarks import WatermarkGenerator
from tests.spark.programs import environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 30_000


@pytest.fixture
def payments(spark: "SparkSession") -> "DataFrame":
    return spark.range(ROWS).selectExpr(
        "concat('user-', id % 97) AS user", "id % 7 AS shop", "id AS amount", "id * 10 AS at"
    )


def batch_environment() -> StreamExecutionEnvironment:
    env = environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    return env


@pytest.mark.spark_smoke
def test_batches_of_a_dataframe_come_and_go_as_they_are(payments: "DataFrame") -> None:
    seen = environment().from_dataframe(payments).map_batches(lambda batch: batch)
    result: Any = seen.to_dataframe()
    assert result.schema.names == payments.columns
    assert sorted(result.collect()) == sorted(payments.collect())


def test_aggregates_by_key_are_those_of_spark(payments: "DataFrame") -> None:
    keyed = batch_environment().from_dataframe(payments).filter(col("amount") > 99)
    totals = keyed.key_by("user", "shop").aggregate(  # type: ignore[union-attr, call-overload]
        total=("amount", "sum"), n="count", mean=("amount", "mean")
    )
    expected = payments.where("amount > 99").groupBy("user", "shop")
    rows = expected.agg({"amount": "sum", "*": "count"}).collect()
    found: Any = totals.to_dataframe().collect()
    assert sorted((r.user, r.shop, r.total, r.n) for r in found) == sorted(
        (r.user, r.shop, r["sum(amount)"], r["count(1)"]) for r in rows
    )
    assert all(row.mean == row.total / row.n for row in found)


def test_aggregates_of_columns_are_final(spark: "SparkSession") -> None:
    # In two parts, so that a streaming job has running aggregates of every key to send.
    halves = [spark.range(100).selectExpr("id % 100 AS user", "1L AS amount") for _ in range(2)]
    first = environment().from_dataframe(halves[0])
    env = first.get_execution_environment()
    both = first.columns().union(env.from_dataframe(halves[1]).columns())
    totals: Any = both.key_by("user").sum("amount").to_dataframe()
    assert sorted((row.user, row.amount_sum) for row in totals.collect()) == [
        (user, 2) for user in range(100)
    ]


def test_windows_on_columns(payments: "DataFrame") -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    stream = batch_environment().from_dataframe(payments)
    timed = stream.assign_timestamps_and_watermarks(strategy, "at")
    windows = TumblingEventTimeWindows.of(Time.seconds(100))
    counted = timed.key_by("shop").window(windows).count()
    found: Any = counted.to_dataframe()
    assert found.schema.names == ["shop", "window_start", "window_end", "count"]
    rows = found.collect()
    assert sum(row["count"] for row in rows) == ROWS
    assert len(rows) == 7 * 3
    assert {(row.window_end - row.window_start).total_seconds() for row in rows} == {100}


def test_columns_and_records_meet_in_one_program(payments: "DataFrame") -> None:
    stream = environment().from_dataframe(payments).select("shop", double=col("amount") * 2)
    records = stream.to_records().map(lambda row: (row.shop, row.double))
    back = records.to_arrow(pa.schema([("shop", pa.int64()), ("double", pa.int64())]))
    result: Any = back.key_by("shop").max("double").to_dataframe()
    found: dict[int, int] = {}
    for row in result.collect():
        found[row.shop] = max(row.double_max, found.get(row.shop, 0))
    assert found == {shop: 2 * max(range(shop, ROWS, 7)) for shop in range(7)}


def test_mistakes_are_told_in_a_sentence(payments: "DataFrame") -> None:
    stream = environment().from_dataframe(payments)
    with pytest.raises(PlanInvalid, match="no column 'use'; there are user string, shop int64"):
        stream.key_by("use")
    stream.select("user")
    with pytest.raises(PlanInvalid, match="read as columns already"):
        stream.map(lambda row: row)
    renamed = stream.columns().map_batches(lambda batch: batch.select(["user"])).name("cut")
    with pytest.raises(JobFailed, match="operator 'cut': its function returned a batch with the"):
        renamed.to_dataframe().count()  # type: ignore[attr-defined]


def test_a_batch_that_fails_is_left_out_by_a_policy(spark: "SparkSession") -> None:
    def cut(batch: pa.RecordBatch) -> Any:
        return batch if batch["n"][0].as_py() else "no table"

    batches = [pa.record_batch({"n": [n, n]}) for n in range(4)]
    stream = environment().from_collection(batches).columns(batches[0].schema)
    kept = stream.map_batches(cut).on_error(ErrorPolicy.SKIP)
    assert sorted(row.n for row in kept.execute_and_collect()) == [1, 1, 2, 2, 3, 3]


def test_dead_letters_of_columns_are_records(spark: "SparkSession") -> None:
    tag, odd = OutputTag("letters"), OutputTag("odd")

    def sort(batch: pa.RecordBatch) -> Any:
        if batch["n"][0].as_py() == 2:
            raise ValueError("not this one")
        yield odd, batch

    batches = [pa.record_batch({"n": [n]}) for n in range(4)]
    stream = environment().from_collection(batches).columns(batches[0].schema)
    sorted_out = stream.map_batches(sort).on_error(ErrorPolicy.dead_letters(tag))
    (letter,) = sorted_out.get_side_output(tag).execute_and_collect()
    assert (letter.record, letter.reason) == (batches[2], "not this one")
    stream = environment().from_collection(batches).columns(batches[0].schema)
    sorted_out = stream.map_batches(sort).on_error(ErrorPolicy.dead_letters(tag))
    found = sorted_out.get_side_output(odd).execute_and_collect()
    assert sorted(row.n for row in found) == [0, 1, 3]


def test_all_types_of_a_dataframe_come_back_whatever_the_time_zone(spark: "SparkSession") -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        frame = spark.sql(
            "SELECT timestamp'2024-10-27 02:30:00' AS t, CAST(1.5 AS decimal(9,2)) AS m, "
            "date'2024-01-01' AS d, array(1, 2) AS a, named_struct('x', 1) AS s, 'w' AS w"
        )
        result: Any = environment().from_dataframe(frame).map_batches(lambda b: b).to_dataframe()
        assert (result.schema, result.collect()) == (frame.schema, frame.collect())
        latest = environment().from_dataframe(frame).key_by("d").aggregate(t=("t", "max"))
        rows: Any = latest.to_dataframe().collect()  # type: ignore[attr-defined]
        assert rows[0].t == frame.first().t
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


class FailsOnce:
    """Raises at the given call, the first time that anybody does."""

    def __init__(self, flag: Path) -> None:
        self.flag = str(flag)
        self.calls = 0

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.calls += 1
        if self.calls == 5 and not Path(self.flag).exists():
            Path(self.flag).touch()
            raise RuntimeError("once")
        return batch


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_aggregates_go_on_from_a_checkpoint(
    spark: "SparkSession", tmp_path: Path, backend: str
) -> None:
    configuration = Configuration()
    for key, text in {
        "state.backend.type": backend,
        "execution.checkpointing.interval": "20",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "0",
    }.items():
        configuration.set_string(key, text)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    rows = 8 * 65_536 * 2
    table = pa.table({"k": [n % 1000 for n in range(rows)], "n": range(rows)})
    stream = env.from_arrow(table).map_batches(FailsOnce(tmp_path / "failed"))
    sums = stream.key_by("k").sum("n")
    found: dict[int, int] = {}
    for row in sums.execute_and_collect():
        found[row.k] = max(row.n_sum, found.get(row.k, 0))
    assert (tmp_path / "failed").exists()
    assert found == {k: sum(range(k, rows, 1000)) for k in range(1000)}


WINDOWS = TumblingEventTimeWindows.of(Time.seconds(10))
STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_joins_by_window_are_those_of_spark(payments: "DataFrame", backend: str) -> None:
    env = environment()
    env.configure(Configuration().set_string("state.backend.type", backend))
    env.enable_checkpointing(200)
    visits = payments.selectExpr("user", "amount * 3 AS page", "at + 5 AS at").where("page % 2 = 0")
    left, right = (
        env.from_dataframe(frame).assign_timestamps_and_watermarks(STRATEGY, "at")
        for frame in (payments.where("shop = 3"), visits)
    )
    pairs = left.join(right).where("user").equal_to("user").window(WINDOWS).apply()
    found: Any = pairs.to_dataframe()
    assert found.columns == [
        *("user", "shop", "amount", "at", "page", "at_right", "window_start", "window_end")
    ]
    first = payments.where("shop = 3").selectExpr("*", "floor(at / 10000) AS bucket")
    second = visits.selectExpr("user", "page", "at AS other", "floor(at / 10000) AS bucket")
    expected = first.join(second, ["user", "bucket"]).select("user", "amount", "page").collect()
    assert len(expected) > 100
    assert sorted((row.user, row.amount, row.page) for row in found.collect()) == sorted(
        map(tuple, expected)
    )


def test_null_keys_of_a_join_become_dead_letters(spark: "SparkSession") -> None:
    frame = spark.sql("SELECT * FROM VALUES ('a', 1L), (NULL, 2L), ('a', 3L) AS t(user, at)")
    env = environment()
    env.set_parallelism(1)
    rejected = OutputTag("rejected")
    left, right = (
        env.from_dataframe(each.coalesce(1)).assign_timestamps_and_watermarks(STRATEGY, "at")
        for each in (frame, frame.where("user IS NOT NULL"))
    )
    joined = left.join(right).where("user").equal_to("user").window(WINDOWS).apply()
    joined.name("pairs").on_error(ErrorPolicy.dead_letters(rejected))
    letters = list(joined.get_side_output(rejected).execute_and_collect())
    assert letters and {letter.operator for letter in letters} == {"pairs"}
    assert "column 'user' has 1 nulls" in letters[0].reason


class OfEachBatch(WatermarkGenerator):
    """The time of a batch is a watermark behind it."""

    def on_event(self, event: Any, timestamp: int, output: Any) -> None:
        output.emit_watermark(Watermark(timestamp))

    def on_periodic_emit(self, output: Any) -> None:
        """All was said."""


def test_late_rows_of_windows_and_joins_come_as_batches(spark: "SparkSession") -> None:
    del spark  # it is there
    strategy = WatermarkStrategy.for_generator(OfEachBatch)
    early, late = OutputTag("early"), OutputTag("late")
    times = [[5_000], [25_000, 26_000], [1_000, 2_000, 27_000]]
    batches = [pa.record_batch({"k": ["a"] * len(at), "at": at}) for at in times]

    def stream(env: StreamExecutionEnvironment) -> Any:
        columns = env.from_collection(batches).columns(batches[0].schema)
        return columns.assign_timestamps_and_watermarks(strategy, "at")

    env = environment().set_parallelism(1)
    env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
    windowed = stream(env).key_by("k").window(WINDOWS).side_output_late_data(late)
    counted = windowed.count()
    rows = counted.get_side_output(late).execute_and_collect()
    assert sorted(row.at for row in rows) == [1_000, 2_000]
    env = environment().set_parallelism(1)
    env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
    first = stream(env)
    where = first.join(first).where("k").equal_to("k").window(WINDOWS)
    pairs = where.side_output_left_late_data(early).side_output_right_late_data(late).apply()
    rows = pairs.get_side_output(early).union(pairs.get_side_output(late)).execute_and_collect()
    found = sorted(row.at for row in rows)
    # An input that is read to its end before the other one has no late rows; the other one has.
    assert found in ([1_000, 1_000, 2_000, 2_000], [1_000, 2_000])
