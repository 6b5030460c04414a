"""Jobs with planted causes, for `headgate why`; workers import this module.

Each is slow for one known reason. Most only sleep, so that many run side by side; those that need
cores say so. ``planted_driver.py`` runs them and asks; ``test_why.py`` compares.
"""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.api.datastream import DataStream
from headgate.common import Time, Types
from headgate.core.state.keys import groups_of, key_group
from headgate.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BatchAsyncFunction,
    Batching,
    KeyedProcessFunction,
    MapFunction,
    RateLimit,
    RuntimeContext,
    SinkFunction,
    StreamExecutionEnvironment,
)
from headgate.datastream.connectors import DataGeneratorSource
from headgate.datastream.state import MapStateDescriptor
from headgate.functions.sink import Committer, CommittingSinkWriter, TwoPhaseCommittingSink
from headgate.functions.source import Source, SplitLag, SplitReader

Tasks = Mapping[str, int]
"""The parallelism of operators, if it is not the planted one."""

PADDING = "." * 400
SMALL_BUFFERS = {
    # Little may be under way, so that back pressure reaches the source within a second.
    "taskmanager.memory.segment-size": "1kb",
    "taskmanager.network.memory.floating-buffers-per-gate": "2",
    "headgate.progress": "off",
    "rest.enabled": "false",
}
KEY_GROUPS = 128


def padded(index: int) -> tuple[int, str]:
    return index, PADDING


class Sleeps(MapFunction[Any, Any]):
    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def map(self, value: Any) -> Any:
        time.sleep(self.pause_s)
        return value


class SleepsBeforeItWrites(SinkFunction[Any]):
    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        time.sleep(self.pause_s)


class SleepsByKey(KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        time.sleep(self.pause_s)
        yield value


class Computes(MapFunction[Any, Any]):
    def __init__(self, loops: int) -> None:
        self.loops = loops

    def map(self, value: Any) -> Any:
        total = 0
        for number in range(self.loops):
            total += number * number
        return value


class AsksServer(MapFunction[Any, Any]):
    """One round trip for each record, as a blocking client of a service makes it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def open(self, runtime_context: RuntimeContext) -> None:
        self.connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def map(self, value: Any) -> Any:
        self.connection.sendall(b"?")
        return value if self.connection.recv(1) else None

    def close(self) -> None:
        self.connection.close()


class SlowServer:
    """Answers each byte after a pause, until it is closed."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with closing(client), suppress(OSError):
            while client.recv(1):
                time.sleep(self._pause_s)
                client.sendall(b"!")


class AsksLater(AsyncFunction[Any, Any]):
    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(self.pause_s)
        return [value]


class AsksForMany(BatchAsyncFunction[Any, Any]):
    async def async_invoke_batch(self, values: list[Any]) -> list[Any]:
        await asyncio.sleep(0.005)
        return values


class ReadsAllItsState(KeyedProcessFunction[Any, Any, Any]):
    """Iterates over thousands of entries of its state for each record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = MapStateDescriptor("seen", Types.LONG(), Types.LONG())
        self.seen = runtime_context.get_map_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if self.seen.is_empty():
            for number in range(8_000):
                self.seen.put(number, number)
        self.seen.put(value[0] % 8_000, value[0])
        yield sum(self.seen.values())


class CommitsSlowly(TwoPhaseCommittingSink):
    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def create_writer(self, context: Any) -> CommittingSinkWriter:
        return CountingWriter()

    def create_committer(self, context: Any) -> Committer:
        return SlowCommitter(self.pause_s)


class CountingWriter(CommittingSinkWriter):
    def __init__(self) -> None:
        self.written = 0

    def write(self, records: list[Any]) -> None:
        self.written += len(records)

    def prepare_commit(self, moment: Any) -> Sequence[Any]:
        return [self.written]


class SlowCommitter(Committer):
    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def commit(self, committables: Sequence[Any]) -> None:
        time.sleep(self.pause_s)


class Arriving(Source):
    """So many records arrive in each second."""

    bounded = False
    rewinds = False

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s

    def splits(self, parallelism: int) -> Sequence[int]:
        return range(4)

    def open(self, split: object, position: object, context: Any) -> SplitReader:
        return ArrivingReader(self.per_s / 4)


class ArrivingReader(SplitReader):
    def __init__(self, per_s: float) -> None:
        self.per_s, self.read = per_s, 0
        self.began = time.monotonic()

    def poll(self, limit: int) -> list[Any]:
        count = min(limit, self.waiting())
        self.read += count
        return [(number, PADDING) for number in range(count)]

    def lag(self) -> SplitLag:
        return SplitLag(records=self.waiting())

    def waiting(self) -> int:
        return max(0, int((time.monotonic() - self.began) * self.per_s) - self.read)


class FailsOnce(MapFunction[Any, Any]):
    def __init__(self, mark: str, after_s: float) -> None:
        self.mark, self.after_s = mark, after_s

    def open(self, runtime_context: RuntimeContext) -> None:
        self.began = time.monotonic()

    def map(self, value: Any) -> Any:
        if time.monotonic() - self.began > self.after_s and not os.path.exists(self.mark):
            Path(self.mark).touch()
            raise ValueError("once")
        return value


def keys_of(subtask: int, parallelism: int, count: int) -> list[str]:
    """Keys whose records all go to this subtask."""
    groups = groups_of(subtask, parallelism, KEY_GROUPS)
    every = (f"key-{number}" for number in range(100_000))
    found = (key for key in every if key_group(key, KEY_GROUPS) in groups)
    return [next(found) for _ in range(count)]


HOT, *COLD = (keys_of(subtask, 3, 1)[0] for subtask in (1, 0, 2))
MANY = [*keys_of(2, 3, 30), *keys_of(0, 3, 3), *keys_of(1, 3, 3)]
FIRST, SECOND = (keys_of(subtask, 2, 1)[0] for subtask in (0, 1))


def hot_key(record: tuple[int, str]) -> str:
    number = record[0] % 20
    return HOT if number > 1 else COLD[number]


def one_of_many_keys(record: tuple[int, str]) -> str:
    return MANY[record[0] % len(MANY)]


def key_of_the_burst(record: tuple[int, str]) -> str:
    return FIRST if record[0] // 400 % 2 else SECOND


def discard(value: Any) -> None:
    pass


@dataclass(frozen=True)
class PlantedJob:
    """How it is built, and what is to be found."""

    name: str
    cause: str
    build: Callable[[StreamExecutionEnvironment, Tasks, str], object]
    """With the tasks of its operators, and a folder of its own."""
    vertex: str = ""
    """A part of the name of the vertex that limits it."""
    says: tuple[str, ...] = ()
    line: str = ""
    """The function in whose line it waits or works."""
    next_vertex: str = ""
    subtask: int = -1
    key: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    needs_cores: bool = False
    applied: bool = False
    """The suggestion is applied, and the rate compared with the prediction."""


class Paces(MapFunction[Any, Any]):
    """Takes its time for each record, so that the source before it has a rate of its own."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def map(self, value: Any) -> Any:
        time.sleep(self.pause_s)
        return value


def paced(env: StreamExecutionEnvironment, pause_s: float, group: str = "default") -> DataStream:
    """Not in the source itself, whose ``poll`` must not block."""
    numbers = env.from_source(DataGeneratorSource(padded), None, "numbers").set_parallelism(1)
    return numbers.slot_sharing_group(group).map(Paces(pause_s)).name("pace")


APART = "sources"
"""A slot group: tasks that share a process delay each other by some milliseconds, which counts
where rates are compared with predictions or cores are counted. Where rates are compared, sleeps are
long, so that a busy machine adds little to them."""


def slow_sink(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    sink = paced(env, 0.02, APART).rebalance().add_sink(SleepsBeforeItWrites(0.1))
    sink.name("slow").set_parallelism(tasks.get("slow", 1)).slot_sharing_group("sinks")


def blocking_calls(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> SlowServer:
    server = SlowServer(0.1)
    asked = paced(env, 0.02, APART).rebalance().map(AsksServer(server.port)).name("ask")
    asked.set_parallelism(tasks.get("ask", 1)).slot_sharing_group("calls")
    asked.rebalance().add_sink(discard).name("end")
    return server


def one_hot_key(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    by_key = paced(env, 0.001).key_by(hot_key).process(SleepsByKey(0.005)).name("by key")
    by_key.set_parallelism(3).rebalance().add_sink(discard).name("end")


def many_hot_keys(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    by_key = paced(env, 0.001).key_by(one_of_many_keys).process(SleepsByKey(0.005)).name("by key")
    by_key.set_parallelism(3).rebalance().add_sink(discard).name("end")


def small_async_queue(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    calls = AsyncDataStream.unordered_wait(
        paced(env, 0.0025).rebalance(), AsksLater(0.02), Time.seconds(60), capacity=2
    )
    calls.name("enrich").rebalance().add_sink(discard).name("end")


def throttled_calls(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    calls = AsyncDataStream.unordered_wait_batch(
        paced(env, 0.0025).rebalance(),
        AsksForMany(),
        Time.seconds(60),
        Batching(5),
        capacity=10,
        rate_limit=RateLimit(20),
    )
    calls.name("enrich").rebalance().add_sink(discard).name("end")


def heavy_state(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    by_key = paced(env, 0.002, APART).key_by(lambda record: 0)
    totals = by_key.process(ReadsAllItsState()).name("totals").slot_sharing_group("totals")
    totals.rebalance().add_sink(discard).name("end")


def slow_source(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    paced(env, 0.01).rebalance().map(Sleeps(0.001)).name("quick").add_sink(discard).name("end")


def keeping_up(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    source = DataGeneratorSource(str, None, 200.0)
    numbers = env.from_source(source, None, "numbers").rebalance().map(Sleeps(0.0005)).name("quick")
    numbers.rebalance().add_sink(discard).name("end")


def slow_commits(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    paced(env, 0.001).rebalance().sink_to(CommitsSlowly(0.7)).name("staged")


def turns(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    by_key = paced(env, 0.001).key_by(key_of_the_burst).process(SleepsByKey(0.005))
    by_key.name("by key").set_parallelism(2).rebalance().add_sink(discard).name("end")


def slow_branch(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    numbers = paced(env, 0.02, APART)
    left = numbers.rebalance().map(Sleeps(0.1)).name("left").slot_sharing_group("left")
    left.set_parallelism(tasks.get("left", 1))
    right = numbers.rebalance().map(Sleeps(0.0001)).name("right")
    both = left.union(right).rebalance().map(Sleeps(0.0001)).name("both")
    both.slot_sharing_group(APART).add_sink(discard).name("end")


def two_in_a_row(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    first = paced(env, 0.02, APART).rebalance().map(Sleeps(0.03)).name("first")
    first.set_parallelism(tasks.get("first", 1)).slot_sharing_group("first")
    second = first.rebalance().map(Sleeps(0.1)).name("second").slot_sharing_group("second")
    second.set_parallelism(tasks.get("second", 1)).rebalance().add_sink(discard).name("end")


def growing_lag(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    count = tasks.get("arriving", 1)
    numbers = env.from_source(Arriving(250), None, "arriving").set_parallelism(count)
    taken = numbers.map(Paces(0.01)).name("take").set_parallelism(count)
    taken.rebalance().add_sink(discard).name("end")


def just_restarted(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    failing = paced(env, 0.0025).rebalance().map(FailsOnce(f"{folder}/failed", 4.0)).name("fails")
    failing.rebalance().add_sink(SleepsBeforeItWrites(0.01)).name("slow")


def heavy_map(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    heavy = paced(env, 0.002, APART).rebalance().map(Computes(200_000)).name("compute")
    heavy.slot_sharing_group("computers").rebalance().add_sink(discard).name("end")


def all_cores(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    heavy = paced(env, 0.001, APART).rebalance().map(Computes(200_000)).name("compute")
    heavy.set_parallelism(os.cpu_count() or 1).slot_sharing_group("computers")
    heavy.rebalance().add_sink(discard).name("end")


def one_credit(env: StreamExecutionEnvironment, tasks: Tasks, folder: str) -> None:
    source = DataGeneratorSource(lambda index: PADDING * 50)
    numbers = env.from_source(source, None, "large").slot_sharing_group("producers")
    numbers.rebalance().add_sink(discard).name("far").slot_sharing_group("consumers")


JOBS = [
    PlantedJob(
        "slow sink",
        "waits",
        slow_sink,
        "slow",
        ("used a core for only", "asynchronous", "back-pressured"),
        "SleepsBeforeItWrites.invoke",
        "numbers",
        applied=True,
    ),
    PlantedJob(
        "blocking calls", "waits", blocking_calls, "ask", line="AsksServer.map", applied=True
    ),
    PlantedJob(
        "hot key",
        "skew",
        one_hot_key,
        "by key",
        ("More parallelism will not help", HOT),
        subtask=1,
        key=HOT,
    ),
    PlantedJob("many hot keys", "skew", many_hot_keys, "by key", ("Spread its keys",), subtask=2),
    PlantedJob(
        "small queue",
        "async-capacity",
        small_async_queue,
        "enrich",
        ("capacity 2", "before the parallelism"),
    ),
    PlantedJob(
        "rate limit",
        "rate-limit",
        throttled_calls,
        "enrich",
        ("reached their rate limit", "a batch of 'enrich' is ready", "make fewer calls"),
    ),
    PlantedJob("slow source", "source", slow_source, "numbers", line="Paces.map"),
    PlantedJob("keeps up", "none", keeping_up, says=("keeps up",)),
    PlantedJob(
        "slow commits",
        "commit",
        slow_commits,
        "staged",
        ("commits for",),
        settings={
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.dir": "{folder}",
        },
    ),
    PlantedJob("turns", "alternating", turns, "by key", ("alternates",)),
    PlantedJob("slow branch", "waits", slow_branch, "left", line="Sleeps.map", applied=True),
    PlantedJob(
        "two in a row",
        "waits",
        two_in_a_row,
        "second",
        ("then 'first' would be the limit",),
        next_vertex="first",
        applied=True,
    ),
    PlantedJob("growing lag", "source", growing_lag, "arriving", ("lag grows by",)),
    PlantedJob(
        "just restarted",
        "unknown",
        just_restarted,
        says=("has restarted",),
        settings={
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1",
            "restart-strategy.fixed-delay.delay": "50 ms",
        },
    ),
    PlantedJob(
        "one credit",
        "link",
        one_credit,
        "far",
        ("waits at its producers",),
        settings={
            "taskmanager.memory.segment-size": "256b",
            "taskmanager.network.memory.floating-buffers-per-gate": "0",
            "taskmanager.network.memory.buffers-per-channel": "1",
        },
        needs_cores=True,  # for the way of each buffer
    ),
    PlantedJob("heavy map", "busy", heavy_map, "compute", line="Computes.map", needs_cores=True),
    PlantedJob(
        "heavy state",
        "state",
        heavy_state,
        "totals",
        ("reading and writing state",),
        settings={"state.backend.type": "rocksdb"},
        needs_cores=True,
    ),
    PlantedJob(
        "all cores",
        "cpu",
        all_cores,
        "compute",
        ("More tasks will not help",),
        "Computes.map",
        needs_cores=True,
    ),
]
