"""The program that all faults hit; workers import this module.

Numbers come from two source tasks, are counted by key, summed up in windows of event time, and
written to files, or a database, each of them once. A slow function holds everything back, so that
channels are full, until the test lets it hurry. What must come out follows from the numbers alone.
"""

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.common import Configuration, Time, WatermarkStrategy
from headgate.connectors.sql import SqliteSink
from headgate.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from headgate.datastream.connectors import DataGeneratorSource, JsonLinesSink
from headgate.datastream.state import ValueStateDescriptor
from headgate.datastream.window import TimeWindow, TumblingEventTimeWindows

NUMBERS = 40_000
KEYS = 40
WINDOW_MS = 1_000
"""A number is also its time."""
TASKS = 2
LOOK_EVERY = 16
PAUSE_S = 0.008
"""Behind so many numbers: not more than 2,000 a second and task."""
PADDING = 100
"""Characters: buffers that are full of such records hold no more than a second's work."""

MODES = {
    "aligned": {"execution.checkpointing.unaligned.enabled": "false"},
    "unaligned": {"execution.checkpointing.unaligned.enabled": "true"},
    "timeout": {"execution.checkpointing.aligned-checkpoint-timeout": "30"},
}
BACKENDS = ("hashmap", "rocksdb")
SETTINGS = {
    "execution.checkpointing.interval": "150",
    "execution.checkpointing.num-retained": "2",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "50",
    "state.backend.rocksdb.memory": "32mb",
    # Little is in flight, so that barriers that stay in line arrive soon.
    "taskmanager.memory.segment-size": "2048",
    "taskmanager.memory.network.min": "4mb",
    "taskmanager.memory.network.max": "4mb",
    "task.cancellation.timeout": "5000",
}


@dataclass(frozen=True)
class Place:
    """The folder of one run, by which the test and the tasks talk to each other."""

    folder: str

    @property
    def storage(self) -> Path:
        """Of the checkpoints; the test may take it away."""
        return Path(self.folder, "storage")

    @property
    def database(self) -> Path:
        return Path(self.folder, "windows.db")

    def hurry(self) -> None:
        """From now on nothing is slow."""
        Path(self.folder, "hurry").touch()

    def let_fail(self) -> None:
        """One task, whichever comes first, will fail once."""
        Path(self.folder, "fail").touch()

    @property
    def is_to_fail(self) -> bool:
        return Path(self.folder, "fail").exists()

    def processes(self) -> list[int]:
        """Those of the tasks that were opened last."""
        return [int(path.read_text()) for path in sorted(Path(self.folder).glob("pid-*"))]


@dataclass(frozen=True)
class Trial:
    """Which program: how barriers go, where state lives, where windows are written."""

    mode: str
    backend: str
    sink: str = "files"
    seed: int = 0
    numbers: int = NUMBERS
    pause_s: float = PAUSE_S

    @classmethod
    def parse(cls, words: list[str]) -> "Trial":
        """From its fields as arguments of a program."""
        mode, backend, sink, seed, numbers, pause_s = words
        return cls(mode, backend, sink, int(seed), int(numbers), float(pause_s))

    def __str__(self) -> str:
        return f"mode={self.mode} backend={self.backend} sink={self.sink} seed={self.seed}"


class Held:
    """What makes a function slow, and lets it fail, when the test wants it."""

    def __init__(self, place: Place, pause_s: float) -> None:
        self._pause_s = pause_s
        self._hurry = os.path.join(place.folder, "hurry")
        self._fail = os.path.join(place.folder, "fail")
        self._seen = 0
        self._hurries = False

    def passed(self) -> None:
        """Called for each number."""
        self._seen += 1
        if self._seen % LOOK_EVERY:
            return
        self._hurries = self._hurries or os.path.exists(self._hurry)
        if not self._hurries:
            time.sleep(self._pause_s)
        if os.path.exists(self._fail):
            with suppress(FileNotFoundError):  # another task was faster
                os.remove(self._fail)
                raise RuntimeError("now and then")


class Numbered(KeyedProcessFunction[int, tuple[int, str], tuple[int, int, int]]):
    """Each number with its key and how many of that key there were."""

    def __init__(self, place: Place, pause_s: float = PAUSE_S) -> None:
        self.place = place
        self.pause_s = pause_s

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        self.held = Held(self.place, self.pause_s)
        path = Path(self.place.folder, f"pid-{runtime_context.get_index_of_this_subtask()}")
        path.with_name(f".{path.name}").write_text(str(os.getpid()))
        path.with_name(f".{path.name}").rename(path)

    def process_element(
        self, value: tuple[int, str], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int, int]]:
        self.held.passed()
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[0] % KEYS, count, value[0]


class CountAndSum(AggregateFunction[tuple[int, int, int], tuple[int, int], tuple[int, int]]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: tuple[int, int, int], accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value[2]

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithWindow(ProcessWindowFunction[tuple[int, int], tuple[int, ...], int, TimeWindow]):
    def process(
        self,
        key: int,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[tuple[int, int]],
    ) -> Iterable[tuple[int, ...]]:
        for count, total in elements:
            yield key, context.window().start, count, total


def padded(index: int) -> tuple[int, str]:
    return index, str(index).rjust(PADDING)  # one string for all would be sent once per buffer


def environment(trial: Trial, place: Place, **more: str) -> StreamExecutionEnvironment:
    settings = {
        **SETTINGS,
        **MODES[trial.mode],
        "state.backend.type": trial.backend,
        "state.backend.rocksdb.localdir": place.folder,  # who is killed does not tidy up
        "execution.checkpointing.dir": str(place.storage),
        **more,
    }
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(TASKS)


def build(env: StreamExecutionEnvironment, trial: Trial, place: Place) -> None:
    """Source, a shuffle, counting by key, windows after another shuffle, and two sinks."""
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, before: record[0]
    )
    numbers = env.from_source(DataGeneratorSource(padded, trial.numbers), times, "numbers")
    counted = numbers.rebalance().map(tuple).key_by(lambda record: record[0] % KEYS)
    counted = counted.process(Numbered(place, trial.pause_s)).name("numbered")
    counted.sink_to(JsonLinesSink(os.path.join(place.folder, "counts"))).name("counts")
    windows = (
        counted.key_by(lambda record: record[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
        .aggregate(CountAndSum(), WithWindow())
    )
    if trial.sink == "files":
        windows.sink_to(JsonLinesSink(os.path.join(place.folder, "windows"))).name("windows")
        return
    with closing(sqlite3.connect(place.database)) as database, database:
        create = "CREATE TABLE IF NOT EXISTS windows (key INT, start INT, count INT, sum INT)"
        database.execute(create)
    windows.sink_to(SqliteSink(place.database, "INSERT INTO windows VALUES (?, ?, ?, ?)"))


def check(trial: Trial, place: Place) -> None:
    """What was committed is what a run without faults commits: nothing lost, nothing twice."""
    counts = _lines(place, "counts")
    windows = _lines(place, "windows") if trial.sink == "files" else _rows(place)
    per_key = trial.numbers // KEYS
    wanted = [(key, count) for key in range(KEYS) for count in range(1, per_key + 1)]
    problems = [
        *_differences("numbers", [record[2] for record in counts], range(trial.numbers)),
        *_differences("counts of keys", [record[:2] for record in counts], wanted),
        *_differences("windows", windows, expected_windows(trial.numbers)),
    ]
    assert not problems, "\n".join([f"{trial}:", *problems])


def expected_windows(numbers: int = NUMBERS) -> list[tuple[int, ...]]:
    """By key and start."""
    found: dict[tuple[int, int], list[int]] = {}
    for number in range(numbers):
        found.setdefault((number % KEYS, number // WINDOW_MS * WINDOW_MS), []).append(number)
    return [(*whose, len(members), sum(members)) for whose, members in found.items()]


def _differences(what: str, found: Iterable[Any], wanted: Iterable[Any]) -> list[str]:
    have, want = Counter(found), Counter(wanted)
    lost, extra = want - have, have - want
    problems = []
    for name, some in (("lost", lost), ("too many", extra)):
        if some:
            problems.append(f"{what}: {some.total()} {name}, such as {sorted(some)[:8]}")
    return problems


def _lines(place: Place, name: str) -> list[tuple[int, ...]]:
    paths = Path(place.folder, name).rglob("part-*.jsonl")
    lines = [line for path in paths for line in path.read_text().splitlines()]
    return [tuple(json.loads(line)) for line in lines]


def _rows(place: Place) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(place.database)) as database:
        return list(database.execute("SELECT * FROM windows"))
