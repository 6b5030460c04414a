"""DataFrames in and out: every method of a result, several inputs, odd schemas, no leftovers."""

import datetime
import decimal
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.api.row import Row
from headgate.base.errors import FrameInvalid
from headgate.datastream import RuntimeExecutionMode
from tests.spark.frames import Sides, Slow, Subtask, left_behind
from tests.spark.programs import collected, environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
COUNT = 1000
UTC = datetime.timezone.utc


def numbers(spark: "SparkSession", count: int = COUNT, partitions: int = 3) -> "DataFrame":
    return spark.range(0, count, 1, partitions).selectExpr("id", "concat('w', id % 10) AS word")


@pytest.fixture(scope="module")
def doubled(spark: "SparkSession") -> Any:
    """DataFrame in, pipeline, DataFrame out."""
    stream = environment().from_dataframe(numbers(spark))
    return stream.map(lambda row: (row.id * 2, row.word)).to_dataframe("n long, word string")


def values(dataframe: Any) -> list[Any]:
    return sorted(row[0] for row in dataframe.collect())


WANTED = [2 * number for number in range(COUNT)]


# What a result can do.


def test_result_is_lazy_and_knows_its_schema(doubled: Any) -> None:
    assert doubled.schema.simpleString() == "struct<n:bigint,word:string>"
    assert "headgate" in doubled._jdf.queryExecution().toString()


@pytest.mark.spark_smoke
def test_result_can_be_collected_again_and_again(doubled: Any) -> None:
    assert values(doubled) == WANTED
    assert values(doubled) == WANTED


def test_result_can_be_shown(doubled: Any, capsys: pytest.CaptureFixture[str]) -> None:
    doubled.show(5)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split("|")[2].strip() == "word"
    assert lines[-2] == "only showing top 5 rows" or "only showing top 5 rows" in lines[-1]


def test_result_can_be_taken_from_and_limited(doubled: Any) -> None:
    assert len(doubled.take(7)) == 7
    assert len(doubled.limit(7).collect()) == 7
    assert doubled.first()["n"] in WANTED
    assert sum(1 for _ in doubled.toLocalIterator()) == COUNT


def test_result_can_be_counted_and_united(doubled: Any) -> None:
    assert doubled.count() == COUNT
    assert values(doubled.union(doubled)) == sorted(2 * WANTED)


def test_result_can_be_coalesced_and_repartitioned(doubled: Any) -> None:
    single = doubled.coalesce(1)
    assert single.rdd.getNumPartitions() == 1
    assert values(single) == WANTED
    assert values(doubled.repartition(7)) == WANTED


def test_result_that_is_cached_runs_once(spark: "SparkSession", tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    def noted(row: Any) -> Any:
        with ran.open("a", encoding="utf-8") as file:
            file.write("x")
        return row.id

    result: Any = environment().from_dataframe(numbers(spark, 10)).map(noted).to_dataframe("n long")
    cached = result.cache()
    try:
        assert cached.count() == 10
        assert values(cached) == list(range(10))
        assert ran.read_text(encoding="utf-8") == 10 * "x"
        assert result.agg({"n": "sum"}).collect()[0][0] == 45
    finally:
        cached.unpersist()


def test_result_can_be_joined_with_others_and_with_itself(
    spark: "SparkSession", doubled: Any
) -> None:
    others = spark.range(COUNT).withColumnRenamed("id", "n")
    assert doubled.join(others, "n").count() == COUNT // 2
    left, right = doubled.alias("a"), doubled.alias("b")
    assert left.join(right, "n").count() == COUNT
    assert doubled.groupBy("word").count().count() == 10


def test_result_can_become_pandas(doubled: Any) -> None:
    frame = doubled.toPandas()
    assert sorted(frame["n"]) == WANTED
    assert set(frame["word"]) == {f"w{number}" for number in range(10)}


def test_result_can_be_written(spark: "SparkSession", doubled: Any, tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    doubled.write.partitionBy("word").parquet(target)
    assert values(spark.read.parquet(target).select("n")) == WANTED


def test_two_actions_may_run_at_the_same_time(doubled: Any) -> None:
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda number=number: found.update({number: values(doubled)}))
        for number in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert found == {0: WANTED, 1: WANTED}


def test_stream_can_become_several_dataframes(spark: "SparkSession") -> None:
    stream = environment().from_dataframe(numbers(spark, 20))
    first: Any = stream.map(lambda row: row.id).to_dataframe("n long")
    second: Any = stream.to_dataframe("id long, word string")
    again: Any = stream.to_dataframe("id long, word string")
    assert values(first) == values(second) == values(again) == list(range(20))


def test_result_can_be_the_input_of_another_job(spark: "SparkSession", doubled: Any) -> None:
    again: Any = environment().from_dataframe(doubled).map(lambda row: row.n // 2)
    assert values(again.to_dataframe("n long")) == list(range(COUNT))


def test_aggregates_by_key_are_final_unless_the_program_streams(spark: "SparkSession") -> None:
    def totals(mode: RuntimeExecutionMode | None) -> list[Any]:
        env = environment()
        if mode is not None:
            env.set_runtime_mode(mode)
        pairs = env.from_dataframe(numbers(spark, 200)).map(lambda row: (row.word, 1))
        counts: Any = pairs.key_by(lambda pair: pair[0]).sum(1).to_dataframe("w string, n long")
        return sorted(tuple(row) for row in counts.collect())

    final = [(f"w{digit}", 20) for digit in range(10)]
    assert totals(None) == final
    assert totals(RuntimeExecutionMode.AUTOMATIC) == final
    running = totals(RuntimeExecutionMode.STREAMING)
    assert running == sorted((word, n) for word, _ in final for n in range(1, 21))


def test_stream_without_dataframes_becomes_one(spark: "SparkSession") -> None:
    result: Any = environment().from_collection(["a", "b", "c"]).to_dataframe("word string")
    assert values(result) == ["a", "b", "c"]


def test_task_keeps_the_order_of_its_rows(spark: "SparkSession") -> None:
    stream = environment(1).from_collection(range(30_000))
    result: Any = stream.to_dataframe("n long")
    assert [row.n for row in result.collect()] == list(range(30_000))


def test_large_result_is_the_same_as_sparks(spark: "SparkSession") -> None:
    count = 60_000
    frame = spark.range(count).selectExpr("id", "concat('w', id % 997) AS word", "id / 7 AS x")
    stream = environment(3).from_dataframe(frame).key_by(lambda row: row.word)
    result: Any = stream.map(lambda row: row).to_dataframe(frame.schema)
    assert result.count() == count
    assert result.exceptAll(frame).count() == 0


# What comes in.


def test_rows_come_to_ordinary_sinks(spark: "SparkSession") -> None:
    stream = environment().from_dataframe(numbers(spark, 50, partitions=1))
    assert collected(stream.map(lambda row: row.id)) == list(range(50))


@pytest.mark.spark_smoke
def test_two_dataframes_are_united_and_connected(spark: "SparkSession") -> None:
    env = environment()
    left = env.from_dataframe(spark.range(30), "left")
    right = env.from_dataframe(spark.createDataFrame([("a",), ("b",)], "word string"), "right")
    sides: Any = left.connect(right).map(Sides()).to_dataframe("side string, id long, word string")
    rows = sides.collect()
    assert sorted(row.id for row in rows if row.side == "left") == list(range(30))
    assert sorted(row.word for row in rows if row.side == "right") == ["a", "b"]
    more = env.from_dataframe(spark.range(100, 130))
    assert collected(left.union(more).map(lambda row: row.id)) == [*range(30), *range(100, 130)]


def test_sources_of_few_tasks_in_groups_of_their_own_get_every_row(spark: "SparkSession") -> None:
    env = environment(1)
    left = env.from_dataframe(spark.range(500)).slot_sharing_group("left")
    right = env.from_dataframe(spark.range(500, 700)).set_parallelism(2).slot_sharing_group("right")
    united = left.union(right).map(lambda row: row.id).slot_sharing_group("left")
    assert collected(united) == list(range(700))


def test_full_source_keeps_no_rows_from_another(spark: "SparkSession") -> None:
    """Rows of the one that is read slowly stand before those of the other."""
    env = environment(1)
    wide = spark.range(0, 400, 1, 1).selectExpr("id", "repeat('x', 100000) AS pad")
    slow = env.from_dataframe(wide).map(Slow(0.005)).map(lambda memory: -1)
    fast = env.from_dataframe(spark.range(400, 500)).map(lambda row: row.id)
    found = collected(slow.union(fast))
    assert found == [-1] * 400 + list(range(400, 500))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 AS id WHERE false",
        "SELECT id FROM range(10) WHERE id < 0",
        "SELECT id FROM (SELECT id, count(*) AS n FROM range(10) GROUP BY id) WHERE n > 1",
        "SELECT id FROM range(10) LIMIT 0",
    ],
)
def test_empty_dataframe_ends_at_once(spark: "SparkSession", query: str) -> None:
    env = environment()
    rows = env.from_dataframe(spark.sql(query))
    others = env.from_collection([1, 2, 3])
    result: Any = rows.map(lambda row: row.id).union(others).to_dataframe("n long")
    assert values(result) == [1, 2, 3]


def test_odd_and_doubled_names_are_kept(spark: "SparkSession") -> None:
    frame = spark.sql("SELECT 1 AS `a.b`, 2 AS `a b`, 3 AS `c``d`, 4 AS id, 5 AS id, 6 AS ``")
    (row,) = collected(environment(1).from_dataframe(frame))
    assert row.get_field_names() == ["a.b", "a b", "c`d", "id", "id", ""]
    assert list(row) == [1, 2, 3, 4, 5, 6]


ALL_TYPES = """
    b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, f4 float, f8 double, s string,
    raw binary, d date, t timestamp, l timestamp_ntz, m decimal(20, 4), iv interval day to second,
    a array<int>, o struct<x: int, `y y`: array<string>>, k map<string, struct<n: bigint>>
"""


@pytest.mark.spark_smoke
def test_every_type_goes_in_and_out_unchanged(spark: "SparkSession") -> None:
    instant = datetime.datetime(2024, 3, 31, 1, 30, 0, 123456, tzinfo=UTC)
    local = datetime.datetime(2024, 3, 31, 2, 30)
    full: Any = (
        *(True, -1, 2, 3, 2**40, 0.5, 1 / 3, "é\0", b"\xff\0", datetime.date(1969, 7, 20)),
        *(instant, local, decimal.Decimal("12345678901234.5678"), datetime.timedelta(3, 4, 5)),
        *([1, None], (7, ["a", None]), {"k": (2**40,), "none": None}),
    )
    frame = spark.createDataFrame([full, (None,) * len(full)], ALL_TYPES)
    env = environment(1)
    result: Any = env.from_dataframe(frame).to_dataframe(ALL_TYPES)
    assert sorted(map(str, result.collect())) == sorted(map(str, frame.collect()))
    rows = collected(env.from_dataframe(frame).filter(lambda row: row.b))
    (row,) = rows
    assert row.t == instant and row.l == local and row.m == full[12]
    assert row.o == Row(7, ["a", None]) or row.o.as_dict() == {"x": 7, "y y": ["a", None]}
    assert row.k["k"].n == 2**40 and row.k["none"] is None and row.iv == full[13]


# Bounds, and what is left.


def test_slow_operator_slows_spark_down_and_memory_stays_bounded(spark: "SparkSession") -> None:
    rows, width = 4000, 50_000
    frame = spark.range(0, rows, 1, 4).selectExpr("id", f"repeat('x', {width}) AS pad")
    spark.conf.set(BATCH_ROWS, "100")  # what is bounded is counted in Spark's batches
    try:
        seen = collected(environment(1).from_dataframe(frame).map(Slow(0.0005)))
    finally:
        spark.conf.unset(BATCH_ROWS)
    assert len(seen) == rows
    assert seen[-1] - seen[0] < rows * width / 2


def test_reused_workers_have_no_thread_border_or_file_left(
    spark: "SparkSession", doubled: Any
) -> None:
    doubled.count()
    files = sorted(Path(tempfile.gettempdir()).glob("headgate-*"))
    left = spark.sparkContext.parallelize(range(8), 4).mapPartitions(left_behind).collect()
    assert left == []
    assert not [file for file in files if file.exists() and any(file.glob("spill-*"))]


# An order.


@pytest.mark.parametrize("partition_by", [(), "car"])
def test_ordered_rows_make_stateful_results_the_same_each_time(
    spark: "SparkSession", partition_by: Any
) -> None:
    from pyspark.sql.functions import rand

    rows = [(f"car {n % 7}", n // 14, n) for n in range(140)]  # two rows with each start
    trips = spark.createDataFrame(rows, "car string, start long, n long")
    found = []
    for seed in range(3):
        shuffled = trips.repartition(2 + seed, rand(seed)).sortWithinPartitions(rand(seed + 10))
        env = environment(3)
        stream = env.from_dataframe(shuffled, order_by="start", partition_by=partition_by)
        pairs = stream.map(lambda row: (row.car, [row.n])).filter(lambda pair: True)
        joined = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
        last: dict[str, list[int]] = {}
        for car, numbers in joined.execute_and_collect():
            last[car] = max(last.get(car, []), numbers, key=len)
        found.append(last)
    wanted = {f"car {n}": [*range(n, 140, 7)] for n in range(7)}
    assert found == [wanted] * 3


def test_partitioned_rows_are_shared_among_the_tasks(spark: "SparkSession") -> None:
    frame = spark.range(200).selectExpr("id % 20 AS k", "id")
    stream = environment(3).from_dataframe(frame, order_by="id", partition_by=["k"])
    seen = list(stream.map(Subtask()).execute_and_collect())
    tasks = {row[0]: {task for k, task in seen if k == row[0]} for row in seen}
    assert all(len(found) == 1 for found in tasks.values())  # each key in one task
    assert len({task for _, task in seen}) == 3


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"order_by": "when"}, "order_by='when', which is not there; the columns are id, m"),
        ({"order_by": "m"}, r"order_by='m', a map<.*>, which has no order"),
        ({"partition_by": "id"}, "partition_by without order_by"),
    ],
)
def test_an_order_that_cannot_be_is_refused(
    spark: "SparkSession", more: dict[str, Any], words: str
) -> None:
    frame = spark.range(3).selectExpr("id", "map(id, id) AS m")
    with pytest.raises(FrameInvalid, match=words):
        environment().from_dataframe(frame, **more)
