"""The DataFrames of ``foreachBatch``: a job for each, and nothing is left of it."""

import gc
import json
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headgate
from headgate.connectors.dataframe.source import DataFrameSource
from headgate.host.files.owned_folder import shared_folder
from headgate.spark.dataframe import actions
from headgate.spark.dataframe.actions import lazy_jobs
from tests.spark.cluster import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 5


def totals(stream: Any) -> Any:
    return stream.map(lambda row: (row.word, 1)).key_by(lambda pair: pair[0]).sum(1)


def test_each_micro_batch_is_a_job_of_which_nothing_is_left(
    spark: "SparkSession", tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(BATCHES):
        lines = 4 * (json.dumps({"word": f"w{number}"}) + "\n")
        (tmp_path / "in" / f"{number}.json").write_text(lines)
    kept: list[int] = []

    def handle(batch: "DataFrame", number: int) -> None:
        result: Any = batch.transform(
            headgate.transform, totals, "word string, total long", order_by="word", parallelism=2
        )
        result.groupBy("word").max("total").write.mode("append").json(str(tmp_path / "out"))
        kept.append(len(left_behind()))

    first: Any = spark.createDataFrame([("w",)], "word string")
    first.transform(headgate.transform, totals, "word string, total long").collect()
    before, files, cached = left_after_a_collection(spark), open_files(), cached_data(spark)
    reader = spark.readStream.schema("word string").option("maxFilesPerTrigger", 1)
    query = (
        reader.json(str(tmp_path / "in"))
        .writeStream.foreachBatch(handle)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(300)
    finally:
        query.stop()
    found = sorted(tuple(row) for row in spark.read.json(str(tmp_path / "out")).collect())
    assert found == [(4, f"w{number}") for number in range(BATCHES)]
    assert len(kept) == BATCHES
    del query, reader
    assert until(lambda: not left_after_a_collection(spark) - before, 60), left_behind() - before
    # Python's end of foreachBatch in Spark and py4j keep a few; a leak would be ten or more.
    assert until(lambda: open_files() < files + BATCHES, 60), (files, open_files())
    assert cached_data(spark) == cached


def cached_data(spark: "SparkSession") -> int:
    return int(spark.sparkContext._jsc.getPersistentRDDs().size())  # type: ignore[attr-defined]


def open_files() -> int:
    """Sockets, too."""
    return len(os.listdir("/proc/self/fd"))


def left_after_a_collection(spark: "SparkSession") -> set[str]:
    gc.collect()
    spark._jvm.System.gc()  # type: ignore[union-attr] # Java runs
    lazy_jobs.forget()
    return left_behind()


def left_behind() -> set[str]:
    """Jobs, secrets, log handlers, actions, endpoints, threads and DataFrames of Headgate."""
    threads = [t.name for t in threading.enumerate() if t.name.startswith("headgate")]
    sources = [source.token for source in gc.get_objects() if type(source) is DataFrameSource]
    return {
        *(lazy.job.job_id for lazy in lazy_jobs._jobs),
        *os.listdir(shared_folder("secrets")),
        *map(repr, logging.getLogger("headgate").handlers),
        *actions._running,
        *threads,
        *sources,
    }
