"""Section *streaming* of ``bench sources``: files through a streaming query of Spark.

A job reads a folder of Parquet files once through a query (``from_streaming_dataframe``, a file for
each micro-batch) and once with Headgate's own source, in the same run, with a checkpoint every
second. Rates run from the last row of the first file to the last row of all, so that the start of
query and job is not in them. CPU is that of the driver and all its children, Spark's Java included.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from benchmarks.measured_job import bench_environment
from headgate.api.datastream import DataStream
from headgate.api.environment import StreamExecutionEnvironment
from headgate.functions.context import ConnectorContext
from headgate.functions.sink import Sink, SinkWriter
from headgate.host.driver.results import ResultWriter
from headgate.spark.collect import DriverStream

FILES: Final = 9
RATE: Final = 400_000
PATIENCE_S: Final = 600.0
SCHEMA: Final = "id long, name string, amount double"

STREAMING_MEANINGS: Final = {
    "streaming_records_per_s": "rows of Parquet through a streaming query of Spark",
    "streaming_own_records_per_s": "the same with ParquetSource",
    "streaming_ratio": "the first by the second",
    "streaming_cpu_us": "CPU of all processes for a row, through the query",
    "streaming_own_cpu_us": "the same with ParquetSource",
}


def streaming_section(seconds: float) -> dict[str, Any]:
    """Rows of three columns, in files of the same length."""
    from headgate.spark.session import find_session

    rows = max(10_000, int(RATE * seconds))
    parquet = import_module("headgate.connectors.files.parquet_source").ParquetSource
    session = find_session()
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        files = Path(folder) / "rows"
        write_files(files, rows)

        def query(env: StreamExecutionEnvironment) -> DataStream:
            reader = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
            return env.from_streaming_dataframe(reader.parquet(str(files)), "rows")

        def own(env: StreamExecutionEnvironment) -> DataStream:
            return env.from_source(parquet(files), None, "rows")

        figures: dict[str, float] = {}
        for name, read in (("streaming_own", own), ("streaming", query)):
            rate, cpu_us = measured(read, rows, Path(folder) / name)
            figures[f"{name}_records_per_s"] = round(rate)
            figures[f"{name}_cpu_us"] = round(cpu_us, 2)
    ratio = figures["streaming_records_per_s"] / figures["streaming_own_records_per_s"]
    return {**figures, "streaming_ratio": round(ratio, 3), "streaming_rows": rows * FILES}


def measured(
    read: Callable[[StreamExecutionEnvironment], DataStream], rows: int, folder: Path
) -> tuple[float, float]:
    """Rows a second, and CPU for a row in microseconds."""
    env = bench_environment(
        1,
        {
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.dir": str(folder),
        },
    )
    count = ArrivedRows(rows)
    sink = CountingSink(count.arrived)
    read(env).sink_to(sink)
    job = env.execute_async("bench sources")
    try:
        assert count.is_complete.wait(PATIENCE_S), f"{count.rows} of {rows * FILES} rows have come"
    finally:
        job.cancel()
    return count.figures()


class ArrivedRows:
    """Counts in the driver; the first file is the start."""

    def __init__(self, rows: int) -> None:
        """``rows``: of each file."""
        self.rows = 0
        self.is_complete = threading.Event()
        self._first = rows
        self._last = rows * FILES
        self._began: tuple[int, float, float] | None = None
        self._ended: tuple[int, float, float] | None = None

    def arrived(self, counts: list[int]) -> None:
        self.rows += sum(counts)
        now = self.rows, time.monotonic(), tree_cpu_s()
        if self._began is None and self.rows >= self._first:
            self._began = now
        if self.rows >= self._last:
            self._ended = now
            self.is_complete.set()

    def figures(self) -> tuple[float, float]:
        """Rows a second, and CPU for a row in microseconds."""
        assert self._began is not None and self._ended is not None
        rows, elapsed_s, cpu_s = (
            after - before for before, after in zip(self._began, self._ended, strict=True)
        )
        return rows / elapsed_s, 1e6 * cpu_s / rows


class CountingSink(Sink):
    """Sends numbers of records to the driver."""

    def __init__(self, take: Callable[[list[int]], None]) -> None:
        self.driver_stream = DriverStream(take)

    def create_writer(self, context: ConnectorContext) -> SinkWriter:
        return CountingWriter(self.driver_stream.connect())


class CountingWriter(SinkWriter):
    """A count for each file's worth of bundles would do; one for each second does, too."""

    def __init__(self, results: ResultWriter) -> None:
        self._results = results
        self._rows = 0
        self._sent = time.monotonic()

    def write(self, records: list[Any]) -> None:
        self._rows += len(records)
        if time.monotonic() - self._sent > 0.05:
            self.flush()

    def flush(self) -> None:
        rows, self._rows = self._rows, 0
        self._sent = time.monotonic()
        self._results.write([rows])
        self._results.flush()

    def close(self) -> None:
        self._results.close()


def write_files(folder: Path, rows: int) -> None:
    """Of so many rows each."""
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    folder.mkdir()
    names = [f"customer {number % 1000}" for number in range(rows)]
    for place in range(FILES):
        ids = range(place * rows, (place + 1) * rows)
        columns = {"id": ids, "name": names, "amount": [number / 2 for number in ids]}
        parquet.write_table(pa.table(columns), folder / f"{place}.parquet")


def tree_cpu_s() -> float:
    """Of this process, and of all below it, also of those that have ended."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                text = Path("/proc", name, "stat").read_text()
            except OSError:
                continue
            fields = text.rpartition(")")[2].split()
            parents[int(name)] = int(fields[1])
            ticks[int(name)] = sum(map(int, fields[11:15]))
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks.get(pid, 0) for pid in own) / os.sysconf("SC_CLK_TCK")
