"""From a job to the answers about one of its vertices: subtasks, back pressure, metrics.

Functions of what was seen, as in ``job_answers``. Levels of back pressure are Flink's: up to a
tenth of the time is fine, more than a half is high.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

from msgspec import structs

from headgate.base.messages import TaskFigures
from headgate.observe.analysis.windows import TaskWindow, VertexWindow
from headgate.observe.observed import job_metrics, task_metrics
from headgate.observe.web.answers import (
    MetricSummary,
    MetricValue,
    SubtaskBackpressure,
    SubtaskDetails,
    VertexBackpressure,
    VertexSubtasks,
)
from headgate.observe.web.job_answers import (
    STATES,
    Sight,
    activity_of,
    known_watermark,
)
from headgate.plan.job_graph import JobVertex

LOW: Final = 0.1
HIGH: Final = 0.5


def vertex_subtasks(sight: Sight, vertex: JobVertex) -> VertexSubtasks:
    """The vertex, and each of its tasks."""
    window = sight.window.vertices[vertex.id]
    hosts = {process.slot: f"{process.host}:{process.pid}" for process in sight.job.task_managers()}
    return VertexSubtasks(
        **structs.asdict(sight.vertex(window)),
        subtasks=[
            subtask_details(task, hosts.get(task.figures.slot, ""), sight.now_ms)
            for task in by_subtask(window)
        ],
        now=sight.now_ms,
    )


def by_subtask(window: VertexWindow) -> list[TaskWindow]:
    """The tasks that have reported, in their order."""
    return sorted(window.tasks, key=lambda task: task.subtask)


_SAME: Final = [
    name for name in SubtaskDetails.__struct_fields__ if name in TaskFigures.__struct_fields__
]


def subtask_details(window: TaskWindow, host: str, now_ms: int) -> SubtaskDetails:
    """One task; ``host`` is that of its task manager."""
    task, gain = window
    fields = {name: getattr(task, name) for name in _SAME}
    fields |= activity_of([window], gain, now_ms)
    return SubtaskDetails(
        status=STATES[task.state],
        host=host,
        input_watermarks=[known_watermark(mark) for mark in task.input_watermarks_ms],
        **fields,
    )


def vertex_backpressure(sight: Sight, vertex: JobVertex) -> VertexBackpressure:
    """How much each subtask waits for buffers."""
    subtasks = []
    for task, gain in by_subtask(sight.window.vertices[vertex.id]):
        ratio = gain.backpressured
        subtasks.append(
            SubtaskBackpressure(
                subtask=task.subtask,
                backpressure_level=backpressure_level(ratio),
                ratio=ratio,
                idle_ratio=gain.idle,
                busy_ratio=gain.busy,
                soft_ratio=gain.share(gain.soft_backpressured_ms),
                hard_ratio=gain.share(gain.hard_backpressured_ms),
            )
        )
    worst = max((subtask.ratio for subtask in subtasks), default=0.0)
    return VertexBackpressure("ok", backpressure_level(worst), sight.now_ms, subtasks)


def backpressure_level(ratio: float) -> str:
    if ratio <= LOW:
        return "ok"
    return "low" if ratio <= HIGH else "high"


def vertex_watermarks(sight: Sight, vertex: JobVertex) -> list[MetricValue]:
    """``<subtask>.currentInputWatermark``, the lowest of its inputs, as Flink names it."""
    found = []
    for task, _ in by_subtask(sight.window.vertices[vertex.id]):
        lowest = min(task.input_watermarks_ms, default=task.output_watermark_ms)
        found.append(MetricValue(f"{task.subtask}.currentInputWatermark", str(lowest)))
    return found


def job_metric_values(sight: Sight, wanted: Collection[str]) -> list[MetricValue]:
    """Those of ``JobClient.get_metrics``; nothing is wanted: only the names."""
    job, checkpoints = sight.job, sight.job.checkpoints()
    tasks = [task.figures for vertex in sight.window.vertices for task in by_subtask(vertex)]
    stored = (record for record in checkpoints.records if record.status == "completed")
    metrics = {
        **task_metrics(job.graph, tasks),
        **job_metrics(job.restarts(), checkpoints, next(stored, None)),
    }
    return _chosen(metrics, wanted)


def subtask_metric_values(
    sight: Sight, vertex: JobVertex, subtask: int, wanted: Collection[str]
) -> list[MetricValue]:
    """The same of one task, named without vertex and subtask."""
    return _chosen(_metrics_of(sight, vertex).get(subtask, {}), wanted)


def vertex_metric_summaries(
    sight: Sight, vertex: JobVertex, wanted: Collection[str]
) -> list[MetricSummary]:
    """Numbers of all subtasks together."""
    values: dict[str, list[float]] = {}
    for metrics in _metrics_of(sight, vertex).values():
        for name, value in metrics.items():
            if isinstance(value, int | float):
                values.setdefault(name, []).append(float(value))
    if not wanted:
        return [MetricSummary(name) for name in values]
    return [
        MetricSummary(name, min(found), max(found), sum(found) / len(found), sum(found))
        for name, found in values.items()
        if name in wanted
    ]


def _metrics_of(sight: Sight, vertex: JobVertex) -> dict[int, dict[str, object]]:
    """By subtask."""
    found = {}
    for task, _ in by_subtask(sight.window.vertices[vertex.id]):
        prefix = len(f"{vertex.name}.{task.subtask}.")
        metrics = task_metrics(sight.job.graph, [task])
        found[task.subtask] = {name[prefix:]: value for name, value in metrics.items()}
    return found


def _chosen(metrics: Mapping[str, object], wanted: Collection[str]) -> list[MetricValue]:
    if not wanted:
        return [MetricValue(name) for name in metrics]
    return [MetricValue(name, _text(metrics[name])) for name in wanted if name in metrics]


def _text(value: object) -> str:
    return str(value.value if isinstance(value, Enum) else value)
