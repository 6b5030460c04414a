"""Paths about whole jobs: the lists of them, one with its graph, its events."""

from collections import Counter
from functools import partial
from typing import Final

from starlette.responses import Response

from headgate import __version__
from headgate.observe.prometheus import content_type, exposition
from headgate.observe.web.answers import (
    ClusterOverview,
    Features,
    JobDetails,
    JobId,
    JobIds,
    JobSummaries,
    PageConfig,
)
from headgate.observe.web.background import Background
from headgate.observe.web.endpoints import JSON, Endpoint, Request
from headgate.observe.web.event_streams import EventStreams
from headgate.observe.web.parameters import Parameter

REFRESH_MS: Final = 1_000


def job_endpoints(
    streams: EventStreams, background: Background, *, needs_token: bool, subtask_metrics: bool
) -> list[Endpoint]:
    """``needs_token``: what the page is to ask its reader for."""

    def config(request: Request) -> PageConfig:
        features = Features(web_cancel=True, web_savepoint=True, peek=True)
        return PageConfig(__version__, REFRESH_MS, features, needs_token)

    def events(request: Request) -> Response:
        return streams.follow(request.shown)

    async def metrics(request: Request) -> Response:
        jobs = [shown.job for shown in request.jobs.all()]
        subtasks, accept = request.query["subtasks"], request.accept
        body = await background.run(partial(exposition, jobs, subtasks=subtasks, accept=accept))
        return Response(body, media_type=content_type(accept))

    subtasks = Parameter(
        "subtasks", subtask_metrics, "Whether each subtask is shown, or sums over all of them."
    )
    return [
        Endpoint("GET", "/config", "About this server", PageConfig, config, needs_token=False),
        Endpoint("GET", "/overview", "Jobs by state", ClusterOverview, overview),
        Endpoint("GET", "/jobs", "Ids of all jobs", JobIds, job_ids),
        Endpoint("GET", "/jobs/overview", "All jobs in short", JobSummaries, summaries),
        Endpoint("GET", "/jobs/{job}", "A job with its graph", JobDetails, details),
        Endpoint(
            *("GET", "/jobs/{job}/events", "The job every second, as server-sent events"),
            answer=None,
            handle=events,
            statuses=(503,),
            media="text/event-stream",
        ),
        Endpoint(
            *("GET", "/metrics", "Metrics of all jobs for Prometheus"),
            answer=None,
            handle=metrics,
            parameters=(subtasks,),
            statuses=(503,),
            media="text/plain application/openmetrics-text",
        ),
    ]


def overview(request: Request) -> ClusterOverview:
    """How many jobs there are."""
    states = Counter(shown.job.status().name for shown in request.jobs.all())
    ended = [states.pop(state, 0) for state in ("FINISHED", "CANCELED", "FAILED")]
    return ClusterOverview(__version__, states.total(), *ended)


def job_ids(request: Request) -> JobIds:
    """The newest first."""
    jobs = [shown.job for shown in request.jobs.all()]
    return JobIds([JobId(job.job_id, job.status().name) for job in jobs])


def summaries(request: Request) -> JobSummaries:
    """The newest first."""
    return JobSummaries([shown.summary() for shown in request.jobs.all()])


def details(request: Request) -> Response:
    """As it was last encoded, if that is not long ago."""
    return Response(request.shown.details(), media_type=JSON)
