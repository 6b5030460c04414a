"""Windows over the counters of a job: what every task has gained between two snapshots.

A snapshot keeps numbers only, so that many of them are small, whatever the reports hold besides.
Rates are by the tasks' own clocks, their busy, back-pressured and idle time together, so it does
not matter when a report arrives. Law: shares of a task or vertex add up to one, or are all zero if
nothing of it ran in the window. ``JobObserver`` takes the snapshots.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import add, attrgetter, sub, truediv
from statistics import median_low
from typing import Final, NamedTuple

from headgate.base.figures import UNKNOWN, TaskManagerFigures
from headgate.base.messages import TaskFigures
from headgate.plan.job_graph import JobGraph, JobVertex

STEADY: Final = 0.25
"""What a vertex sends for each record may differ by this part of it from its mean."""
SHORT_MS: Final = 200.0
"""A shorter interval says little about how busy a task is."""


FADES_MS: Final = 120_000.0
"""After this time what a source has given counts for a third."""
LEAST_OPEN_MS: Final = 100.0
"""A source that was open for less has shown nothing of what it can give."""
GROWTH_MS: Final = 3_000.0
"""Over a shorter time nobody can say how fast a lag grows."""


class TaskCounters(NamedTuple):
    """Counters of one task: since its start, or what they have gained in a window.

    Named as in ``TaskFigures``.
    """

    records_in: float = 0
    """What it has taken; of a source, what it has made."""
    records_out: float = 0
    bytes_in: float = 0
    bytes_out: float = 0
    busy_ms: float = 0.0
    soft_backpressured_ms: float = 0.0
    hard_backpressured_ms: float = 0.0
    idle_ms: float = 0.0
    cpu_ms: float = 0.0
    runnable_ms: float = 0.0
    commit_ms: float = 0.0
    full_ms: float = 0.0
    throttled_ms: float = 0.0

    @property
    def backpressured_ms(self) -> float:
        return self.soft_backpressured_ms + self.hard_backpressured_ms

    @property
    def elapsed_ms(self) -> float:
        return self.busy_ms + self.soft_backpressured_ms + self.hard_backpressured_ms + self.idle_ms

    @property
    def rate(self) -> float:
        """Records it has taken, for each second."""
        return 1000 * self.records_in / self.elapsed_ms if self.elapsed_ms > 0 else 0.0

    def share(self, part_ms: float) -> float:
        """Share of the time in the window, at most one."""
        return min(1.0, part_ms / self.elapsed_ms) if self.elapsed_ms > 0 else 0.0

    @property
    def busy(self) -> float:
        return self.share(self.busy_ms)

    @property
    def backpressured(self) -> float:
        return self.share(self.soft_backpressured_ms + self.hard_backpressured_ms)

    @property
    def idle(self) -> float:
        return self.share(self.idle_ms)


NOTHING: Final = TaskCounters()
NO_COLUMNS: Final = ((),) * len(NOTHING)


_read_counters = attrgetter("records_taken", *TaskCounters._fields[1:])


def gained(before: TaskCounters, now: TaskCounters) -> TaskCounters:
    """Counters that went down belong to a task that has begun anew: then all of them count."""
    if before.records_in > now.records_in or before.busy_ms > now.busy_ms:
        return now
    return TaskCounters._make(map(sub, now, before))


class LagSum(NamedTuple):
    """What the tasks of a source have not read yet, together; unknown if any does not know."""

    records: float = UNKNOWN
    ms: float = UNKNOWN
    """Lag of the task that is furthest behind."""


NO_LAG: Final = LagSum()


@dataclass(frozen=True, slots=True)
class CounterSnapshot:
    """The counters of a job at one moment."""

    at_ms: float
    tasks: Mapping[str, TaskCounters]
    outputs: Mapping[tuple[int, int], tuple[float, float]]
    """Records and bytes that all tasks of a vertex have written, by vertex and output."""
    processes: Mapping[int, tuple[int, float]]
    """Process id and CPU milliseconds, by slot."""
    lags: Mapping[int, LagSum]
    """By vertex, of sources."""
    totals: Mapping[int, tuple[int, TaskCounters]]
    """By vertex: how many tasks have reported, and their counters together."""
    peaks: dict[float, dict[int, float]] = field(default_factory=dict, compare=False)
    """By the time of an earlier snapshot and by vertex: the largest busy share of its tasks since
    then, as far as it was asked for."""


EMPTY: Final = CounterSnapshot(0.0, {}, {}, {}, {}, {})
"""Before everything: a window from here covers the whole life of the job."""


def snapshot_of(
    figures: Sequence[TaskFigures], processes: Iterable[TaskManagerFigures], at_ms: float
) -> CounterSnapshot:
    """Keep what windows need."""
    outputs: dict[tuple[int, int], tuple[float, float]] = {}
    lags: dict[int, list[TaskFigures]] = {}
    tasks: dict[str, TaskCounters] = {}
    vertices: dict[int, list[TaskCounters]] = {}
    for task in figures:
        vertex = task.vertex
        counts = tasks[task.task] = TaskCounters._make(_read_counters(task))
        vertices.setdefault(vertex, []).append(counts)
        for number, output in enumerate(task.outputs):
            records, size = outputs.get((vertex, number), (0, 0))
            outputs[vertex, number] = records + output.records, size + output.bytes
        if task.lag_records != UNKNOWN or task.lag_ms != UNKNOWN:
            lags.setdefault(vertex, []).append(task)
    return CounterSnapshot(
        at_ms,
        tasks,
        outputs,
        {process.slot: (process.pid, process.cpu_ms) for process in processes},
        {vertex: _lag(known) for vertex, known in lags.items()},
        {
            vertex: (len(every), TaskCounters(*map(sum, zip(*every, strict=True))))
            for vertex, every in vertices.items()
        },
    )


def _lag(tasks: Sequence[TaskFigures]) -> LagSum:
    records = [task.lag_records for task in tasks]
    return LagSum(
        UNKNOWN if UNKNOWN in records else sum(records), max(task.lag_ms for task in tasks)
    )


class TaskWindow(NamedTuple):
    """One task in the window."""

    figures: TaskFigures
    gain: TaskCounters

    @property
    def subtask(self) -> int:
        return self.figures.subtask


class VertexWindow:
    """All tasks of a vertex in the window; figures of the vertex are computed once."""

    def __init__(
        self,
        vertex: JobVertex,
        tasks: Sequence[TaskWindow],
        outputs: Sequence[tuple[float, float]] = (),
    ) -> None:
        self.vertex = vertex
        self.tasks = tasks
        columns = list(zip(*(task.gain for task in tasks), strict=True))  # many tasks: no loops
        self.gain = TaskCounters(*map(sum, columns)) if columns else NOTHING
        """Gain of all tasks together."""
        taken, sent, _, _, busy, soft, hard, idle, *_ = columns or NO_COLUMNS
        held_up = list(map(add, soft, hard))
        elapsed = [ms or math.inf for ms in map(add, map(add, busy, held_up), idle)]
        self.rate: float = 1000 * sum(map(truediv, taken, elapsed))
        """Records a second."""
        self.rate_out: float = 1000 * sum(map(truediv, sent, elapsed))
        self.busy = self.gain.busy
        self.backpressured = self.gain.backpressured
        self.max_busy: float = max(map(truediv, busy, elapsed), default=0.0)
        self.max_backpressured: float = max(map(truediv, held_up, elapsed), default=0.0)
        self.outputs = outputs
        """Records and bytes that were written in the window, by output."""

    @property
    def id(self) -> int:
        return self.vertex.id

    @property
    def name(self) -> str:
        return self.vertex.name

    @property
    def running(self) -> "list[TaskWindow]":
        return [task for task in self.tasks if not task.figures.state.has_ended]

    @property
    def busiest(self) -> TaskWindow | None:
        return max(self.tasks, key=lambda task: task.gain.busy, default=None)

    def sent(self, output: int) -> float:
        """Records of an output for each record that was taken."""
        if not self.gain.records_in or output >= len(self.outputs):
            return 0.0
        return self.outputs[output][0] / self.gain.records_in

    def is_steady(self, output: int) -> bool:
        """Whether it sends as much for each record as it has done since the start."""
        reports = [task.figures for task in self.tasks if output < len(task.figures.outputs)]
        taken = sum(report.records_in + report.records_made for report in reports)
        sent = sum(report.outputs[output].records for report in reports)
        now = self.sent(output)
        return taken > 0 and abs(now - sent / taken) <= STEADY * now

    def typical_records(self, beside: TaskWindow) -> float:
        """The (low) median of what the other tasks have taken."""
        others = [task.gain.records_in for task in self.tasks if task is not beside]
        return median_low(others) if others else beside.gain.records_in

    def typical_busy(self, beside: TaskWindow) -> float:
        others = [task.gain.busy for task in self.tasks if task is not beside]
        return median_low(others) if others else beside.gain.busy


@dataclass(frozen=True, slots=True)
class HostWindow:
    """The task managers of one host."""

    host: str
    cores: int
    cpu: float
    """Cores that their processes have used."""
    waiting: float = 0.0
    """Cores that the threads of their tasks would have used as well, had there been more."""


@dataclass(frozen=True, slots=True)
class JobWindow:
    """What a job did between two snapshots of one attempt."""

    graph: JobGraph
    seconds: float
    vertices: Sequence[VertexWindow]
    """By vertex id."""
    hosts: Sequence[HostWindow]
    process_cpu: Mapping[int, float]
    """Cores that the process of a slot has used."""
    lag_growth: Mapping[int, LagSum]
    """By vertex: how much the lag has grown in each second, in records and in milliseconds."""
    lags: Mapping[int, LagSum]
    """At its end."""
    snapshots: Sequence[CounterSnapshot] = ()
    """All of the window, the first and the last too."""
    open_rates: Mapping[int, float] = field(default_factory=dict)
    """See ``OpenRates``; by source, as far as somebody has watched them."""

    @property
    def sources(self) -> "list[VertexWindow]":
        return [vertex for vertex in self.vertices if vertex.vertex.is_source]

    @property
    def source_rate(self) -> float:
        """Records a second of all sources."""
        return sum(source.rate for source in self.sources)

    @property
    def cores(self) -> int:
        return sum(host.cores for host in self.hosts)

    @property
    def cpu(self) -> float:
        """Cores in use by all processes of the job."""
        return sum(host.cpu for host in self.hosts)

    def peak(self, vertices: "Iterable[VertexWindow]") -> float:
        """The largest busy share of any of their tasks in each short interval, on average."""
        vertices = list(vertices)
        peaks = []
        for before, now in pairwise(self.snapshots):
            known = now.peaks.setdefault(before.at_ms, {})
            for vertex in vertices:
                if vertex.id not in known:
                    known[vertex.id] = _peak(before, now, vertex)
            peaks.append(max((known[vertex.id] for vertex in vertices), default=-1.0))
        seen = [peak for peak in peaks if peak >= 0]
        return sum(seen) / len(seen) if seen else 0.0

    def before(self, vertex: int) -> "list[VertexWindow]":
        """The vertices that it reads from."""
        ids = dict.fromkeys(edge.source for edge in self.graph.inputs_of(vertex))
        return [self.vertices[number] for number in ids]


class OpenRates:
    """What sources give in a second in which nothing holds them up, as a mean of minutes.

    A source that is held up nearly all the time is open for a hundredth of the window: by that
    alone its rate would be a guess, another one each second.
    """

    def __init__(self) -> None:
        self._sums: dict[int, tuple[float, float]] = {}
        """By vertex: records, and milliseconds in which it was open; both fade."""

    def clear(self) -> None:
        """Another attempt begins."""
        self._sums.clear()

    def add(self, before: CounterSnapshot, now: CounterSnapshot, sources: Iterable[int]) -> None:
        """What the sources have gained in between."""
        for vertex in sources:
            tasks, counts = now.totals.get(vertex, (0, NOTHING))
            gain = gained(before.totals.get(vertex, (0, NOTHING))[1], counts)
            if gain.elapsed_ms <= 0:
                continue
            records, open_ms = self._sums.get(vertex, (0.0, 0.0))
            fades = math.exp(-gain.elapsed_ms / tasks / FADES_MS)
            opened_ms = gain.elapsed_ms - gain.backpressured_ms
            self._sums[vertex] = (
                fades * records + gain.records_in,
                fades * open_ms + opened_ms / tasks,
            )

    def rates(self) -> dict[int, float]:
        """By source; one that was not open for a while yet is missing."""
        return {
            vertex: 1000 * records / open_ms
            for vertex, (records, open_ms) in self._sums.items()
            if open_ms >= LEAST_OPEN_MS
        }


def window_between(
    graph: JobGraph,
    snapshots: Sequence[CounterSnapshot],
    figures: Sequence[TaskFigures],
    processes: Sequence[TaskManagerFigures] = (),
) -> JobWindow:
    """From the first snapshot to the last, whose figures and processes these are."""
    before, now = snapshots[0], snapshots[-1]
    tasks: dict[int, list[TaskWindow]] = {vertex.id: [] for vertex in graph.vertices}
    elapsed: dict[int, float] = {}
    waiting: dict[int, float] = {}
    for task in figures:
        gain = gained(before.tasks.get(task.task, NOTHING), now.tasks[task.task])
        tasks[task.vertex].append(TaskWindow(task, gain))
        elapsed_ms, slot = gain.elapsed_ms, task.slot
        if elapsed_ms > elapsed.get(slot, 0.0):
            elapsed[slot] = elapsed_ms
        if elapsed_ms > 0:
            waiting[slot] = waiting.get(slot, 0.0) + gain.runnable_ms / elapsed_ms
    outputs = {vertex.id: _outputs(vertex.id, before, now) for vertex in graph.vertices}
    cpu, by_subtask = _process_cpu(before, now, elapsed), attrgetter("figures.subtask")
    return JobWindow(
        graph,
        max(elapsed.values(), default=0.0) / 1000,
        [
            VertexWindow(vertex, sorted(tasks[vertex.id], key=by_subtask), outputs[vertex.id])
            for vertex in graph.vertices
        ],
        _hosts(processes, cpu, waiting),
        cpu,
        {vertex: _growth(vertex, snapshots) for vertex in now.lags},
        now.lags,
        snapshots,
    )


def _peak(before: CounterSnapshot, now: CounterSnapshot, vertex: VertexWindow) -> float:
    """The largest busy share of its tasks in between; -1: no task has reported."""
    largest = -1.0
    for task, _ in vertex.tasks:
        old, new = before.tasks.get(task.task, NOTHING), now.tasks.get(task.task, NOTHING)
        busy_ms, elapsed_ms = new.busy_ms - old.busy_ms, new.elapsed_ms - old.elapsed_ms
        if elapsed_ms >= SHORT_MS and busy_ms > largest * elapsed_ms:
            largest = busy_ms / elapsed_ms
    return largest


def _outputs(
    vertex: int, before: CounterSnapshot, now: CounterSnapshot
) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    while (vertex, len(found)) in now.outputs:
        key = vertex, len(found)
        (records, size), (old_records, old_size) = now.outputs[key], before.outputs.get(key, (0, 0))
        found.append((max(0, records - old_records), max(0, size - old_size)))
    return found


def _process_cpu(
    before: CounterSnapshot, now: CounterSnapshot, elapsed: Mapping[int, float]
) -> dict[int, float]:
    """By the clock of the tasks in the process, which report together with it."""
    found = {}
    for slot, (pid, cpu_ms) in now.processes.items():
        old_pid, old_ms = before.processes.get(slot, (pid, 0.0))
        elapsed_ms = elapsed.get(slot, 0.0)
        if old_pid == pid and elapsed_ms > 0:
            found[slot] = max(0.0, cpu_ms - old_ms) / elapsed_ms
    return found


def _hosts(
    processes: Sequence[TaskManagerFigures],
    cpu: Mapping[int, float],
    waiting: Mapping[int, float],
) -> list[HostWindow]:
    by_host: dict[str, list[TaskManagerFigures]] = {}
    for process in processes:
        by_host.setdefault(process.host, []).append(process)
    return [
        HostWindow(
            host,
            max(process.cores for process in found),
            sum(cpu.get(process.slot, 0.0) for process in found),
            sum(waiting.get(process.slot, 0.0) for process in found),
        )
        for host, found in by_host.items()
    ]


def _growth(vertex: int, snapshots: Sequence[CounterSnapshot]) -> LagSum:
    """For each second, from the first snapshot that knows the lag; zero if that is too near."""
    last = snapshots[-1]
    now = last.lags[vertex]
    found = []
    for part, lag in enumerate(now):
        knowing = (at for at in snapshots if at.lags.get(vertex, NO_LAG)[part] != UNKNOWN)
        first = next(knowing, last)
        elapsed_ms = last.at_ms - first.at_ms
        is_known = lag != UNKNOWN and elapsed_ms >= GROWTH_MS
        found.append(1000 * (lag - first.lags[vertex][part]) / elapsed_ms if is_known else 0.0)
    return LagSum(*found)
