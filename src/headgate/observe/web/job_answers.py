"""From a job to the answers about it: the lists of jobs, and one job with its graph.

Functions of what was seen, without a clock or a server, so that they can answer for any job that
has figures. Law: a task that has not reported yet counts as created.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from headgate.api.job import JobStatus
from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from headgate.base.messages import TaskFigures, TaskState
from headgate.observe.observed import ObservedJob
from headgate.observe.web.answers import (
    EdgeDetails,
    JobDetails,
    JobSummary,
    OperatorDetails,
    Rates,
    TaskCounts,
    Totals,
    VertexDetails,
)
from headgate.observe.web.windows import (
    Snapshot,
    TaskGain,
    gain_between,
    output_gain,
    summed,
)
from headgate.plan.job_graph import JobEdge, JobVertex

STATES: Final = {
    TaskState.CREATED: "CREATED",
    TaskState.DEPLOYING: "DEPLOYING",
    TaskState.RUNNING: "RUNNING",
    TaskState.FINISHED: "FINISHED",
    TaskState.CANCELLING: "CANCELING",
    TaskState.CANCELLED: "CANCELED",
    TaskState.FAILED: "FAILED",
}
"""As Flink spells them."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A job at one moment, beside what its tasks had counted when the window began."""

    job: ObservedJob
    now_ms: int
    tasks: Sequence[TaskFigures]
    before: Snapshot
    places: Sequence[tuple[int, int]]
    """For each vertex its column and row in a drawing."""

    def tasks_of(self, vertex: int) -> list[TaskFigures]:
        """Those that have reported, by subtask."""
        found = [task for task in self.tasks if task.vertex == vertex]
        return sorted(found, key=lambda task: task.subtask)

    def gain_of(self, task: TaskFigures) -> TaskGain:
        return gain_between(self.before.get(task.task), task)


def job_summary(job: ObservedJob, now_ms: int, why: str = "") -> JobSummary:
    """A line of the list of jobs."""
    ended_ms = job.ended_at_ms
    states = Counter(STATES[task.state] for task in job.figures())
    total = sum(vertex.parallelism for vertex in job.graph.vertices)
    states["CREATED"] += max(0, total - states.total())
    counts = {state.lower(): count for state, count in states.items()}
    return JobSummary(
        jid=job.job_id,
        name=job.graph.name,
        state=job.status().name,
        start_time=job.started_at_ms,
        end_time=-1 if ended_ms is None else ended_ms,
        duration=(ended_ms or now_ms) - job.started_at_ms,
        last_modification=max(job.state_times().values(), default=job.started_at_ms),
        tasks=TaskCounts(total=total, **counts),
        why=why,
    )


def job_details(sight: Sight) -> JobDetails:
    """The job with its vertices and edges."""
    job, ended_ms = sight.job, sight.job.ended_at_ms
    failures = job.failures()
    tasks: dict[int, list[TaskFigures]] = {vertex.id: [] for vertex in job.graph.vertices}
    for task in sight.tasks:
        tasks[task.vertex].append(task)
    return JobDetails(
        jid=job.job_id,
        name=job.graph.name,
        state=job.status().name,
        start_time=job.started_at_ms,
        end_time=-1 if ended_ms is None else ended_ms,
        duration=(ended_ms or sight.now_ms) - job.started_at_ms,
        now=sight.now_ms,
        timestamps=dict(job.state_times()),
        restarts=job.restarts(),
        batch=job.graph.batch,
        vertices=[vertex_details(sight, vertex, tasks[vertex.id]) for vertex in job.graph.vertices],
        edges=[
            edge_details(sight, edge, tasks[edge.source], tasks[edge.target])
            for edge in job.graph.edges
        ],
        latest_failure=failures[0] if failures else None,
    )


def vertex_details(sight: Sight, vertex: JobVertex, tasks: Sequence[TaskFigures]) -> VertexDetails:
    """All subtasks together."""
    gains = [sight.gain_of(task) for task in tasks]
    gain = summed(gains)
    states = Counter(STATES[task.state] for task in tasks)
    states["CREATED"] += max(0, vertex.parallelism - len(tasks))
    watermark = lowest_watermark(tasks)
    return VertexDetails(
        id=str(vertex.id),
        name=vertex.name,
        operators=operators_of(vertex, tasks),
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        slot_sharing_group=vertex.group,
        status=status_of(states, sight.job.status()),
        is_source=vertex.is_source,
        tasks={state: count for state, count in states.items() if count},
        column=sight.places[vertex.id][0],
        row=sight.places[vertex.id][1],
        metrics=totals(tasks),
        rates=rates(gain),
        busy=gain.share(gain.busy_ms),
        backpressured=gain.share(gain.backpressured_ms),
        soft_backpressured=gain.share(gain.soft_ms),
        hard_backpressured=gain.share(gain.hard_ms),
        idle=gain.share(gain.idle_ms),
        max_busy=max((task.share(task.busy_ms) for task in gains), default=0.0),
        max_backpressured=max((task.share(task.backpressured_ms) for task in gains), default=0.0),
        cpu=gain.share(gain.cpu_ms),
        watermark=watermark,
        watermark_lag_ms=lag_of(watermark, sight.now_ms),
        latency_p50_ms=latency([task.latency_p50_ms for task in tasks], is_median=True),
        latency_p99_ms=latency([task.latency_p99_ms for task in tasks]),
        state_bytes=known_sum(task.state_bytes for task in tasks),
        lag_records=known_sum(task.lag_records for task in tasks),
        lag_bytes=known_sum(task.lag_bytes for task in tasks),
        lag_ms=max((task.lag_ms for task in tasks if task.lag_ms >= 0), default=None),
    )


def edge_details(
    sight: Sight, edge: JobEdge, producers: Sequence[TaskFigures], readers: Sequence[TaskFigures]
) -> EdgeDetails:
    """All channels together, as both ends have counted them."""
    records_per_s = bytes_per_s = 0.0
    backlog = 0
    for task in producers:
        before = sight.before.get(task.task)
        records, size = output_gain(before, task, edge.output)
        gain = sight.gain_of(task)
        records_per_s += gain.per_s(records)
        bytes_per_s += gain.per_s(size)
    for task in readers:
        if edge.gate < len(task.gates):
            gate = task.gates[edge.gate]
            backlog += gate.backlog + gate.queued_buffers
    return EdgeDetails(
        source=str(edge.source),
        target=str(edge.target),
        ship=edge.ship,
        output=edge.output,
        gate=edge.gate,
        records_per_s=records_per_s,
        bytes_per_s=bytes_per_s,
        backlog=backlog,
    )


def operators_of(vertex: JobVertex, tasks: Sequence[TaskFigures]) -> list[OperatorDetails]:
    """Those of the chain, with what they have counted in all subtasks."""
    found = []
    for place, operator in enumerate(vertex.chain.operators):
        figures = [task.operators[place] for task in tasks if place < len(task.operators)]
        records_in = sum(operator.records_in for operator in figures)
        records_out = sum(operator.records_out for operator in figures)
        found.append(OperatorDetails(operator.name, records_in, records_out))
    return found


def status_of(states: Counter[str], job: JobStatus) -> str:
    """Of a vertex, from the states of its subtasks: the one that matters most."""
    for state in ("FAILED", "CANCELING", "CANCELED", "RUNNING", "DEPLOYING"):
        if states[state]:
            return state
    if states["FINISHED"]:
        return "RUNNING" if states["CREATED"] else "FINISHED"
    return "CANCELED" if job.is_globally_terminal_state() else "CREATED"


def totals(tasks: Sequence[TaskFigures]) -> Totals:
    """Of all these tasks together."""
    return Totals(
        read_records=sum(task.records_in + task.records_made for task in tasks),
        read_bytes=sum(task.bytes_in for task in tasks),
        write_records=sum(task.records_out for task in tasks),
        write_bytes=sum(task.bytes_out for task in tasks),
        accumulated_busy_time=sum(task.busy_ms for task in tasks),
        accumulated_backpressured_time=sum(task.backpressured_ms for task in tasks),
        accumulated_idle_time=sum(task.idle_ms for task in tasks),
    )


def rates(gain: TaskGain) -> Rates:
    """Per second."""
    return Rates(
        in_per_s=gain.per_s(gain.records_in),
        out_per_s=gain.per_s(gain.records_out),
        bytes_in_per_s=gain.per_s(gain.bytes_in),
        bytes_out_per_s=gain.per_s(gain.bytes_out),
    )


def lowest_watermark(tasks: Sequence[TaskFigures]) -> int | None:
    """None as long as a subtask has none."""
    lowest = min((task.output_watermark_ms for task in tasks), default=MIN_WATERMARK_MS)
    return known_watermark(lowest)


def known_watermark(watermark_ms: int) -> int | None:
    return None if watermark_ms == MIN_WATERMARK_MS else watermark_ms


def lag_of(watermark_ms: int | None, now_ms: int) -> float | None:
    """None: there is no watermark, or it is the last one."""
    if watermark_ms is None or watermark_ms == MAX_WATERMARK_MS:
        return None
    return float(now_ms - watermark_ms)


def latency(measured_ms: Sequence[float], *, is_median: bool = False) -> float | None:
    """Of several tasks: that in the middle, or the longest; None: nothing was measured."""
    found = [value for value in measured_ms if value > 0]
    if not found:
        return None
    return median(found) if is_median else max(found)


def known_sum(sizes: Iterable[int]) -> int | None:
    """Of those that are known; None: not one is."""
    found = [size for size in sizes if size >= 0]
    return sum(found) if found else None
