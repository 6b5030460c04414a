"""How a job gets on: a row for each vertex, and which of them holds up the others.

Rates and shares are taken over a window, from what the tasks' counters have gained in it; the
tasks' own milliseconds are the clock, so it does not matter when their reports arrive. Law: the
shares of a row add up to one, or are all zero if no task of the vertex ran in the window.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from headgate.base.messages import TaskFigures
from headgate.plan.job_graph import JobGraph

WINDOW_MS: Final = 5_000.0
BUSY: Final = 0.5
"""A task that works more than this may hold up others."""
HELD_UP: Final = 0.2
"""A vertex that waits for buffers more than this is held up."""

Snapshot: TypeAlias = dict[str, TaskFigures]


@dataclass(frozen=True, slots=True)
class Shares:
    """What time went to, as parts of one."""

    busy: float = 0.0
    backpressured: float = 0.0
    idle: float = 0.0

    def describe(self) -> str:
        return (
            f"busy {self.busy:.0%}, back-pressured {self.backpressured:.0%}, idle {self.idle:.0%}"
        )


@dataclass(frozen=True, slots=True)
class VertexRow:
    """One vertex: totals since its start, rates and shares over the window."""

    vertex: int
    name: str
    is_source: bool
    tasks: int
    running: int
    """Tasks that have not ended, of those that have reported."""
    ended: int
    records_in: int
    """Of a source: what it has made."""
    records_out: int
    """What it has sent to other vertices."""
    in_per_s: float
    out_per_s: float
    shares: Shares
    busiest: tuple[int, Shares]
    """The subtask with the largest busy share: a hot key makes one task slow, not all."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A vertex that works without a pause while one before it waits for buffers."""

    row: VertexRow
    held_up: VertexRow

    def describe(self) -> str:
        subtask, hot = self.row.busiest
        mean = self.row.shares.busy
        where = f"task {subtask + 1} of {self.row.tasks} " if hot.busy > 1.5 * mean else ""
        return (
            f"bottleneck {self.row.name!r}: {where}busy {hot.busy:.0%}, while "
            f"{self.held_up.name!r} before it is back-pressured "
            f"{self.held_up.shares.backpressured:.0%} of the time"
        )


class JobProgress:
    """Takes the figures of a job again and again, and answers with rows."""

    def __init__(self, graph: JobGraph, window_ms: float = WINDOW_MS) -> None:
        self.graph = graph
        self._window_ms = window_ms
        self._snapshots: deque[tuple[float, Snapshot]] = deque()

    def reported(self, figures: Sequence[TaskFigures], now_ms: float) -> None:
        """The latest figures of all tasks; those of tasks that have not reported are missing."""
        snapshots = self._snapshots
        snapshots.append((now_ms, {task.task: task for task in figures}))
        while len(snapshots) > 2 and snapshots[1][0] <= now_ms - self._window_ms:
            snapshots.popleft()

    def rows(self) -> list[VertexRow]:
        """Over the window."""
        if len(self._snapshots) < 2:
            return self.whole()
        return self._rows(self._snapshots[0][1], self._snapshots[-1][1])

    def whole(self) -> list[VertexRow]:
        """Over the whole life of the job."""
        return self._rows({}, self._snapshots[-1][1] if self._snapshots else {})

    def _rows(self, before: Snapshot, now: Snapshot) -> list[VertexRow]:
        found: dict[int, list[TaskFigures]] = {vertex.id: [] for vertex in self.graph.vertices}
        for task in now.values():
            found[task.vertex].append(task)
        rows = []
        for vertex in self.graph.vertices:
            tasks = found[vertex.id]
            ended = sum(task.state.has_ended for task in tasks)
            gains = [gain_of(before.get(task.task), task) for task in tasks]
            rows.append(
                VertexRow(
                    vertex.id,
                    vertex.name,
                    vertex.is_source,
                    vertex.parallelism,
                    len(tasks) - ended,
                    ended,
                    sum(task.records_in + task.records_made for task in tasks),
                    sum(task.records_out for task in tasks),
                    sum(_per_s(gain.records_in, gain) for gain in gains),
                    sum(_per_s(gain.records_out, gain) for gain in gains),
                    shares_of(gains),
                    _busiest(gains),
                )
            )
        return rows


def bottlenecks(graph: JobGraph, rows: Sequence[VertexRow]) -> list[Bottleneck]:
    """Vertices that hold up one before them, the busiest first."""
    found = []
    for row in rows:
        _, hot = row.busiest
        if hot.busy < BUSY or hot.busy <= hot.backpressured:
            continue
        before = [rows[edge.source] for edge in graph.inputs_of(row.vertex)]
        worst = max(before, key=lambda row: row.shares.backpressured, default=None)
        if worst is not None and worst.shares.backpressured >= HELD_UP:
            found.append(Bottleneck(row, worst))
    return sorted(found, key=lambda bottleneck: bottleneck.row.busiest[1].busy, reverse=True)


@dataclass(frozen=True, slots=True)
class Gain:
    """What the counters of one task have gained between two reports."""

    subtask: int
    records_in: int
    records_out: int
    busy_ms: float
    backpressured_ms: float
    idle_ms: float

    @property
    def elapsed_ms(self) -> float:
        return self.busy_ms + self.backpressured_ms + self.idle_ms


def gain_of(before: TaskFigures | None, now: TaskFigures) -> Gain:
    """Counters that went down belong to a task that has begun anew: then all of them count."""
    if before is None or before.records_in > now.records_in or before.busy_ms > now.busy_ms:
        before = TaskFigures(now.task, now.vertex, now.subtask, now.state)
    return Gain(
        now.subtask,
        now.records_in + now.records_made - before.records_in - before.records_made,
        now.records_out - before.records_out,
        now.busy_ms - before.busy_ms,
        now.backpressured_ms - before.backpressured_ms,
        now.idle_ms - before.idle_ms,
    )


def shares_of(gains: Sequence[Gain]) -> Shares:
    """Of all these tasks together."""
    elapsed_ms = sum(gain.elapsed_ms for gain in gains)
    if elapsed_ms <= 0:
        return Shares()
    return Shares(
        sum(gain.busy_ms for gain in gains) / elapsed_ms,
        sum(gain.backpressured_ms for gain in gains) / elapsed_ms,
        sum(gain.idle_ms for gain in gains) / elapsed_ms,
    )


def _busiest(gains: Sequence[Gain]) -> tuple[int, Shares]:
    shares = [(gain.subtask, shares_of([gain])) for gain in gains]
    return max(shares, key=lambda item: item[1].busy, default=(0, Shares()))


def _per_s(records: int, gain: Gain) -> float:
    return 1000 * records / gain.elapsed_ms if gain.elapsed_ms > 0 else 0.0
