"""The server of the page and the REST API: one for each driver process, on a thread of its own.

The port is bound at once, so that its address can be printed; the web libraries are loaded on the
thread, off the path of a job that starts. Law: no trouble here fails a job: without its libraries
or its port there is no page, and the log says in one sentence what to do about it. ``close`` ends
all threads; a forked child keeps neither the port nor the page. An address that others can reach is
never served without a token.
"""

import asyncio
import ipaddress
import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import quote

from headgate.base.extras import install_command
from headgate.base.settings import RestSettings
from headgate.observe.observed import ObservedJob
from headgate.observe.web.shown_jobs import ShownJobs
from headgate.plan.table import clean

USUAL_PORTS: Final = range(8081, 8101)
BACKLOG: Final = 128
TOKEN_BYTES: Final = 24


def token_of(settings: RestSettings) -> str:
    """What requests must have; empty: nothing."""
    if settings.token or is_loopback(settings.bind_address):
        return settings.token
    return secrets.token_urlsafe(TOKEN_BYTES)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach it."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def bind(settings: RestSettings) -> socket.socket:
    """The port of the settings, or a free one, those that people know first; raises OSError."""
    address = settings.bind_address
    ports = [settings.port] if settings.port else [*USUAL_PORTS, 0]
    try:
        found = socket.getaddrinfo(
            address, ports[0], type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except UnicodeError as error:
        raise OSError(f"no host can be called {address!r}") from error
    family, _, _, _, where = found[0]
    for port in ports[:-1]:
        with suppress(OSError):
            return _listen(family, (where[0], port, *where[2:]))
    return _listen(family, (where[0], ports[-1], *where[2:]))


def _listen(family: int, where: tuple[Any, ...]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def reachable(bind_address: str) -> str:
    """How this machine itself reaches the server."""
    if bind_address in ("0.0.0.0", ""):
        return "127.0.0.1"
    if bind_address == "::":
        return "[::1]"
    return f"[{bind_address}]" if ":" in bind_address else bind_address


def public_name(bind_address: str, reachable: str) -> str:
    """What people may type elsewhere, too, if the server listens on every address."""
    return socket.gethostname() if bind_address in ("0.0.0.0", "", "::") else reachable


log = logging.getLogger(__name__)

CLOSE_S: Final = 5.0
LIBRARIES: Final = ("prometheus_client", "starlette", "uvicorn")


class PageServer:
    """Serves until ``close``. Methods are thread-safe."""

    def __init__(self, settings: RestSettings) -> None:
        """Raises OSError if the address or the port cannot be had."""
        self.token = token_of(settings)
        self.jobs = ShownJobs()
        self._is_own_token = not settings.token
        self._settings = settings
        self._socket = bind(settings)
        self._address = reachable(settings.bind_address)
        self.port: int = self._socket.getsockname()[1]
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="headgate-web", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._socket.close()
            raise

    @property
    def url(self) -> str:
        """The address for programs on this machine."""
        return f"http://{self._address}:{self.port}"

    def show(self, job: ObservedJob) -> str:
        """Show a job from now on; answers the address of its page, for people. Never raises."""
        try:
            self.jobs.watch(job)
        except Exception:
            log.exception("job %s is not shown on the web page; it runs on", job.job_id)
        if self.token and self._is_own_token:
            return self.link(job.job_id, f"token={quote(self.token, safe='')}&path=")
        return self.link(job.job_id)

    def link(self, job_id: str, before: str = "") -> str:
        """The address of a job's page without the token, for what may be kept or sent on."""
        name = public_name(self._settings.bind_address, self._address)
        return f"http://{name}:{self.port}/#{before}/jobs/{quote(job_id, safe='')}"

    def has_other(self, settings: RestSettings) -> bool:
        """Whether somebody asks for what this server does not do."""
        ours, wanted = self._settings, settings
        return (
            (wanted.port not in (0, self.port))
            or wanted.bind_address != ours.bind_address
            or (wanted.token not in ("", self.token))
        )

    def close(self) -> None:
        """Idempotent."""
        self.jobs.close()
        with self._lock:
            self._is_closed = True
            end = self._end
        if end is not None:
            end()
        self._thread.join(CLOSE_S)
        self._socket.close()

    def forget(self) -> None:
        """In a forked child: the page is the parent's."""
        self._socket.close()

    # On the server's thread.

    def _run(self) -> None:
        uvicorns, quiet = logging.getLogger("uvicorn.error"), _NotOurs(threading.get_ident())
        uvicorns.addFilter(quiet)
        try:
            asyncio.run(self._serve())
        except Exception:
            log.exception("the web page has failed; the jobs go on without it")
        finally:
            uvicorns.removeFilter(quiet)
            self._socket.close()
            with _lock:  # one that has failed is not shown to the next job
                _server[:] = [server for server in _server if server is not self]

    async def _serve(self) -> None:
        from headgate.observe.web.app import make_app
        from headgate.observe.web.connections import PromptServer, make_config
        from headgate.observe.web.event_streams import EventStreams

        loop, streams = asyncio.get_running_loop(), EventStreams()
        streams.opened(loop)
        self.jobs.on_look, self.jobs.on_gone = streams.looked, streams.gone
        app = make_app(self.jobs, streams, self._settings, token=self.token)
        server = PromptServer(make_config(app))

        def end() -> None:
            streams.close()
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(server.end)

        with self._lock:
            self._end, server.should_exit = end, self._is_closed
        await server.serve(sockets=[self._socket])


class _NotOurs(logging.Filter):
    """Uvicorn tells its life in the log; the user's own servers may, this one need not."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread or record.levelno >= logging.ERROR


_lock = threading.Lock()
_server: list[PageServer] = []
_reported: set[str] = set()


def page_server(settings: RestSettings) -> PageServer | None:
    """The server of this process, by the first caller's settings. None: the job is not shown."""
    if not settings.enabled:
        return None
    with _lock:
        if _server:
            if _server[0].has_other(settings):
                _report(
                    logging.WARNING,
                    f"an earlier job has opened the web page of this process at {_server[0].url}; "
                    f"its rest.bind-address, rest.port and rest.token hold for all jobs here",
                )
            return _server[0]
        if missing := [name for name in LIBRARIES if find_spec(name) is None]:
            _report(
                logging.INFO,
                f"there is no web page, for {missing[0]} is not installed; "
                f"{install_command('ui')} adds it",
            )
            return None
        try:
            _server.append(PageServer(settings))
        except (OSError, RuntimeError) as error:  # no port, or no thread
            where, reason = settings.port or "any", getattr(error, "strerror", None) or error
            _report(
                logging.WARNING,
                f"there is no web page: rest.port {where} of rest.bind-address "
                f"{settings.bind_address} cannot be opened ({reason}); the job "
                f"runs without it",
            )
            return None
        return _server[0]


def page_link(job_id: str) -> str:
    """The address of a job's page, without the token; empty: the job is not shown."""
    with _lock:
        shown = [server for server in _server if server.jobs.find(job_id) is not None]
        return shown[0].link(job_id) if shown else ""


def print_link(name: str, link: str) -> None:
    """Say where a job is shown; if standard error is closed, the job runs on without a word."""
    with suppress(OSError, ValueError, AttributeError):  # there may be none at all
        sys.stderr.write(f"headgate: job {clean(name)}: {link}\n")
        sys.stderr.flush()


def close_page_server() -> None:
    """Close the server of this process; the next job opens another. Idempotent."""
    with _lock:
        servers = list(_server)
        _server.clear()
    for server in servers:
        server.close()


def _report(level: int, sentence: str) -> None:
    """Once for each sentence: there may be hundreds of jobs."""
    if sentence not in _reported:
        _reported.add(sentence)
        log.log(level, sentence)


def _forget_in_child() -> None:
    for server in _server:
        server.forget()
    _server.clear()


os.register_at_fork(after_in_child=_forget_in_child)
