"""Paths about what the driver keeps of a job: settings, plan, failures, checkpoints, logs.

All of it is there after the end of the job, too.
"""

from msgspec import structs

from headgate.base.job_records import CheckpointRecord
from headgate.base.redaction import redacted
from headgate.observe.observed import ObservedJob
from headgate.observe.web.answers import (
    CheckpointCount,
    CheckpointOverview,
    JobConfiguration,
    JobExceptions,
    JobLogLines,
    JobPlan,
    JobSeries,
    JobTaskManagers,
    PlanGraph,
    TaskManagerDetails,
)
from headgate.observe.web.endpoints import Endpoint, Request
from headgate.observe.web.parameters import BadRequest, Parameter, whole_number
from headgate.plan.drawing import draw_svg
from headgate.plan.job_graph import JobGraph, JobVertex

MAX_LINES = 10_000
AFTER = Parameter("after", 0, "The number of a line; only later ones are wanted.", 0)
LIMIT = Parameter("limit", 1000, "So many lines at most.", 1, MAX_LINES)


def record_endpoints() -> list[Endpoint]:
    """Those that wait for nobody."""
    path = "/jobs/{job}"
    return [
        Endpoint("GET", f"{path}/config", "Settings of a job", JobConfiguration, configuration),
        Endpoint("GET", f"{path}/plan", "The job graph and its drawing", JobPlan, plan),
        Endpoint("GET", f"{path}/exceptions", "Failures of a job", JobExceptions, exceptions),
        Endpoint(
            "GET", f"{path}/checkpoints", "Checkpoints of a job", CheckpointOverview, checkpoints
        ),
        Endpoint(
            *("GET", f"{path}/checkpoints/details/{{checkpoint}}", "A checkpoint with its parts"),
            answer=CheckpointRecord,
            handle=checkpoint_details,
        ),
        Endpoint("GET", f"{path}/series", "Rates and latency over time", JobSeries, series),
        Endpoint(
            *("GET", f"{path}/taskmanagers", "Processes of a job"),
            answer=JobTaskManagers,
            handle=task_managers,
        ),
        Endpoint(
            *("GET", f"{path}/logs", "Log of a job"),
            answer=JobLogLines,
            handle=logs,
            parameters=(AFTER, LIMIT),
        ),
    ]


def configuration(request: Request) -> JobConfiguration:
    """Hidden again, should whoever runs the job have left in a secret."""
    job = request.shown.job
    return JobConfiguration(job.job_id, job.graph.name, redacted(dict(job.configuration)))


def plan(request: Request) -> JobPlan:
    """With a drawing."""
    job = request.shown.job
    kind = "BATCH" if job.graph.batch else "STREAMING"
    nodes = [plan_node(job.graph, vertex) for vertex in job.graph.vertices]
    return JobPlan(PlanGraph(job.job_id, job.graph.name, kind, nodes), draw_svg(job.graph))


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


def exceptions(request: Request) -> JobExceptions:
    """The newest first."""
    job = request.shown.job
    failures = job.failures()
    return JobExceptions(failures, truncated=len(failures) < job.restarts())


def checkpoints(request: Request) -> CheckpointOverview:
    """The newest first, without their parts."""
    found = request.shown.job.checkpoints()
    counts = CheckpointCount(found.triggered, found.completed, found.failed, found.pending)
    history = [structs.replace(record, parts=()) for record in found.records]
    return CheckpointOverview(counts, found.restored_from, history)


def checkpoint_details(request: Request) -> CheckpointRecord:
    """One of those that are kept."""
    number = whole_number(request.path["checkpoint"])
    records = request.shown.job.checkpoints().records
    for record in records:
        if record.checkpoint == number:
            return record
    known = ", ".join(str(record.checkpoint) for record in records) or "there are none"
    raise BadRequest(f"this checkpoint is not known any more, or not yet; known are: {known}", 404)


def series(request: Request) -> JobSeries:
    """Since the driver shows the job; as the job grows old, points stand for more time."""
    return request.shown.observer.series()


def task_managers(request: Request) -> JobTaskManagers:
    """With the ids of their tasks."""
    job = request.shown.job
    return JobTaskManagers(
        [
            TaskManagerDetails(**structs.asdict(process), tasks=_tasks_in(job, process.slot))
            for process in job.task_managers()
        ]
    )


def _tasks_in(job: ObservedJob, slot: int) -> list[str]:
    return [task.task for task in job.figures() if task.slot == slot]


def logs(request: Request) -> JobLogLines:
    """What is new since the line ``after``."""
    after = request.query["after"]
    lines = request.shown.job.log_lines(after, request.query["limit"])
    return JobLogLines(lines, lines[-1].number if lines else after)
