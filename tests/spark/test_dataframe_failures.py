"""DataFrames in trouble: failing functions, unfit records, killed workers, wrong arguments."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.api.job import JobStatus
from headgate.base.errors import (
    FrameInvalid,
    FunctionUnpicklable,
    JobCancelled,
    JobFailed,
    PlanInvalid,
    SchemaInvalid,
    SlotsShort,
)
from tests.spark.frames import DieOnce, FailAt
from tests.spark.programs import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def failure(action: Any) -> JobFailed:
    """What the user gets."""
    with pytest.raises(JobFailed) as caught:
        action()
    return caught.value


def rows_with(spark: "SparkSession", function: Any) -> Any:
    stream = environment().from_dataframe(spark.range(100)).map(lambda row: (row.id,))
    return stream.map(function).name("checked").to_dataframe("n long")


@pytest.mark.spark_smoke
def test_failing_function_fails_the_action_once_and_is_named_first(
    spark: "SparkSession", tmp_path: Path
) -> None:
    count = tmp_path / "count"
    result = rows_with(spark, FailAt(count, 50))
    error = failure(result.collect)
    assert (error.job, error.operator) == ("unnamed", "checked")
    assert error.summary.endswith("failed in operator 'checked': ValueError: 50 is a bad number")
    text = str(error)
    assert text.startswith("Traceback") and text.endswith(error.summary)
    assert "frames.py" in text
    assert isinstance(error.__cause__, ValueError)
    assert "py4j" not in text and "org.apache" not in text and "java" not in text
    assert count.read_text(encoding="utf-8") == "x"


@pytest.mark.spark_smoke
@pytest.mark.filterwarnings("ignore:toPandas attempted")  # PySpark warns before it lets it pass
@pytest.mark.parametrize(
    "action",
    [
        lambda frame, folder: frame.show(200),  # fewer rows may be there before the bad one
        lambda frame, folder: frame.groupBy("n").count().take(3),
        lambda frame, folder: frame.toPandas(),
        lambda frame, folder: frame.write.parquet(str(folder / "out")),
        lambda frame, folder: frame.foreachPartition(list),
        lambda frame, folder: ThreadPoolExecutor(1).submit(frame.collect).result(),
    ],
    ids=["show", "derived", "toPandas", "write", "foreachPartition", "collect in a thread"],
)
def test_every_action_raises_job_failed(spark: "SparkSession", tmp_path: Path, action: Any) -> None:
    result = rows_with(spark, FailAt(tmp_path / "count", 50))
    spark.newSession()  # PySpark installs its own conversion of errors anew
    assert failure(lambda: action(result, tmp_path)).operator == "checked"


def test_errors_of_other_stages_stay_sparks_own(spark: "SparkSession", tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    failure(rows_with(spark, FailAt(tmp_path / "count", 50)).count)
    with pytest.raises(PySparkException, match="no column of mine"):
        spark.range(3).selectExpr("raise_error('no column of mine')").collect()
    with pytest.raises(PySparkException, match="UNRESOLVED_COLUMN"):
        spark.range(3).select("nothing")


def test_failed_action_spoils_no_later_one(spark: "SparkSession", tmp_path: Path) -> None:
    count = tmp_path / "count"
    good: Any = environment().from_dataframe(spark.range(100)).map(lambda row: row.id)
    result: Any = good.to_dataframe("n long")
    assert result.count() == 100
    failure(rows_with(spark, FailAt(count, 50)).count)
    assert result.count() == 100


def test_unfit_record_is_told_with_column_value_and_operator(spark: "SparkSession") -> None:
    stream = environment().from_dataframe(spark.range(100)).map(lambda row: (row.id, "x"))
    result: Any = stream.to_dataframe("n long, m int")
    assert "column 'm': 'x' is no whole number" in failure(result.count).summary


@pytest.mark.spark_smoke
def test_killed_worker_makes_spark_try_again_with_the_right_result(
    spark: "SparkSession", tmp_path: Path
) -> None:
    marker = tmp_path / "died"
    result = rows_with(spark, DieOnce(marker, 50))
    assert sorted(row.n for row in result.collect()) == list(range(100))
    assert marker.exists()


def test_killed_worker_fails_a_job_with_sinks_of_its_own(
    spark: "SparkSession", tmp_path: Path
) -> None:
    env = environment()
    stream = env.from_dataframe(spark.range(100)).map(lambda row: (row.id,))
    stream.map(DieOnce(tmp_path / "died", 50)).add_sink(lambda value: None)
    with pytest.raises(JobFailed, match="task manager"):
        env.execute()


def test_failing_function_fails_a_job_with_sinks_of_its_own(
    spark: "SparkSession", tmp_path: Path
) -> None:
    env = environment()
    stream = env.from_dataframe(spark.range(100)).map(lambda row: (row.id,))
    stream.map(FailAt(tmp_path / "count", 50)).name("checked").add_sink(lambda value: None)
    with pytest.raises(JobFailed, match="50 is a bad number") as caught:
        env.execute()
    assert caught.value.operator == "checked"


def test_job_that_reads_a_dataframe_can_be_cancelled(spark: "SparkSession") -> None:
    env = environment()
    stream = env.from_dataframe(spark.range(20_000))
    stream.map(lambda row: time.sleep(0.01) or row).add_sink(lambda value: None)
    client = env.execute_async("slow")
    while (status := client.get_job_status().result()) is not JobStatus.RUNNING:
        assert not status.is_terminal_state(), client.get_job_execution_result().exception()
        time.sleep(0.05)
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    with pytest.raises(JobCancelled):
        client.get_job_execution_result().result()


def test_input_that_fails_in_spark_is_told(spark: "SparkSession") -> None:
    broken = spark.range(10).selectExpr("raise_error('the input is broken') AS x", "id")
    env = environment()
    env.from_dataframe(broken).add_sink(lambda value: None)
    with pytest.raises(JobFailed, match="the input is broken"):
        env.execute()


# What is refused before anything runs.


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("n lng", "cannot be read"),
        ("", "has no columns|cannot be read"),
        (5, "is a int"),
        (["n"], "is a list; write for instance 'word string, count long'"),
        ("n long, n string", "column 'n', which is there more than once"),
        ("n variant", "column 'n', which is a variant"),
        ("a array<struct<x: interval year>>", "column 'a.element.x', which is a interval year"),
    ],
)
def test_schema_that_cannot_be_is_refused_early(
    spark: "SparkSession", schema: object, words: str
) -> None:
    with pytest.raises(SchemaInvalid, match=words):
        environment().from_collection([1]).to_dataframe(schema)


def test_type_alone_is_the_schema_of_one_column(spark: "SparkSession") -> None:
    from pyspark.sql.types import LongType

    result: Any = environment().from_collection([1, 2]).to_dataframe(LongType())
    assert sorted(row.value for row in result.collect()) == [1, 2]


def test_what_is_no_dataframe_is_refused_early(spark: "SparkSession", tmp_path: Path) -> None:
    import pandas

    env = environment()
    with pytest.raises(FrameInvalid, match="pandas.*DataFrame; give a Spark DataFrame"):
        env.from_dataframe(pandas.DataFrame({"a": [1]}))
    with pytest.raises(FrameInvalid, match="streaming DataFrame; give one that ends"):
        env.from_dataframe(spark.readStream.format("rate").load())
    with pytest.raises(FrameInvalid, match="column 'v' is a variant"):
        env.from_dataframe(spark.sql("SELECT parse_json('1') AS v"))
    with pytest.raises(FrameInvalid, match="without columns"):
        env.from_dataframe(spark.range(3).select())
    with pytest.raises(PlanInvalid):
        env.from_dataframe(spark.range(3), name="")


def test_job_that_needs_more_slots_than_there_are_is_refused(spark: "SparkSession") -> None:
    with pytest.raises(SlotsShort, match="needs 5 slots"):
        environment(5).from_dataframe(spark.range(3)).to_dataframe("n long")
    env = environment(5)
    env.from_dataframe(spark.range(3)).add_sink(lambda value: None)
    with pytest.raises(SlotsShort, match="needs 5 slots"):
        env.execute()


def test_function_that_cannot_travel_is_refused_before_an_action(spark: "SparkSession") -> None:
    import threading

    lock = threading.Lock()
    stream = environment().from_dataframe(spark.range(3)).map(lambda row: (lock, row.id))
    with pytest.raises(FunctionUnpicklable, match="'Map'"):
        stream.to_dataframe("n long")


def test_objects_of_sparks_driver_in_a_function_are_named_with_what_to_do(
    spark: "SparkSession",
) -> None:
    frame, context = spark.range(3), spark.sparkContext
    broadcast, counter = context.broadcast({1: "one"}), context.accumulator(0)
    uses: list[tuple[str, Any, str]] = [
        ("spark", lambda row: spark.range(row.id).count(), "env.from_dataframe"),
        ("frame", lambda row: [frame.count() for _ in range(1)], "env.from_dataframe"),
        ("context", lambda row: context.defaultParallelism, "env.from_dataframe"),
        ("broadcast", lambda row: broadcast.value[row.id], "hold its value"),
        ("counter", lambda row: counter.add(1), "get_metrics_group"),
    ]
    for variable, function, advice in uses:
        stream = environment().from_dataframe(frame).map(function)
        words = f"closure variable '{variable}' of .*lives in the driver.*{advice}"
        with pytest.raises(FunctionUnpicklable, match=words) as caught:
            stream.to_dataframe("n long")
        assert "open()" not in str(caught.value)
