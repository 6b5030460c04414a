"""``bench sources``: what sources cost and how quick they are; each section measures one thing.

*Idle*: a job whose source has nothing for some seconds, then a record about every 10 ms, which a
thread of the worker puts into a queue. It tells the task of it by ``context.wake()``, through a
descriptor, or not at all, so that the task looks every 10 ms, as it did before sources were woken.
CPU is read every second, of the whole worker process and of the task's own thread, and the median
second counts: a worker reports its figures once a second, and a single disturbance of the machine
would weigh more than all the rest. A latency runs from before the record is put to when the sink,
in the same process, has it.
"""

import math
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from benchmarks.kafka_sink import KAFKA_SINK_MEANINGS, kafka_sink_section
from benchmarks.kafka_topics import MEANINGS as KAFKA_MEANINGS
from benchmarks.kafka_topics import kafka_section
from benchmarks.measured_job import ReportingSink, bench_environment
from benchmarks.postgres_tables import MEANINGS as POSTGRES_MEANINGS
from benchmarks.postgres_tables import postgres_section
from benchmarks.source_files import FILE_MEANINGS, parquet_section, text_section
from benchmarks.streaming_query import STREAMING_MEANINGS, streaming_section
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader

WAYS: Final = ("wake", "descriptor", "polled")
FIGURES: Final = ("p50_ms", "p99_ms", "idle_cpu_percent", "idle_task_percent")
SETTLE_S: Final = 1.0
IDLE_SECONDS: Final = 5
"""So many are measured at least."""
PAUSES_S: Final = (0.005, 0.015)

MEANINGS: Final = {
    "wake_p50_ms": "half of the records took less to the sink, woken by a call; the aim is 1",
    "wake_p99_ms": "99 of 100 took less",
    "wake_idle_cpu_percent": "of a core, of a worker whose source has nothing; the aim is 0.5",
    "wake_idle_task_percent": "of it, the source's own thread; the rest is the worker's",
    "descriptor_p50_ms": "the same, woken through a descriptor; the aim is 1",
    "descriptor_p99_ms": "",
    "descriptor_idle_cpu_percent": "the aim is 0.5",
    "descriptor_idle_task_percent": "",
    "polled_p50_ms": "the same, looking every 10 ms",
    "polled_p99_ms": "",
    "polled_idle_cpu_percent": "",
    "polled_idle_task_percent": "",
    **KAFKA_MEANINGS,
    **KAFKA_SINK_MEANINGS,
    **FILE_MEANINGS,
    **POSTGRES_MEANINGS,
    **STREAMING_MEANINGS,
}


def run_sources_bench(seconds: float, only: str = "") -> dict[str, Any]:
    """Every section, or ``only`` one; their figures stand side by side."""
    figures: dict[str, Any] = {}
    for name, section in SECTIONS.items():
        if only in ("", name):
            figures.update(section(seconds))
    return {**figures, "seconds": seconds}


# Idle sources.


def idle_section(seconds: float) -> dict[str, Any]:
    """For so long there is nothing, and then about a hundred records a second."""
    figures: dict[str, Any] = {}
    _round(WAYS[0], 0.1)
    for way in WAYS:
        for key, figure in _round(way, seconds).items():
            figures[f"{way}_{key}"] = figure
    return figures


SECTIONS: Final[Mapping[str, Callable[[float], dict[str, Any]]]] = MappingProxyType(
    {
        "idle": idle_section,
        "kafka": kafka_section,
        "kafka-sink": kafka_sink_section,
        "parquet": parquet_section,
        "postgres": postgres_section,
        "streaming": streaming_section,
        "text": text_section,
    }
)


def _round(way: str, seconds: float) -> dict[str, float]:
    env = bench_environment(1)
    sink = ReportingSink(SignalMeter)
    records = max(10, int(100 * seconds))
    signals = env.from_source(SignalSource(way, seconds, records), None, "signals")
    signals.sink_to(sink)
    env.execute("bench sources")
    (report,) = sink.results()
    assert report["records"] == records, f"{records} records were put, {report['records']} came"
    return {key: figure for key, figure in report.items() if key in FIGURES}


@dataclass(frozen=True)
class SignalSource(Source):
    """Times at which a thread has put them, and first readings of CPU from before."""

    way: str
    idle_s: float
    records: int

    def splits(self, parallelism: int) -> Sequence[int]:
        return [0]

    def open(self, split: object, position: object, context: ConnectorContext) -> "SignalReader":
        return SignalReader(self, context.wake)


class SignalReader(SplitReader):
    """Its thread is the world outside: it begins with the first poll."""

    def __init__(self, source: SignalSource, wake: Callable[[], None]) -> None:
        self._source = source
        self._wake = wake
        self._found: deque[Any] = deque()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._put_all, name="bench signals", daemon=True)
        self._task_clock = 0
        """Of the thread that polls."""
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)

    def poll(self, limit: int) -> list[Any] | None:
        if self._thread.ident is None:
            self._task_clock = time.pthread_getcpuclockid(threading.get_ident())
            self._thread.start()
        if self._source.way == "descriptor":
            with suppress(BlockingIOError):
                os.read(self._out, 4096)
        records: list[Any] = []
        while self._found and len(records) < limit:
            found = self._found.popleft()
            if found is None:
                self._found.append(None)
                return records or None
            records.append(found)
        return records

    def wait_ms(self) -> float:
        return 10.0 if self._source.way == "polled" else math.inf

    def fileno(self) -> int | None:
        return self._out if self._source.way == "descriptor" else None

    def close(self) -> None:
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._out)
        os.close(self._in)

    def _put_all(self) -> None:
        pause, source = self._is_over.wait, self._source
        pause(SETTLE_S)
        readings = [self._reading()]
        for _ in range(1 if source.idle_s < 1 else max(IDLE_SECONDS, round(source.idle_s))):
            pause(min(1.0, source.idle_s))
            readings.append(self._reading())
        self._put(readings)
        for _ in range(source.records):
            pause(random.uniform(*PAUSES_S))
            self._put(time.monotonic_ns())
        self._put(None)

    def _reading(self) -> tuple[float, float, float]:
        """The time, CPU of the process, CPU of the task's thread."""
        return time.monotonic(), time.process_time(), time.clock_gettime(self._task_clock)

    def _put(self, record: Any) -> None:
        self._found.append(record)
        if self._source.way == "wake":
            self._wake()
        elif self._source.way == "descriptor":
            os.write(self._in, b"x")


class SignalMeter:
    """Takes the time when a list has arrived."""

    def __init__(self) -> None:
        self._readings: list[tuple[float, float, float]] = []
        self._latencies_ns: list[float] = []

    def take(self, records: list[Any]) -> None:
        now_ns = time.monotonic_ns()
        if not self._readings:
            self._readings, *records = records
        self._latencies_ns += [now_ns - put_ns for put_ns in records]

    def report(self) -> dict[str, Any]:
        ordered = sorted(self._latencies_ns)
        last = len(ordered) - 1
        return {
            "records": len(ordered),
            "p50_ms": round(ordered[last // 2] / 1e6, 3),
            "p99_ms": round(ordered[int(last * 0.99)] / 1e6, 3),
            "idle_cpu_percent": self._percent(1),
            "idle_task_percent": self._percent(2),
        }

    def _percent(self, clock: int) -> float:
        """Of the median second, by one of the readings."""
        shares = [
            (after[clock] - before[clock]) / (after[0] - before[0])
            for before, after in pairwise(self._readings)
        ]
        return round(100 * median(shares), 3)
