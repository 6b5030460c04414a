"""``bench scale``: how cost grows with tasks, keys, the size of records, and exchanges in a row.

Every point is a job of its own, (key, payload) → key_by → … → a running count, in a fresh process
with a Spark session of its own, so that no point has the memory or the warm caches of another. CPU
and throughput count from the moment at which a source has given a quarter of its records: by then
its worker is connected to all others. Start is the time from ``execute()`` of a second job of the
session until the last of its sources has given a record; cold, the same of the first one.

A point that needs more memory than is free, or that takes longer than ``POINT_S``, is left out and
says so: the benchmark must not harm the machine that it runs on.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, cycle, islice, repeat
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.measured_job import ReportingSink, bench_environment, split_evenly
from headgate.api.keyed import KeyedStream
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader

SECTIONS: Final = ("parallelism", "keys", "sizes", "exchanges")
PARALLELISMS: Final = (1, 2, 4, 8, 16, 32, 64)
KEYS: Final = tuple(10**power for power in range(2, 8))
SIZES: Final = tuple(10**power for power in range(1, 8))
EXCHANGES: Final = (1, 2, 3, 4, 5)

RECORDS: Final = 2_000_000
LEAST_SHARE: Final = 16
"""A task has at least this part of the records to give: of fewer, most of the time is its end."""
SETTLED: Final = 4
"""Figures begin when one of so many parts of the records has left a source."""
POINT_BYTES: Final = 400_000_000
"""A point does not send more: large records are few."""
POINT_S: Final = 240.0
SPARE_BYTES: Final = 2 << 30
"""So much memory has to be free beside what a point needs."""
MOST_PAYLOADS: Final = 1024
PAYLOADS_BYTES: Final = 16 << 20
"""Payloads are made beforehand, so many that a bundle has none twice: pickle writes those once. No
more than that: what sources keep takes room in the processor's caches."""
WORKER_BYTES: Final = 100 << 20
KEY_BYTES: Final = 400


@dataclass(frozen=True, slots=True)
class Point:
    """One job."""

    parallelism: int = 2
    keys: int = 10_000
    record_bytes: int = 10
    exchanges: int = 1
    records: int = RECORDS

    @property
    def needed_bytes(self) -> int:
        """About the memory of its workers, and of the JVM."""
        of_record = self.record_bytes * 40 * self.parallelism * self.exchanges
        workers = self.parallelism * (WORKER_BYTES + 40_000 * self.parallelism * self.exchanges)
        state = min(self.keys, self.records) * (KEY_BYTES + self.record_bytes)
        return (1 << 30) + workers + state + of_record


def points_of(section: str, records: int, parallelism: int | None) -> list[Point]:
    """The points of a section; ``parallelism``: only that one, or that of the other sections."""
    match section:
        case "parallelism":
            chosen = PARALLELISMS if parallelism is None else (parallelism,)
            return [
                Point(parallelism=tasks, records=max(records, tasks * records // LEAST_SHARE))
                for tasks in chosen
            ]
        case "keys":
            base = Point(parallelism=parallelism or 2)
            return [replace(base, keys=keys, records=max(records, 2 * keys)) for keys in KEYS]
        case "sizes":
            base = Point(parallelism=parallelism or 2, keys=40)
            return [
                replace(base, record_bytes=size, records=min(records, POINT_BYTES // size))
                for size in SIZES
            ]
        case _:
            base = Point(parallelism=parallelism or 2, records=max(1, records // 2))
            return [replace(base, exchanges=count) for count in EXCHANGES]


def run_scale_bench(
    only: str,
    records: int,
    parallelism: int | None,
    rounds: int,
    note: Callable[[str], None] = lambda text: click.echo(text, err=True),
) -> dict[str, Any]:
    """Figures by section; those of a point are of its best round in CPU."""
    result: dict[str, Any] = {}
    for section in [only] if only else SECTIONS:
        result[section] = []
        for point in points_of(section, records, parallelism):
            tried = [_measured(point) for _ in range(rounds)]
            found = [figures for figures in tried if "left_out" not in figures]
            best = min(found, key=lambda figures: figures["cpu_ns_per_record"], default=tried[0])
            result[section].append({**asdict(point), **best})
            note(f"{section}: {_told_point(result[section][-1])}")
    by_tasks = {row["parallelism"]: row for row in result.get("parallelism", [])}
    few, many = by_tasks.get(2, {}), by_tasks.get(64, {})
    if "cpu_ns_per_record" in few and "cpu_ns_per_record" in many:
        ratio = many["cpu_ns_per_record"] / few["cpu_ns_per_record"]
        result["cpu_of_64_to_2"] = round(ratio, 2)
    return {**result, "rounds": rounds}


def _measured(point: Point) -> dict[str, Any]:
    free = _free_bytes()
    if free is not None and free < point.needed_bytes + SPARE_BYTES:
        needed = (point.needed_bytes + SPARE_BYTES) / 1e9
        return {"left_out": f"needs about {needed:.1f} GB, {free / 1e9:.1f} GB are free"}
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.scale", json.dumps(asdict(point))],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        answer, _ = child.communicate(timeout=POINT_S)
    except subprocess.TimeoutExpired:
        return {"left_out": f"took longer than {POINT_S:.0f} s"}
    finally:
        if child.poll() is None:  # it leads its process group
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
    if child.returncode:
        return {"left_out": f"failed with exit code {child.returncode}"}
    figures: dict[str, Any] = json.loads(answer.splitlines()[-1])
    return figures


def _free_bytes() -> int | None:
    """What processes can still have; None: the platform does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] * 1024 if found else None


# In the child process.


def run_point(point: Point) -> dict[str, Any]:
    """A small job that is cold, a small one that is warm, and the measured one."""
    small = replace(point, records=min(point.records, 100 * point.parallelism))
    cold_s, _ = _run_job(small)
    start_s, _ = _run_job(small)
    before_s = time.process_time()
    _, reports = _run_job(point)
    driver_s = time.process_time() - before_s
    counted = sum(report["counted"] for report in reports)
    assert counted == point.records, f"{counted} records were counted of {point.records}"
    workers = _last_of_workers(reports)
    settled = [report["settled"] for report in workers if report["settled"] is not None]
    records = sum(noted["left"] for noted in settled)
    cpu_s = sum(
        report["cpu_s"] - report["settled"]["cpu_s"]
        for report in workers
        if report["settled"] is not None
    )
    ended_ns = max(report["ended_ns"] for report in reports)
    elapsed_s = (ended_ns - min(noted["at_ns"] for noted in settled)) / 1e9
    return {
        "records_per_s": round(records / elapsed_s),
        "cpu_ns_per_record": round(cpu_s / records * 1e9),
        "workers": len(workers),
        "private_mb": round(median(report["private_kb"] for report in workers) / 1024, 1),
        "private_mb_most": round(max(report["private_kb"] for report in workers) / 1024, 1),
        "shared_out_mb": round(median(report["pss_kb"] for report in workers) / 1024, 1),
        "start_s": round(start_s, 2),
        "cold_start_s": round(cold_s, 2),
        "driver_cpu_s": round(driver_s, 2),
    }


def _last_of_workers(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last report of each process: several slots may share one."""
    last: dict[int, dict[str, Any]] = {}
    for report in sorted(reports, key=lambda report: report["ended_ns"]):
        last[report["pid"]] = report
    return list(last.values())


def _run_job(point: Point) -> tuple[float, list[dict[str, Any]]]:
    """From ``execute()`` to the first record of the last source, and the reports of all workers."""
    env = bench_environment(point.parallelism)
    job = secrets.token_hex(4)
    sink = ReportingSink(partial(ScaleMeter, job))
    stream = env.from_source(KeyedRecordSource(point, job), None, "records").key_by(key_of)
    for number in range(point.exchanges - 1):
        stream = stream.map(same).name(f"exchange {number + 2}").key_by(key_of)
    _counted(stream).sink_to(sink)
    called_ns = time.monotonic_ns()
    env.execute("bench scale")
    first_ns = max(report["began_ns"] for report in sink.results())
    return (first_ns - called_ns) / 1e9, sink.results()


def _counted(stream: KeyedStream) -> Any:
    return stream.reduce(later_of)


def key_of(record: tuple[int, bytes]) -> int:
    return record[0]


def same(record: tuple[int, bytes]) -> tuple[int, bytes]:
    return record


def later_of(before: tuple[int, bytes], record: tuple[int, bytes]) -> tuple[int, bytes]:
    return record


@dataclass
class WorkerProgress:
    """How far the sources of one job are that run in this process."""

    readers: list["KeyedRecordReader"] = field(default_factory=list)
    began_ns: list[int] = field(default_factory=list)
    """When each of them gave its first record."""
    settled: dict[str, Any] | None = None
    """When all had given a part of their records, the CPU time until then, and what is left."""

    def note_settled(self) -> None:
        if all(reader.is_settled for reader in self.readers):
            left = sum(reader.left for reader in self.readers)
            self.settled = {
                "at_ns": time.monotonic_ns(),
                "cpu_s": time.process_time(),
                "left": left,
            }


_progress: dict[str, WorkerProgress] = {}
"""By job: Spark keeps the process for the next one."""


def progress_of(job: str) -> WorkerProgress:
    """Of a job in this process."""
    return _progress.setdefault(job, WorkerProgress())


@dataclass(frozen=True)
class KeyedRecordSource(Source):
    """Keys in turn, each task from another one on, with payloads that are objects of their own."""

    point: Point
    job: str

    def splits(self, parallelism: int) -> Sequence[tuple[int, int]]:
        return list(enumerate(split_evenly(self.point.records, parallelism)))

    def open(self, split: Any, position: Any, context: ConnectorContext) -> "KeyedRecordReader":
        return KeyedRecordReader(self.point, progress_of(self.job), *split)


class KeyedRecordReader(SplitReader):
    """Notes its first record, and when the job has settled."""

    def __init__(self, point: Point, progress: WorkerProgress, task: int, records: int) -> None:
        first = task * (point.keys // point.parallelism)
        keys = chain.from_iterable(repeat(range(point.keys)))
        self._keys: Iterator[int] = islice(keys, first, None)
        size = max(2, point.record_bytes - 2)
        kept = max(2, min(MOST_PAYLOADS, PAYLOADS_BYTES // size))
        self._payloads = cycle(
            [number.to_bytes(2, "big") + bytes(size - 2) for number in range(kept)]
        )
        self.left = records
        self.is_settled = not records
        self._settled_at = records - records // SETTLED
        self._began = False
        self._progress = progress
        progress.readers.append(self)

    def poll(self, limit: int) -> list[tuple[int, bytes]] | None:
        if not self._began:
            self._began = True
            self._progress.began_ns.append(time.monotonic_ns())
        if not self.is_settled and self.left <= self._settled_at:
            self.is_settled = True
            self._progress.note_settled()
        if not self.left:
            return None
        count = min(limit, self.left)
        self.left -= count
        return list(zip(islice(self._keys, count), self._payloads, strict=False))

    def position(self) -> None:
        return None


class ScaleMeter:
    """Counts records, and measures its process at the end."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._counted = 0

    def take(self, records: list[Any]) -> None:
        self._counted += len(records)

    def report(self) -> dict[str, Any]:
        memory, progress = _memory_kb(), progress_of(self._job)
        return {
            "pid": os.getpid(),
            "counted": self._counted,
            "cpu_s": time.process_time(),
            "settled": progress.settled,
            "began_ns": max(progress.began_ns, default=0),
            "private_kb": memory.get("Private_Clean", 0) + memory.get("Private_Dirty", 0),
            "pss_kb": memory.get("Pss", 0),
        }


def _memory_kb() -> Mapping[str, int]:
    """Of this process; nothing where the platform does not tell."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return {}
    return {line.split(":")[0]: int(line.split()[1]) for line in lines}


# For people.


_COLUMNS: Final = {
    "records_per_s": "records/s",
    "cpu_ns_per_record": "CPU ns a record",
    "private_mb": "private MB a worker",
    "start_s": "start s",
    "cold_start_s": "cold start s",
}
_VARIED: Final = {
    "parallelism": "parallelism",
    "keys": "keys",
    "sizes": "record_bytes",
    "exchanges": "exchanges",
}


def show_scale(result: dict[str, Any]) -> None:
    """A table for each section."""
    for section in SECTIONS:
        if section not in result:
            continue
        table = Table(title=f"By {section}", title_justify="left")
        for column in (section, *_COLUMNS.values()):
            table.add_column(column, justify="right")
        for row in result[section]:
            figures = [f"{row[key]:,}" for key in _COLUMNS if key in row]
            table.add_row(f"{row[_VARIED[section]]:,}", *(figures or [row["left_out"]]))
        Console().print(table)
    if "cpu_of_64_to_2" in result:
        click.echo(f"CPU per record with 64 tasks against 2: {result['cpu_of_64_to_2']}; aim 1.5")


def _told_point(row: dict[str, Any]) -> str:
    varied = f"{row['parallelism']} tasks, {row['keys']:,} keys, {row['record_bytes']:,} bytes"
    if "left_out" in row:
        return f"{varied}, {row['exchanges']} exchanges: left out, it {row['left_out']}"
    return (
        f"{varied}, {row['exchanges']} exchanges: {row['records_per_s']:,} records/s, "
        f"{row['cpu_ns_per_record']:,} ns, {row['private_mb']} MB, start {row['start_s']} s"
    )


def main() -> None:
    """The child process of the benchmark."""
    # Its functions are known by the module's name, not as those of a program.
    from benchmarks import scale

    point = scale.Point(**json.loads(sys.argv[1]))
    print(json.dumps(scale.run_point(point)))


if __name__ == "__main__":
    main()
