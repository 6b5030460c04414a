"""What may go wrong with the page: ports, libraries, forks, many jobs, followers."""

import asyncio
import logging
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from starlette.types import Message

from headgate.api.job import JobStatus
from headgate.base.errors import SettingsInvalid
from headgate.base.messages import TaskFigures
from headgate.base.settings import RestSettings
from headgate.observe.web import event_streams, server, shown_jobs
from headgate.observe.web.endpoints import Background, BadRequest
from headgate.observe.web.event_streams import EventStreams
from headgate.observe.web.job_answers import job_details
from headgate.observe.web.server import (
    close_page_server,
    page_link,
    page_server,
    print_link,
)
from headgate.observe.web.shown_jobs import ENDED, KEPT, ShownJob, ShownJobs
from tests.observe.web.kit import (
    DEADLINE_S,
    Caller,
    ScriptedJob,
    five_vertices,
    free_port_settings,
    serving,
    until,
)


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    close_page_server()
    monkeypatch.setattr(server, "_reported", set())
    yield
    close_page_server()


def test_a_process_has_one_server_and_the_first_settings_count() -> None:
    settings = free_port_settings()
    found = page_server(settings)
    assert found is not None and found.port == settings.port
    assert page_server(free_port_settings()) is found
    close_page_server()
    assert page_server(RestSettings(enabled=False)) is None


def test_a_job_that_wants_no_page_is_not_shown_on_that_of_another() -> None:
    found = page_server(free_port_settings())
    assert found is not None
    found.show(ScriptedJob(five_vertices(), job_id="shown"))
    assert page_server(RestSettings(enabled=False)) is None
    assert page_link("shown") and not page_link("hidden")


def test_a_token_that_comes_too_late_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    found = page_server(free_port_settings())
    assert found is not None
    for _ in range(2):
        assert page_server(RestSettings()) is found, "it asks for nothing"
        assert page_server(RestSettings(token="s3cret")) is found
    (record,) = caplog.records
    assert f"at {found.url}" in record.message and "rest.token" in record.message
    assert "s3cret" not in record.message


def test_a_page_that_has_failed_is_not_shown_to_the_next_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(server, "LIBRARIES", ())
        broken = "headgate.observe.web.connections"  # which loads Uvicorn
        patched.setitem(sys.modules, broken, None)
        failed = page_server(free_port_settings())
        until(lambda: not server._server)
        assert failed is not None
        failed.close()
    assert "the web page has failed; the jobs go on without it" in caplog.text
    found = page_server(free_port_settings())
    assert found is not None and found is not failed


def test_a_closed_standard_error_stops_no_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_link("orders\nof today", "http://127.0.0.1:8081/#/jobs/ab12")
    said = capsys.readouterr().err
    assert said == "headgate: job orders of today: http://127.0.0.1:8081/#/jobs/ab12\n"
    with open(os.devnull, "w") as nobody:
        monkeypatch.setattr(sys, "stderr", nobody)
    print_link("orders", "http://127.0.0.1:8081/#/jobs/ab12")


def test_a_port_in_use_is_one_warning_with_the_port_and_the_setting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for _ in range(3):
            assert page_server(RestSettings(port=port)) is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"rest.port {port} of rest.bind-address 127.0.0.1 cannot be opened" in record.message
    assert "Address already in use" in record.message


@pytest.mark.parametrize("address", ["192.0.2.1", "no.such.host.invalid", "a..b", "x" * 300])
def test_an_address_that_is_not_ours_is_one_warning(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert page_server(RestSettings(bind_address=address)) is None
    (record,) = caplog.records
    assert f"rest.bind-address {address} cannot be opened" in record.message


def test_without_a_port_of_its_own_the_next_free_one_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as taken, socket.socket() as probe:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        probe.bind(("127.0.0.1", 0))
        busy, free = taken.getsockname()[1], probe.getsockname()[1]
        probe.close()
        monkeypatch.setattr(server, "USUAL_PORTS", (busy, free))
        found = page_server(RestSettings())
        assert found is not None and found.port == free
        close_page_server()
        monkeypatch.setattr(server, "USUAL_PORTS", (busy,))
        found = page_server(RestSettings())
        assert found is not None and found.port not in (0, busy)


def test_without_the_libraries_a_sentence_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate")
    monkeypatch.setattr(server, "LIBRARIES", ("nowhere_to_be_found",))
    assert page_server(RestSettings()) is None
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "pip install '.[ui]'" in record.message


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("rest.port", "65536"),
        ("rest.port", "-1"),
        ("rest.port", "8081-8090"),
        ("rest.enabled", "maybe"),
        ("rest.token", "with a space"),
        ("rest.token", "käse"),
        ("rest.token", "line\nbreak"),
    ],
)
def test_settings_that_cannot_be_are_refused(key: str, text: str) -> None:
    with pytest.raises(SettingsInvalid, match=key):
        RestSettings.parse({key: text})


def test_a_forked_child_has_neither_the_page_nor_its_port() -> None:
    settings = free_port_settings()
    found = page_server(settings)
    assert found is not None
    assert Caller(found)("/jobs").status == 200
    child = os.fork()
    if not child:
        here = bool(server._server) or found._socket.fileno() != -1
        os._exit(1 if here else 0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert Caller(found)("/jobs").status == 200, "the parent's is as before"


def test_without_room_for_a_thread_a_request_is_refused_and_the_next_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    background = Background(most=1)

    def no_room(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_room)
        with pytest.raises(BadRequest, match="cannot start a thread"):
            asyncio.run(background.run(lambda: 1))
    assert asyncio.run(background.run(lambda: 1)) == 1


def test_jobs_that_have_ended_are_kept_but_not_all() -> None:
    jobs = ShownJobs(look_s=0.01)
    gone: list[ShownJob] = []
    jobs.on_gone = gone.append
    try:
        graph = five_vertices(1)
        runs = ScriptedJob(graph, job_id="runs")
        jobs.watch(runs)
        for number in range(ENDED + 5):
            job = ScriptedJob(graph, job_id=f"job-{number}")
            job.end(JobStatus.FINISHED)
            jobs.watch(job)
            until(lambda job=job: job.job_id not in jobs._running)  # type: ignore[misc]
        names = [shown.job.job_id for shown in jobs.all()]
        assert names == [*(f"job-{number}" for number in range(ENDED + 4, 4, -1)), "runs"]
        assert [shown.job.job_id for shown in gone] == [f"job-{number}" for number in range(5)]
    finally:
        jobs.close()


class BrokenJob(ScriptedJob):
    """It cannot be looked at."""

    def figures(self) -> list[TaskFigures]:
        raise RuntimeError("nobody can")


def test_a_job_that_cannot_be_looked_at_disturbs_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, fine = BrokenJob(five_vertices(), job_id="broken"), ScriptedJob(five_vertices())
    with serving(broken, fine) as ask:
        reply = ask("/jobs/broken")
        assert reply.status == 500
        assert reply.json == {"errors": ["RuntimeError in the driver; its log has more"]}
        assert ask("/jobs/ab12").status == 200
        scraped = ask("/metrics")
        assert scraped.status == 200
        assert b'job_id="ab12"' in scraped.body and b'job_id="broken"' not in scraped.body
    assert "job broken cannot be looked at" in caplog.text
    assert "job broken is not shown to Prometheus: RuntimeError" in caplog.text


class ShakyJob(ScriptedJob):
    """Raises once, when it is looked at for the second time."""

    looks = 0

    def figures(self) -> list[TaskFigures]:
        self.looks += 1
        if self.looks == 2:
            raise RuntimeError("not now")
        return super().figures()


def test_one_look_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    job = ShakyJob(five_vertices())
    with serving(job) as ask:
        until(lambda: job.looks > 4)
        assert ask("/jobs/ab12").json["state"] == "RUNNING"
    assert caplog.text.count("job ab12 cannot be looked at") == 1


def test_a_job_without_reports_is_shown_as_created() -> None:
    with serving(ScriptedJob(five_vertices(), silent=True, state=JobStatus.INITIALIZING)) as ask:
        found = ask("/jobs/ab12").json
        assert found["state"] == "INITIALIZING"
        assert [vertex["status"] for vertex in found["vertices"]] == ["CREATED"] * 5
        assert found["vertices"][0]["tasks"] == {"CREATED": 2}
        assert found["vertices"][0]["watermark"] is None
        assert ask("/jobs/ab12/vertices/0").json["subtasks"] == []
        assert ask("/jobs/ab12/vertices/0/backpressure").json["backpressure-level"] == "ok"
        assert ask("/jobs/ab12/vertices/0/subtasks/metrics").json == []


def test_followers_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "MAX_FOLLOWERS", 2)
    with serving(ScriptedJob(five_vertices())) as ask:
        followers = [_follow(ask) for _ in range(2)]
        refused = ask("/jobs/ab12/events")
        assert refused.status == 503
        assert "close some of them" in refused.json["errors"][0]
        for follower in followers:
            follower.close()

        def is_free() -> bool:
            with _follow(ask) as follower:
                return follower.recv(12) == b"HTTP/1.1 200"

        until(is_free)


def test_a_burst_of_followers_does_not_pass_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "MAX_FOLLOWERS", 16)
    request = b"GET /jobs/ab12/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(ScriptedJob(five_vertices())) as ask, ExitStack() as stack:
        assert ask("/jobs").status == 200
        where = "127.0.0.1", ask.server.port
        burst = [
            stack.enter_context(socket.create_connection(where, DEADLINE_S)) for _ in range(80)
        ]
        for follower in burst:
            follower.sendall(request)
        answers = Counter(follower.recv(12) for follower in burst)
    assert answers == {b"HTTP/1.1 200": 16, b"HTTP/1.1 503": 64}


def _follow(ask: Caller) -> socket.socket:
    follower = socket.create_connection(("127.0.0.1", ask.server.port), 30)
    follower.sendall(b"GET /jobs/ab12/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    follower.recv(1, socket.MSG_PEEK)
    return follower


def test_a_follower_that_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "SEND_S", 0.05)
    streams, shown = EventStreams(), ShownJob(ScriptedJob(five_vertices()))

    async def never_a_body(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(60)

    async def stays() -> Message:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    asyncio.run(streams.follow(shown)({"method": "GET"}, stays, never_a_body))
    assert not streams._followers
    assert not streams._latest


def test_an_answer_is_made_once_for_all_who_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = ShownJob.details

    def details(self: ShownJob) -> bytes:
        made.append(threading.get_ident())
        return real(self)

    with serving(ScriptedJob(five_vertices())) as ask, ExitStack() as stack:
        for _ in range(8):
            follower = stack.enter_context(_follow(ask))
            while b"event: job" not in follower.recv(65_536):
                pass  # the first one, which each gets by itself
        monkeypatch.setattr(ShownJob, "details", details)
        until(lambda: len(made) >= 2)
        assert len(set(made)) == 1, "only the thread that looks makes them"


def test_an_answer_is_given_again_while_it_is_fresh_and_for_ever_after_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shown_jobs, "FRESH_S", 60.0)
    job = ScriptedJob(five_vertices())
    shown = ShownJob(job)
    assert shown.details() is shown.details()
    job.end(JobStatus.FAILED)
    assert b'"state":"FAILED"' in shown.details()
    final = shown.details()
    assert shown.details() is final
    made = [shown.answer(str(number), job_details) for number in range(KEPT + 3)]
    for number in range(3, KEPT + 3):
        assert shown.answer(str(number), job_details) is made[number]
    assert shown.answer("0", job_details) is not made[0], "only so many are kept"
