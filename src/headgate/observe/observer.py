"""Watches a job: snapshots of its counters, and from them windows, charts and the diagnosis.

Somebody calls ``look`` about once a second. Law: no window crosses a restart, nor a moment in which
some task had not begun; the memory does not depend on how long the job runs; nothing that is asked
here raises or harms the job. Every method may be called from any thread. The series for charts has
one point a second at first, and at most ``MOST``. When it is full, neighbours are merged: it always
shows the whole life of the job.
"""

import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout  # another one before Python 3.11
from typing import Final

from msgspec.structs import replace

from headgate.api.job import JobStatus
from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from headgate.base.errors import InspectionFailed
from headgate.base.figures import TaskManagerFigures
from headgate.base.inspections import (
    CountKeys,
    Found,
    KeyCounts,
    SampleStacks,
    StackSamples,
)
from headgate.base.messages import TaskFigures, TaskState
from headgate.observe.analysis.diagnosis import Diagnosis, left_out_of
from headgate.observe.analysis.explain import cannot_say, diagnose, has_ended
from headgate.observe.analysis.rules import Cause, Probes, Verdict, find
from headgate.observe.analysis.windows import (
    EMPTY,
    NOTHING,
    CounterSnapshot,
    JobWindow,
    OpenRates,
    gained,
    snapshot_of,
    window_between,
)
from headgate.observe.observed import DiagnosedJob
from headgate.observe.web.answers import JobSeries, SeriesPoint
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
        """The last point that was added."""

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
        """All points; what is not merged yet is the last one."""
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


LEAST_S: Final = 10.0
"""A diagnosis needs a window of this length."""
SPACING_MS: Final = 900.0
"""Snapshots that are closer than this replace each other."""
CLOCK_MS: Final = 1_000.0
"""A clock that goes back further than this was set."""
MANY: Final = 500
MANY_EVERY_MS: Final = 2_900.0
"""So often a job with that many tasks is judged anew, which then takes some milliseconds."""
FRESH: Final = 0.5
"""A task whose reports cover less than this part of the window is missing."""
WINDOW_S: Final = 10.0
MOST_RESTARTS: Final = 100
PROBE_S: Final = 2.0
PROBE_HERTZ: Final = 100.0
ANSWER_S: Final = 5.0
_PROBED: Final = (Cause.SKEW, Cause.WAITS, Cause.CPU, Cause.STATE, Cause.BUSY, Cause.SOURCE)
_STARTING: Final = (TaskState.CREATED, TaskState.DEPLOYING)


class JobObserver:
    """Watches one job."""

    def __init__(
        self, job: DiagnosedJob, window_s: float = WINDOW_S, least_s: float = LEAST_S
    ) -> None:
        """``least_s``: a window below this is too short for a diagnosis."""
        self._job = job
        self._window_s = window_s
        self._least_s = least_s
        self._graph = job.graph
        self._tasks = sum(vertex.parallelism for vertex in job.graph.vertices)
        self._sources = [vertex.id for vertex in job.graph.vertices if vertex.is_source]
        self._kept_ms = (window_s + 2) * 1000
        self._lock = threading.Lock()  # guards all of the following
        self._snapshots: deque[CounterSnapshot] = deque()
        self._figures: list[TaskFigures] = []
        self._processes: list[TaskManagerFigures] = []
        self._status = JobStatus.INITIALIZING
        self._waits_for = ""
        self._restarts = 0
        self._began_ms = 0.0  # when the present attempt was first seen
        self._first_ms: float | None = None
        self._last_ms = 0.0
        self._has_ended = False
        self._series = SeriesRecorder()
        self._recorded: CounterSnapshot | None = None
        self._open_rates = OpenRates()
        self._restarted_ms: deque[int] = deque(maxlen=MOST_RESTARTS)
        self._windows: dict[float, JobWindow] = {}  # until the next look, by their length
        self._quick: Diagnosis | None = None
        self._quick_ms = 0.0  # of the look that it was computed for

    def look(self, now_ms: float | None = None) -> None:
        """Take a snapshot; ``now_ms`` is by the wall clock, since 1970."""
        job = self._job
        ended = job.has_ended()  # before the figures, which are then the last ones
        status, restarts, waits_for = job.status(), job.restarts(), job.waits_for()
        figures, processes = job.figures(), job.task_managers()
        at_ms = time.time() * 1000 if now_ms is None else now_ms
        snapshot = snapshot_of(figures, processes, at_ms)
        with self._lock:
            if self._has_ended or self._last_ms - CLOCK_MS < at_ms < self._last_ms:
                return  # another thread has looked since
            self._windows.clear()
            if self._first_ms is None:
                self._first_ms = self._began_ms = at_ms
            elif restarts > self._restarts:
                self._restarted_ms.append(round(at_ms))
            if self._begins_anew(snapshot, restarts):
                self._snapshots.clear()
                self._open_rates.clear()
                self._began_ms = at_ms
                self._quick = None
            has_changed = status is not self._status or waits_for != self._waits_for
            if has_changed or ended or self._quick_is_old(at_ms):
                self._quick = None
            self._figures, self._processes = figures, processes
            self._status, self._restarts, self._waits_for = status, restarts, waits_for
            self._has_ended, self._last_ms = ended, at_ms
            self._record(snapshot)
            self._retain(snapshot)

    def window(self, window_s: float | None = None) -> JobWindow:
        """What the job did in the last seconds of its present attempt, as far as is known.

        None: in the observer's own window, which is also the longest that there is. With less than
        two snapshots, and after the end, in its whole life.
        """
        with self._lock:
            return self._window(self._window_s if window_s is None else window_s)

    def series(self) -> JobSeries:
        """The job's course so far."""
        with self._lock:
            points = self._series.points()
            restarts = tuple(self._restarted_ms)
        return JobSeries(tuple(vertex.name for vertex in self._graph.vertices), points, restarts)

    def quick_diagnosis(self) -> Diagnosis:
        """The diagnosis from counters alone, once a look, or less often for very many tasks."""
        with self._lock:
            if self._quick is None:
                left_out = left_out_of(self._figures)
                self._quick = replace(self._diagnosed(), left_out=left_out)
                self._quick_ms = self._last_ms
            return self._quick

    def diagnose(self, ask: bool = True, seconds: float = PROBE_S) -> Diagnosis:
        """The diagnosis with what a look at the limiting task finds, which takes these seconds.

        Without ``ask`` no task is looked at. An answer that fails leaves the quick diagnosis.
        """
        quick, restarts = self.quick_diagnosis(), self._job.restarts()
        with self._lock:
            if restarts != self._restarts and not self._has_ended:
                return cannot_say("it has restarted just now; ask again in some seconds")
            if not ask or self._has_ended or quick.cause == Cause.UNKNOWN.value:
                return quick
            window = self._window(self._window_s)
        verdict = find(window)
        probes = self._probe(verdict, seconds)
        complete = probes is not None
        found = diagnose(window, probes or Probes(), complete=complete)
        return replace(found, left_out=quick.left_out)

    def _probe(self, verdict: Verdict, seconds: float) -> Probes | None:
        """Look at the task that limits the job; None: nobody answered."""
        vertex, task = verdict.vertex, verdict.task
        if vertex is None or task is None or verdict.cause not in _PROBED:
            return Probes()
        inspect = self._job.inspect
        asked = [inspect(task.figures.task, SampleStacks(seconds, PROBE_HERTZ), ANSWER_S)]
        if verdict.cause is Cause.SKEW:
            asked.append(inspect(task.figures.task, CountKeys(), ANSWER_S))
        answers = [_answer(future, seconds + 2 * ANSWER_S) for future in asked]
        stacks = next((found for found in answers if isinstance(found, StackSamples)), None)
        keys = next((found for found in answers if isinstance(found, KeyCounts)), None)
        return None if stacks is None and keys is None else Probes(stacks, keys)

    # Below: called under the lock.

    def _quick_is_old(self, at_ms: float) -> bool:
        age_ms = at_ms - self._quick_ms
        return self._tasks < MANY or not 0 <= age_ms < MANY_EVERY_MS

    def _begins_anew(self, now: CounterSnapshot, restarts: int) -> bool:
        """Whether this snapshot belongs to another attempt than the last."""
        if restarts != self._restarts or not self._snapshots:
            return True
        before = self._snapshots[-1]
        if now.at_ms < before.at_ms:  # somebody has set the clock
            return True
        if any(
            slot in before.processes and before.processes[slot][0] != pid
            for slot, (pid, _) in now.processes.items()
        ):
            return True
        return any(
            counts.elapsed_ms > now.totals.get(vertex, (0, counts))[1].elapsed_ms + 1
            for vertex, (_, counts) in before.totals.items()
        )

    def _retain(self, snapshot: CounterSnapshot) -> None:
        if not self._all_running():
            self._snapshots.clear()
            self._began_ms = snapshot.at_ms
            return
        kept = self._snapshots
        if kept:
            self._open_rates.add(kept[-1], snapshot, self._sources)
        if len(kept) >= 2 and snapshot.at_ms - kept[-2].at_ms < SPACING_MS:
            kept[-1] = snapshot
        else:
            kept.append(snapshot)
        while len(kept) > 2 and kept[1].at_ms <= snapshot.at_ms - self._kept_ms:
            kept.popleft()

    def _all_running(self) -> bool:
        """Whether all tasks run, or have run; in a batch job those whose turn it is."""
        if self._has_ended:
            return True
        if self._status is not JobStatus.RUNNING:
            return False
        starting = any(task.state in _STARTING for task in self._figures)
        if self._graph.batch:
            return bool(self._figures)
        return len(self._figures) >= self._tasks and not starting

    def _window(self, window_s: float) -> JobWindow:
        """Computed once for each look."""
        found = self._windows.get(window_s)
        if found is None:
            found = self._windows[window_s] = self._new_window(window_s)
        return found

    def _new_window(self, window_s: float) -> JobWindow:
        if self._has_ended or len(self._snapshots) < 2:
            return self._whole_life()
        snapshots = self._snapshots
        since_ms = snapshots[-1].at_ms - window_s * 1000
        first = max(
            (at for at, snapshot in enumerate(snapshots) if snapshot.at_ms <= since_ms), default=0
        )
        first = min(first, len(snapshots) - 2)
        chosen = list(snapshots)[first:]
        window = window_between(self._graph, chosen, self._figures, self._processes)
        return dataclasses.replace(window, open_rates=self._open_rates.rates())

    def _whole_life(self) -> JobWindow:
        """Over the life of the job."""
        last = snapshot_of(self._figures, self._processes, self._last_ms)
        return window_between(self._graph, [EMPTY, last], self._figures, self._processes)

    def _diagnosed(self) -> Diagnosis:
        if self._has_ended:
            return has_ended(self._whole_life(), self._status.name.lower())
        reason = self._cannot_say()
        if reason:
            return cannot_say(reason)
        return diagnose(self._window(self._window_s), complete=False)

    def _cannot_say(self) -> str:
        """Why there is no window to judge by; nothing: there is one."""
        if self._first_ms is None:
            return "it is looked at for the first time; ask again in some seconds"
        if self._status is not JobStatus.RUNNING:
            restarted = "has restarted and " if self._restarts else ""
            waits = f", {self._waits_for}" if self._waits_for else ""
            return f"the job {restarted}is {self._status.name.lower()}{waits}"
        if not self._all_running():
            return self._missing()
        lasted_s = (self._last_ms - self._began_ms) / 1000
        if lasted_s < self._least_s:
            began = "it has restarted, and since then" if self._restarts else "it"
            return (
                f"{began} was watched for {lasted_s:.0f} s only, and an answer needs "
                f"{self._least_s:.0f} s; ask again in {math.ceil(self._least_s - lasted_s)} s"
            )
        return self._stale()

    def _missing(self) -> str:
        reported = {task.task for task in self._figures if task.state not in _STARTING}
        restarted = "it has restarted, and " if self._restarts else ""
        return (
            f"{restarted}{self._tasks - len(reported)} of {self._tasks} tasks have not reported "
            f"yet, or are still starting"
        )

    def _stale(self) -> str:
        window = self._window(self._window_s)
        least_ms = FRESH * self._least_s * 1000
        if self._graph.batch:
            return ""
        for vertex in window.vertices:
            for task in vertex.tasks:
                if task.gain.elapsed_ms < least_ms and not task.figures.state.has_ended:
                    return (
                        f"subtask {task.subtask} of {vertex.name!r} has sent no figures for "
                        f"seconds; its process may be busy in a call that never lets others run"
                    )
        return ""

    def _record(self, snapshot: CounterSnapshot) -> None:
        before, self._recorded = self._recorded, snapshot
        if before is not None and snapshot.at_ms > before.at_ms:
            last = self._series.last
            self._series.add(point_between(self._graph, before, snapshot, self._figures, last))


def _answer(future: "Future[Found]", timeout_s: float) -> Found | None:
    try:
        return future.result(timeout_s)
    except (InspectionFailed, FutureTimeout):  # the task has ended, or its process is too busy
        return None
