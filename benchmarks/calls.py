"""``bench calls``: records that a model behind HTTP answers, in batches and one by one.

The model runs on loopback, in the driver: 20 ms for a request and 0.1 ms for each record of it. It
is called without a limit, by one request for each record and in batches; then with a limit on its
requests, which the job knows, or learns from refusals (429 and Retry-After). Last, records come at
half of what the limit allows, and their latency is measured. All results are checked.
"""

import time
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.latency import KEYS, StampSource
from benchmarks.measured_job import ReportingSink, bench_environment
from benchmarks.model_server import CallsModel, CallsModelForEach, ModelServer
from headgate.api.async_data_stream import AsyncDataStream
from headgate.api.datastream import DataStream
from headgate.functions.async_functions import Batching, RateLimit
from headgate.functions.time import Time

CAPACITY: Final = 1_000
BATCH: Final = 100
TIMEOUT: Final = Time.seconds(60)
UNPACED: Final = 10**8
"""Records a second: more than anybody takes."""
BATCHING: Final = Batching(BATCH, Time.milliseconds(20))

MEANINGS: Final = {
    "batched_records_per_s": "records a second in batches of up to 100, without a limit",
    "single_records_per_s": "one request for each record, with as many records in flight",
    "batching_gain": "the first against the second",
    "limit_share": "of what the server's limit allows, with the same limit in the job; aim 0.95",
    "limited_refused": "requests that the server has refused meanwhile",
    "refusals_share": "of what it allows, if the job only learns from refusals",
    "p50_ms": "half of the records took less from source to sink, at half of the limit",
    "p99_ms": "99 of 100 took less",
}


def run_calls_bench(seconds: float, limit: int) -> dict[str, Any]:
    """Each part takes about ``seconds``; ``limit``: requests a second that the server takes."""
    allowed = limit * BATCH
    _batched(2_000, None, None)  # warms the session up
    single = _single(int(seconds * 2_000))
    batched = _batched(int(seconds * 20_000), None, None)
    limited = _batched(int(seconds * allowed), limit, RateLimit(limit))
    refusals = _batched(int(seconds * allowed), limit, None)
    paced = _batched(int(seconds * allowed / 2), limit, RateLimit(limit), allowed // 2)
    return {
        "batched_records_per_s": round(batched.records_per_s),
        "single_records_per_s": round(single.records_per_s),
        "batching_gain": round(batched.records_per_s / single.records_per_s, 1),
        "limit_share": round(limited.served_per_s / allowed, 3),
        "limited_refused": limited.refused,
        "refusals_share": round(refusals.share_of(limit), 3),
        "refusals_refused": refusals.refused,
        "p50_ms": paced.report["p50_ms"],
        "p99_ms": paced.report["p99_ms"],
        "paced_records_per_s": allowed // 2,
        "batched_requests": len(batched.accepted),
        "limit_requests_per_s": limit,
        "seconds": seconds,
        "capacity": CAPACITY,
        "max_records": BATCH,
    }


@dataclass(frozen=True, slots=True)
class CallsResult:
    """How a job went whose results are right."""

    report: dict[str, Any]
    accepted: list[tuple[float, int]]
    refused: int

    @property
    def records_per_s(self) -> float:
        """From the first record sent to the last result."""
        seconds = (self.report["last_ns"] - self.report["first_ns"]) / 1e9
        return float(self.report["records"] / seconds)

    def share_of(self, limit: int) -> float:
        """Requests that the server has taken, of those that it would have: a burst, then a rate."""
        seconds = self.accepted[-1][0] - self.accepted[0][0]
        return len(self.accepted) / (limit + limit * seconds)

    @property
    def served_per_s(self) -> float:
        """Records in requests that the server has taken, by its clock; without its first burst."""
        first, last = self.accepted[0][0], self.accepted[-1][0]
        steady = [(at, count) for at, count in self.accepted if at - first >= (last - first) / 3]
        seconds = steady[-1][0] - steady[0][0]
        return sum(count for _, count in steady[1:]) / seconds


def _single(records: int) -> CallsResult:
    def call(stamps: DataStream, port: int) -> DataStream:
        return AsyncDataStream.unordered_wait(stamps, CallsModelForEach(port), TIMEOUT, CAPACITY)

    with ModelServer() as server:
        return _round(records, UNPACED, server, call)


def _batched(
    records: int, limit: float | None, known: RateLimit | None, rate: int = UNPACED
) -> CallsResult:
    """``limit``: of the server; ``known``: what the job keeps to."""

    def call(stamps: DataStream, port: int) -> DataStream:
        return AsyncDataStream.unordered_wait_batch(
            stamps, CallsModel(port), TIMEOUT, BATCHING, CAPACITY, rate_limit=known
        )

    with ModelServer(limit) as server:
        return _round(records, rate, server, call)


def _round(records: int, rate: int, server: ModelServer, call: Any) -> CallsResult:
    env = bench_environment(1)
    sink = ReportingSink(CallMeter)
    call(env.from_source(StampSource(rate, records), None, "stamps"), server.port).sink_to(sink)
    env.execute("bench calls")
    (report,) = sink.results()
    expected = sum(2 * (number % KEYS) for number in range(records))
    assert (report["records"], report["sum"]) == (records, expected), "records were lost"
    return CallsResult(report, server.accepted, server.refused)


class CallMeter:
    """Counts results, adds them up, and measures how long each took."""

    def __init__(self) -> None:
        self._sum = self._first_ns = self._last_ns = 0
        self._latencies_ns: list[int] = []

    def take(self, results: list[tuple[int, int]]) -> None:
        now_ns = time.monotonic_ns()
        sent = [sent_ns for _, sent_ns in results]
        self._first_ns = min([*sent, self._first_ns or now_ns])
        self._last_ns = now_ns
        self._sum += sum(double for double, _ in results)
        self._latencies_ns += [now_ns - sent_ns for sent_ns in sent]

    def report(self) -> dict[str, Any]:
        ordered = sorted(self._latencies_ns)
        last = len(ordered) - 1
        return {
            "records": len(ordered),
            "sum": self._sum,
            "first_ns": self._first_ns,
            "last_ns": self._last_ns,
            "p50_ms": round(ordered[last // 2] / 1e6, 1),
            "p99_ms": round(ordered[int(last * 0.99)] / 1e6, 1),
        }
