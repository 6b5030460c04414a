"""``bench windows``: readings of 10,000 sensors → key_by → sums of one second, on embedded Spark.

A million readings make a second of event time; watermarks are bounded by 100 ms and come every
200 ms of the clock, as by default. The readings are picked beforehand, with their times. The sums
are compared with those of the readings. The same runs on columns, with readings as Arrow batches.
The yardstick is a plain loop with the same functions: one core, no exchange. Then readings are
joined with a hundredth of others by sensor and second, as records and as columns.
"""

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.measured_job import (
    PICKED,
    ReportingSink,
    bench_environment,
    first_place,
    note_first_record,
    rate_figures,
    split_evenly,
)
from headgate.base.elements import Bundle
from headgate.functions.assigners import TumblingEventTimeWindows
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader
from headgate.functions.time import Duration, Time
from headgate.functions.watermarks import WatermarkStrategy

SENSORS: Final = 10_000
SEED: Final = 13
PER_MS: Final = 1000
"""Readings of all sources together in a millisecond of event time."""
BOUND_MS: Final = 100
WINDOW_MS: Final = 1000

Reading = tuple[str, int]


def run_windows_bench(records: int, parallelism: int, rounds: int) -> dict[str, Any]:
    """Figures are medians over the rounds; the first job of the session only warms it up."""
    _round(min(records, 200_000), parallelism)
    found = [_round(records, parallelism) for _ in range(rounds)]
    rates = [rate for rate, _ in found]
    columns = [_column_round(records, parallelism) for _ in range(rounds)]
    joined = [_join_round(records, parallelism) for _ in range(rounds)]
    joined_columns = [_column_join_round(records, parallelism) for _ in range(rounds)]
    assert {pairs for _, pairs in joined} == {pairs for _, pairs in joined_columns}
    joins = median(rate for rate, _ in joined)
    column_joins = median(rate for rate, _ in joined_columns)
    plain = median(_plain_loop(min(records, 1_000_000)) for _ in range(rounds))
    return {
        **rate_figures(rates, plain),
        "columns_per_s": round(median(columns)),
        "columns_ratio": round(median(columns) / median(rates), 2),
        "joins_per_s": round(joins),
        "column_joins_per_s": round(column_joins),
        "column_joins_ratio": round(column_joins / joins, 2),
        "pairs": joined[0][1],
        "results": found[0][1],
        "records": records,
        "parallelism": parallelism,
        "keys": SENSORS,
        "window_ms": WINDOW_MS,
        "records_per_event_s": PER_MS * 1000,
        "rounds": rounds,
        "records_per_s_all": [round(rate) for rate in rates],
        "columns_per_s_all": [round(rate) for rate in columns],
    }


def _round(records: int, parallelism: int) -> tuple[float, int]:
    env = bench_environment(parallelism)
    sink = ReportingSink(SumMeter)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS))
    readings = env.from_source(ReadingSource(records), strategy, "readings")
    windows = readings.key_by(sensor_of).window(
        TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS))
    )
    windows.reduce(add_values).sink_to(sink)
    env.execute("bench windows")
    sums: Counter[str] = Counter()
    for report in sink.results():
        sums.update(report["sums"])
    assert sums == expected_sums(records, parallelism), "readings were lost or added twice"
    results = sum(report["results"] for report in sink.results())
    return records / sink.elapsed_s(), results


def _column_round(records: int, parallelism: int) -> float:
    """The same readings as Arrow batches, the same windows on columns, the same sums."""
    env = bench_environment(parallelism)
    sink = ReportingSink(SumMeter)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS))
    batches = env.from_source(ReadingBatches(records), None, "readings").columns(READINGS)
    timed = batches.assign_timestamps_and_watermarks(strategy, "time")
    windows = timed.key_by("sensor").window(
        TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS))
    )
    summed = windows.sum("value").select("sensor", "value_sum").to_records()
    summed.map(tuple).sink_to(sink)
    env.execute("bench windows on columns")
    sums: Counter[str] = Counter()
    for report in sink.results():
        sums.update(report["sums"])
    assert sums == expected_sums(records, parallelism), "readings were lost or added twice"
    return records / sink.elapsed_s()


def _join_round(records: int, parallelism: int) -> tuple[float, int]:
    """Readings and a hundredth of others, as pairs of the same sensor and second."""
    env = bench_environment(parallelism)
    sink = ReportingSink(PairMeter)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS))
    first, second = (
        env.from_source(ReadingSource(*share), strategy, "readings")
        for share in ((records,), _others(records))
    )
    keyed = first.join(second).where(sensor_of).equal_to(sensor_of)
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
    windows.apply(pair_of).sink_to(sink)
    env.execute("bench joins")
    return records / sink.elapsed_s(), sum(report["pairs"] for report in sink.results())


def _column_join_round(records: int, parallelism: int) -> tuple[float, int]:
    """The same on columns; pairs leave as batches."""
    env = bench_environment(parallelism)
    sink = PairSink(PairMeter)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS))
    first, second = (
        env.from_source(ReadingBatches(*share), None, "readings")
        .columns(READINGS)
        .assign_timestamps_and_watermarks(strategy, "time")
        for share in ((records,), _others(records))
    )
    keyed = first.join(second).where("sensor").equal_to("sensor")
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
    windows.apply().select("sensor", "value", "value_right").sink_to(sink)
    env.execute("bench joins on columns")
    return records / sink.elapsed_s(), sum(report["pairs"] for report in sink.results())


def _others(records: int) -> tuple[int, int]:
    """How many readings are joined with these, and how many of them a millisecond has."""
    return records // 100, PER_MS // 100


# The user's functions, the same in the job and in the plain loop.


def sensor_of(reading: Reading) -> str:
    return reading[0]


def add_values(before: Reading, reading: Reading) -> Reading:
    return before[0], before[1] + reading[1]


def pair_of(first: Reading, second: Reading) -> tuple[str, int, int]:
    return first[0], first[1], second[1]


def _plain_loop(records: int) -> float:
    """Records a second of a loop that puts readings into windows and does nothing else."""
    readings = picked_readings()
    windows: dict[int, dict[str, Reading]] = {}
    began_ns = time.monotonic_ns()
    for number in range(records):
        reading = readings[number % PICKED]
        time_ms = number // PER_MS
        sums = windows.setdefault(time_ms - time_ms % WINDOW_MS, {})
        key = sensor_of(reading)
        before = sums.get(key)
        sums[key] = reading if before is None else add_values(before, reading)
    return records / (time.monotonic_ns() - began_ns) * 1e9


@dataclass(frozen=True)
class ReadingSource(Source):
    """So many readings, shared evenly by its tasks; each begins at another place of the list."""

    records: int
    per_ms: int = PER_MS

    def splits(self, parallelism: int) -> Sequence[tuple[int, int, int]]:
        per_ms = max(1, self.per_ms // parallelism)
        shares = split_evenly(self.records, parallelism)
        return [(task, share, per_ms) for task, share in enumerate(shares)]

    def open(self, split: Any, position: object, context: ConnectorContext) -> SplitReader:
        return ReadingReader(*split)


class ReadingReader(SplitReader):
    """Slices of the same list of readings, over and over, with times that go on."""

    gives_away = True  # tuples of texts and numbers: nobody can change them

    def __init__(self, task: int, records: int, per_ms: int) -> None:
        self._readings = picked_readings()
        self._at = first_place(task)
        self._given = 0
        self._records = records
        self._per_ms = per_ms

    def poll(self, limit: int) -> Bundle | None:
        note_first_record()
        left = self._records - self._given
        if not left:
            return None
        readings = self._readings[self._at : self._at + min(limit, left)]
        first, count = self._given, len(readings)
        self._at = (self._at + count) % PICKED
        self._given += count
        return Bundle(readings, times_of(first, count, self._per_ms))


READINGS: Final = pa.schema([("sensor", pa.string()), ("value", pa.int64()), ("time", pa.int64())])
BATCH_ROWS: Final = 1 << 16


class ReadingBatches(ReadingSource):
    """The same readings as batches."""

    def open(self, split: Any, position: object, context: ConnectorContext) -> SplitReader:
        return BatchedReadings(*split)


class BatchedReadings(SplitReader):
    """Slices of the same columns, over and over, with times that go on."""

    gives_away = True

    def __init__(self, task: int, records: int, per_ms: int) -> None:
        sensors, values = zip(*picked_readings(), strict=True)
        self._sensors, self._values = pa.array(sensors), pa.array(values)
        self._at = first_place(task)
        self._given = 0
        self._records = records
        self._per_ms = per_ms

    def poll(self, limit: int) -> list[pa.RecordBatch] | None:
        note_first_record()
        count = min(BATCH_ROWS, self._records - self._given, PICKED - self._at)
        if not count:
            return None
        times = np.arange(self._given, self._given + count) // self._per_ms
        columns = [column.slice(self._at, count) for column in (self._sensors, self._values)]
        self._at = (self._at + count) % PICKED
        self._given += count
        return [pa.RecordBatch.from_arrays([*columns, pa.array(times)], schema=READINGS)]


def times_of(first: int, count: int, per_ms: int) -> list[int | None]:
    """Of readings with numbers from ``first`` on: so many in each millisecond."""
    times: list[int | None] = []
    last = first + count
    while first < last:
        time_ms = first // per_ms
        end = min(last, (time_ms + 1) * per_ms)
        times += [time_ms] * (end - first)
        first = end
    return times


class SumMeter:
    """Adds up the sums of each sensor."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._results = 0

    def take(self, readings: list[Reading]) -> None:
        self._results += len(readings)
        sums = self._sums
        for sensor, value in readings:
            sums[sensor] += value

    def report(self) -> dict[str, Any]:
        return {"sums": dict(self._sums), "results": self._results}


class PairMeter:
    """Counts pairs, as records or in batches."""

    def __init__(self) -> None:
        self._pairs = 0

    def take(self, pairs: list[Any]) -> None:
        is_batched = bool(pairs) and isinstance(pairs[0], pa.RecordBatch)
        self._pairs += sum(map(len, pairs)) if is_batched else len(pairs)

    def report(self) -> dict[str, Any]:
        return {"pairs": self._pairs}


class PairSink(ReportingSink):
    """Takes batches as they are."""

    takes_batches = True


def picked_readings() -> list[Reading]:
    """Readings of sensors in no order, the same in every process."""
    picker = random.Random(SEED)
    sensors = [f"sensor-{number}" for number in range(SENSORS)]
    return [(picker.choice(sensors), picker.randrange(1, 100)) for _ in range(PICKED)]


def expected_sums(records: int, parallelism: int) -> Counter[str]:
    """What a plain loop over the same readings adds up to."""
    readings = picked_readings()
    sums: Counter[str] = Counter()
    for task, share, _ in ReadingSource(records).splits(parallelism):
        rounds, rest = divmod(share, PICKED)
        at = first_place(task)
        for number, (sensor, value) in enumerate(readings):
            sums[sensor] += value * (rounds + ((number - at) % PICKED < rest))
    return Counter({sensor: total for sensor, total in sums.items() if total})
