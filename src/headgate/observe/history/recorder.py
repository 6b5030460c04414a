"""Asks the REST API about a job that has ended, as the page would, and keeps the answers.

The application is asked in this process, without a socket. Law: a path that has no answer is left
out, but for that of the job itself; nothing here takes longer than the answers themselves.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from starlette.types import ASGIApp, Message

from headgate.base.settings import RestSettings
from headgate.observe.web.access import PEER_UID
from headgate.observe.web.app import make_app
from headgate.observe.web.event_streams import EventStreams
from headgate.observe.web.json_objects import encode
from headgate.observe.web.shown_jobs import ShownJob, ShownJobs
from headgate.plan.job_graph import JobVertex

HOST: Final = RestSettings().bind_address
MOST_SUBTASKS: Final = 200
"""A job with more subtasks than this keeps no metrics of single subtasks."""
MOST_LINES: Final = 10_000


class _Named(msgspec.Struct):
    id: str


class _Lines(msgspec.Struct):
    lines: list[msgspec.Raw]
    next: int = 0


def record_job(jobs: ShownJobs, job_id: str) -> tuple[dict[str, object], dict[str, bytes]]:
    """The job as lists of jobs show it, and the answers about it by path, the best first."""
    app = make_app(jobs, EventStreams(), RestSettings(), token="")
    shown = jobs.find(job_id)
    if shown is None:
        raise LookupError(f"the API has no answer about job {job_id}")
    return asyncio.run(_Recorder(app, shown).record())


class _Recorder:
    def __init__(self, app: ASGIApp, shown: ShownJob) -> None:
        self._app = app
        self._shown = shown
        self._answers: dict[str, bytes] = {}

    async def record(self) -> tuple[dict[str, object], dict[str, bytes]]:
        job = self._shown.job
        if await self._keep("") is None:
            raise LookupError(f"the API has no answer about job {job.job_id}")
        for path in ("/exceptions", "/config", "/plan", "/taskmanagers", "/series"):
            await self._keep(path)
        await self._keep("/why", quick="true")
        await self._keep_lines()
        await self._keep("/checkpoints")
        for record in job.checkpoints().records:
            await self._keep(f"/checkpoints/details/{record.checkpoint}")
        for vertex in job.graph.vertices:
            for path in ("", "/backpressure", "/watermarks"):
                await self._keep(f"/vertices/{vertex.id}{path}")
        await self._keep_metrics("/metrics")
        for path in _metric_paths(job.graph.vertices):
            await self._keep_metrics(path)
        return msgspec.json.decode(encode(self._shown.summary())), self._answers

    async def _keep_lines(self) -> None:
        """All of them, however many are answered at a time."""
        lines: list[msgspec.Raw] = []
        after = 0
        while (answer := await self._get(self._below("/logs"), after=after)) is not None:
            found = msgspec.json.decode(answer, type=_Lines)
            if found.next <= after or len(lines) >= MOST_LINES:
                break
            lines += found.lines
            after = found.next
        self._answers["/logs"] = msgspec.json.encode(_Lines(lines, after))

    async def _keep_metrics(self, path: str) -> None:
        """By default only names are answered; the values are kept as those of ``?get``."""
        names = await self._keep(path)
        if names is not None:
            wanted = ",".join(found.id for found in msgspec.json.decode(names, type=list[_Named]))
            values = await self._get(self._below(path), get=wanted)
            if values is not None:
                self._answers[f"{path}?get"] = values

    async def _keep(self, path: str, **query: object) -> bytes | None:
        answer = await self._get(self._below(path), **query)
        if answer is not None:
            self._answers[path] = answer
        return answer

    def _below(self, path: str) -> str:
        return f"/jobs/{self._shown.job.job_id}{path}"

    async def _get(self, path: str, **query: object) -> bytes | None:
        """What is answered, if the answer is a good one."""
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": urlencode(query).encode(),
            "headers": [(b"host", HOST.encode())],
            "http_version": "1.1",
            "scheme": "http",
            "state": {PEER_UID: os.geteuid()},
        }
        parts: list[bytes] = []
        statuses: list[int] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            else:
                parts.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return b"".join(parts) if statuses == [200] else None


def _metric_paths(vertices: Sequence[JobVertex]) -> Iterator[str]:
    for vertex in vertices:
        yield f"/vertices/{vertex.id}/subtasks/metrics"
    if sum(vertex.parallelism for vertex in vertices) <= MOST_SUBTASKS:
        for vertex in vertices:
            for subtask in range(vertex.parallelism):
                yield f"/vertices/{vertex.id}/subtasks/{subtask}/metrics"
