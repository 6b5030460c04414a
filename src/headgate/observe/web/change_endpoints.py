"""Paths that change something about a job: cancel it, take a savepoint, stop it with one.

As in Flink, a savepoint is asked for, and its result is asked for later by the id of the request.
Law: so many requests are remembered, those that were answered last; none is forgotten while it is
under way.
"""

import logging
import secrets
from concurrent.futures import Future
from typing import Final, TypeVar

import msgspec
from starlette.responses import Response

from headgate.base.checkpoints import Stop
from headgate.observe.web import answers
from headgate.observe.web.endpoints import (
    JSON,
    BadRequest,
    Endpoints,
    Parameter,
    Request,
)

log = logging.getLogger(__name__)

REMEMBERED: Final = 100

_Order = TypeVar("_Order", answers.SavepointOrder, answers.StopOrder)


JOB: Final = "/jobs/{job}"
MODE: Final = Parameter("mode", "cancel", "What to do with the job.", choices=("cancel",))
ENDPOINTS: Final = Endpoints()


@ENDPOINTS.declare("PATCH", JOB, "Cancel a job", parameters=(MODE,), success=202)
def cancel(request: Request) -> Response:
    """Begins at once; the state of the job says when it is done."""
    job = request.shown.job
    log.info("job %s is cancelled by its web page or the REST API", job.job_id)
    job.cancel_soon("somebody cancelled it on its web page, or by the REST API")
    return Response(b"{}", 202, media_type=JSON)


@ENDPOINTS.declare(
    "POST",
    f"{JOB}/savepoints",
    "Take a savepoint",
    answers.RequestId,
    body=answers.SavepointOrder,
    success=202,
    statuses=(409, 503),
)
async def savepoint(request: Request) -> answers.RequestId:
    """Begins at once."""
    order = _order(request, answers.SavepointOrder)
    stop = Stop.SUSPEND if order.cancel_job else Stop.NO
    return await _begin(request, order.target_directory, Stop.DRAIN if order.drain else stop)


@ENDPOINTS.declare(
    "POST",
    f"{JOB}/stop",
    "End a job with a savepoint",
    answers.RequestId,
    body=answers.StopOrder,
    success=202,
    statuses=(409, 503),
)
async def stop(request: Request) -> answers.RequestId:
    """Begins at once; the job ends when the savepoint is there."""
    order = _order(request, answers.StopOrder)
    how = Stop.DRAIN if order.drain else Stop.SUSPEND
    return await _begin(request, order.target_directory, how)


@ENDPOINTS.get(
    f"{JOB}/savepoints/{{request}}", "How far a savepoint has come", answers.SavepointStatus
)
def result(request: Request) -> answers.SavepointStatus:
    """Whether it is done, and where it is."""
    job_id, future = request.services.savepoints.get(request.path["request"], ("", None))
    if future is None or job_id != request.shown.job.job_id:
        raise BadRequest("there was no such request, or it is forgotten by now", 404)
    if not future.done():
        return answers.SavepointStatus(answers.RequestStatus("IN_PROGRESS"))
    error = future.exception()
    if error is None:
        operation = answers.SavepointResult(location=future.result())
    else:
        operation = answers.SavepointResult(failure_cause=f"{type(error).__name__}: {error}")
    return answers.SavepointStatus(answers.RequestStatus("COMPLETED"), operation)


async def _begin(request: Request, directory: str | None, stop: Stop) -> answers.RequestId:
    job, services = request.shown.job, request.services
    if job.has_ended():
        raise BadRequest(
            f"the job is {job.status().name.lower()}; a savepoint needs a job that runs", 409
        )
    _make_room(services.savepoints)
    log.info("a savepoint of job %s is requested (%s)", job.job_id, stop.value)
    future = await services.background.run(lambda: job.savepoint(directory, stop))
    number = secrets.token_hex(8)
    services.savepoints[number] = (job.job_id, future)
    return answers.RequestId(number)


def _make_room(savepoints: dict[str, tuple[str, Future[str]]]) -> None:
    """Forget the oldest requests that are done; raises BadRequest if none is."""
    done = [number for number, (_, future) in savepoints.items() if future.done()]
    while len(savepoints) >= REMEMBERED and done:
        del savepoints[done.pop(0)]
    if len(savepoints) >= REMEMBERED:
        raise BadRequest(f"{REMEMBERED} savepoints are under way; wait for some of them", 503)


def _order(request: Request, kind: type[_Order]) -> _Order:
    """An empty body stands for the defaults; raises BadRequest."""
    try:
        return msgspec.json.decode(request.body or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body of the request is not right: {error}") from error
