"""A small program for a cluster: streams both ways, a transformed DataFrame, state as a table.

It runs in a classic session, and as a program of its own in one of Spark Connect, whose argument is
a folder that the driver, the workers and Spark's executors see.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import headgate
from headgate import (
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from headgate.common import Configuration
from headgate.datastream.connectors import StreamingInput, StreamingOutput
from headgate.spark.session import find_session
from headgate.spark.submission import await_executors
from tests.spark.streaming.kit import SCHEMA, Files, Query, until

SLOTS = 4
TOTAL = ValueStateDescriptor("total", Types.DOUBLE())


def executor() -> str:
    """Another text in each executor of a standalone cluster."""
    return os.environ["SPARK_EXECUTOR_DIRS"]


class Totals(KeyedProcessFunction):
    """Sums of odd and of even orders."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(TOTAL)

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, float]]:
        self.total.update((self.total.value() or 0.0) + value.price)
        yield value.id, self.total.value()


def environment(folder: Path, parallelism: int) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", str(folder / "checkpoints"))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(parallelism).enable_checkpointing(300)


class ParquetRows:
    """What a query writes into files, each row once however often it is restarted."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._files, self._checkpoints = folder / "rows", folder / "query"

    def start(self, frame: Any) -> Any:
        writer = frame.writeStream.format("parquet").option("path", str(self._files))
        return writer.option("checkpointLocation", str(self._checkpoints)).start()

    def has(self, count: int) -> bool:
        """In files that the query has committed; without a job of Spark, which would need a slot.

        A query that is stopped leaves files that do not count.
        """
        committed: set[str] = set()
        for log in (self._files / "_spark_metadata").glob("[0-9]*"):
            lines = log.read_text().splitlines()[1:]
            committed |= {Path(json.loads(line)["path"]).name for line in lines}
        return sum(pq.read_metadata(self._files / name).num_rows for name in committed) >= count

    def collect(self, spark: Any) -> list[Any]:
        rows: list[Any] = spark.read.parquet(str(self._files)).collect()
        return rows


def named_streams(spark: Any, folder: Path) -> dict[str, Any]:
    """Queries that live on their own feed and read a job, which is then stopped; its state."""
    files, taken = Files(folder / "orders"), ParquetRows(folder / "totals")
    files.add(0, 1, 2, 3)
    env = environment(folder, 2)
    orders = env.from_source(StreamingInput("orders", SCHEMA))
    totals = orders.key_by(lambda row: row.id % 2, Types.LONG()).process(Totals()).uid("totals")
    totals.sink_to(StreamingOutput("totals", "id long, total double"))
    job = env.execute_async("shop on a cluster")

    def feed() -> Any:
        writer = files.frame(spark).writeStream.format("headgate")
        writer = writer.option("job", "shop on a cluster").option("input", "orders")
        return writer.option("checkpointLocation", str(folder / "feed")).start()

    def take() -> Any:
        reader = spark.readStream.format("headgate").option("job", "shop on a cluster")
        return taken.start(reader.option("output", "totals").load())

    feeding, taking = Query(feed), Query(take)
    try:
        until(lambda: taken.has(4), "all rows", feeding, taking)
    finally:
        feeding.stop()
        taking.stop()
    savepoint = job.stop_with_savepoint(False, str(folder / "savepoints")).result()
    rows = taken.collect(spark)
    reader = spark.read.format("headgate-state").option("uid", "totals")
    state = reader.option("state", "total").load(savepoint)
    return {
        "ids": sorted(row.id for row in rows),
        "totals": [max(row.total for row in rows if row.id % 2 == odd) for odd in (0, 1)],
        "state": sorted(map(list, state.collect())),
    }


def streaming_frames(spark: Any, folder: Path) -> list[int]:
    """A query that lives with the job, and a DataFrame that was made before it."""
    files, taken = Files(folder / "numbers"), ParquetRows(folder / "squares")
    files.add(1, 2, 3)
    env = environment(folder, 1)
    numbers = env.from_streaming_dataframe(files.frame(spark), "numbers")
    frame = numbers.map(lambda row: (row.id * row.id,)).to_streaming_dataframe("x long", "squares")
    job = env.execute_async("squares on a cluster")
    taking = Query(lambda: taken.start(frame))
    try:
        until(lambda: taken.has(3), "the rows", taking)
    finally:
        taking.stop()
        job.cancel().result()
    until(lambda: not spark.streams.active, "the query that feeds the job ends with it")
    return sorted(row.x for row in taken.collect(spark))


def transformed(spark: Any) -> list[int]:
    """What a job has made of a DataFrame, and in how many executors it was."""
    frame = (
        spark.range(8)
        .repartition(4)
        .transform(
            headgate.transform,
            lambda rows: rows.map(lambda row: (row.id * 2, executor())),
            "x long, executor string",
            parallelism=4,
        )
    )
    rows = frame.collect()
    return [sum(row.x for row in rows), len({row.executor for row in rows})]


def report(spark: Any, folder: Path) -> dict[str, Any]:
    await_executors(spark, SLOTS)
    return {"transform": transformed(spark), "frames": streaming_frames(spark, folder)}


if __name__ == "__main__":
    session = find_session()
    print(json.dumps(report(session, Path(sys.argv[1]))))
