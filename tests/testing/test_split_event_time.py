"""Event time of many splits in one task, and after restores at another parallelism."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headgate import (
    AggregateFunction,
    Source,
    SplitReader,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position
from headgate.testing import simulate

Env = StreamExecutionEnvironment
Row = tuple[str, int]

SCHEMA = pa.schema([("key", pa.string()), ("at", pa.int64())])
WINDOWS = TumblingEventTimeWindows.of(Time.milliseconds(300))
MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
ROWS = 60


def rows_of(split: int) -> list[Row]:
    """Each split has all of event time, in order."""
    return [("abc"[(split + row) % 3], split + row * 50) for row in range(ROWS)]


class Partitions(Source):
    """``in_turn``: a task reads a bit of each of its splits; else one after the other."""

    def __init__(self, seed: int, count: int, *, in_turn: bool, as_batches: bool) -> None:
        self.seed, self.count, self.as_batches = seed, count, as_batches
        self.in_turn = in_turn
        self.finds_more = None if in_turn else True

    @property
    def splits_end(self) -> bool:
        return not self.in_turn

    def splits(self, parallelism: int) -> Sequence[object]:
        return range(self.count)

    def open(self, split: object, position: Position, context: ConnectorContext) -> SplitReader:
        assert isinstance(split, int)
        return PartitionReader(self, split, position)


class PartitionReader(SplitReader):
    def __init__(self, source: Partitions, split: int, position: Position) -> None:
        self.rows = rows_of(split)
        self.at = position if isinstance(position, int) else 0
        self.as_batches = source.as_batches
        self.random = Random(f"{source.seed} {split} {self.at}")
        self.is_paused = False

    def poll(self, limit: int) -> list[Any] | None:
        if self.at == len(self.rows):
            return None
        self.is_paused = not self.is_paused
        if self.is_paused:
            return []
        some = self.rows[self.at : self.at + self.random.randint(1, 6)]
        self.at += len(some)
        if not self.as_batches:
            return some
        columns = [list(column) for column in zip(*some, strict=True)]
        return [pa.RecordBatch.from_arrays([*map(pa.array, columns)], schema=SCHEMA)]

    def wait_ms(self) -> float:
        return float(self.random.choice((1, 5, 40)))

    def position(self) -> Position:
        return self.at

    def close(self) -> None:
        """Nothing is open."""


class Counting(AggregateFunction):
    def create_accumulator(self) -> tuple[str, int]:
        return "", 0

    def add(self, value: Any, accumulator: tuple[str, int]) -> tuple[str, int]:
        return value[0], accumulator[1] + 1

    def get_result(self, accumulator: tuple[str, int]) -> tuple[str, int]:
        return accumulator

    def merge(self, acc_a: tuple[str, int], acc_b: tuple[str, int]) -> tuple[str, int]:
        return acc_a[0], acc_a[1] + acc_b[1]


def windows_of_records(env: Env, source: Source) -> Any:
    strategy = MONOTONOUS.with_timestamp_assigner(lambda row, before: row[1])
    keyed = env.from_source(source, strategy, "rows").key_by(lambda row: row[0])
    return keyed.window(WINDOWS).aggregate(Counting())


def columns(env: Env, source: Source) -> Any:
    stream = env.from_source(source, None, "rows").columns(SCHEMA)
    return stream.assign_timestamps_and_watermarks(MONOTONOUS, "at")


def windows_of_columns(env: Env, source: Source) -> Any:
    windowed = columns(env, source).key_by("key").window(WINDOWS)
    return windowed.aggregate(rows="count").select("key", "rows").to_records().map(tuple)


def join_of_columns(env: Env, source: Source) -> Any:
    left, right = columns(env, source), columns(env, source)
    joined = left.join(right).where("key").equal_to("key").window(WINDOWS).apply()
    counted = joined.key_by("key").aggregate(rows="count").select("key", "rows")
    return counted.to_records().map(tuple)


def counts(splits: int) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for split in range(splits):
        for key, at in rows_of(split):
            found[key, at // 300] = found.get((key, at // 300), 0) + 1
    return found


def in_windows(splits: int) -> Callable[[dict[str, list[Any]]], bool]:
    expected = sorted((key, rows) for (key, _), rows in counts(splits).items())
    return lambda outputs: sorted(outputs["output"]) == expected


def in_join(splits: int) -> Callable[[dict[str, list[Any]]], bool]:
    """The running count of pairs of each key ends with all of them."""
    expected = dict.fromkeys("abc", 0)
    for (key, _), rows in counts(splits).items():
        expected[key] += rows * rows

    def check(outputs: dict[str, list[Any]]) -> bool:
        last = dict.fromkeys("abc", 0)
        for key, rows in outputs["output"]:
            last[key] = max(last[key], rows)
        return last == expected

    return check


@pytest.mark.parametrize("in_turn", [True, False])
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (windows_of_records, in_windows),
        (windows_of_columns, in_windows),
        (join_of_columns, in_join),
    ],
    ids=["records", "columns", "join of columns"],
)
def test_no_row_is_late_with_any_number_of_splits_and_after_any_restore(
    build: Callable[[Env, Source], Any], expected: Callable[[int], Any], in_turn: bool
) -> None:
    for splits in (3, 7):
        as_batches = build is not windows_of_records
        source = Partitions(splits, splits, in_turn=in_turn, as_batches=as_batches)

        def program(env: Env, source: Source = source) -> Any:
            env.get_config().set_auto_watermark_interval(10)
            return build(env, source)

        simulate(program, seeds=3, faults=("crash", "rescale"), check=expected(splits))
