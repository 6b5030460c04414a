"""What the tasks of a job have gained within the last seconds, from snapshots of their figures.

The tasks' own milliseconds are the clock, so it does not matter when their reports arrive. Law:
busy, back-pressured and idle shares add up to one, or are all zero if no task ran in the window.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from headgate.base.figures import OutputFigures
from headgate.base.messages import TaskFigures

WINDOW_MS: Final = 10_000.0

Snapshot: TypeAlias = Mapping[str, TaskFigures]


@dataclass(frozen=True, slots=True)
class TaskGain:
    """What the counters of a task, or of several, have gained."""

    records_in: int = 0
    """Of a source, those that it has made."""
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_ms: float = 0.0
    backpressured_ms: float = 0.0
    soft_ms: float = 0.0
    hard_ms: float = 0.0
    idle_ms: float = 0.0
    cpu_ms: float = 0.0
    seconds: float = 0.0
    """How long the window was for the task that ran longest in it."""

    @property
    def elapsed_ms(self) -> float:
        return self.busy_ms + self.backpressured_ms + self.idle_ms

    def share(self, part_ms: float) -> float:
        """Of the time in which the tasks ran."""
        return min(1.0, part_ms / self.elapsed_ms) if self.elapsed_ms > 0 else 0.0

    def per_s(self, count: int) -> float:
        return count / self.seconds if self.seconds > 0 else 0.0


class FiguresWindow:
    """Snapshots of the last ten seconds; used by one thread at a time."""

    def __init__(self, window_ms: float = WINDOW_MS) -> None:
        self._window_ms = window_ms
        self._snapshots: deque[tuple[float, Snapshot]] = deque()

    def reported(self, figures: Iterable[TaskFigures], now_ms: float) -> None:
        """The latest figures of all tasks."""
        snapshots = self._snapshots
        snapshots.append((now_ms, {task.task: task for task in figures}))
        while len(snapshots) > 2 and snapshots[1][0] <= now_ms - self._window_ms:
            snapshots.popleft()

    @property
    def before(self) -> Snapshot:
        """The oldest of the window; empty: everything that the tasks have counted is new."""
        return self._snapshots[0][1] if self._snapshots else {}


def gain_between(before: TaskFigures | None, now: TaskFigures) -> TaskGain:
    """Of one task; counters that went down belong to one that has begun anew: all of them count."""
    if before is None or has_begun_anew(before, now):
        before = TaskFigures(now.task, now.vertex, now.subtask, now.state)
    busy_ms = now.busy_ms - before.busy_ms
    backpressured_ms = now.backpressured_ms - before.backpressured_ms
    idle_ms = now.idle_ms - before.idle_ms
    return TaskGain(
        now.records_in + now.records_made - before.records_in - before.records_made,
        now.records_out - before.records_out,
        now.bytes_in - before.bytes_in,
        now.bytes_out - before.bytes_out,
        busy_ms,
        backpressured_ms,
        now.soft_backpressured_ms - before.soft_backpressured_ms,
        now.hard_backpressured_ms - before.hard_backpressured_ms,
        idle_ms,
        now.cpu_ms - before.cpu_ms,
        (busy_ms + backpressured_ms + idle_ms) / 1000,
    )


def has_begun_anew(before: TaskFigures, now: TaskFigures) -> bool:
    return before.records_in > now.records_in or before.busy_ms > now.busy_ms


def summed(gains: Sequence[TaskGain]) -> TaskGain:
    """Of all these tasks together; they ran side by side."""
    if not gains:
        return TaskGain()
    return TaskGain(
        sum(gain.records_in for gain in gains),
        sum(gain.records_out for gain in gains),
        sum(gain.bytes_in for gain in gains),
        sum(gain.bytes_out for gain in gains),
        sum(gain.busy_ms for gain in gains),
        sum(gain.backpressured_ms for gain in gains),
        sum(gain.soft_ms for gain in gains),
        sum(gain.hard_ms for gain in gains),
        sum(gain.idle_ms for gain in gains),
        sum(gain.cpu_ms for gain in gains),
        max(gain.seconds for gain in gains),
    )


def output_gain(before: TaskFigures | None, now: TaskFigures, output: int) -> tuple[int, int]:
    """Records and bytes that a task has written to one of its outputs in the window."""
    if output >= len(now.outputs):
        return 0, 0
    written, earlier = now.outputs[output], OutputFigures(0)
    if before is not None and output < len(before.outputs) and not has_begun_anew(before, now):
        earlier = before.outputs[output]
    return max(0, written.records - earlier.records), max(0, written.bytes - earlier.bytes)
