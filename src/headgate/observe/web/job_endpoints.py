"""Paths about jobs and their vertices: lists, graphs, settings, checkpoints, logs, metrics.

All of it is there after the end of a job, too, and no path here waits for a task.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from enum import Enum
from functools import partial
from typing import Final

from msgspec import structs
from starlette.responses import Response

from headgate import __version__
from headgate.base.job_records import CheckpointRecord
from headgate.base.redaction import redacted
from headgate.observe import observed
from headgate.observe.prometheus import content_type, exposition
from headgate.observe.web import answers
from headgate.observe.web.endpoints import (
    JSON,
    BadRequest,
    Endpoint,
    Endpoints,
    Parameter,
    Request,
    whole_number,
)
from headgate.observe.web.job_answers import (
    by_subtask,
    vertex_subtasks,
)
from headgate.plan.drawing import draw_svg
from headgate.plan.job_graph import JobGraph, JobVertex

REFRESH_MS: Final = 1_000
LOW, HIGH = 0.1, 0.5
MAX_LINES: Final = 10_000
AFTER: Final = Parameter("after", 0, "The number of a line; only later ones are wanted.", 0)
LIMIT: Final = Parameter("limit", 1000, "So many lines at most.", 1, MAX_LINES)
GET: Final = Parameter(
    "get", "", "Names of metrics with commas between them; none: the names of all."
)
JOB: Final = "/jobs/{job}"
VERTEX: Final = f"{JOB}/vertices/{{vertex}}"
ENDPOINTS: Final = Endpoints()


def metrics_endpoint(*, subtask_metrics: bool) -> Endpoint:
    """``subtask_metrics``: what is answered to a request that does not say it."""
    meaning = "Whether each subtask is shown, or sums over all of them."
    return Endpoint(
        "GET",
        "/metrics",
        "Metrics of all jobs for Prometheus",
        answer=None,
        handle=metrics,
        parameters=(Parameter("subtasks", subtask_metrics, meaning),),
        statuses=(503,),
        media="text/plain application/openmetrics-text",
    )


async def metrics(request: Request) -> Response:
    """On a thread of its own: a large job has many."""
    jobs = [shown.job for shown in request.jobs.all()]
    subtasks, accept = request.query["subtasks"], request.accept
    body = await request.services.background.run(
        partial(exposition, jobs, subtasks=subtasks, accept=accept)
    )
    return Response(body, media_type=content_type(accept))


# Lists of jobs, and one with its graph.


@ENDPOINTS.get("/config", "About this server", answers.PageConfig, needs_token=False)
def config(request: Request) -> answers.PageConfig:
    """What the page asks first."""
    features = answers.Features(web_cancel=True, web_savepoint=True, peek=True)
    return answers.PageConfig(__version__, REFRESH_MS, features, request.services.needs_token)


@ENDPOINTS.get("/overview", "Jobs by state", answers.ClusterOverview)
def overview(request: Request) -> answers.ClusterOverview:
    """How many jobs there are."""
    states = Counter(shown.job.status().name for shown in request.jobs.all())
    ended = [states.pop(state, 0) for state in ("FINISHED", "CANCELED", "FAILED")]
    return answers.ClusterOverview(__version__, states.total(), *ended)


@ENDPOINTS.get("/jobs", "Ids of all jobs", answers.JobIds)
def job_ids(request: Request) -> answers.JobIds:
    """The newest first."""
    jobs = [shown.job for shown in request.jobs.all()]
    return answers.JobIds([answers.JobId(job.job_id, job.status().name) for job in jobs])


@ENDPOINTS.get("/jobs/overview", "All jobs in short", answers.JobSummaries)
def summaries(request: Request) -> answers.JobSummaries:
    """The newest first."""
    return answers.JobSummaries([shown.summary() for shown in request.jobs.all()])


@ENDPOINTS.get(JOB, "A job with its graph", answers.JobDetails)
def details(request: Request) -> Response:
    """The last encoded answer, if it is not old."""
    return Response(request.shown.details(), media_type=JSON)


@ENDPOINTS.get(
    f"{JOB}/events",
    "The job every second, as server-sent events",
    statuses=(503,),
    media="text/event-stream",
)
def events(request: Request) -> Response:
    """Until one side ends it."""
    return request.services.streams.follow(request.shown)


# What the driver keeps of a job.


@ENDPOINTS.get(f"{JOB}/config", "Settings of a job", answers.JobConfiguration)
def configuration(request: Request) -> answers.JobConfiguration:
    """Hidden again, should whoever runs the job have left in a secret."""
    job = request.shown.job
    return answers.JobConfiguration(job.job_id, job.graph.name, redacted(dict(job.configuration)))


@ENDPOINTS.get(f"{JOB}/plan", "The job graph and its drawing", answers.JobPlan)
def plan(request: Request) -> answers.JobPlan:
    """The job graph as JSON and as SVG."""
    job = request.shown.job
    kind = "BATCH" if job.graph.batch else "STREAMING"
    nodes = [plan_node(job.graph, vertex) for vertex in job.graph.vertices]
    return answers.JobPlan(
        answers.PlanGraph(job.job_id, job.graph.name, kind, nodes), draw_svg(job.graph)
    )


def plan_node(graph: JobGraph, vertex: JobVertex) -> dict[str, object]:
    """As in Flink's JSON plan, whose keys have underscores."""
    inputs = [
        {
            "num": edge.gate,
            "id": str(edge.source),
            "ship_strategy": edge.ship,
            "exchange": edge.kind.name.lower(),
        }
        for edge in graph.inputs_of(vertex.id)
    ]
    return {
        "id": str(vertex.id),
        "parallelism": vertex.parallelism,
        "description": vertex.name,
        "operator": "",
        "operator_strategy": "",
        "inputs": inputs,
        "optimizer_properties": {},
    }


@ENDPOINTS.get(f"{JOB}/exceptions", "Failures of a job", answers.JobExceptions)
def exceptions(request: Request) -> answers.JobExceptions:
    """The newest first."""
    job = request.shown.job
    failures = job.failures()
    return answers.JobExceptions(failures, truncated=len(failures) < job.restarts())


@ENDPOINTS.get(f"{JOB}/checkpoints", "Checkpoints of a job", answers.CheckpointOverview)
def checkpoints(request: Request) -> answers.CheckpointOverview:
    """The newest first, without their parts."""
    found = request.shown.job.checkpoints()
    counts = answers.CheckpointCount(found.triggered, found.completed, found.failed, found.pending)
    history = [structs.replace(record, parts=()) for record in found.records]
    return answers.CheckpointOverview(counts, found.restored_from, history)


@ENDPOINTS.get(
    f"{JOB}/checkpoints/details/{{checkpoint}}", "A checkpoint with its parts", CheckpointRecord
)
def checkpoint_details(request: Request) -> CheckpointRecord:
    """A checkpoint that the driver still remembers."""
    number = whole_number(request.path["checkpoint"])
    records = request.shown.job.checkpoints().records
    for record in records:
        if record.checkpoint == number:
            return record
    known = ", ".join(str(record.checkpoint) for record in records) or "there are none"
    raise BadRequest(f"this checkpoint is not known any more, or not yet; known are: {known}", 404)


@ENDPOINTS.get(f"{JOB}/series", "Rates and latency over time", answers.JobSeries)
def series(request: Request) -> answers.JobSeries:
    """The points since the driver shows the job; each stands for more time as the job grows old."""
    return request.shown.observer.series()


@ENDPOINTS.get(f"{JOB}/taskmanagers", "Processes of a job", answers.JobTaskManagers)
def task_managers(request: Request) -> answers.JobTaskManagers:
    """The processes, each with the ids of its tasks."""
    job = request.shown.job
    tasks: dict[int, list[str]] = {}
    for task in job.figures():
        tasks.setdefault(task.slot, []).append(task.task)
    return answers.JobTaskManagers(
        [
            answers.TaskManagerDetails(**structs.asdict(process), tasks=tasks.get(process.slot, []))
            for process in job.task_managers()
        ]
    )


@ENDPOINTS.get(f"{JOB}/logs", "Log of a job", answers.JobLogLines, parameters=(AFTER, LIMIT))
def logs(request: Request) -> answers.JobLogLines:
    """What is new since the line ``after``."""
    after = request.query["after"]
    lines = request.shown.job.log_lines(after, request.query["limit"])
    return answers.JobLogLines(lines, lines[-1].number if lines else after)


# One vertex, and metrics by name, as the tasks have reported them.


@ENDPOINTS.get(VERTEX, "A vertex with its subtasks", answers.VertexSubtasks)
def subtasks(request: Request) -> Response:
    """The vertex, and its subtasks that have reported."""
    vertex = request.vertex
    text = request.shown.answer(f"vertex {vertex.id}", partial(vertex_subtasks, vertex=vertex))
    return Response(text, media_type=JSON)


@ENDPOINTS.get(
    f"{VERTEX}/backpressure", "Back pressure of the subtasks", answers.VertexBackpressure
)
def backpressure(request: Request) -> answers.VertexBackpressure:
    """How much each subtask waited for buffers in the last ten seconds."""
    moment = request.shown.moment()
    subtasks = [
        answers.SubtaskBackpressure(
            subtask=task.subtask,
            backpressure_level=_level(gain.backpressured),
            ratio=gain.backpressured,
            idle_ratio=gain.idle,
            busy_ratio=gain.busy,
            soft_ratio=gain.share(gain.soft_backpressured_ms),
            hard_ratio=gain.share(gain.hard_backpressured_ms),
        )
        for task, gain in by_subtask(moment.window.vertices[request.vertex.id])
    ]
    worst = max((subtask.ratio for subtask in subtasks), default=0.0)
    return answers.VertexBackpressure("ok", _level(worst), moment.now_ms, subtasks)


def _level(ratio: float) -> str:
    """As Flink has it: up to a tenth of the time is fine, more than a half is high."""
    if ratio <= LOW:
        return "ok"
    return "low" if ratio <= HIGH else "high"


@ENDPOINTS.get(
    f"{VERTEX}/watermarks", "Watermarks of the subtasks", answers.MetricValue, is_list=True
)
def watermarks(request: Request) -> list[answers.MetricValue]:
    """``<subtask>.currentInputWatermark``, the lowest of its inputs, as Flink names it."""
    found = []
    for task, _ in by_subtask(request.shown.moment().window.vertices[request.vertex.id]):
        lowest = min(task.input_watermarks_ms, default=task.output_watermark_ms)
        found.append(answers.MetricValue(f"{task.subtask}.currentInputWatermark", str(lowest)))
    return found


@ENDPOINTS.get(
    f"{VERTEX}/subtasks/metrics",
    "Metrics of all subtasks together",
    answers.MetricSummary,
    parameters=(GET,),
    is_list=True,
)
def vertex_metrics(request: Request) -> list[answers.MetricSummary]:
    """Minimum, maximum, average and sum of the metrics that are numbers."""
    wanted = _wanted(request)
    values: dict[str, list[float]] = {}
    for metrics in _metrics_of(request).values():
        for name, value in metrics.items():
            if isinstance(value, int | float):
                values.setdefault(name, []).append(float(value))
    if not wanted:
        return [answers.MetricSummary(name) for name in values]
    return [
        answers.MetricSummary(name, min(found), max(found), sum(found) / len(found), sum(found))
        for name, found in values.items()
        if name in wanted
    ]


@ENDPOINTS.get(
    f"{VERTEX}/subtasks/{{subtask}}/metrics",
    "Metrics of one subtask",
    answers.MetricValue,
    parameters=(GET,),
    is_list=True,
)
def subtask_metrics(request: Request) -> list[answers.MetricValue]:
    """Named without vertex and subtask; none, if the subtask has not reported yet."""
    return _chosen(_metrics_of(request).get(request.subtask, {}), _wanted(request))


@ENDPOINTS.get(
    f"{JOB}/metrics",
    "Metrics of the job and of all its tasks",
    answers.MetricValue,
    parameters=(GET,),
    is_list=True,
)
def job_metrics(request: Request) -> list[answers.MetricValue]:
    """All metrics, with the names that ``JobClient.get_metrics`` gives them."""
    moment = request.shown.moment()
    job, checkpoints = moment.job, moment.job.checkpoints()
    tasks = [task.figures for vertex in moment.window.vertices for task in by_subtask(vertex)]
    stored = (record for record in checkpoints.records if record.status == "completed")
    metrics = {
        **observed.task_metrics(job.graph, tasks),
        **observed.job_metrics(job.restarts(), checkpoints, next(stored, None)),
    }
    return _chosen(metrics, _wanted(request))


def _metrics_of(request: Request) -> dict[int, dict[str, object]]:
    """The metrics of the vertex by subtask."""
    moment, vertex = request.shown.moment(), request.vertex
    found = {}
    for task, _ in by_subtask(moment.window.vertices[vertex.id]):
        prefix = len(f"{vertex.name}.{task.subtask}.")
        metrics = observed.task_metrics(moment.job.graph, [task])
        found[task.subtask] = {name[prefix:]: value for name, value in metrics.items()}
    return found


def _chosen(metrics: Mapping[str, object], wanted: Collection[str]) -> list[answers.MetricValue]:
    if not wanted:
        return [answers.MetricValue(name) for name in metrics]
    values = [(name, metrics[name]) for name in wanted if name in metrics]
    return [
        answers.MetricValue(name, str(value.value if isinstance(value, Enum) else value))
        for name, value in values
    ]


def _wanted(request: Request) -> list[str]:
    return [name for name in request.query["get"].split(",") if name]
