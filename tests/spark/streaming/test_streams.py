"""Streaming queries and jobs on Spark: each row once, whatever is stopped, fails and restarts."""

import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from headgate.base.errors import (
    FrameInvalid,
    HeadgateError,
    JobFailed,
    PlanInvalid,
    StreamUnfit,
)
from headgate.common import Configuration
from headgate.datastream import StreamExecutionEnvironment
from headgate.datastream.connectors import StreamingInput, StreamingOutput
from headgate.host.files.owned_folder import shared_folder
from headgate.spark import register
from headgate.spark.streaming import job_streams
from headgate.spark.streaming.addresses import stream_uri
from headgate.spark.streaming.job_streams import FeedingQuery
from tests.connectors.streaming.kit import attached_input
from tests.spark.streaming.kit import SCHEMA, Files, Query, Taken, until

pytestmark = pytest.mark.timeout(600)

JOB = "kiosk"
ROUNDS = 4


def environment(folder: Path, **settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", str(folder / "checkpoints"))
    for key, text in settings.items():
        configuration.set_string(key.replace("_", "."), text)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(1).enable_checkpointing(300)


def shop(folder: Path, savepoint: str = "") -> Any:
    configuration = {"execution_state-recovery_path": savepoint} if savepoint else {}
    env = environment(folder, **configuration)
    orders = env.from_source(StreamingInput("orders", SCHEMA))
    totals = orders.map(lambda row: (row.id, row.price * 2))
    totals.sink_to(StreamingOutput("totals", "id long, total double"))
    return env.execute_async(JOB)


def test_each_row_is_counted_once_whoever_is_restarted(spark, tmp_path):
    register(spark)  # as the short way does: else each way has Python daemons of its own in Spark
    files, taken = Files(tmp_path / "orders"), Taken()
    files.add(0, 1, 2)
    job = shop(tmp_path)

    def feed():
        writer = files.frame(spark).writeStream.format("headgate")
        writer = writer.option("job", JOB).option("input", "orders")
        return writer.option("checkpointLocation", str(tmp_path / "feed")).start()

    def take():
        reader = spark.readStream.format("headgate").option("job", JOB)
        frame = reader.option("output", "totals").load()
        writer = frame.writeStream.foreachBatch(taken)
        return writer.option("checkpointLocation", str(tmp_path / "take")).start()

    feeding, taking = Query(feed), Query(take)
    try:
        until(lambda: taken.ids == [0, 1, 2], "the first rows", feeding, taking)
        with pytest.raises(HeadgateError, match=r"has no input 'bills'; it has 'orders'"):
            stream_uri({"job": JOB, "input": "bills"}, "input")
        with pytest.raises(HeadgateError, match=r"'mall' is no running job; running are .*kiosk"):
            stream_uri({"job": "mall", "input": "orders"}, "input")

        savepoint = job.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
        files.add(3, 4)
        job = shop(tmp_path, savepoint)
        until(lambda: len(taken.ids) >= 5, "rows after the savepoint", feeding, taking)

        feeding.stop()
        files.add(5)
        taking.restart()
        feeding.restart()
        until(lambda: len(taken.ids) >= 6, "rows after the queries' restart", feeding, taking)
        assert taken.ids == [0, 1, 2, 3, 4, 5]

        job.cancel()
        assert "is canceled" in taking.error()
    finally:
        feeding.stop()
        taking.stop()
        job.cancel()


def fails_once(mark: Path) -> Any:
    def pass_on(row: Any) -> Any:
        if row.id == 4 and not mark.exists():
            mark.touch()
            raise RuntimeError("planted")
        return row.id, row.price

    return pass_on


def test_streaming_dataframes_go_in_and_out_of_a_job_that_fails(spark, tmp_path):
    files, taken = Files(tmp_path / "orders"), Taken()
    files.add(0, 1, 2)
    env = environment(tmp_path)
    passed = env.from_streaming_dataframe(files.frame(spark), "orders")
    frame = passed.map(fails_once(tmp_path / "failed")).to_streaming_dataframe(SCHEMA)
    job = env.execute_async("frames")

    def take():
        writer = frame.writeStream.foreachBatch(taken)
        return writer.option("checkpointLocation", str(tmp_path / "take")).start()

    taking = Query(take)
    try:
        until(lambda: len(taken.ids) >= 3, "the first rows", taking)
        files.add(3, 4, 5)
        until(lambda: len(taken.ids) >= 6, "rows after the failure", taking)
        assert taken.ids == [0, 1, 2, 3, 4, 5]
        assert (tmp_path / "failed").exists()

        (feeding,) = [query for query in spark.streams.active if "orders" in (query.name or "")]
        feeding.stop()
        with pytest.raises(JobFailed, match="feeds input 'orders' was stopped; cancel the job"):
            job.get_job_execution_result().result()
    finally:
        taking.stop()
        job.cancel()


def held() -> tuple[set[str], int]:
    """Threads of Headgate, open files and sockets of this process."""
    names = {thread.name for thread in threading.enumerate()}
    return {name for name in names if name.startswith("headgate-query")}, len(
        os.listdir("/proc/self/fd")
    )


def test_a_query_ends_with_its_job_and_leaves_nothing(spark):
    rate = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    before: tuple[set[str], int] = set(), 0
    logs, cached = private_logs(), spark.sparkContext._jsc.getPersistentRDDs().size()
    for number in range(ROUNDS):
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        ticks = env.from_streaming_dataframe(rate, "rate").map(lambda row: row.value)
        if number % 2:
            ticks.map(lambda value: value / 0).print()
            with pytest.raises(JobFailed, match="division by zero"):
                env.execute("ticks")
        else:
            with ticks.execute_and_collect("ticks") as found:
                next(found)

        until(lambda: not spark.streams.active, "no query is left")
        until(lambda: not held()[0], "no thread is left")
        until(lambda: private_logs() == logs, "no log is left")
        before = before if number > 1 else held()
    assert held()[1] <= before[1] + 4  # py4j keeps a few connections
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == cached


def private_logs() -> set[Path]:
    return set(Path(shared_folder("streams")).rglob("stream.json"))


@pytest.mark.spark_smoke
def test_a_query_that_is_started_while_its_job_ends_is_stopped(spark, tmp_path):
    """A job that fails at once does so while Spark starts the query."""
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("value", pa.int64())])
    end = attached_input(tmp_path / "log", schema=schema).stream
    end.frame = spark.readStream.format("rate").load()
    ended = threading.Event()
    ended.set()

    FeedingQuery(end, spark, "j1", pytest.fail, ended)

    until(lambda: not spark.streams.active, "no query is left")


def test_a_query_whose_checkpoints_spark_cannot_reach_is_refused(spark, tmp_path, monkeypatch):
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("value", pa.int64())])
    end = attached_input(tmp_path / "log", schema=schema).stream
    end.frame = spark.readStream.format("rate").load()
    monkeypatch.setattr(job_streams, "query_checkpoints", lambda log: "s3a://shop/log/query")

    with pytest.raises(StreamUnfit, match="input 'orders': Spark has no file system for s3a://sho"):
        FeedingQuery(end, spark, "j1", pytest.fail, threading.Event())

    assert not spark.streams.active


def test_what_cannot_be_a_streaming_source_is_refused(spark):
    env = StreamExecutionEnvironment.get_execution_environment()

    with pytest.raises(FrameInvalid, match=r"was given a DataFrame that ends"):
        env.from_streaming_dataframe(spark.range(3))
    with pytest.raises(FrameInvalid, match="give a streaming DataFrame"):
        env.from_streaming_dataframe([1])


@pytest.mark.usefixtures("spark")
def test_an_output_that_would_never_show_anything_is_refused():
    env = StreamExecutionEnvironment.get_execution_environment()
    orders = env.from_source(StreamingInput("orders", SCHEMA))
    orders.sink_to(StreamingOutput("totals", SCHEMA))

    with pytest.raises(PlanInvalid, match="output 'totals' shows rows when a checkpoint covers"):
        env.execute(JOB)


@pytest.mark.usefixtures("spark")
def test_two_inputs_of_one_name_are_refused():
    env = StreamExecutionEnvironment.get_execution_environment()
    for _ in range(2):
        env.from_source(StreamingInput("orders", SCHEMA)).print()

    with pytest.raises(PlanInvalid, match="two inputs 'orders'; rename one"):
        env.execute(JOB)
