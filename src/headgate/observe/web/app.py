"""The application: all paths of the API, the files of the page, and who may ask for them.

Law: a request can name a file of the page and nothing else; names are looked up in a fixed list,
never joined to a path. The files hold no data, so that they need no token.
"""

from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from mimetypes import guess_type
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headgate.base.settings import RestSettings
from headgate.observe.web import change_endpoints, inspection_endpoints, job_endpoints
from headgate.observe.web.access import Access, problem
from headgate.observe.web.endpoints import JSON, Endpoint, Services, routes
from headgate.observe.web.endpoints import Request as Asked
from headgate.observe.web.event_streams import EventStreams
from headgate.observe.web.openapi import openapi_document
from headgate.observe.web.shown_jobs import ShownJobs

if TYPE_CHECKING:
    from importlib.abc import Traversable

PACKAGE: Final = "headgate.observe.web"
INDEX: Final = "index.html"
KINDS: Final = {".js": "text/javascript", ".mjs": "text/javascript", ".svg": "image/svg+xml"}


def make_app(
    jobs: ShownJobs, streams: EventStreams, settings: RestSettings, *, token: str
) -> ASGIApp:
    """Answers about these jobs; an empty token: nobody needs one."""
    needs_token = bool(token)
    endpoints = all_endpoints(needs_token=needs_token, subtask_metrics=settings.subtask_metrics)
    found = routes(endpoints, Services(jobs, streams, needs_token))
    opened = [endpoint.path for endpoint in endpoints if not endpoint.needs_token]
    return protected_app(found, _http_problem, settings.bind_address, token, opened)


def protected_app(
    paths: Sequence[Route],
    refuse: Callable[[Request, Exception], Awaitable[Response]],
    bind_address: str,
    token: str,
    opened: Sequence[str],
) -> ASGIApp:
    """These paths with the files of the page; ``opened``: paths that need no token.

    ``refuse`` answers what Starlette itself does not know.
    """
    static = PageFiles()
    app = Starlette(
        routes=[
            Route("/", static.index),
            Route("/static/{name:path}", static.file),
            *paths,
        ],
        exception_handlers={HTTPException: refuse},
    )
    app.router.redirect_slashes = False
    return Access(
        app, bind_address=bind_address, token=token, open_paths=("/", "/static/", *opened)
    )


def all_endpoints(*, needs_token: bool, subtask_metrics: bool) -> list[Endpoint]:
    """The endpoints in the OpenAPI document, and the one that answers the document."""
    endpoints = [
        *job_endpoints.ENDPOINTS.all,
        job_endpoints.metrics_endpoint(subtask_metrics=subtask_metrics),
        *change_endpoints.ENDPOINTS.all,
        *inspection_endpoints.ENDPOINTS.all,
    ]

    def document(request: Asked) -> Response:
        found = openapi_document(endpoints, needs_token=needs_token)
        return Response(msgspec.json.encode(found), media_type=JSON)

    endpoints.append(Endpoint("GET", "/openapi.json", "This API", None, document))
    return endpoints


async def _http_problem(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        sentence = f"this path does not know the method {request.method}; it has {allowed}"
    else:
        sentence = "there is no such path; GET /openapi.json lists all of them"
    return problem(error.status_code, sentence, error.headers)


class PageFiles:
    """Answers ``/`` and ``/static/…``."""

    def __init__(self) -> None:
        self._files = dict(_listed(files(PACKAGE) / "page", ""))

    async def index(self, request: Request) -> Response:
        return self._answer(INDEX)

    async def file(self, request: Request) -> Response:
        return self._answer(str(request.path_params["name"]))

    def _answer(self, name: str) -> Response:
        found = self._files.get(name)
        if found is None:
            return problem(404, "the page has no such file")
        return Response(found.read_bytes(), media_type=_kind(name))


def _listed(folder: "Traversable", prefix: str) -> "list[tuple[str, Traversable]]":
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _listed(entry, f"{prefix}{entry.name}/")
        else:
            found.append((prefix + entry.name, entry))
    return found


def _kind(name: str) -> str:
    ending = name[name.rfind(".") :] if "." in name else ""
    return KINDS.get(ending) or guess_type(name)[0] or "application/octet-stream"
