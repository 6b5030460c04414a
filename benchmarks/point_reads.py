"""A section of ``bench state-read``: point reads from a job that runs at full pace.

The job is that of ``bench keyed-count`` with one task of each vertex, so that a core is left for
whoever asks. Rounds with and without reads take turns, and those that stand next to each other are
compared, because the machine's speed changes; CPU time does not depend on who else runs. Reads of
single keys come from the program that has started the job, so many a second; those before the job
has its full pace count as none.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from benchmarks.keyed_count import CountResult, keyed_count_round, picked_words
from headgate.api.job import JobClient
from headgate.base.errors import StateUnreadable

POINT_MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "point_read_p99_ms": "99 of 100 point reads from a running job take less; aim 5 or less",
        "point_read_p50_ms": "half of them take less",
        "point_throughput_share": "throughput of the job meanwhile, as a share; aim 0.98 or more",
        "point_cpu_ratio": "CPU time of its workers for a record, against that without reads",
        "point_reads_per_s": "reads of single keys a second, asked for by the driver's program",
        "point_reads": "reads that were measured",
    }
)
OPERATOR: Final = "Reduce"
STATE: Final = "reduced so far"
READS_PER_S: Final = 50
WARM_UP_READS: Final = 25
"""The first come over the control connection, and the job has just begun."""
WARM_UP_RECORDS: Final = 200_000
RECORDS_PER_ROW: Final = 3
"""Records of the job, for each row that the other sections read."""
START_S: Final = 60.0


class PointReader:
    """Reads one key after the other while a job runs; ``beside`` is the block in which it does."""

    def __init__(self, reads_per_s: float = READS_PER_S) -> None:
        self.took_ms: list[float] = []
        self._pause_s = 1 / reads_per_s
        self._over = threading.Event()

    @contextmanager
    def beside(self, client: JobClient) -> Iterator[None]:
        self._over = threading.Event()
        thread = threading.Thread(target=self._read, args=(client,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _read(self, client: JobClient) -> None:
        took_ms: list[float] = []
        words = cycle(sorted({*picked_words()[:1000]}))
        due = time.perf_counter()
        try:
            while not self._over.wait(max(0.0, due - time.perf_counter())):
                began = time.perf_counter()
                client.get_state(OPERATOR, STATE, next(words), START_S).result()
                took_ms.append((time.perf_counter() - began) * 1000)
                due = max(due + self._pause_s, began)
        except StateUnreadable:  # the job has ended
            pass
        self.took_ms += took_ms[WARM_UP_READS:]


def points_section(rows: int, rounds: int) -> dict[str, Any]:
    """Shares are medians over the rounds; latencies are those of all rounds together."""
    records = RECORDS_PER_ROW * rows
    keyed_count_round(min(records, WARM_UP_RECORDS), 1)
    reader = PointReader()
    alone: list[CountResult] = []
    beside: list[CountResult] = []
    for number in range(rounds):
        for reads in (False, True) if number % 2 == 0 else (True, False):
            if reads:
                beside.append(keyed_count_round(records, 1, beside=reader.beside))
            else:
                alone.append(keyed_count_round(records, 1))
    pairs = list(zip(beside, alone, strict=True))
    shares = [read.records_per_s / plain.records_per_s for read, plain in pairs]
    costs = [read.cpu_ns_per_record / plain.cpu_ns_per_record for read, plain in pairs]
    return {
        **latencies(reader.took_ms),
        "point_throughput_share": round(median(shares), 3),
        "point_throughput_share_all": [round(share, 3) for share in shares],
        "point_cpu_ratio": round(median(costs), 3),
        "point_cpu_ratio_all": [round(cost, 3) for cost in costs],
        "point_reads_per_s": READS_PER_S,
        "point_records": records,
        "point_records_per_s": round(median(result.records_per_s for result in alone)),
    }


def latencies(took_ms: Sequence[float]) -> dict[str, Any]:
    """Half and 99 of 100 are below; None: nothing was read."""
    ordered = sorted(took_ms)
    count = len(ordered)
    return {
        "point_read_p50_ms": round(ordered[count // 2], 2) if count else None,
        "point_read_p99_ms": round(ordered[min(count - 1, count * 99 // 100)], 2)
        if count
        else None,
        "point_reads": count,
    }
