"""A job of three vertices with a real control port, and a page that answers as a test wants it to.

What the real page answers is tested with it; here answers are chosen, also bad ones.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import msgspec

from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.job_directory import announce, entries
from tests.host.control_rig import TIMES
from tests.host.endpoint_kit import RecordingJob, served_endpoint

NOW = 1_800_000_000_000
WHY = "'slow' limits the job: it is busy 98 % of the time, while 'squares' before it waits."


class Page:
    """Paths below the job's and what is answered there; other paths are unknown."""

    def __init__(self, job: str, name: str) -> None:
        self.url = ""
        self.token = ""
        self.job = {**job_answer(job, name)}
        self.answers: dict[str, object] = {
            "": self.job,
            "/checkpoints": CHECKPOINTS,
            "/vertices/2": {**SLOW, "subtasks": SUBTASKS},
        }
        self.status: dict[str, int] = {}
        self.hangs_up = False
        self.asked: list[tuple[str, str, dict[str, str]]] = []

    def answer(self, method: str, target: str, token: str | None) -> tuple[int, bytes]:
        parts = urlsplit(target)
        path = parts.path.removeprefix(f"/jobs/{self.job['jid']}")
        self.asked.append(
            (method, path, {key: value[0] for key, value in parse_qs(parts.query).items()})
        )
        if self.token and token != f"Bearer {self.token}":
            return 401, b'{"errors": ["the token is missing or wrong"]}'
        if method == "PATCH":
            self.job["state"] = "CANCELED"
        if path not in self.answers:
            return 404, b'{"errors": ["there is nothing"]}'
        return self.status.get(path, 200), json.dumps(self.answers[path]).encode()


@contextmanager
def job_with_page(job: str = "ab12cd", name: str = "count orders") -> Iterator[Page]:
    """It is found in the folder that XDG_RUNTIME_DIR names."""
    page = Page(job, name)
    with (
        served(page),
        ControlServer(times=TIMES) as server,
        served_endpoint(server, RecordingJob(job, name)),
    ):
        announce_page(page)
        yield page


def announce_page(page: Page) -> None:
    """Once more, after its address or token has changed."""
    (entry,) = [entry for entry, _ in entries() if entry.job == page.job["jid"]]
    announce(msgspec.structs.replace(entry, web=page.url, token=page.token))


@contextmanager
def served(page: Page) -> Iterator[Page]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = page.answer(self.command, self.path, self.headers["Authorization"])
            if page.hangs_up:
                return
            self.send_response(status)
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(body)

        do_PATCH = do_GET  # noqa: N815

        def log_message(self, *words: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        page.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield page
        finally:
            server.shutdown()
            thread.join()


def vertex_answer(number: int, name: str, busy: float, held_up: float, **more: object) -> object:
    return {
        "id": str(number),
        "name": name,
        "parallelism": 2,
        "status": "RUNNING",
        "is-source": number == 0,
        "tasks": {"RUNNING": 2},
        "rates": {"in-per-s": 1234.5, "out-per-s": 12345.6, "bytes-in-per-s": 1.0},
        "busy": busy,
        "backpressured": held_up,
        "idle": 1 - busy - held_up,
        "max-busy": busy,
        "cpu": busy / 2,
        "watermark": None,
        "watermark-lag-ms": None,
        "latency-p50-ms": None,
        "latency-p99-ms": None,
        "state-bytes": None,
        "lag-records": None,
        **more,
    }


SOURCE = vertex_answer(0, "Source: numbers", 0.1, 0.8)
SQUARES = vertex_answer(1, "squares", 0.25, 0.5)
SLOW = {
    **vertex_answer(2, "slow -> Sink: end", 0.98, 0.0, **{"watermark-lag-ms": 1234.0}),  # type: ignore[dict-item]
    "latency-p99-ms": 56.7,
    "state-bytes": 2_500_000,
}
GATE = {"channels": 2, "queued-buffers": 3, "backlog": 4}
SUBTASKS = [
    {**SLOW, "subtask": 0, "host": "here:77", "gates": [GATE]},
    {**SLOW, "subtask": 1, "host": "here:78", "gates": [GATE], "busy": 0.5, "idle": 0.5},
]
CHECKPOINTS = {
    "counts": {"triggered": 42, "completed": 40, "failed": 1, "in-progress": 1},
    "restored-from": "",
    "history": [
        {
            "checkpoint": 41,
            "kind": "checkpoint",
            "status": "completed",
            "triggered-at-ms": NOW - 3_000,
            "took-ms": 120.0,
            "state-bytes": 2_500_000,
        }
    ],
}


def job_answer(job: str, name: str) -> dict[str, object]:
    return {
        "jid": job,
        "name": name,
        "state": "RUNNING",
        "start-time": NOW - 125_000,
        "end-time": -1,
        "duration": 125_000,
        "now": NOW,
        "timestamps": {"RUNNING": NOW - 124_000},
        "restarts": 1,
        "batch": False,
        "vertices": [SOURCE, SQUARES, SLOW],
        "edges": [],
        "latest-failure": {
            "at-ms": NOW - 60_000,
            "attempt": 0,
            "kind": "builtins.ValueError",
            "message": "bad\nrecord \x1b[31m7",
            "operator": "squares",
            "restarted": True,
        },
        "why": {"cause": "busy", "summary": WHY, "vertex": 2, "complete": False},
    }
