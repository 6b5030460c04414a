"""``bench programs``: ordinary programs on embedded Spark, each beside its plain loop.

``share`` is the throughput on two cores against twice that of the plain loop on one: 1 would be an
engine that costs nothing. Before it is measured, each program runs on a few records, and what it
gives is compared with what the loop gives. What emission by value costs is the difference to a run
with object reuse.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from benchmarks.measured_job import (
    ReportingSink,
    bench_environment,
    note_first_record,
    split_evenly,
)
from benchmarks.ordinary_programs import PROGRAMS, OrdinaryProgram, Records
from benchmarks.other_shapes import OTHER_SHAPES
from headgate.functions.context import ConnectorContext
from headgate.functions.source import Source, SplitReader

ALL_PROGRAMS: Final = {**PROGRAMS, **OTHER_SHAPES}
CHECKED: Final = 20_000
CORES: Final = 2
OBJECT_REUSE: Final = {"pipeline.object-reuse": "true"}
COLUMNS: Final = {
    "share": ("share", "throughput on two cores, against twice the plain loop on one"),
    "records_per_s": ("records/s", "records a second, start-up excluded"),
    "plain_loop_records_per_s": ("plain loop", "the same functions on one core, no exchange"),
    "cpu_ns_per_record": ("CPU ns", "of the workers for a record, the least of the rounds"),
    "by_value": ("by value", "CPU against that with object reuse; 1.0: copies cost nothing"),
}


def run_programs_bench(
    names: Sequence[str], rounds: int, scale: float = 1.0
) -> dict[str, dict[str, float]]:
    """Figures of each program: medians over the rounds, CPU the least of them."""
    return {name: _measured(name, ALL_PROGRAMS[name], rounds, scale) for name in names}


def _measured(name: str, program: OrdinaryProgram, rounds: int, scale: float) -> dict[str, float]:
    check_program(name, program)
    count = max(1000, int(program.records * scale))
    rates, plain, cpu, reused = [], [], [], []
    for _ in range(rounds):  # in turns: the machine may be busy for a while
        plain.append(_plain_rate(program, count // CORES))
        rate, cpu_ns, _ = run_program(name, program, count)
        rates.append(rate)
        cpu.append(cpu_ns)
        reused.append(run_program(name, program, count, OBJECT_REUSE)[1])
    return {
        "share": round(median(rates) / median(plain) / CORES, 3),
        "records_per_s": round(median(rates)),
        "plain_loop_records_per_s": round(median(plain)),
        "cpu_ns_per_record": round(min(cpu)),
        "by_value": round(min(cpu) / min(reused), 2),
    }


def check_program(name: str, program: OrdinaryProgram) -> None:
    """Run it on a few records; the job must give what the loop gives."""
    _, _, found = run_program(name, program, CHECKED, keeps=True)
    check_records(name, program, found)


def check_records(name: str, program: OrdinaryProgram, found: Records) -> None:
    """What ``CHECKED`` input records give must be what the loop gives."""
    expected: Records = []
    inputs = [program.make(part, task) for task, part in enumerate(split_evenly(CHECKED, CORES))]
    program.plain([record for records in inputs for record in records], expected.append)
    assert program.summary(found) == program.summary(expected), f"{name} gives other records"


def _plain_rate(program: OrdinaryProgram, count: int) -> float:
    records = program.make(count, 0)
    drop: deque[Any] = deque(maxlen=0)
    began_ns = time.process_time_ns()
    program.plain(records, drop.append)
    return count / (time.process_time_ns() - began_ns) * 1e9


def run_program(
    name: str,
    program: OrdinaryProgram,
    count: int,
    settings: Mapping[str, str] = MappingProxyType({}),
    keeps: bool = False,
) -> tuple[float, float, Records]:
    """Records a second, CPU nanoseconds for each, and what came out, if that is kept."""
    env = bench_environment(CORES, settings)
    sink = ReportingSink(KeepingMeter if keeps else CountingMeter)
    program.build(env.from_source(MadeSource(program.make, count), None, "in")).sink_to(sink)
    env.execute(f"bench programs {name}")
    cpu_s = sum(report["cpu_s"] for report in sink.results())
    kept = [record for report in sink.results() for record in report["records"]]
    return count / sink.elapsed_s(), cpu_s * 1e9 / count, kept


@dataclass(frozen=True)
class MadeSource(Source):
    """What a program makes for each task, made before the first record is given."""

    make: Callable[[int, int], Records]
    records: int

    def splits(self, parallelism: int) -> Sequence[tuple[int, int]]:
        return list(enumerate(split_evenly(self.records, parallelism)))

    def open(self, split: Any, position: Any, context: ConnectorContext) -> "MadeReader":
        task, count = split
        return MadeReader(self.make(count, task))


class MadeReader(SplitReader):
    """Slices of one list."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._at = 0

    def poll(self, limit: int) -> Records | None:
        note_first_record()
        if self._at >= len(self._records):
            return None
        records = self._records[self._at : self._at + limit]
        self._at += len(records)
        return records

    def position(self) -> int:
        return self._at


class CountingMeter:
    """Drops what comes."""

    def take(self, records: Records) -> None:
        pass

    def report(self) -> dict[str, Any]:
        return {"records": []}


class KeepingMeter:
    """Keeps what comes."""

    def __init__(self) -> None:
        self._records: Records = []
        self.take = self._records.extend

    def report(self) -> dict[str, Any]:
        return {"records": self._records}
