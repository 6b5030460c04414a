"""The answers about a job and its vertices: lists, graph, subtasks.

Functions of what was seen, without a clock or a server, so that they can answer for any job that
has figures. Law: a task that has not reported yet counts as created.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from msgspec import structs

from headgate.api.job import JobStatus
from headgate.base.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from headgate.base.figures import OperatorFigures, metric_of, metrics_of
from headgate.base.messages import TaskFigures, TaskState
from headgate.observe.analysis.diagnosis import Diagnosis
from headgate.observe.analysis.windows import JobWindow, TaskCounters, TaskWindow, VertexWindow
from headgate.observe.observed import ObservedJob
from headgate.observe.web import answers
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
"""States of tasks as Flink spells them."""
MERGED: Final = ("state_bytes", "lag_records", "lag_bytes", "lag_ms")
"""Figures of several tasks that are merged as their declarations say."""


@dataclass(frozen=True, slots=True)
class JobMoment:
    """A job at one moment, and what it did in the window before it."""

    job: ObservedJob
    now_ms: int
    window: JobWindow
    """For a job that has ended, its whole life."""
    places: Sequence[tuple[int, int]]
    """Column and row of each vertex in a drawing."""
    why: Diagnosis | None = None

    def vertex(self, window: VertexWindow) -> answers.VertexDetails:
        return vertex_details(window, self.job.status(), self.now_ms, self.places[window.id])


def job_summary(job: ObservedJob, now_ms: int, why: Diagnosis | None) -> answers.JobSummary:
    """A line of the list of jobs."""
    states = Counter(STATES[task.state] for task in job.figures())
    total = sum(vertex.parallelism for vertex in job.graph.vertices)
    states["CREATED"] += max(0, total - states.total())
    counts = {state.lower(): count for state, count in states.items()}
    return answers.JobSummary(
        **_job_times(job, now_ms),
        last_modification=max(job.state_times().values(), default=job.started_at_ms),
        tasks=answers.TaskCounts(total=total, **counts),
        why="" if why is None else why.headline,
    )


def job_details(moment: JobMoment) -> answers.JobDetails:
    """The job with its vertices and edges."""
    job = moment.job
    failures = job.failures()
    vertices = moment.window.vertices
    return answers.JobDetails(
        **_job_times(job, moment.now_ms),
        now=moment.now_ms,
        timestamps=dict(job.state_times()),
        restarts=job.restarts(),
        batch=job.graph.batch,
        vertices=[moment.vertex(vertex) for vertex in vertices],
        edges=[
            edge_details(edge, vertices[edge.source], vertices[edge.target])
            for edge in job.graph.edges
        ],
        latest_failure=failures[0] if failures else None,
        why=moment.why,
    )


def _job_times(job: ObservedJob, now_ms: int) -> dict[str, Any]:
    """Fields of ``JobTimes``."""
    ended_ms = job.ended_at_ms
    return {
        "jid": job.job_id,
        "name": job.graph.name,
        "state": job.status().name,
        "start_time": job.started_at_ms,
        "end_time": -1 if ended_ms is None else ended_ms,
        "duration": (ended_ms or now_ms) - job.started_at_ms,
    }


def vertex_details(
    window: VertexWindow, status: JobStatus, now_ms: float, place: tuple[int, int] = (0, 0)
) -> answers.VertexDetails:
    """All subtasks together; ``status`` is that of the job, ``place`` that in a drawing."""
    vertex = window.vertex
    tasks = [task.figures for task in window.tasks]
    states = Counter(STATES[task.state] for task in tasks)
    states["CREATED"] += max(0, vertex.parallelism - len(tasks))
    return answers.VertexDetails(
        id=str(vertex.id),
        name=vertex.name,
        operators=operators_of(vertex, tasks),
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        slot_sharing_group=vertex.group,
        status=status_of(states, status),
        is_source=vertex.is_source,
        tasks={state: count for state, count in states.items() if count},
        column=place[0],
        row=place[1],
        max_busy=window.max_busy,
        max_backpressured=window.max_backpressured,
        **activity_of(window.tasks, window.gain, now_ms),
    )


def activity_of(windows: Sequence[TaskWindow], gain: TaskCounters, now_ms: float) -> dict[str, Any]:
    """What these tasks have done, which have gained this together: fields of ``TasksActivity``."""
    tasks = [task.figures for task in windows]
    lowest = min((task.output_watermark_ms for task in tasks), default=MIN_WATERMARK_MS)
    watermark = known_watermark(lowest)
    is_last = watermark == MAX_WATERMARK_MS
    return {
        "metrics": totals(tasks),
        "rates": rates([task.gain for task in windows]),
        "busy": gain.busy,
        "backpressured": gain.backpressured,
        "soft_backpressured": gain.share(gain.soft_backpressured_ms),
        "hard_backpressured": gain.share(gain.hard_backpressured_ms),
        "idle": gain.idle,
        "cpu": gain.share(gain.cpu_ms),
        "watermark": watermark,
        "watermark_lag_ms": None if watermark is None or is_last else float(now_ms - watermark),
        "latency_p50_ms": latency([task.latency_p50_ms for task in tasks], is_median=True),
        "latency_p99_ms": latency([task.latency_p99_ms for task in tasks]),
        **{name: metric_of(TaskFigures, name).merged(tasks) for name in MERGED},
    }


def edge_details(
    edge: JobEdge, producer: VertexWindow, reader: VertexWindow
) -> answers.EdgeDetails:
    """All channels together, as both ends have counted them."""
    records, size = 0.0, 0.0
    if edge.output < len(producer.outputs) and producer.gain.elapsed_ms > 0:
        ran_s = producer.gain.elapsed_ms / len(producer.tasks) / 1000
        records, size = (count / ran_s for count in producer.outputs[edge.output])
    gates = [task.figures.gates for task in reader.tasks]
    backlog = sum(
        found[edge.gate].backlog + found[edge.gate].queued_buffers
        for found in gates
        if edge.gate < len(found)
    )
    return answers.EdgeDetails(
        source=str(edge.source),
        target=str(edge.target),
        ship=edge.ship,
        output=edge.output,
        gate=edge.gate,
        records_per_s=records,
        bytes_per_s=size,
        backlog=backlog,
    )


def operators_of(vertex: JobVertex, tasks: Sequence[TaskFigures]) -> list[answers.OperatorDetails]:
    """The operators of the chain, with what they have counted in all subtasks."""
    found = []
    for place, operator in enumerate(vertex.chain.operators):
        figures = [task.operators[place] for task in tasks if place < len(task.operators)]
        sums = [metric.merged(figures) or 0 for metric in metrics_of(OperatorFigures)]
        found.append(answers.OperatorDetails(operator.name, *sums))
    return found


def status_of(states: Counter[str], job: JobStatus) -> str:
    """The status of a vertex: the state of its subtasks that matters most."""
    for state in ("FAILED", "CANCELING", "CANCELED", "RUNNING", "DEPLOYING"):
        if states[state]:
            return state
    if states["FINISHED"]:
        return "RUNNING" if states["CREATED"] else "FINISHED"
    return "CANCELED" if job.is_globally_terminal_state() else "CREATED"


def totals(tasks: Sequence[TaskFigures]) -> answers.Totals:
    """Counts and times of all these tasks together."""
    return answers.Totals(
        read_records=sum(task.records_in + task.records_made for task in tasks),
        read_bytes=sum(task.bytes_in for task in tasks),
        write_records=sum(task.records_out for task in tasks),
        write_bytes=sum(task.bytes_out for task in tasks),
        accumulated_busy_time=sum(task.busy_ms for task in tasks),
        accumulated_backpressured_time=sum(task.backpressured_ms for task in tasks),
        accumulated_idle_time=sum(task.idle_ms for task in tasks),
    )


def rates(gains: Sequence[TaskCounters]) -> answers.Rates:
    """Per second, of all these tasks together."""
    ran = [gain for gain in gains if gain.elapsed_ms > 0]
    return answers.Rates(
        in_per_s=1000 * sum(gain.records_in / gain.elapsed_ms for gain in ran),
        out_per_s=1000 * sum(gain.records_out / gain.elapsed_ms for gain in ran),
        bytes_in_per_s=1000 * sum(gain.bytes_in / gain.elapsed_ms for gain in ran),
        bytes_out_per_s=1000 * sum(gain.bytes_out / gain.elapsed_ms for gain in ran),
    )


def known_watermark(watermark_ms: int) -> int | None:
    """None: there is no watermark yet."""
    return None if watermark_ms == MIN_WATERMARK_MS else watermark_ms


def latency(measured_ms: Sequence[float], *, is_median: bool = False) -> float | None:
    """The median latency of several tasks, or the longest; None: nothing was measured."""
    found = [value for value in measured_ms if value > 0]
    if not found:
        return None
    return median(found) if is_median else max(found)


def vertex_subtasks(moment: JobMoment, vertex: JobVertex) -> answers.VertexSubtasks:
    """The vertex, and each of its tasks."""
    window = moment.window.vertices[vertex.id]
    hosts = {
        process.slot: f"{process.host}:{process.pid}" for process in moment.job.task_managers()
    }
    return answers.VertexSubtasks(
        **structs.asdict(moment.vertex(window)),
        subtasks=[
            subtask_details(task, hosts.get(task.figures.slot, ""), moment.now_ms)
            for task in by_subtask(window)
        ],
        now=moment.now_ms,
    )


def by_subtask(window: VertexWindow) -> list[TaskWindow]:
    """The tasks that have reported, in their order."""
    return sorted(window.tasks, key=lambda task: task.subtask)


_SAME: Final = [
    name
    for name in answers.SubtaskDetails.__struct_fields__
    if name in TaskFigures.__struct_fields__
]


def subtask_details(window: TaskWindow, host: str, now_ms: int) -> answers.SubtaskDetails:
    """One task; ``host`` is that of its task manager."""
    task, gain = window
    fields = {name: getattr(task, name) for name in _SAME}
    fields |= activity_of([window], gain, now_ms)
    return answers.SubtaskDetails(
        status=STATES[task.state],
        host=host,
        input_watermarks=[known_watermark(mark) for mark in task.input_watermarks_ms],
        **fields,
    )
