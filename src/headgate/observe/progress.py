"""How a job gets on: a row for each vertex, for tables of people.

Rates and shares are those of a window (``analysis/windows``), totals those since the start. Law:
the shares of a row add up to one, or are all zero if no task of the vertex ran in the window.
"""

from dataclasses import dataclass

from headgate.observe.analysis.windows import (
    JobWindow,
    TaskCounters,
    VertexWindow,
)


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
    bytes_in_per_s: float
    bytes_out_per_s: float
    shares: Shares
    soft_backpressured: float
    hard_backpressured: float
    cpu: float
    """Cores that the threads of its tasks have used, all together."""
    busiest: tuple[int, Shares]
    """The subtask with the largest busy share: a hot key makes one task slow, not all."""


def rows_of(window: JobWindow) -> list[VertexRow]:
    """Of all vertices, by id."""
    return [_row(vertex) for vertex in window.vertices]


def shares_of(gain: TaskCounters) -> Shares:
    """Of a task, or of several together."""
    elapsed_ms = gain.elapsed_ms
    if elapsed_ms <= 0:
        return Shares()
    busy = gain.busy_ms / elapsed_ms
    return Shares(busy, gain.backpressured_ms / elapsed_ms, gain.idle_ms / elapsed_ms)


def _row(vertex: VertexWindow) -> VertexRow:
    tasks, gain = vertex.tasks, vertex.gain
    ended = sum(task.figures.state.has_ended for task in tasks)
    busiest = vertex.busiest
    per_s = 1000 * len(tasks) / gain.elapsed_ms if gain.elapsed_ms > 0 else 0.0
    return VertexRow(
        vertex=vertex.id,
        name=vertex.name,
        is_source=vertex.vertex.is_source,
        tasks=vertex.vertex.parallelism,
        running=len(tasks) - ended,
        ended=ended,
        records_in=sum(task.figures.records_in + task.figures.records_made for task in tasks),
        records_out=sum(task.figures.records_out for task in tasks),
        in_per_s=vertex.rate,
        out_per_s=vertex.rate_out,
        bytes_in_per_s=gain.bytes_in * per_s,
        bytes_out_per_s=gain.bytes_out * per_s,
        shares=shares_of(gain),
        soft_backpressured=gain.share(gain.soft_backpressured_ms),
        hard_backpressured=gain.share(gain.hard_backpressured_ms),
        cpu=len(tasks) * gain.cpu_ms / gain.elapsed_ms if gain.elapsed_ms > 0 else 0.0,
        busiest=(0, Shares()) if busiest is None else (busiest.subtask, shares_of(busiest.gain)),
    )
