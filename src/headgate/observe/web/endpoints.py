"""One path of the API: its declaration, and what turns a request into an answer.

Handlers get a ``Request`` whose job, vertex and parameters are known to be good, and return a
struct. Paths and parameters are declared once, for the check and for the OpenAPI document. Law:
whatever goes wrong is answered as ``{"errors": ["one sentence"]}``. A value reaches a handler only
if its declaration allows it; a parameter that nobody has declared is refused, for it is misspelt.
The event loop never waits for a job, a disk or a task: calls that wait have a thread each.
"""

import asyncio
import logging
import math
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from starlette import requests
from starlette.responses import Response
from starlette.routing import Route

from headgate.base.errors import HeadgateError, InspectionFailed
from headgate.observe.web.access import LONGEST_BODY, problem
from headgate.observe.web.event_streams import EventStreams
from headgate.observe.web.json_objects import encode, encode_list
from headgate.observe.web.shown_jobs import ShownJob, ShownJobs
from headgate.plan.job_graph import JobVertex
from headgate.plan.table import cut

MOST: Final = 16

_Result = TypeVar("_Result")


class Background:
    """Used on the event loop."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._running = 0

    async def run(self, call: Callable[[], _Result]) -> _Result:
        """What the call returns or raises; raises BadRequest if there are too many."""
        if self._running >= self._most:
            raise BadRequest("the driver is busy with other requests; ask again in a moment", 503)
        self._running += 1
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()

        def settle(result: _Result | None, error: BaseException | None) -> None:
            self._running -= 1
            if future.done():  # nobody waits any more
                return
            if error is None:
                future.set_result(result)  # type: ignore[arg-type] # without an error it is one
            else:
                future.set_exception(error)

        def work() -> None:
            result, error = None, None
            try:
                result = call()
            except BaseException as problem:
                error = problem
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, result, error)

        try:
            threading.Thread(target=work, name="headgate-web-call", daemon=True).start()
        except RuntimeError as error:  # the process has no room for another thread
            self._running -= 1
            raise BadRequest("the driver cannot start a thread; ask again later", 503) from error
        return await future


LARGEST: Final = 2**53 - 1
"""A whole number that JSON and its readers keep exactly."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")


class BadRequest(HeadgateError):
    """A request that cannot be answered as it is; the sentence says why."""

    def __init__(self, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query; its type is that of its default."""

    name: str
    default: str | int | float | bool | None
    """None: a whole number that may be left out."""
    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression that a text must match as a whole."""
    required: bool = False
    most: int = 1
    """May be given so often; more than once: the values come as a list."""

    def parse(self, text: str) -> str | int | float | bool:
        """Raises BadRequest."""
        default = self.default
        if isinstance(default, bool):
            if text not in ("true", "false"):
                raise BadRequest(f"{self.name} is {_short(text)}; give true or false")
            return text == "true"
        if default is None or isinstance(default, int):
            number = int(text) if _WHOLE.fullmatch(text) else math.nan
            return int(self._within(number, "whole number", LARGEST))
        if isinstance(default, float):
            return self._within(self._number(text), "number")
        if self.choices and text not in self.choices:
            raise BadRequest(
                f"{self.name} is {_short(text)}; give one of {', '.join(self.choices)}"
            )
        if self.pattern and not re.fullmatch(self.pattern, text):
            raise BadRequest(f"{self.name} is {_short(text)}; {self.meaning}")
        return text

    def schema(self) -> dict[str, Any]:
        """For the OpenAPI document."""
        default = self.default
        kind = "string"
        if isinstance(default, bool):
            kind = "boolean"
        elif default is None or isinstance(default, int):
            kind = "integer"
        elif isinstance(default, float):
            kind = "number"
        found: dict[str, Any] = {"type": kind}
        optional = {
            "default": None if self.required else default,
            "minimum": self.low,
            "maximum": LARGEST if kind == "integer" and self.high is None else self.high,
            "enum": list(self.choices) or None,
            "pattern": f"^(?:{self.pattern})$" if self.pattern else None,
        }
        found.update({key: value for key, value in optional.items() if value is not None})
        if self.most == 1:
            return found
        return {"type": "array", "items": found, "minItems": 1, "maxItems": self.most}

    def _number(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            return math.nan

    def _within(self, value: float, kind: str, largest: float = math.inf) -> float:
        low = -math.inf if self.low is None else self.low
        high = largest if self.high is None else self.high
        if not low <= value <= high or math.isinf(value):
            raise BadRequest(f"{self.name} must be a {kind}{self._bounds()}")
        return value

    def _bounds(self) -> str:
        if self.low is None and self.high is None:
            return ""
        if self.high is None:
            return f" of at least {self.low:g}"
        return f" from {self.low or 0:g} to {self.high:g}"


def parse_query(
    declared: Sequence[Parameter], given: Sequence[tuple[str, str]]
) -> Mapping[str, Any]:
    """Values by name, those that were left out too; raises BadRequest."""
    known = {parameter.name: parameter for parameter in declared}
    values: dict[str, Any] = {parameter.name: parameter.default for parameter in declared}
    seen: set[str] = set()
    for name, text in given:
        if name not in known:
            may = f"it has {', '.join(known)}" if known else "it has none"
            raise BadRequest(f"this path has no parameter {_short(name)}; {may}")
        parameter = known[name]
        value = parameter.parse(text)
        if parameter.most > 1:
            values[name] = [*values[name], value] if name in seen else [value]
            if len(values[name]) > parameter.most:
                raise BadRequest(f"{name} is given more than {parameter.most:,} times")
        elif name in seen:
            raise BadRequest(f"{name} is given twice")
        else:
            values[name] = value
        seen.add(name)
    missing = [each.name for each in declared if each.required and each.name not in seen]
    if missing:
        raise BadRequest(f"this path needs {', '.join(missing)}")
    return values


def whole_number(text: str) -> int | None:
    """The whole number in a path; None: the text is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _short(text: str, most: int = 40) -> str:
    return repr(cut(text, most))


log = logging.getLogger(__name__)

JSON: Final = "application/json"


@dataclass(slots=True)
class Services:
    """What the handlers of one server share; used on its event loop."""

    jobs: ShownJobs
    streams: EventStreams
    needs_token: bool
    """What the page is to ask its reader for."""
    background: Background = field(default_factory=Background)
    savepoints: "dict[str, tuple[str, Future[str]]]" = field(default_factory=dict)
    """By the id of the request for it: the job, and the path to come."""
    inspections: int = 0
    """Requests that look into running tasks at this moment."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a handler needs."""

    services: Services
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: bytes
    accept: str = ""
    """The header: formats that the reader understands."""

    @property
    def jobs(self) -> ShownJobs:
        """All jobs that the server shows."""
        return self.services.jobs

    @property
    def shown(self) -> ShownJob:
        """The job of the path."""
        job_id = self.path["job"]
        found = self.jobs.find(job_id)
        if found is None:
            raise BadRequest(
                f"there is no job {_short(job_id, 64)} here; GET /jobs lists those that run and "
                f"those that ended last",
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
            raise BadRequest(f"the job has no vertex {_short(text, 64)}; give 0 to {last}", 404)
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
_Handle = TypeVar("_Handle", bound=Handler)


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
    """Statuses of refusals that only this path has."""
    is_list: bool = False
    """It answers a list of such structs."""
    success: int = 200
    media: str = JSON
    """Media types of the answer, with spaces between them."""
    needs_token: bool = True


class Endpoints:
    """The endpoints of one module, in the order in which their handlers are declared."""

    def __init__(self) -> None:
        self.all: list[Endpoint] = []

    def declare(
        self,
        method: str,
        path: str,
        summary: str,
        answer: "type[msgspec.Struct] | None" = None,
        **more: Any,
    ) -> Callable[[_Handle], _Handle]:
        """Decorates a handler; ``more`` are fields of ``Endpoint``."""

        def decorate(handle: _Handle) -> _Handle:
            self.all.append(Endpoint(method, path, summary, answer, handle, **more))
            return handle

        return decorate

    def get(
        self, path: str, summary: str, answer: "type[msgspec.Struct] | None" = None, **more: Any
    ) -> Callable[[_Handle], _Handle]:
        """Declare a path that is only read."""
        return self.declare("GET", path, summary, answer, **more)


def routes(endpoints: Sequence[Endpoint], services: Services) -> list[Route]:
    """For Starlette; methods of one path belong to one route, so that 405 names them all."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [
        Route(path, _dispatcher(methods, services), methods=list(methods))
        for path, methods in by_path.items()
    ]


def _dispatcher(
    methods: Mapping[str, Endpoint], services: Services
) -> Callable[[requests.Request], Awaitable[Response]]:
    async def answer(request: requests.Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await _answer(methods[method], request, services)

    return answer


async def _answer(endpoint: Endpoint, request: requests.Request, services: Services) -> Response:
    try:
        query = parse_query(endpoint.parameters, request.query_params.multi_items())
        body = await _body(request) if endpoint.method not in ("GET", "HEAD") else b""
        path = {name: str(value) for name, value in request.path_params.items()}
        accept = request.headers.get("accept", "")
        answer = endpoint.handle(Request(services, path, query, body, accept))
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
