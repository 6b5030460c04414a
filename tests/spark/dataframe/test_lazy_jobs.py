"""Jobs behind DataFrames are kept as long as they can be executed, and not longer."""

import gc
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest

from headgate.host.driver.job_log import OURS, DriverLines
from headgate.spark.dataframe.actions import lazy_jobs
from headgate.spark.job import PreparedJob
from headgate.spark.submission import on_action_begun
from tests.spark.cluster import until
from tests.spark.programs import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows(spark: "SparkSession") -> Any:
    stream = environment(1).from_dataframe(spark.range(10))
    return stream.map(lambda row: row.id).to_dataframe("n long")


def newest_job() -> PreparedJob:
    return lazy_jobs._jobs[-1].job


def is_kept(spark: "SparkSession", job: PreparedJob) -> bool:
    """After whatever nobody holds has been collected."""
    gc.collect()
    spark._jvm.System.gc()  # type: ignore[union-attr] # Java runs
    lazy_jobs.forget()
    assert job.driver.control.knows(job.job_id) is any(lazy.job is job for lazy in lazy_jobs._jobs)
    return job.driver.control.knows(job.job_id)


def test_a_job_is_forgotten_with_the_last_dataframe_that_is_derived_from_it(
    spark: "SparkSession",
) -> None:
    result = rows(spark)
    job = newest_job()
    secret = job.secret._file
    assert os.path.exists(secret)
    derived = result.where("n > 4")
    del result
    assert is_kept(spark, job)
    assert derived.count() == 5
    derived.createOrReplaceTempView("kept_by_a_view")
    del derived
    assert is_kept(spark, job)
    assert spark.table("kept_by_a_view").count() == 5
    spark.catalog.dropTempView("kept_by_a_view")
    assert until(lambda: not is_kept(spark, job), 60)
    assert not os.path.exists(secret)


def test_the_log_of_a_job_is_open_while_an_action_runs(spark: "SparkSession") -> None:
    def is_open() -> bool:
        return any(isinstance(h, DriverLines) for h in logging.getLogger(OURS).handlers)

    seen: list[bool] = []
    on_action_begun.append(look := lambda job: seen.append(is_open()))
    try:
        result = rows(spark)
        assert not is_open()
        assert result.count() == 10
    finally:
        on_action_begun.remove(look)
    assert seen == [True]
    assert until(lambda: not is_open(), 30)


def test_many_that_are_dropped_do_not_pile_up(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect()
    spark._jvm.System.gc()  # type: ignore[union-attr]
    lazy_jobs.forget()
    monkeypatch.setattr("headgate.spark.dataframe.actions.MOST_UNASKED", 3)
    monkeypatch.setattr(lazy_jobs, "_ask_at", len(lazy_jobs._jobs) + 3)
    most = 2 * len(lazy_jobs._jobs) + 8
    for _ in range(12):
        rows(spark)
        assert len(lazy_jobs._jobs) <= most
