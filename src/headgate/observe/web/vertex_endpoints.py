"""Paths about one vertex of a job, and metrics by name: all of it as the tasks have reported it."""

from functools import partial

from starlette.responses import Response

from headgate.observe.web.answers import (
    MetricSummary,
    MetricValue,
    VertexBackpressure,
    VertexSubtasks,
)
from headgate.observe.web.endpoints import JSON, Endpoint, Request
from headgate.observe.web.parameters import Parameter
from headgate.observe.web.vertex_answers import (
    job_metric_values,
    subtask_metric_values,
    vertex_backpressure,
    vertex_metric_summaries,
    vertex_subtasks,
    vertex_watermarks,
)

GET = Parameter("get", "", "Names of metrics with commas between them; none: the names of all.")


def vertex_endpoints() -> list[Endpoint]:
    """Those that wait for nobody."""
    path = "/jobs/{job}/vertices/{vertex}"
    return [
        Endpoint("GET", path, "A vertex with its subtasks", VertexSubtasks, subtasks),
        Endpoint(
            *("GET", f"{path}/backpressure", "Back pressure of the subtasks"),
            answer=VertexBackpressure,
            handle=backpressure,
        ),
        Endpoint(
            *("GET", f"{path}/watermarks", "Watermarks of the subtasks"),
            answer=MetricValue,
            handle=watermarks,
            is_list=True,
        ),
        Endpoint(
            *("GET", f"{path}/subtasks/metrics", "Metrics of all subtasks together"),
            answer=MetricSummary,
            handle=vertex_metrics,
            parameters=(GET,),
            is_list=True,
        ),
        Endpoint(
            *("GET", f"{path}/subtasks/{{subtask}}/metrics", "Metrics of one subtask"),
            answer=MetricValue,
            handle=subtask_metrics,
            parameters=(GET,),
            is_list=True,
        ),
        Endpoint(
            *("GET", "/jobs/{job}/metrics", "Metrics of the job and of all its tasks"),
            answer=MetricValue,
            handle=job_metrics,
            parameters=(GET,),
            is_list=True,
        ),
    ]


def subtasks(request: Request) -> Response:
    """Those that have reported."""
    vertex = request.vertex
    text = request.shown.answer(f"vertex {vertex.id}", partial(vertex_subtasks, vertex=vertex))
    return Response(text, media_type=JSON)


def backpressure(request: Request) -> VertexBackpressure:
    """Over the last ten seconds."""
    return vertex_backpressure(request.shown.sight(), request.vertex)


def watermarks(request: Request) -> list[MetricValue]:
    """Of the inputs."""
    return vertex_watermarks(request.shown.sight(), request.vertex)


def vertex_metrics(request: Request) -> list[MetricSummary]:
    """Minimum, maximum, average and sum."""
    return vertex_metric_summaries(request.shown.sight(), request.vertex, _wanted(request))


def subtask_metrics(request: Request) -> list[MetricValue]:
    """None, if the subtask has not reported yet."""
    sight = request.shown.sight()
    return subtask_metric_values(sight, request.vertex, request.subtask, _wanted(request))


def job_metrics(request: Request) -> list[MetricValue]:
    """As ``JobClient.get_metrics`` names them."""
    return job_metric_values(request.shown.sight(), _wanted(request))


def _wanted(request: Request) -> list[str]:
    return [name for name in request.query["get"].split(",") if name]
