"""The server of ``headgate history``: the page and the REST API, answered from archives.

The thread that calls ``serve`` is the server's own. Law: the port is bound before, so that its
address can be printed; an address that others can reach asks for a token. It changes nothing, and
what only a running job could answer is refused with a sentence.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headgate import __version__
from headgate.base.errors import HeadgateError
from headgate.base.settings import RestSettings
from headgate.observe.history.archive import ArchiveDamaged, ArchiveList, FilesFolder, ListedArchive
from headgate.observe.web.access import problem
from headgate.observe.web.answers import ClusterOverview, Features, JobId, JobIds, PageConfig
from headgate.observe.web.app import protected_app
from headgate.observe.web.connections import make_config
from headgate.observe.web.endpoints import JSON, BadRequest
from headgate.observe.web.json_objects import encode
from headgate.observe.web.server import bind, public_name, reachable, token_of

log = logging.getLogger(__name__)

REFRESH_MS: Final = 5_000
LIVE: Final = ("flamegraph", "peek", "channels", "savepoints", "stop")
"""Ends of paths that look into running tasks."""
MOST_LINES: Final = 1_000

_Kind = TypeVar("_Kind")


class HistoryServer:
    """Listens from its construction to ``close``."""

    def __init__(self, folder: FilesFolder, settings: RestSettings) -> None:
        """Raises OSError if the address or the port cannot be had."""
        self.token = token_of(settings)
        self._address = settings.bind_address
        self._is_own_token = not settings.token
        self.archives = ArchiveList(folder)
        self._socket = bind(settings)
        self.port: int = self._socket.getsockname()[1]
        app = _make_app(self.archives, bind_address=self._address, token=self.token)
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it tells its life
        self._server = uvicorn.Server(make_config(app, timeout_graceful_shutdown=1))

    @property
    def url(self) -> str:
        """The address for people; it has the token if the server has made one."""
        name = public_name(self._address, reachable(self._address))
        path = f"token={quote(self.token, safe='')}" if self.token and self._is_own_token else "/"
        return f"http://{name}:{self.port}/#{path}"

    def serve(self) -> None:
        """Until ``close``, or a signal to the main thread."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def close(self) -> None:
        """Let ``serve`` return soon; from any thread. Idempotent."""
        self._server.should_exit = True


def _make_app(archives: ArchiveList, *, bind_address: str, token: str) -> ASGIApp:
    """Answers from these archives; an empty token: nobody needs one."""
    paths = HistoryPaths(archives, bool(token))
    routes = [
        Route("/config", _answered(paths.config)),
        Route("/overview", _answered(paths.overview)),
        Route("/jobs", _answered(paths.job_ids)),
        Route("/jobs/overview", _answered(paths.summaries)),
        Route("/jobs/{job}", _answered(paths.archived)),
        Route("/jobs/{job}/events", _answered(paths.events)),
        Route("/jobs/{job}/{rest:path}", _answered(paths.archived)),
    ]
    return protected_app(routes, _http_problem, bind_address, token, ("/config",))


async def _http_problem(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return problem(405, "an archive cannot be changed; it has only GET", error.headers)
    return problem(error.status_code, "there is no such path; GET /jobs lists the archives")


def _answered(handle: Callable[[Request], Response]) -> Callable[[Request], Any]:
    """On a thread: files are read."""

    async def answer(request: Request) -> Response:
        try:
            return await run_in_threadpool(handle, request)
        except BadRequest as error:
            return problem(error.status, str(error))
        except HeadgateError as error:  # it has been removed, or is damaged
            return problem(404, str(error))
        except Exception as error:
            log.exception("the request %s has failed", request.url.path)
            return problem(500, f"{type(error).__name__} in the history server; its log has more")

    return answer


class HistoryPaths:
    """What each path answers; called on threads."""

    def __init__(self, archives: ArchiveList, needs_token: bool) -> None:
        self._archives = archives
        self._needs_token = needs_token

    def config(self, request: Request) -> Response:
        features = Features(web_cancel=False, web_savepoint=False, peek=False)
        return _json(encode(PageConfig(__version__, REFRESH_MS, features, self._needs_token)))

    def overview(self, request: Request) -> Response:
        states = Counter(map(_state, self._archives.archives()))
        ended = [states.pop(state, 0) for state in ("FINISHED", "CANCELED", "FAILED")]
        return _json(encode(ClusterOverview(__version__, states.total(), *ended)))

    def job_ids(self, request: Request) -> Response:
        archives = self._archives.archives()
        return _json(encode(JobIds([JobId(found.key, _state(found)) for found in archives])))

    def summaries(self, request: Request) -> Response:
        jobs = [{**found.header.job, "jid": found.key} for found in self._archives.archives()]
        return _json(msgspec.json.encode({"jobs": jobs}))

    def events(self, request: Request) -> Response:
        """One event, and no more: nothing changes."""
        details = self._answer(request, "")
        return Response(b"event: job\ndata: " + details + b"\n\n", media_type="text/event-stream")

    def archived(self, request: Request) -> Response:
        """Any other path below that of a job."""
        rest = str(request.path_params.get("rest", ""))
        path = f"/{rest}" if rest else ""
        if rest.rpartition("/")[2] in LIVE:
            return problem(409, "the job has ended, and only running tasks can be looked into")
        answer = self._answer(request, path)
        if path == "/logs":
            return _json(_some_lines(answer, request))
        wanted = [name for name in request.query_params.get("get", "").split(",") if name]
        if path.endswith("/metrics") and wanted:
            return _json(_some_metrics(self._answer(request, f"{path}?get"), wanted))
        return _json(answer)

    def _answer(self, request: Request, path: str) -> bytes:
        """Raises HeadgateError."""
        key = str(request.path_params["job"])
        archive = self._archives.find(key)
        if archive is None:
            raise BadRequest(f"there is no archive of job {key[:64]!r}; GET /jobs lists all", 404)
        answers = self._archives.answers(archive)
        if path in answers:
            return answers[path]
        why = "it did not fit" if archive.header.left_out else "there is no such path"
        raise BadRequest(f"the archive of the job does not have this: {why}", 404)


def _state(archive: ListedArchive) -> str:
    return str(archive.header.job.get("state", ""))


def _json(body: bytes) -> Response:
    return Response(body, media_type=JSON)


def _some_lines(answer: bytes, request: Request) -> bytes:
    """The lines after number ``after``, at most ``limit``."""
    after, limit = _number(request, "after", 0), _number(request, "limit", MOST_LINES)
    lines: list[tuple[int, msgspec.Raw]] = []
    for line in _decoded(answer, _Lines).lines:
        number = _decoded(line, _Line).number
        if number > after and len(lines) < limit:
            lines.append((number, line))
    last = lines[-1][0] if lines else after
    return msgspec.json.encode({"lines": [line for _, line in lines], "next": last})


def _some_metrics(answer: bytes, wanted: list[str]) -> bytes:
    """The metrics that ``get`` names, in that order."""
    metrics = {_decoded(raw, _Metric).id: raw for raw in _decoded(answer, list[msgspec.Raw])}
    return msgspec.json.encode([metrics[name] for name in wanted if name in metrics])


class _Line(msgspec.Struct):
    number: int = 0


class _Lines(msgspec.Struct):
    lines: list[msgspec.Raw] = []


class _Metric(msgspec.Struct):
    id: str


def _decoded(answer: bytes | msgspec.Raw, kind: type[_Kind]) -> _Kind:
    """Raises ArchiveDamaged: a file may hold any JSON in place of an answer."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise ArchiveDamaged("of the job", f"an answer in it is none ({error})") from error


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadRequest(f"{name} must be a whole number of at least 0")
    return int(text)
