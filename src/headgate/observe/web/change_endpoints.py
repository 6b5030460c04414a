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
from headgate.observe.web.answers import (
    RequestId,
    RequestStatus,
    SavepointOrder,
    SavepointResult,
    SavepointStatus,
    StopOrder,
)
from headgate.observe.web.background import Background
from headgate.observe.web.endpoints import JSON, Endpoint, Request
from headgate.observe.web.parameters import BadRequest, Parameter

log = logging.getLogger(__name__)

REMEMBERED: Final = 100

_Order = TypeVar("_Order", SavepointOrder, StopOrder)


class ChangeEndpoints:
    """Remembers the savepoints that were asked for; used on the event loop."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._requests: dict[str, tuple[str, Future[str]]] = {}

    def all(self) -> list[Endpoint]:
        path = "/jobs/{job}"
        return [
            Endpoint(
                *("PATCH", path, "Cancel a job"),
                answer=None,
                handle=cancel,
                parameters=(
                    Parameter("mode", "cancel", "What to do with the job.", choices=("cancel",)),
                ),
                success=202,
            ),
            Endpoint(
                *("POST", f"{path}/savepoints", "Take a savepoint"),
                answer=RequestId,
                handle=self.savepoint,
                body=SavepointOrder,
                success=202,
                statuses=(409, 503),
            ),
            Endpoint(
                *("POST", f"{path}/stop", "End a job with a savepoint"),
                answer=RequestId,
                handle=self.stop,
                body=StopOrder,
                success=202,
                statuses=(409, 503),
            ),
            Endpoint(
                *("GET", f"{path}/savepoints/{{request}}", "How far a savepoint has come"),
                answer=SavepointStatus,
                handle=self.result,
            ),
        ]

    async def savepoint(self, request: Request) -> RequestId:
        """Begins at once."""
        order = _order(request, SavepointOrder)
        stop = Stop.SUSPEND if order.cancel_job else Stop.NO
        return await self._begin(request, order.target_directory, _drained(order.drain, stop))

    async def stop(self, request: Request) -> RequestId:
        """Begins at once; the job ends when the savepoint is there."""
        order = _order(request, StopOrder)
        return await self._begin(
            request, order.target_directory, _drained(order.drain, Stop.SUSPEND)
        )

    async def _begin(self, request: Request, directory: str | None, stop: Stop) -> RequestId:
        job = request.shown.job
        if job.has_ended():
            raise BadRequest(f"the job is {job.status().name.lower()}, no savepoint can be", 409)
        self._make_room()
        log.info("a savepoint of job %s is requested (%s)", job.job_id, stop.value)
        future = await self._background.run(lambda: job.savepoint(directory, stop))
        number = secrets.token_hex(8)
        self._requests[number] = (job.job_id, future)
        return RequestId(number)

    def _make_room(self) -> None:
        """Forget the oldest that are done; raises BadRequest if none is."""
        done = [number for number, (_, future) in self._requests.items() if future.done()]
        while len(self._requests) >= REMEMBERED and done:
            del self._requests[done.pop(0)]
        if len(self._requests) >= REMEMBERED:
            raise BadRequest(f"{REMEMBERED} savepoints are under way; wait for some of them", 503)

    def result(self, request: Request) -> SavepointStatus:
        """Whether it is done, and where it is."""
        job_id, future = self._requests.get(request.path["request"], ("", None))
        if future is None or job_id != request.shown.job.job_id:
            raise BadRequest("there was no such request, or it is forgotten by now", 404)
        if not future.done():
            return SavepointStatus(RequestStatus("IN_PROGRESS"))
        error = future.exception()
        if error is None:
            operation = SavepointResult(location=future.result())
        else:
            operation = SavepointResult(failure_cause=f"{type(error).__name__}: {error}")
        return SavepointStatus(RequestStatus("COMPLETED"), operation)


def cancel(request: Request) -> Response:
    """Begins at once; the state of the job says when it is done."""
    job = request.shown.job
    log.info("job %s is cancelled by its web page or the REST API", job.job_id)
    job.cancel_soon("somebody cancelled it on its web page, or by the REST API")
    return Response(b"{}", 202, media_type=JSON)


def _drained(drain: bool, stop: Stop) -> Stop:
    return Stop.DRAIN if drain else stop


def _order(request: Request, kind: type[_Order]) -> _Order:
    """No body stands for no wishes; raises BadRequest."""
    try:
        return msgspec.json.decode(request.body or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body of the request is not right: {error}") from error
