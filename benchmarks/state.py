"""``bench state``: read and update a value for every record, in memory and in RocksDB, on Spark.

Generated (user, amount) → key_by → a process function with one value state, all in one process
(parallelism 1). Every user comes equally often and never twice in a row, so that no cache is helped
by the order. The function gives a record when a user has reached the last total; the sink counts
them, so that nothing is lost unseen. The yardstick is a plain loop over the same records with a
dictionary: one core, no exchange.
"""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.measured_job import ReportingSink, bench_environment, note_first_record
from headgate.base.settings import StateBackendKind
from headgate.functions.context import ConnectorContext, RuntimeContext
from headgate.functions.function import KeyedProcessFunction
from headgate.functions.source import Source, SplitReader
from headgate.functions.state import ValueStateDescriptor

STRIDE: Final = 1_000_003
"""Between the numbers of two users that follow each other; a prime."""
MANY_TIMES: Final = 10
"""So many times more users for the second figure of RocksDB, which keeps not all as objects."""
MOST_MANY: Final = 1_000_000
WARM_UP: Final = 50_000


def run_state_bench(keys: int, records: int, rounds: int, only: str = "") -> dict[str, Any]:
    """Figures are medians over the rounds. RocksDB comes first: the peak of memory is its own."""
    result: dict[str, Any] = {}
    if only != "memory":
        found = _rounds(StateBackendKind.ROCKSDB, keys, records, rounds)
        result["rocksdb_records_per_s"] = round(median(rate for rate, _ in found))
        result["rocksdb_rss_mib"] = round(max(peak for _, peak in found))
        many = min(MANY_TIMES * keys, MOST_MANY)
        if many > keys:
            rate, _ = _round(StateBackendKind.ROCKSDB, many, max(records, many))
            result["rocksdb_many_keys_records_per_s"] = round(rate)
            result["many_keys"] = many
    if only != "rocksdb":
        found = _rounds(StateBackendKind.HASHMAP, keys, records, rounds)
        result["memory_records_per_s"] = round(median(rate for rate, _ in found))
    plain = median(_plain_loop(keys, min(records, 1_000_000)) for _ in range(rounds))
    return {
        **result,
        "plain_loop_records_per_s": round(plain),
        "keys": keys,
        "records": _whole(keys, records),
        "rounds": rounds,
    }


def _rounds(
    backend: StateBackendKind, keys: int, records: int, rounds: int
) -> list[tuple[float, float]]:
    _round(backend, min(keys, WARM_UP), WARM_UP)
    return [_round(backend, keys, records) for _ in range(rounds)]


def _round(backend: StateBackendKind, keys: int, records: int) -> tuple[float, float]:
    """Records a second, and the most MiB that the worker had."""
    env = bench_environment(1, {"state.backend.type": backend.value})
    records = _whole(keys, records)
    sink = ReportingSink(TotalMeter)
    source = env.from_source(AmountSource(keys, records), None, "amounts")
    source.key_by(user_of).process(TotalFunction(records // keys)).sink_to(sink)
    env.execute("bench state")
    (report,) = sink.results()
    assert report["users"] == keys, f"{report['users']} of {keys} users have the right total"
    return records / sink.elapsed_s(), report["peak_kib"] / 1024


def _whole(keys: int, records: int) -> int:
    """Every user as often as the others."""
    return keys * max(1, round(records / keys))


# The user's functions.


def user_of(amount: tuple[int, int]) -> int:
    return amount[0]


class TotalFunction(KeyedProcessFunction[int, tuple[int, int], tuple[int, int]]):
    """Adds up the amounts of each user; gives those whose total is the last one."""

    def __init__(self, last: int) -> None:
        self._last = last

    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("total"))

    def process_element(self, value: tuple[int, int], ctx: object) -> Any:
        total = self._total.value()
        total = value[1] if total is None else total + value[1]
        self._total.update(total)
        return (value,) if total == self._last else None


def _plain_loop(keys: int, records: int) -> float:
    """Records a second of a loop with a dictionary and nothing else."""
    reader = AmountReader(keys, records)
    bundles = []
    while (found := reader.poll(512)) is not None:
        bundles.append(found)
    totals: dict[int, int] = {}
    began_ns = time.monotonic_ns()
    for bundle in bundles:
        for amount in bundle:
            key = user_of(amount)
            total = totals.get(key)
            totals[key] = amount[1] if total is None else total + amount[1]
    return records / (time.monotonic_ns() - began_ns) * 1e9


@dataclass(frozen=True)
class AmountSource(Source):
    """So many amounts for so many users, in one split."""

    keys: int
    records: int

    def splits(self, parallelism: int) -> Sequence[tuple[int, int]]:
        return [(self.keys, self.records)]

    def open(self, split: Any, position: object, context: ConnectorContext) -> "AmountReader":
        forget_peak()
        return AmountReader(*split)


class AmountReader(SplitReader):
    """Users in great strides, each once before any comes again."""

    def __init__(self, keys: int, records: int) -> None:
        self._keys = keys
        self._stride = STRIDE if math.gcd(STRIDE, keys) == 1 else 1
        self._at = 0
        self._records = records

    def poll(self, limit: int) -> list[tuple[int, int]] | None:
        note_first_record()
        if self._at == self._records:
            return None
        start, self._at = self._at, min(self._at + limit, self._records)
        keys, stride = self._keys, self._stride
        return [(number * stride % keys, 1) for number in range(start, self._at)]


class TotalMeter:
    """Counts the users that have come to their last total."""

    def __init__(self) -> None:
        self._users = 0

    def take(self, records: list[Any]) -> None:
        self._users += len(records)

    def report(self) -> dict[str, Any]:
        return {"users": self._users, "peak_kib": peak_kib()}


def peak_kib() -> int:
    """The most memory that this process had, as the kernel counts it."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def forget_peak() -> None:
    """Spark's workers serve one job after the other; each shall have its own peak."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
