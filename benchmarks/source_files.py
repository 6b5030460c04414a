"""Sections *parquet* and *text* of ``bench sources``: files as sources against a plain loop.

A job reads a file of generated rows in one task, with checkpoints every second; its sink counts.
The yardstick reads the same file in the same run, in the driver: pyarrow's batches, each made rows
by ``to_pylist``, or the lines of an open file, without their ends.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.measured_job import (
    ReportingSink,
    bench_environment,
    note_first_record,
    rate_figures,
)
from headgate.connectors.files.source import TextFileSource
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position, Source, SplitEnumerator, SplitReader

ROUNDS: Final = 3
BATCH_ROWS: Final = 16 * 1024
RATE: Final = 400_000
"""About so many rows a second are expected, to choose how many there are."""

FILE_MEANINGS: Final = {
    "parquet_records_per_s": "rows of Parquet, in a job with checkpoints every second",
    "parquet_plain_loop_records_per_s": "pyarrow's batches as lists of dicts, in a plain loop",
    "parquet_ratio": "the first by the second; the aim is 0.6",
    "text_records_per_s": "lines of a text file, in such a job",
    "text_plain_loop_records_per_s": "the lines of an open file, without their ends",
    "text_ratio": "the first by the second; the aim is 0.6",
}


def parquet_section(seconds: float) -> dict[str, Any]:
    """Rows of four columns."""
    source = import_module("headgate.connectors.files.parquet_source").ParquetSource
    return _section("parquet", seconds, _write_parquet, source, _read_parquet)


def text_section(seconds: float) -> dict[str, Any]:
    """Lines of about 40 bytes."""
    return _section("text", 4 * seconds, _write_text, TextFileSource, _read_text)


def _section(
    name: str,
    seconds: float,
    write: Callable[[Path, int], None],
    source: Callable[[Path], Source],
    read: Callable[[Path], int],
) -> dict[str, Any]:
    rows = max(10_000, int(RATE * seconds))
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        path = Path(folder) / "rows"
        write(path, rows)
        rates, plain = [], []
        for number in range(ROUNDS + 1):
            rate = _job(source(path), rows, Path(folder) / f"checkpoints {number}")
            rates.append(rate)
            began = time.perf_counter()
            assert read(path) == rows
            plain.append(rows / (time.perf_counter() - began))
    figures = rate_figures(rates[1:], median(plain[1:]))  # the first round warms up
    return {f"{name}_{key}": figure for key, figure in figures.items()} | {f"{name}_rows": rows}


def _job(source: Source, rows: int, checkpoints: Path) -> float:
    settings = {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": str(checkpoints),
    }
    env = bench_environment(1, settings)
    sink = ReportingSink(RecordCounter)
    env.from_source(TimedSource(source), None, "files").sink_to(sink)
    env.execute("bench sources")
    found = sum(report["records"] for report in sink.results())
    assert found == rows, f"the file has {rows} rows, {found} came"
    return rows / sink.elapsed_s()


@dataclass(frozen=True)
class TimedSource(Source):
    """Another source, whose first record is noted."""

    inner: Source

    def create_enumerator(self, parallelism: int, position: Position) -> SplitEnumerator | None:
        return self.inner.create_enumerator(parallelism, position)

    def open(self, split: object, position: Position, context: ConnectorContext) -> SplitReader:
        reader = self.inner.open(split, position, context)
        poll = reader.poll

        def noted(limit: int) -> Any:
            note_first_record()
            return poll(limit)

        reader.poll = noted  # type: ignore[method-assign]
        return reader


class RecordCounter:
    """Counts."""

    def __init__(self) -> None:
        self._records = 0

    def take(self, records: list[Any]) -> None:
        self._records += len(records)

    def report(self) -> dict[str, int]:
        return {"records": self._records}


def _write_parquet(path: Path, rows: int) -> None:
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    columns = {
        "id": range(rows),
        "name": [f"customer {number % 1000}" for number in range(rows)],
        "amount": [number / 2 for number in range(rows)],
        "at_ms": range(1_700_000_000_000, 1_700_000_000_000 + rows),
    }
    parquet.write_table(pa.table(columns), path, row_group_size=64 * 1024)


def _read_parquet(path: Path) -> int:
    count = 0
    for batch in import_module("pyarrow.parquet").ParquetFile(path).iter_batches(BATCH_ROWS):
        for _ in batch.to_pylist():
            count += 1
    return count


def _write_text(path: Path, rows: int) -> None:
    with path.open("w") as file:
        for number in range(rows):
            file.write(f"{1_700_000_000_000 + number} customer {number % 1000} {number}\n")


def _read_text(path: Path) -> int:
    count = 0
    with path.open() as file:
        for line in file:
            line.rstrip("\n")
            count += 1
    return count
