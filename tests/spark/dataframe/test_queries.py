"""What Spark tells of its queries: when one ends, and whether a job is in its plan."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headgate.spark.dataframe.queries import ClassicQueries, explained_plan, function_of, limit_of
from tests.spark.cluster import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_query_is_known_while_it_runs_and_its_end_is_told(
    spark: "SparkSession", tmp_path: Path
) -> None:
    go_on = tmp_path / "go_on"

    def wait(batches: Any) -> Any:
        until(go_on.exists, 60)
        yield from batches

    queries = ClassicQueries(spark)
    thread = threading.Thread(target=spark.range(9).mapInArrow(wait, "id long").collect)
    try:
        assert queries.await_end(0.1) == "", "from now on it listens"
        before = queries.running()
        thread.start()
        assert until(lambda: bool(queries.running() - before), 60)
        (query,) = queries.running() - before
        assert not queries.has_ended(query)
        go_on.touch()
        assert until(lambda: queries.await_end(10) == query, 60)
        assert until(lambda: queries.has_ended(query), 60)
    finally:
        thread.join()
        queries.close()


def test_a_job_is_found_wherever_it_stands_in_the_plan_of_a_query(spark: "SparkSession") -> None:
    def headgate(batches: Any) -> Any:
        return batches

    stage = spark.range(6).mapInArrow(headgate, "n long")
    found = function_of(stage)
    assert found is not None
    queries, number = ClassicQueries(spark), found[1]
    plans: dict[str, Any] = {}
    queries._plan_of = plans.get  # type: ignore[method-assign, assignment] # of no running query
    stage.createOrReplaceTempView("rows_of_a_stage")
    cached = stage.selectExpr("n * 3 AS n").cache()
    inner = spark.sql("SELECT id FROM range(3) WHERE id < (SELECT max(n) FROM rows_of_a_stage)")
    for name, frame in {
        "derived": stage.where("n > 1").groupBy("n").count(),
        "cached": cached.limit(2),
        "inner": inner,
        "other": spark.range(3).mapInArrow(headgate, "n long"),
    }.items():
        plans[name] = frame._jdf.queryExecution().optimizedPlan()  # type: ignore[operator]
    found_in = [name for name in (*plans, "over") if queries.holds(name, number)]
    assert found_in == ["derived", "cached", "inner"]
    assert cached.count() == 6 and queries.holds("cached", number), "once it is computed, too"
    cached.unpersist()
    spark.catalog.dropTempView("rows_of_a_stage")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("GlobalLimit 5\n+- LocalLimit 5\n   +- MapInArrow headgate(a#1)#2, [n#3L], true", 5),
        ("MapInArrow headgate(a#1)#2, [n#3L], true\n+- Range (0, 5)", None),
        ("GlobalLimit 5\n+- Filter exists#3 [n#1]\n   +- MapInArrow headgate(a#1)#2", None),
        ("GlobalLimit 5\n+- Project [it's\nMapInArrow headgate(\n   of a user]", None),
    ],
)
def test_a_plan_that_a_server_explains_is_read_or_left(text: str, wanted: int | None) -> None:
    root = explained_plan(text)
    assert (None if root is None else limit_of(root)) == wanted
