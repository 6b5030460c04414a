"""Splits that are found while a program runs: event time waits for each, whoever reads it."""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from random import Random
from typing import Any

import pytest

from headgate import (
    Duration,
    ProcessWindowFunction,
    Source,
    SplitReader,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Position, SplitEnumerator
from headgate.testing import run_local, simulate

Env = StreamExecutionEnvironment
Found = tuple[str, int]

SPLIT_MS = 1_000
WINDOW_MS = 700
RECORDS = 12
KEYS = "abc"


def records_of(split: int) -> list[Found]:
    """Key and time; each split follows the one before it in event time."""
    step_ms = SPLIT_MS // RECORDS
    return [
        (KEYS[number % len(KEYS)], split * SPLIT_MS + number * step_ms) for number in range(RECORDS)
    ]


class Arrivals(Source):
    """Splits that arrive in the order of event time, a few at a time, and are read at any speed."""

    bounded = False
    finds_more: bool | None = True

    splits_end = True

    def __init__(self, seed: int, count: int, *, goes_on: bool = False) -> None:
        """``goes_on``: it is looked for more when all have arrived."""
        self.seed, self.count, self.goes_on = seed, count, goes_on

    def splits(self, parallelism: int) -> Sequence[object]:
        return []

    def create_enumerator(self, parallelism: int, position: Position) -> SplitEnumerator:
        return ArrivalsEnumerator(self, position)

    def open(self, split: object, position: Position, context: ConnectorContext) -> SplitReader:
        assert isinstance(split, int)
        return ArrivalsReader(self, split, position, context)


class ArrivalsEnumerator(SplitEnumerator):
    def __init__(self, source: Arrivals, position: Position) -> None:
        self.source = source
        self.found = position if isinstance(position, int) else 0
        self.random = Random(f"finds {source.seed} {self.found}")
        self.interval_ms: int | None = 1

    def discover(self) -> Sequence[int]:
        before, most = self.found, self.source.count
        self.found = min(most, before + self.random.randrange(5))
        self.interval_ms = self.random.choice((1, 5, 60, 400))
        if self.found == most and not self.source.goes_on:
            self.interval_ms = None
        return range(before, self.found)

    def position(self) -> Position:
        return self.found

    def close(self) -> None:
        """Nothing is open."""


class ArrivalsReader(SplitReader):
    """Has a few records at a time, and nothing for a while between some of them."""

    def __init__(
        self, source: Arrivals, split: int, position: Position, context: ConnectorContext
    ) -> None:
        self.records = records_of(split)
        self.at = position if isinstance(position, int) else 0
        self.random = Random(f"reads {source.seed} {split} {self.at}")
        self.pause_ms = self.random.choice((0, 0, 3, 50))
        self.is_paused = self.random.random() < 0.5

    def poll(self, limit: int) -> list[Found] | None:
        if self.is_paused and self.pause_ms:
            self.is_paused = False
            return []
        if self.at == len(self.records):
            return None
        some = self.records[self.at : self.at + self.random.randint(1, RECORDS)][:limit]
        self.at += len(some)
        self.is_paused = self.random.random() < 0.5
        return some

    def wait_ms(self) -> float:
        return self.pause_ms

    def position(self) -> Position:
        return self.at

    def close(self) -> None:
        """Nothing is open."""


class Summary(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[Any]:
        yield key, context.window().start, len(list(elements))


def strategy(idle_ms: int | None) -> WatermarkStrategy:
    made = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, before: record[1]
    )
    return made if idle_ms is None else made.with_idleness(Duration.of_millis(idle_ms))


def program(
    source: Source,
    idle_ms: int | None = None,
    *,
    spreads: bool = False,
    beside: Sequence[Found] = (),
) -> Callable[[Env], Any]:
    """Windows over a source; ``spreads``: with a task between them, which may be slow.

    ``beside``: records of a bounded source in a union with it.
    """

    def build(env: Env) -> Any:
        env.get_config().set_auto_watermark_interval(10)
        stream = env.from_source(source, strategy(idle_ms), "arrivals")
        if beside:
            timed = env.from_collection(beside).assign_timestamps_and_watermarks(strategy(None))
            stream = stream.union(timed)
        if spreads:
            stream = stream.rebalance().map(lambda record: record)
        windows = TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS))
        return stream.key_by(lambda record: record[0]).window(windows).process(Summary())

    return build


def expected(records: Sequence[Found], until_ms: float = inf) -> list[Any]:
    """What one reader would bring until event time has come so far."""
    counts: dict[tuple[str, int], int] = {}
    for key, time in records:
        start = time - time % WINDOW_MS
        counts[key, start] = counts.get((key, start), 0) + 1
    return sorted(
        (key, start, number)
        for (key, start), number in counts.items()
        if start + WINDOW_MS - 1 <= until_ms
    )


COUNT = 14
ALL = [record for split in range(COUNT) for record in records_of(split)]


@pytest.mark.parametrize("spreads", [False, True])
@pytest.mark.parametrize("idle_ms", [None, 100])
@pytest.mark.parametrize("faults", [(), ("crash", "rescale", "network")])
def test_no_record_of_a_split_is_late_however_splits_are_found_and_read(
    spreads: bool, idle_ms: int | None, faults: tuple[str, ...]
) -> None:
    for number in range(2):
        build = program(Arrivals(number, COUNT), idle_ms, spreads=spreads)
        check = lambda outputs: sorted(outputs["output"]) == expected(ALL)  # noqa: E731
        simulate(build, seeds=4, faults=faults, check=check)


@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("spreads", [False, True])
@pytest.mark.parametrize("idle_ms", [None, 100])
def test_windows_fire_when_all_splits_are_read_and_more_may_come(
    parallelism: int, spreads: bool, idle_ms: int | None
) -> None:
    build = program(Arrivals(0, COUNT, goes_on=True), idle_ms, spreads=spreads)
    run = run_local(build, parallelism=parallelism, duration_ms=20_000)
    assert sorted(run.output) == expected(ALL, until_ms=ALL[-1][1] - 1)


@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("idle_ms", [None, 60_000])
def test_a_stream_that_has_ended_does_not_end_event_time_of_one_that_awaits_splits(
    parallelism: int, idle_ms: int | None
) -> None:
    beside = [("a", 1), ("b", 2)]
    for number in range(4):
        build = program(Arrivals(number, COUNT, goes_on=True), idle_ms, beside=beside)
        run = run_local(build, parallelism=parallelism, duration_ms=20_000)
        assert sorted(run.output) == expected([*beside, *ALL], until_ms=ALL[-1][1] - 1)


@pytest.mark.parametrize("spreads", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_it_ends_event_time_when_no_split_has_come_for_the_idleness_of_the_strategy(
    parallelism: int, spreads: bool
) -> None:
    beside = [("a", 1), ("b", 2)]
    source = Arrivals(0, COUNT, goes_on=True)
    build = program(source, 2_000, spreads=spreads, beside=beside)
    run = run_local(build, parallelism=parallelism, duration_ms=20_000)
    assert sorted(run.output) == expected([*beside, *ALL])
