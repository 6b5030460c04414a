"""The client of a job's REST API, for the commands that look at running jobs.

A command names the job as people do, and asks the page of its driver, whose address and token are
in the job directory. Law: every question has a deadline, and whatever goes wrong is one sentence
that says what to do about it.
"""

import http.client
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from headgate.base.errors import HeadgateError
from headgate.host.driver.job_client import JobGone, JobSilent
from headgate.host.driver.job_directory import JobEntry
from headgate.observe.web.answers import JobDetails, VertexDetails
from headgate.observe.web.json_objects import decode

_Answer = TypeVar("_Answer", bound=msgspec.Struct)

DEADLINE_S: Final = 10.0
"""Deadline of an answer that needs no measurement; the driver may be busy."""
LARGEST: Final = 256 * 1024 * 1024
_CHUNK: Final = 1024 * 1024


class PageOff(HeadgateError):
    """The job's driver serves no page, so nobody can look at the job."""

    def __init__(self, entry: JobEntry) -> None:
        super().__init__(
            f"job {entry.job} ({entry.name}) has no web page to ask: start it with rest.enabled "
            f"true, a free rest.port and the extra ui installed; if they are, its log says why "
            f"there is none"
        )


class RequestRefused(HeadgateError):
    """The page has answered with an error."""

    def __init__(self, entry: JobEntry, status: int, reasons: list[str]) -> None:
        self.status = status
        reason = "; ".join(reasons) or http.client.responses.get(status, f"HTTP {status}")
        super().__init__(f"job {entry.job} ({entry.name}): {reason}")


class StateAnswer(msgspec.Struct):
    """The part of the answer of ``GET /jobs/{id}`` that is the name of its JobStatus."""

    state: str


class _Errors(msgspec.Struct):
    """The body of an answer that is an error."""

    errors: list[str] = []


class RestClient:
    """Asks about one job; methods raise RequestRefused, JobGone or JobSilent."""

    def __init__(self, entry: JobEntry) -> None:
        """``entry`` comes from ``find_job``; raises PageOff."""
        if not entry.web:
            raise PageOff(entry)
        self.entry = entry

    def get(
        self,
        path: str,
        answer: type[_Answer],
        query: Mapping[str, object] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> _Answer:
        """What ``GET /jobs/{id}<path>`` answers."""
        body = self.request("GET", path, query, deadline_s)
        try:
            return decode(body, answer, lenient=True)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            problem = f"its answer cannot be read ({error}); it may run another version of Headgate"
            raise JobSilent(self.entry, problem) from error

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> bytes:
        """The body of the answer to a request about the job; None in the query is left out."""
        given = {key: value for key, value in (query or {}).items() if value is not None}
        target = f"/jobs/{quote(self.entry.job, safe='')}{path}"
        if given:
            target += "?" + urlencode(given)
        deadline = time.monotonic() + deadline_s
        try:
            status, body = self._exchange(method, target, deadline)
        except TimeoutError as error:
            problem = f"it has not answered within {deadline_s:g} s; it is busy or stopped"
            raise JobSilent(self.entry, problem) from error
        except ConnectionError as error:  # it listens as long as it lives
            raise JobGone(self.entry) from error
        except (OSError, http.client.HTTPException) as error:
            raise JobSilent(self.entry, str(error) or type(error).__name__) from error
        if status >= 400:
            raise RequestRefused(self.entry, status, _reasons(body))
        return body

    def _exchange(self, method: str, target: str, deadline: float) -> tuple[int, bytes]:
        page = urlsplit(self.entry.web)
        headers = {"Accept": "application/json", "X-Requested-With": "headgate"}
        if self.entry.token:
            headers["Authorization"] = f"Bearer {self.entry.token}"
        connection = http.client.HTTPConnection(
            page.hostname or "127.0.0.1", page.port, timeout=_left(deadline)
        )
        with closing(connection):
            connection.request(method, page.path.rstrip("/") + target, headers=headers)
            response = connection.getresponse()
            parts: list[bytes] = []
            size = 0
            while size <= LARGEST:
                left_s = _left(deadline)
                if connection.sock is not None:  # None: the answer ends with the connection
                    connection.sock.settimeout(left_s)
                part = response.read1(_CHUNK)
                if not part:
                    return response.status, b"".join(parts)
                parts.append(part)
                size += len(part)
            raise http.client.HTTPException(f"its answer is longer than {LARGEST} bytes")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _reasons(body: bytes) -> list[str]:
    try:
        return msgspec.json.decode(body, type=_Errors).errors
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []


class VertexNotFound(HeadgateError):
    """No vertex has this name, or several have it."""

    def __init__(self, called: str, problem: str, vertices: Sequence[VertexDetails]) -> None:
        named = ", ".join(f"{vertex.id} ({vertex.name})" for vertex in vertices)
        super().__init__(f"{called!r} {problem}; name one of {named or 'none'}")


def find_vertex(page: RestClient, called: str) -> VertexDetails:
    """The vertex with this number or name, or whose name alone contains the text.

    Raises VertexNotFound, which lists the vertices.
    """
    vertices = page.get("", JobDetails).vertices
    text = called.casefold()
    for fits in (
        [vertex for vertex in vertices if vertex.id == called],
        [vertex for vertex in vertices if vertex.name == called],
        [vertex for vertex in vertices if text and text in vertex.name.casefold()],
    ):
        if len(fits) == 1:
            return fits[0]
        if fits:
            raise VertexNotFound(called, f"may be any of {len(fits)} vertices", fits)
    raise VertexNotFound(called, "is no vertex of the job", vertices)
