"""How many rows an action wants, and jobs that end when these are there."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.spark.dataframe.frame_job import FrameJob
from headgate.spark.dataframe.queries import limit_of_plan
from tests.spark.cluster import until
from tests.spark.frames import Uneven
from tests.spark.programs import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = 200_000


def endless(spark: "SparkSession") -> Any:
    """It would take minutes."""
    stream = environment().from_dataframe(spark.range(MANY))
    slow = stream.map(lambda row: time.sleep(0.002) or (row.id, str(row.id)))
    return slow.rebalance().map(lambda pair: pair).to_dataframe("n long, word string")


def short(spark: "SparkSession", name: str = "short") -> Any:
    stream = environment().from_dataframe(spark.range(300))
    return stream.map(lambda row: (row.id, str(row.id))).to_dataframe("n long, word string", name)


def rows_read(job: FrameJob) -> int:
    assert until(job.has_ended, 60)
    assert job.status().name == "FINISHED", job.failures()
    return sum(figures.records_made for figures in job.figures())


@pytest.mark.spark_smoke
def test_an_action_that_wants_a_few_rows_ends_the_job(
    spark: "SparkSession", begun: list[FrameJob], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    result = endless(spark)
    assert len({row.n for row in result.take(5)}) == 5
    assert result.first().word.isdecimal()
    result.select("word").show(3)
    assert "only showing top 3 rows" in capsys.readouterr().out
    assert not result.isEmpty()
    result.limit(7).select(result.n).write.parquet(str(tmp_path / "seven"))
    assert spark.read.parquet(str(tmp_path / "seven")).count() == 7
    assert len(begun) == 5, "each action is one run; Spark has not tried again"
    assert all(rows_read(job) < MANY // 2 for job in begun)


def test_user_code_that_is_slow_to_come_back_costs_no_rows(
    spark: "SparkSession", begun: list[FrameJob]
) -> None:
    env = environment()
    env.get_config().set_task_cancellation_timeout(1)
    stream = env.from_dataframe(spark.range(4000))
    slow: Any = stream.map(lambda row: (row.id, row.id not in (2000, 2001) or time.sleep(2)))
    assert len(slow.map(lambda pair: pair[0]).to_dataframe("n long").take(5)) == 5
    (job,) = begun  # Spark has not tried again
    assert rows_read(job) <= 4000


def test_rows_that_are_lost_in_the_middle_of_an_action_are_made_by_a_whole_run(
    spark: "SparkSession", begun: list[FrameJob], tmp_path: Path
) -> None:
    from pyspark.sql.functions import udf

    reading, lost = tmp_path / "reading", tmp_path / "swapped"

    def lose() -> None:
        """Like the loss of an executor after the first partition was read."""
        assert until(reading.exists, 60)
        context: Any = spark.sparkContext._jsc.sc()  # type: ignore[union-attr]
        for shuffle in range(context.newShuffleId()):
            context.cleaner().get().doCleanupShuffle(shuffle, True)
        lost.touch()

    stream = environment().from_dataframe(spark.range(2000))
    uneven: Any = stream.map(Uneven(tmp_path)).to_dataframe("n long")
    thread = threading.Thread(target=lose)
    thread.start()
    waits = udf(lambda n: reading.touch() or (until(lost.exists, 60) and n), "long")
    rows = uneven.select(waits("n").alias("n")).take(700)
    thread.join()
    assert len({row.n for row in rows}) == 700
    assert [rows_read(job) == 2000 for job in begun] == [False, True]


def test_a_failure_before_there_are_enough_rows_is_told(spark: "SparkSession") -> None:
    from headgate.base.errors import JobFailed

    stream = environment().from_dataframe(spark.range(100)).map(lambda row: 1 // 0)
    result: Any = stream.to_dataframe("n long")
    with pytest.raises(JobFailed, match="ZeroDivisionError"):
        result.take(5)


def test_a_job_with_fewer_rows_than_wanted_gives_all(
    spark: "SparkSession", begun: list[FrameJob]
) -> None:
    result = short(spark, "fewer")
    assert sorted(row.n for row in result.limit(1000).collect()) == list(range(300))
    assert [row.n for row in result.where("n > 297").orderBy("n").limit(5).collect()] == [298, 299]
    own = [job for job in begun if job.name == "fewer"]  # Spark may still repeat a failed stage
    assert [rows_read(job) for job in own] == [300, 300]


@pytest.fixture(scope="module")
def frames(spark: "SparkSession") -> Iterator[dict[str, Any]]:
    result = short(spark)
    result.createOrReplaceTempView("rows_of_a_job")
    yield {
        "job": result,
        "words": spark.range(9).selectExpr("id AS n", "'x' AS word"),
        "cached": result.selectExpr("n * 7 AS n").cache(),
    }
    spark.catalog.dropTempView("rows_of_a_job")


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        (lambda job, **_: job, None),
        (lambda job, **_: job.limit(5), 5),
        (lambda job, **_: job.limit(9).limit(5), 5),
        (lambda job, **_: job.selectExpr("n + 1 AS m").limit(5).where("m > 2"), 5),
        (lambda job, **_: job.limit(5).groupBy("word").count(), 5),
        (lambda job, **_: job.offset(3).limit(5), 8),
        (lambda job, **_: job.coalesce(1).limit(5), 5),
        (lambda job, **_: job.sparkSession.sql("SELECT n FROM rows_of_a_job LIMIT 4"), 4),
        (lambda job, words, **_: job.union(words).limit(5), 5),
        (lambda job, words, **_: job.limit(5).join(words, "n"), 5),
        (lambda job, **_: job.limit(5).unionAll(job.limit(7)), 7),
        # What is behind a filter, a sort or a sum may need any row.
        (lambda job, **_: job.where("n > 3").limit(5), None),
        (lambda job, **_: job.orderBy("n").limit(5), None),
        (lambda job, **_: job.groupBy("n").count().limit(5), None),
        (lambda job, words, **_: job.join(words, "n").limit(5), None),
        (lambda job, **_: job.selectExpr("explode(array(n))").limit(5), None),
        # The same rows once more, of which all are needed.
        (lambda job, **_: job.limit(5).unionAll(job), None),
        (lambda job, **_: job.limit(5).where("n < (SELECT max(n) FROM rows_of_a_job)"), None),
        (lambda job, **_: job.limit(5).unionAll(job.rdd.toDF()), None),
        (lambda job, cached, **_: job.select("n").limit(5).unionAll(cached.limit(1)), None),
    ],
)
def test_a_limit_counts_only_if_nothing_can_need_more(
    frames: dict[str, Any], query: Any, wanted: int | None
) -> None:
    plan = query(**frames)._jdf.queryExecution().optimizedPlan()
    assert limit_of_plan(plan, number_of(frames["job"])) == wanted


def test_plans_of_other_jobs_have_no_limit(frames: dict[str, Any]) -> None:
    plan = frames["job"].limit(5)._jdf.queryExecution().optimizedPlan()
    assert limit_of_plan(plan, -1) is None


def number_of(result: Any) -> int:
    """Of the function of a job's stage."""
    node = result._jdf.queryExecution().analyzed()
    while node.nodeName() != "MapInArrow":
        node = node.children().head()
    return int(node.functionExpr().resultId().id())
