"""``bench arrow`` and ``bench dataframe``: columns on embedded Spark.

``arrow``: batches of (int64, int64, double, a text of 12 bytes) → key_by on a column → running
counts. Each source gives slices of a table that was made beforehand, over and over; the counts are
compared with those of its rows. ``dataframe``: ``map_batches`` with a function that does nothing,
against Spark's own ``mapInArrow`` with the same function, each over all rows of the same DataFrame;
and the same with the rows of each key counted behind it, which takes an exchange.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.measured_job import (
    ReportingSink,
    bench_environment,
    note_first_record,
    split_evenly,
)
from headgate.api.settings.configuration import RuntimeExecutionMode
from headgate.base.elements import Record
from headgate.core.columns.aggregates import ColumnAggregate, PartialAggregation, PartialRecords
from headgate.core.columns.batches import BatchSerializer
from headgate.core.columns.keys import ColumnPartitioner
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader

WORDS: Final = 10_000
SEED: Final = 17
TABLE_ROWS: Final = 1 << 19
BATCH_ROWS: Final = 1 << 16


def run_arrow_bench(rows: int, parallelism: int, rounds: int) -> dict[str, Any]:
    """Figures are medians over the rounds; the first job of the session only warms it up."""
    count_round(min(rows, 1_000_000), parallelism, "word")
    words = [count_round(rows, parallelism, "word") for _ in range(rounds)]
    numbers = [count_round(rows, parallelism, "number") for _ in range(rounds)]
    table = picked_table()
    return {
        "rows_per_s": round(median(words)),
        "int_rows_per_s": round(median(numbers)),
        "mb_per_s": round(median(words) * table.nbytes / table.num_rows / 1e6),
        "exchange_share": round(_exchange_share(table, parallelism), 3),
        "rows": rows,
        "parallelism": parallelism,
        "distinct_keys": WORDS,
        "rounds": rounds,
        "rows_per_s_all": [round(rate) for rate in words],
        "int_rows_per_s_all": [round(rate) for rate in numbers],
    }


def count_round(rows: int, parallelism: int, key: str) -> float:
    """Rows a second of one job whose counts are right."""
    env = bench_environment(parallelism)
    sink = BatchReportingSink(CountedKeys)
    source = env.from_source(BatchSource(rows), None, "batches")
    source.columns(picked_table().schema).key_by(key).count().sink_to(sink)
    env.execute("bench arrow")
    found: Counter[Any] = Counter()
    for report in sink.results():
        found.update(report["counts"])
    assert sum(found.values()) == rows, "rows were lost or counted twice"
    return rows / sink.elapsed_s()


class BatchReportingSink(ReportingSink):
    """The same for batches."""

    takes_batches = True


class CountedKeys:
    """The last count of each key."""

    def __init__(self) -> None:
        self._last: list[pa.RecordBatch] = []

    def take(self, batches: list[pa.RecordBatch]) -> None:
        self._last += batches
        if len(self._last) > 64:
            self._last = [self._greatest()]

    def report(self) -> dict[str, Any]:
        if not self._last:
            return {"counts": {}}
        keys, counts = (column.to_pylist() for column in self._greatest().columns)
        return {"counts": dict(zip(keys, counts, strict=True))}

    def _greatest(self) -> pa.RecordBatch:
        """Counts only grow."""
        table = pa.Table.from_batches(self._last)
        name = table.column_names[0]
        grouped = table.group_by(name, use_threads=False).aggregate([("count", "max")])
        found = grouped.select([name, "count_max"]).rename_columns([name, "count"])
        return found.combine_chunks().to_batches()[0]


@dataclass(frozen=True)
class BatchSource(Source):
    """So many rows, shared evenly by its tasks."""

    rows: int

    def splits(self, parallelism: int) -> Sequence[int]:
        return split_evenly(self.rows, parallelism)

    def open(self, split: Any, position: object, context: ConnectorContext) -> "SliceReader":
        return SliceReader(split)


class SliceReader(SplitReader):
    """Slices of one table, over and over."""

    gives_away = True

    def __init__(self, rows: int) -> None:
        self._batches = picked_table().to_batches(BATCH_ROWS)
        self._next = 0
        self._left = rows

    def poll(self, limit: int) -> list[pa.RecordBatch] | None:
        note_first_record()
        if not self._left:
            return None
        batch = self._batches[self._next % len(self._batches)].slice(0, self._left)
        self._next += 1
        self._left -= batch.num_rows
        return [batch]

    def position(self) -> int:
        return self._left


def picked_table() -> pa.Table:
    """The same rows in every process."""
    chance = np.random.default_rng(SEED)
    words = pa.array([f"word-{number:07}" for number in range(WORDS)])
    picked = chance.integers(0, WORDS, TABLE_ROWS)
    return pa.table(
        {
            "number": picked,
            "amount": chance.integers(0, 1_000_000, TABLE_ROWS),
            "share": chance.random(TABLE_ROWS),
            "word": words.take(pa.array(picked)),
        }
    )


def _exchange_share(table: pa.Table, parallelism: int) -> float:
    """Of the CPU for a batch: what routing, writing and reading takes; measured on one here."""
    batch = table.to_batches(BATCH_ROWS)[0]
    aggregation = PartialAggregation(("word",), (ColumnAggregate("count", "count"),))
    records, serializer = PartialRecords(aggregation), BatchSerializer()
    router = ColumnPartitioner(aggregation.key_names)
    router.set_up(parallelism)
    partial = aggregation.partial(batch)

    def exchange() -> None:
        for _, parts, _ in router.split([partial], None):
            serializer.loads(memoryview(serializer.dumps(parts)))

    merged: dict[Any, Record] = {}

    def merge() -> None:
        for record in records.records(partial):
            before = merged.get(record[0])
            merged[record[0]] = record if before is None else records.merge(before, record)

    fold_s, exchange_s = _cpu_s(lambda: aggregation.partial(batch)), _cpu_s(exchange)
    return exchange_s / (fold_s + exchange_s + _cpu_s(merge))


def _cpu_s(call: Callable[[], object], times: int = 20) -> float:
    call()
    began = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - began) / times


def run_dataframe_bench(rows: int, parallelism: int, rounds: int) -> dict[str, Any]:
    """Each round runs both ways, one after the other; the first only warms up."""
    from headgate.spark.session import find_session

    frame = find_session(needed=parallelism).range(rows).repartition(parallelism)
    frame = frame.selectExpr("id", "id % 1000 AS number", "id / 3 AS share", "'w-' || id AS word")
    frame = frame.cache()
    frame.count()
    rates: dict[str, list[float]] = {}
    for _ in range(rounds + 1):
        mapped = frame.mapInArrow(_each_same, frame.schema)
        counted = _mapped(frame, parallelism).key_by("number").count()
        for name, result in (
            ("rows_per_s", _mapped(frame, parallelism).to_dataframe()),
            ("map_in_arrow_rows_per_s", mapped),
            ("counted_rows_per_s", counted.to_dataframe()),
            ("map_in_arrow_counted_rows_per_s", mapped.groupBy("number").count()),
        ):
            rates.setdefault(name, []).append(_rate(result, rows))
    frame.unpersist()
    for measured in rates.values():
        del measured[0]
    return {
        **{name: round(median(measured)) for name, measured in rates.items()},
        "ratio": _ratio(rates["rows_per_s"], rates["map_in_arrow_rows_per_s"]),
        "counted_ratio": _ratio(
            rates["counted_rows_per_s"], rates["map_in_arrow_counted_rows_per_s"]
        ),
        "rows": rows,
        "parallelism": parallelism,
        "rounds": rounds,
        **{f"{name}_all": [round(rate) for rate in measured] for name, measured in rates.items()},
    }


def _mapped(frame: Any, parallelism: int) -> Any:
    env = bench_environment(parallelism).set_runtime_mode(RuntimeExecutionMode.BATCH)
    return env.from_dataframe(frame).map_batches(_same)


def _ratio(ours: list[float], sparks: list[float]) -> float:
    return round(median(our / spark for our, spark in zip(ours, sparks, strict=True)), 2)


def _rate(frame: Any, rows: int) -> float:
    """Every row is made, and counted by Spark's own sink that keeps nothing."""
    began = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return rows / (time.monotonic() - began)


def _same(batch: Any) -> Any:
    return batch


def _each_same(batches: Any) -> Any:
    yield from batches
