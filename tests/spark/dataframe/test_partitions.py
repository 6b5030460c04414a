"""Jobs without exchanges: they run in the partitions of their DataFrame, as mapInArrow does."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headgate import ErrorPolicy
from headgate.api.columns import col
from headgate.api.job import JobStatus
from headgate.base.errors import JobCancelled, JobFailed
from headgate.datastream import StreamExecutionEnvironment
from headgate.spark.dataframe.conversion import partition_count
from headgate.spark.dataframe.frame_job import FrameJob
from tests.spark.cluster import until
from tests.spark.programs import environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLOTS = 4
ROWS = 3_000


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def mapped(frame: "DataFrame", function: Any = same, parallelism: int = SLOTS) -> Any:
    stream = environment(parallelism).from_dataframe(frame)
    return stream.map_batches(function).name("mine").to_dataframe()


def numbers(spark: "SparkSession", partitions: int = SLOTS, rows: int = ROWS) -> "DataFrame":
    return spark.range(0, rows, 1, partitions).withColumnRenamed("id", "n")


def plan_of(frame: "DataFrame") -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]


def in_partitions(frame: "DataFrame") -> bool:
    plan = plan_of(frame)
    assert "MapInArrow headgate(" in plan
    return "headgate_pack" not in plan and "Exchange" not in plan


@pytest.mark.spark_smoke
@pytest.mark.parametrize("partitions", [SLOTS, 1, 50])
def test_rows_go_through_the_partitions_that_are_there(
    spark: "SparkSession", partitions: int
) -> None:
    frame = numbers(spark, partitions)
    parallelism = 1 if partitions == 1 else SLOTS
    stream = environment(parallelism).from_dataframe(frame)
    large = stream.filter(col("n") >= 1000).with_column("twice", col("n") * 2)
    result: Any = large.map_batches(same).select("twice").to_dataframe()
    assert in_partitions(result)
    assert result.rdd.getNumPartitions() == partitions
    assert sorted(row.twice for row in result.collect()) == list(range(2000, 2 * ROWS, 2))


def test_a_program_that_sets_no_parallelism_runs_in_the_partitions(spark: "SparkSession") -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    assert in_partitions(env.from_dataframe(numbers(spark, 9)).map_batches(same).to_dataframe())  # type: ignore[arg-type]


class Opened:
    """Is opened once for each task."""

    def open(self, context: Any) -> None:
        self.tasks = context.get_number_of_parallel_subtasks()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"n": [self.tasks]})


def test_what_needs_more_than_its_partition_takes_a_barrier_stage(spark: "SparkSession") -> None:
    frame = numbers(spark)
    assert in_partitions(mapped(frame))
    assert not in_partitions(mapped(numbers(spark, 1)))  # its rows are to be spread
    assert not in_partitions(mapped(frame, parallelism=2))  # no more than two at a time
    opened = mapped(frame, Opened())
    assert not in_partitions(opened)
    assert {row.n for row in opened.collect()} == {SLOTS}
    ordered = environment(SLOTS).from_dataframe(frame, order_by="n", partition_by="n")
    assert not in_partitions(ordered.map_batches(same).to_dataframe())  # type: ignore[arg-type]
    counted = environment(SLOTS).from_dataframe(frame).map_batches(same).key_by("n").count()
    assert not in_partitions(counted.to_dataframe())  # type: ignore[arg-type]
    spread = environment(SLOTS).from_dataframe(frame).columns().rebalance().map_batches(same)
    assert not in_partitions(spread.to_dataframe())  # type: ignore[arg-type]


def test_only_partitions_that_surely_stay_are_counted(
    spark: "SparkSession", tmp_path: Path
) -> None:
    frame = numbers(spark, 5)
    assert partition_count(frame) == 5
    assert partition_count(frame.where("n > 3").selectExpr("n + 1 AS m")) == 5
    assert partition_count(frame.coalesce(2)) == 2
    assert partition_count(frame.repartition(7).select("n")) == 7
    assert partition_count(frame.repartition(7).coalesce(3)) == 3
    assert partition_count(frame.union(frame)) == 10
    frame.write.parquet(str(tmp_path / "files"))
    assert partition_count(spark.read.parquet(str(tmp_path / "files"))) is not None
    odd = frame.selectExpr("n % 100 AS n")  # Spark knows where the rows of a range are
    for unsure in (odd.groupBy("n").count(), odd.orderBy("n"), odd.join(odd, "n")):
        assert partition_count(unsure) is None
    cached = frame.repartition(6).cache()
    assert partition_count(cached.select("n")) == 6
    cached.count()
    assert partition_count(cached.select("n")) == 6
    cached.unpersist()


def test_all_actions_work_on_the_result(spark: "SparkSession", tmp_path: Path) -> None:
    result = mapped(numbers(spark))
    assert result.count() == ROWS
    assert len(result.take(3)) == 3
    assert result.limit(7).count() == 7
    assert result.first() is not None and not result.isEmpty()
    assert "only showing top 2 rows" in result._show_string(2)
    result.write.parquet(str(tmp_path / "out"))
    assert spark.read.parquet(str(tmp_path / "out")).agg({"n": "sum"}).first()[0] == sum(
        range(ROWS)
    )
    assert result.join(numbers(spark, 2), "n").count() == ROWS
    assert result.union(result).groupBy("n").count().where("count = 2").count() == ROWS
    assert result.orderBy("n").tail(1)[0].n == ROWS - 1
    cached = result.cache()
    assert cached.count() == cached.count() == ROWS
    cached.unpersist()
    assert result.rdd.map(lambda row: row.n).sum() == sum(range(ROWS))


def test_an_empty_dataframe_gives_an_empty_one(spark: "SparkSession") -> None:
    result = mapped(numbers(spark, rows=0))
    assert result.collect() == [] and result.columns == ["n"]
    assert mapped(spark.createDataFrame([], "a int, `odd.name` string"), parallelism=1).count() == 0


def test_columns_with_odd_names_pass(spark: "SparkSession") -> None:
    frame = numbers(spark).selectExpr("n AS a", "n + 1 AS `odd.name`")
    result = mapped(frame)
    assert result.columns == ["a", "odd.name"]
    assert sorted(map(tuple, result.collect()))[:2] == [(0, 1), (1, 2)]


def test_a_few_rows_cost_a_few_partitions(spark: "SparkSession", tmp_path: Path) -> None:
    def noted(batch: pa.RecordBatch) -> pa.RecordBatch:
        (tmp_path / f"{batch.column(0)[0].as_py()}").touch()
        return batch

    assert len(mapped(numbers(spark, 40), noted).take(2)) == 2
    assert len(list(tmp_path.iterdir())) == 1


def test_a_function_that_raises_ends_the_action_with_its_error(
    spark: "SparkSession", begun: list[FrameJob]
) -> None:
    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.column(0)[0].as_py():
            raise ValueError("not this one")
        return batch

    result = mapped(numbers(spark, 8), fails)
    for act in (result.count, result.collect, result.where("n > 5").count):
        with pytest.raises(JobFailed, match="operator 'mine': ValueError: not this one") as failed:
            act()
        assert isinstance(failed.value.__cause__, ValueError)
        assert "in fails\n" in str(failed.value)
    assert until(lambda: all(job.has_ended() for job in begun), 30)
    own = [job for job in begun if job.status() is not JobStatus.FINISHED]  # that of a test before
    assert [job.status() for job in own] == [JobStatus.FAILED] * 3
    (failure,) = own[0].failures()
    assert failure.operator == "mine"


def test_a_schema_that_does_not_fit_is_told_by_name(spark: "SparkSession") -> None:
    with pytest.raises(JobFailed, match="operator 'mine': its function returned a batch with the"):
        mapped(numbers(spark), lambda batch: pa.record_batch({"m": [1]})).count()


def test_a_batch_that_fails_is_left_out_by_a_policy(
    spark: "SparkSession", begun: list[FrameJob]
) -> None:
    def cut(batch: pa.RecordBatch) -> Any:
        return batch if batch.column(0)[0].as_py() else "no table"

    stream = environment(SLOTS).from_dataframe(numbers(spark))
    result: Any = stream.map_batches(cut).on_error(ErrorPolicy.SKIP).to_dataframe()
    assert in_partitions(result)
    assert result.count() == ROWS - ROWS // SLOTS
    assert until(lambda: sum(_skipped(job) for job in begun) == 1, 30)


def _skipped(job: FrameJob) -> int:
    return sum(operator.skipped for task in job.figures() for operator in task.operators)


def test_an_error_of_spark_stays_an_error_of_spark(spark: "SparkSession") -> None:
    from pyspark.errors import PySparkException

    broken = numbers(spark).selectExpr("n", "raise_error('above') AS m")
    with pytest.raises(PySparkException, match="above"):
        mapped(broken).count()
    result = mapped(numbers(spark)).selectExpr("raise_error('below')")
    with pytest.raises(PySparkException, match="below"):
        result.collect()


def test_an_action_is_a_job_with_figures_that_ends(
    spark: "SparkSession", begun: list[FrameJob]
) -> None:
    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(2)  # a process that is not connected when the query ends has no figures
        return batch

    result = mapped(numbers(spark, 2 * SLOTS), slow)
    assert result.count() == ROWS
    assert until(lambda: bool(begun) and begun[0].has_ended(), 30)
    (job,) = begun
    assert job.status() is JobStatus.FINISHED
    source, mine, sink = (
        sum(
            task.operators[place].records_in or task.operators[place].records_out
            for task in job.figures()
        )
        for place in range(3)
    )
    assert source == mine == sink == 2 * SLOTS  # batches


def test_a_cancelled_job_ends_its_action(spark: "SparkSession", begun: list[FrameJob]) -> None:
    def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(0.3)
        return batch

    def cancel() -> None:
        assert until(lambda: bool(begun), 60)
        begun[0].cancel("enough")

    result = mapped(numbers(spark, 400), slow)
    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(JobCancelled, match="enough"):
        result.count()
    thread.join()
    assert begun[0].status() is JobStatus.CANCELED


KILLED = """
import os, pathlib, signal, sys
from pyspark.sql import SparkSession
import headgate

mark = pathlib.Path(sys.argv[1])

def killed_once(batch):
    if batch.column(0)[0].as_py() == 500:
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return batch
        os.kill(os.getpid(), signal.SIGKILL)
    return batch

spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.range(0, 1000, 1, 4)
env = headgate.StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
result = env.from_dataframe(frame).map_batches(killed_once).to_dataframe()
assert "headgate_pack" not in result._jdf.queryExecution().executedPlan().toString()
rows = sorted(row.id for row in result.collect())
assert rows == list(range(1000)), len(rows)
assert mark.exists()
print("all rows")
"""


@pytest.mark.timeout(300)
def test_a_killed_worker_costs_no_rows(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "mark")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert "all rows" in ended.stdout, ended.stderr[-3000:]
