"""The course of a job for charts: one point a second at first, coarser as the job grows old.

Law: there are never more points than ``MOST``; when they are full, neighbours are merged, so that
the whole life of the job stays in sight at half the resolution.
"""

from collections.abc import Sequence
from typing import Final

from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from headgate.base.messages import TaskFigures
from headgate.observe.analysis.windows import NOTHING, CounterSnapshot, gained
from headgate.observe.web.answers import SeriesPoint
from headgate.plan.job_graph import JobGraph

MOST: Final = 600


class SeriesRecorder:
    """Takes points; used by one thread at a time."""

    def __init__(self, most: int = MOST) -> None:
        assert most >= 2 and most % 2 == 0
        self._most = most
        self._points: list[SeriesPoint] = []
        self._pending: list[SeriesPoint] = []
        self._merged = 1  # so many points make one
        self.last: SeriesPoint | None = None
        """As it was added."""

    def add(self, point: SeriesPoint) -> None:
        self.last = point
        self._pending.append(point)
        if len(self._pending) < self._merged:
            return
        self._points.append(merge_points(self._pending))
        self._pending = []
        if len(self._points) >= self._most:
            points = self._points
            self._points = [merge_points(points[at : at + 2]) for at in range(0, len(points), 2)]
            self._merged *= 2

    def points(self) -> tuple[SeriesPoint, ...]:
        """With what is not merged yet as a last point."""
        last = [merge_points(self._pending)] if self._pending else []
        return (*self._points, *last)


def point_between(
    graph: JobGraph,
    before: CounterSnapshot,
    now: CounterSnapshot,
    figures: Sequence[TaskFigures],
    last: SeriesPoint | None,
) -> SeriesPoint:
    """The point at the second snapshot, whose figures these are.

    A vertex that has not reported in between stays as it was in the last point.
    """
    ends = {vertex.id for vertex in graph.vertices} - {edge.source for edge in graph.edges}
    vertices = []
    for place, vertex in enumerate(graph.vertices):
        count, counts = now.totals.get(vertex.id, (0, NOTHING))
        gain = gained(before.totals.get(vertex.id, (0, NOTHING))[1], counts)
        if gain.elapsed_ms > 0:
            rate = 1000 * count * gain.records_in / gain.elapsed_ms
            vertices.append((rate, gain.busy, gain.backpressured, gain.idle))
        else:
            vertices.append((0.0, 0.0, 0.0, 0.0) if last is None else last.vertices[place])
    last_tasks = [task for task in figures if task.vertex in ends]
    measured = [task for task in last_tasks if task.latency_p99_ms > 0]
    times = [
        watermark
        for task in last_tasks
        for watermark in task.input_watermarks_ms
        if MIN_WATERMARK_MS < watermark < MAX_WATERMARK_MS
    ]
    return SeriesPoint(
        round(now.at_ms),
        sum(vertices[each.id][0] for each in graph.vertices if each.is_source),
        sum(vertices[each][0] for each in sorted(ends)),
        max((task.latency_p50_ms for task in measured), default=-1.0),
        max((task.latency_p99_ms for task in measured), default=-1.0),
        max(0.0, now.at_ms - min(times)) if times else -1.0,
        tuple(vertices),
    )


def merge_points(points: Sequence[SeriesPoint]) -> SeriesPoint:
    """Means, at the time of the last; of latencies the largest."""
    if len(points) == 1:
        return points[0]
    count = len(points)
    by_vertex = zip(*(point.vertices for point in points), strict=True)
    return SeriesPoint(
        points[-1].at_ms,
        sum(point.in_per_s for point in points) / count,
        sum(point.out_per_s for point in points) / count,
        max(point.latency_p50_ms for point in points),
        max(point.latency_p99_ms for point in points),
        max(point.watermark_lag_ms for point in points),
        tuple(
            tuple(sum(column) / count for column in zip(*vertex, strict=True))
            for vertex in by_vertex
        ),
    )
