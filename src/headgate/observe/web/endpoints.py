"""One path of the API: its declaration, and what turns a request into an answer.

Handlers get a ``Request`` whose job, vertex and parameters are known to be good, and return a
struct. Law: whatever goes wrong is answered as ``{"errors": ["one sentence"]}``; the declaration
is what the OpenAPI document says.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec
from starlette import requests
from starlette.responses import Response
from starlette.routing import Route

from headgate.base.errors import HeadgateError, InspectionFailed
from headgate.observe.web.access import LONGEST_BODY, problem
from headgate.observe.web.json_objects import encode, encode_list
from headgate.observe.web.parameters import BadRequest, Parameter, parse_query, whole_number
from headgate.observe.web.shown_jobs import ShownJob, ShownJobs
from headgate.plan.job_graph import JobVertex

log = logging.getLogger(__name__)

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """What a handler needs."""

    jobs: ShownJobs
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: bytes
    accept: str = ""
    """The header: formats that the reader understands."""

    @property
    def shown(self) -> ShownJob:
        """The job of the path."""
        job_id = self.path["job"]
        found = self.jobs.find(job_id)
        if found is None:
            raise BadRequest(
                f"there is no job {_short(job_id)} here; GET /jobs lists those that run and those "
                f"that ended last",
                404,
            )
        return found

    @property
    def vertex(self) -> JobVertex:
        """The vertex of the path."""
        graph, text = self.shown.job.graph, self.path["vertex"]
        number = whole_number(text)
        if number is None or number >= len(graph.vertices):
            last = len(graph.vertices) - 1
            raise BadRequest(f"the job has no vertex {_short(text)}; give 0 to {last}", 404)
        return graph.vertices[number]

    @property
    def subtask(self) -> int:
        """The subtask of the path."""
        return subtask_of(self.vertex, whole_number(self.path["subtask"]))


def subtask_of(vertex: JobVertex, number: int | None) -> int:
    """The number, if the vertex has that subtask; raises BadRequest."""
    if number is None or not 0 <= number < vertex.parallelism:
        last = vertex.parallelism - 1
        raise BadRequest(f"the vertex has no such subtask; give 0 to {last}", 404)
    return number


Answered: TypeAlias = msgspec.Struct | list[Any] | Response
Handler: TypeAlias = Callable[[Request], Answered | Awaitable[Answered]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path and a method of the API."""

    method: str
    path: str
    summary: str
    answer: "type[msgspec.Struct] | None"
    """None: nothing that a struct describes."""
    handle: Handler
    parameters: tuple[Parameter, ...] = ()
    body: "type[msgspec.Struct] | None" = None
    statuses: tuple[int, ...] = ()
    """Those of refusals that only this path has."""
    is_list: bool = False
    """It answers a list of such structs."""
    success: int = 200
    media: str = JSON
    """Of what it answers; several with a space between them."""
    needs_token: bool = field(default=True)


def routes(endpoints: Sequence[Endpoint], jobs: ShownJobs) -> list[Route]:
    """For Starlette; methods of one path belong to one route, so that 405 names them all."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [
        Route(path, _dispatcher(methods, jobs), methods=list(methods))
        for path, methods in by_path.items()
    ]


def _dispatcher(
    methods: Mapping[str, Endpoint], jobs: ShownJobs
) -> Callable[[requests.Request], Awaitable[Response]]:
    async def answer(request: requests.Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await _answer(methods[method], request, jobs)

    return answer


async def _answer(endpoint: Endpoint, request: requests.Request, jobs: ShownJobs) -> Response:
    try:
        query = parse_query(endpoint.parameters, request.query_params.multi_items())
        body = await _body(request) if endpoint.method not in ("GET", "HEAD") else b""
        path = {name: str(value) for name, value in request.path_params.items()}
        accept = request.headers.get("accept", "")
        answer = endpoint.handle(Request(jobs, path, query, body, accept))
        if not isinstance(answer, msgspec.Struct | list | Response):
            answer = await answer
        if isinstance(answer, Response):
            return answer
        text = encode_list(answer) if isinstance(answer, list) else encode(answer)
        return Response(text, endpoint.success, media_type=JSON)
    except BadRequest as error:
        return problem(error.status, str(error))
    except InspectionFailed as error:
        return problem(409, str(error))
    except HeadgateError as error:
        return problem(400, str(error))
    except requests.ClientDisconnect:
        return Response(status_code=499)
    except Exception as error:
        log.exception("the request %s %s has failed", request.method, request.url.path)
        return problem(500, f"{type(error).__name__} in the driver; its log has more")


async def _body(request: requests.Request) -> bytes:
    """Raises BadRequest if it is too long; a chunked one says so only as it comes."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LONGEST_BODY:
            raise BadRequest(f"the body may have {LONGEST_BODY} bytes at most", 413)
        parts.append(part)
    return b"".join(parts)


def _short(text: str) -> str:
    return repr(text if len(text) <= 64 else f"{text[:63]}…")
