"""``bench latency``: paced source with send times → key_by → function → sink, in two processes.

Source and function stand in different slot sharing groups, so that every record crosses the wire.
A record's latency is the time from when the source hands it over to when the sink has it; both
processes read the same monotonic clock. The first part of each run is not counted.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.measured_job import ReportingSink, bench_environment
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader

KEYS: Final = 1000
WARM_UP_S: Final = 1.0
TIMEOUTS_MS: Final = (0, 1, 100)
PERCENTILES: Final = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}


def run_latency_bench(rate: int, seconds: float, timeouts_ms: Sequence[int]) -> dict[str, Any]:
    """With one time-out its figures stand at the top, with several under each."""
    _round(rate, 1.0, 1)
    runs = {timeout_ms: _round(rate, seconds, timeout_ms) for timeout_ms in timeouts_ms}
    common = {"rate": rate, "seconds": seconds}
    if len(runs) == 1:
        ((timeout_ms, figures),) = runs.items()
        return {**figures, "timeout_ms": timeout_ms, **common}
    chosen = runs.get(1) or next(iter(runs.values()))
    by_timeout = {f"timeout_{timeout_ms}_ms": figures for timeout_ms, figures in runs.items()}
    return {"p50_ms": chosen["p50_ms"], "p99_ms": chosen["p99_ms"], **by_timeout, **common}


def _round(rate: int, seconds: float, timeout_ms: int) -> dict[str, Any]:
    env = bench_environment(1).set_buffer_timeout(timeout_ms)
    sink = ReportingSink(LatencyMeter)
    count = int(rate * (seconds + WARM_UP_S))
    stamps = env.from_source(StampSource(rate, count), None, "stamps")
    moved = stamps.slot_sharing_group("senders").key_by(lambda stamp: stamp[0])
    passed = moved.map(lambda stamp: stamp).slot_sharing_group("receivers")
    passed.sink_to(sink).slot_sharing_group("receivers")
    env.execute("bench latency")
    (report,) = sink.results()
    assert report["records"] == count, f"{count} records were sent, {report['records']} came"
    return {key: report[key] for key in PERCENTILES}


@dataclass(frozen=True)
class StampSource(Source):
    """(key, time of sending), so many a second."""

    rate: int
    count: int

    def splits(self, parallelism: int) -> Sequence[int]:
        return [0]

    def open(self, split: object, position: object, context: ConnectorContext) -> "StampReader":
        return StampReader(self.rate, self.count)


class StampReader(SplitReader):
    """Gives what is due, and asks to be polled when the next record is."""

    def __init__(self, rate: int, count: int) -> None:
        self._rate = rate
        self._count = count
        self._sent = 0
        self._began_ns = 0

    def poll(self, limit: int) -> list[tuple[int, int]] | None:
        if self._sent == self._count:
            return None
        now_ns = time.monotonic_ns()
        if not self._began_ns:
            self._began_ns = now_ns
        due = min(self._count, (now_ns - self._began_ns) * self._rate // 10**9)
        first, self._sent = self._sent, max(self._sent, min(due, self._sent + limit))
        return [(number % KEYS, now_ns) for number in range(first, self._sent)]

    def wait_ms(self) -> float:
        due_ns = self._began_ns + (self._sent + 1) * 10**9 // self._rate
        return max(0.05, (due_ns - time.monotonic_ns()) / 1e6)


class LatencyMeter:
    """Takes the time of each list; all records of it have arrived then."""

    def __init__(self) -> None:
        self._records = 0
        self._began_ns = 0
        self._latencies_ns: list[int] = []

    def take(self, stamps: list[tuple[int, int]]) -> None:
        now_ns = time.monotonic_ns()
        self._records += len(stamps)
        self._began_ns = self._began_ns or now_ns
        if now_ns - self._began_ns > WARM_UP_S * 1e9:
            self._latencies_ns += [now_ns - sent_ns for _, sent_ns in stamps]

    def report(self) -> dict[str, Any]:
        ordered = sorted(self._latencies_ns)
        last = len(ordered) - 1
        figures = {
            name: round(ordered[int(last * share)] / 1e6, 3) if ordered else 0.0
            for name, share in PERCENTILES.items()
        }
        return {"records": self._records, **figures}
