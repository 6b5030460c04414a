"""The client of a job's REST API: what it asks, and the sentence for each thing that goes wrong."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from headgate.cli.rest_client import PageOff, RequestRefused, RestClient
from headgate.cli.user_program import exit_code_of
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.job_client import JobGone, JobNotFound, JobSilent, find_job
from tests.host.control_rig import TIMES
from tests.host.endpoint_kit import RecordingJob, job_entry, served_endpoint


class Page:
    """Answers what it is told to, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self.status = 200
        self.body = b"{}"
        self.pause_s = 0.0
        self.url = ""


@pytest.fixture
def page() -> Iterator[Page]:
    with served(Page()) as page:
        yield page


@contextmanager
def served(page: Page) -> Iterator[Page]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page.asked.append((self.command, self.path, self.headers["Authorization"]))
            self.send_response(page.status)
            self.end_headers()
            with suppress(BrokenPipeError, ConnectionResetError):  # the client has given up
                for byte in page.body:
                    self.wfile.write(bytes([byte]))
                    time.sleep(page.pause_s)

        do_PATCH = do_GET  # noqa: N815

        def log_message(self, *words: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        page.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield page
        server.shutdown()
        thread.join()


class Greeting(msgspec.Struct):
    name: str


def test_a_question_has_the_jobs_path_its_query_and_its_token(page: Page) -> None:
    page.body = json.dumps({"name": "there", "more": 1}).encode()
    client = RestClient(job_entry("a b", web=page.url + "/", token="t0ken"))
    assert client.get("/x", Greeting, {"seconds": 2, "subtask": None}) == Greeting("there")
    client.request("PATCH", "", {"mode": "cancel"})
    assert page.asked == [
        ("GET", "/jobs/a%20b/x?seconds=2", "Bearer t0ken"),
        ("PATCH", "/jobs/a%20b?mode=cancel", "Bearer t0ken"),
    ]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 503])
def test_an_error_is_the_sentence_that_the_page_has_said(page: Page, status: int) -> None:
    page.status, page.body = status, b'{"errors": ["the sentence", "another"]}'
    with pytest.raises(RequestRefused) as refused:
        RestClient(job_entry(web=page.url)).get("", Greeting)
    assert str(refused.value) == "job ab12 (orders): the sentence; another"
    assert refused.value.status == status


def test_an_error_without_a_sentence_is_said_in_the_words_of_http(page: Page) -> None:
    page.status, page.body = 404, b"<html>"
    with pytest.raises(RequestRefused, match=r"job ab12 \(orders\): Not Found"):
        RestClient(job_entry(web=page.url)).get("", Greeting)


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"hi": 1}', b""])
def test_an_answer_of_another_kind_is_not_believed(page: Page, body: bytes) -> None:
    page.body = body
    with pytest.raises(JobSilent, match="its answer cannot be read .* another version"):
        RestClient(job_entry(web=page.url)).get("", Greeting)


def test_a_page_that_trickles_is_given_up_at_the_deadline(page: Page) -> None:
    page.body, page.pause_s = b" " * 40, 0.1
    with pytest.raises(JobSilent, match=r"has not answered within 0\.5 s; it is busy or stopped"):
        RestClient(job_entry(web=page.url)).get("", Greeting, deadline_s=0.5)


def test_a_driver_that_is_gone_and_a_page_that_is_off_are_told_apart(page: Page) -> None:
    with served(Page()) as closed:
        pass
    with pytest.raises(JobGone, match=r"job ab12 \(orders\) has ended"):
        RestClient(job_entry(web=closed.url)).get("", Greeting)
    with pytest.raises(PageOff, match=r"rest\.enabled true, a free rest\.port") as off:
        RestClient(job_entry())
    assert exit_code_of(off.value) == 2, "usage or configuration"


def test_without_a_name_the_only_job_is_meant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(JobNotFound, match="no job of yours runs on this machine; start one"):
        RestClient(find_job(None))
    with ControlServer(times=TIMES) as server, served_endpoint(server, RecordingJob("ab", "x")):
        with pytest.raises(PageOff, match=r"job ab \(x\) has no web page"):
            RestClient(find_job(None))
        with (
            served_endpoint(server, RecordingJob("cd", "y")),
            pytest.raises(JobNotFound, match=r"ab \(x\), cd \(y\); name the one you mean"),
        ):
            RestClient(find_job(None))
