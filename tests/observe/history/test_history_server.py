"""`headgate history` over real sockets: the same answers as from the driver, and nothing else."""

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from headgate.api.job import JobStatus
from headgate.host.checkpoints.folder import open_folder
from headgate.observe.history import archive as archives
from headgate.observe.history.archive import encode_archive, write_archive
from tests.observe.history.kit import archive, ended_job, history_of
from tests.observe.web.kit import serving

PATHS = [
    "",
    "/config",
    "/plan",
    "/exceptions",
    "/checkpoints",
    "/checkpoints/details/7",
    "/taskmanagers",
    "/logs",
    "/logs?after=17",
    "/logs?after=3&limit=2",
    "/metrics",
    "/metrics?get=job.restarts,parse.0.records_in",
    "/vertices/2",
    "/vertices/2/backpressure",
    "/vertices/2/watermarks",
    "/vertices/2/subtasks/metrics",
    "/vertices/2/subtasks/1/metrics",
    "/vertices/2/subtasks/1/metrics?get=busy_ms",
]


@pytest.fixture(autouse=True)
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "FRESH_S", 0.0)


def without_now(answer: Any) -> Any:
    """Answers at two moments differ in what is measured against the clock."""
    if isinstance(answer, dict):
        moving = ("now", "watermark-lag-ms", "last-modification", "end-timestamp")
        return {key: without_now(value) for key, value in answer.items() if key not in moving}
    return [without_now(part) for part in answer] if isinstance(answer, list) else answer


def test_it_answers_as_the_driver_did(tmp_path: Path) -> None:
    job = ended_job()
    archive(job, tmp_path)
    with serving(job) as live, history_of(tmp_path) as history:
        for path in PATHS:
            wanted = live(f"/jobs/ab12{path}")
            found = history(f"/jobs/ab12{path}")
            assert found.status == wanted.status == 200, path
            assert without_now(found.json) == without_now(wanted.json), path
        for path in ("/jobs", "/jobs/overview", "/overview"):
            assert without_now(history(path).json) == without_now(live(path).json), path


def test_the_page_is_there_and_offers_nothing_that_changes_a_job(tmp_path: Path) -> None:
    archive(ended_job(), tmp_path)
    with history_of(tmp_path) as history:
        page = history("/")
        assert page.status == 200
        assert b"<html" in page.body
        assert "default-src 'self'" in page.headers["content-security-policy"]
        features = history("/config").json["features"]
        assert set(features.values()) == {False}
        refused = history("/jobs/ab12?mode=cancel", "PATCH", body={})
        assert refused.status == 405
        assert refused.json["errors"] == ["an archive cannot be changed; it has only GET"]
        live = history("/jobs/ab12/vertices/2/flamegraph")
        assert (live.status, "the job has ended" in live.json["errors"][0]) == (409, True)


def test_events_are_one_and_then_no_more(tmp_path: Path) -> None:
    archive(ended_job(), tmp_path)
    with history_of(tmp_path) as history:
        events = history("/jobs/ab12/events")
        assert events.headers["content-type"].startswith("text/event-stream")
        head, _, data = events.body.decode().partition("\ndata: ")
        assert head == "event: job"
        assert json.loads(data) == history("/jobs/ab12").json


def test_new_archives_appear_and_removed_ones_go(tmp_path: Path) -> None:
    with history_of(tmp_path) as history:
        assert history("/jobs").json == {"jobs": []}
        path = archive(ended_job("one1"), tmp_path)
        archive(ended_job("two2", JobStatus.FINISHED), tmp_path, 2_000)
        assert history("/jobs").json["jobs"] == [
            {"id": "two2", "status": "FINISHED"},
            {"id": "one1", "status": "FAILED"},
        ]
        path.unlink()
        assert [job["id"] for job in history("/jobs").json["jobs"]] == ["two2"]
        gone = history("/jobs/one1")
        assert gone.status == 404
        assert gone.json["errors"] == ["there is no archive of job 'one1'; GET /jobs lists all"]


def test_a_job_that_ran_twice_is_there_twice(tmp_path: Path) -> None:
    archive(ended_job(state=JobStatus.FAILED), tmp_path, 1_000)
    archive(ended_job(state=JobStatus.FINISHED), tmp_path, 2_000)
    with history_of(tmp_path) as history:
        assert [job["jid"] for job in history("/jobs/overview").json["jobs"]] == [
            "ab12",
            "ab12@1000",
        ]
        assert history("/jobs/ab12").json["state"] == "FINISHED"
        assert history("/jobs/ab12@1000").json["state"] == "FAILED"


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "folder", "flipped"])
def test_a_damaged_archive_is_passed_over_with_a_sentence(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    archive(ended_job("good"), tmp_path)
    path = archive(ended_job("bad1"), tmp_path, 2_000)
    whole = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        broken = {"cut": whole[:40], "text": b"{}\n", "empty": b"", "flipped": b"\x1f" + whole}
        path.write_bytes(broken[damage])
    with history_of(tmp_path) as history, caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert [job["id"] for job in history("/jobs").json["jobs"]] == ["good"]
    (warning,) = [record for record in caplog.records if "is skipped" in record.getMessage()]
    assert f"the archive {path.name} cannot be read" in warning.getMessage()


def test_an_archive_whose_end_is_missing_is_listed_and_says_so(tmp_path: Path) -> None:
    path = archive(ended_job(), tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with history_of(tmp_path) as history:
        assert [job["id"] for job in history("/jobs").json["jobs"]] == ["ab12"]
        answer = history("/jobs/ab12")
        assert answer.status == 404
        assert "cannot be read: its end is missing" in answer.json["errors"][0]


def test_few_archives_are_held_in_memory(tmp_path: Path) -> None:
    for number in range(archives.LOADED + 3):
        archive(ended_job(f"job{number}"), tmp_path, number)
    with history_of(tmp_path) as history:
        for number in range(archives.LOADED + 3):
            assert history(f"/jobs/job{number}").json["jid"] == f"job{number}"
        assert len(history.server.archives._loaded) == archives.LOADED


def test_other_addresses_ask_for_a_token(tmp_path: Path) -> None:
    archive(ended_job(), tmp_path)
    with history_of(tmp_path, token="sesame") as history:
        assert history("/").status == history("/config").status == 200
        assert history("/config").json["needs-token"] is True
        assert history("/jobs").status == 401
        assert history("/jobs", authorization="Bearer sesame").status == 200
    with history_of(tmp_path, bind_address="0.0.0.0") as open_to_all:
        assert open_to_all.server.token in open_to_all.server.url
        assert open_to_all("/jobs").status == 401


@pytest.mark.parametrize("query", ["after=-1", "limit=many", "after=1e3"])
def test_bad_parameters_are_refused(tmp_path: Path, query: str) -> None:
    archive(ended_job(), tmp_path)
    with history_of(tmp_path) as history:
        answer = history(f"/jobs/ab12/logs?{query}")
        assert answer.status == 400
        assert "must be a whole number" in answer.json["errors"][0]


@pytest.mark.parametrize(
    "answer", [b"1", b"[]", b"{}", b'{"lines":3}', b'{"lines":[3]}', b'[{"id":[]}]', b"null"]
)
def test_answers_that_are_none_are_told_in_a_sentence(
    tmp_path: Path, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answers = {"": b"{}", "/logs": answer, "/metrics": b"[]", "/metrics?get": answer}
    data = encode_archive({"jid": "ab12", "state": "FAILED"}, 17, answers)
    write_archive(open_folder(str(tmp_path)), "ab12", 17, data)
    with history_of(tmp_path) as ask:
        for path in ("/jobs/ab12/logs", "/jobs/ab12/metrics?get=a"):
            reply = ask(path)
            assert reply.status in (200, 404)
            assert reply.status == 200 or "an answer in it is none" in reply.json["errors"][0]
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "job",
    [
        b'{"jid":3}',
        b'{"jid":null,"state":[1]}',
        b'{"jid":{"a":1},"state":1e999}',
        b'{"jid":"x","tasks":' + b"9" * 400 + b"}",
        b'{"jid":"\\ud800"}',
    ],
)
def test_a_strange_header_harms_no_other(tmp_path: Path, job: bytes) -> None:
    header = b'{"headgate-archive":1,"version":"","written-at-ms":1,"job":' + job + b"}\n"
    data = gzip.compress(header) + gzip.compress(b"")
    write_archive(open_folder(str(tmp_path)), "strange", 5, data)
    archive(ended_job(), tmp_path)
    with history_of(tmp_path) as ask:
        for path in ("/jobs", "/jobs/overview", "/overview", "/jobs/ab12"):
            assert ask(path).status == 200, path
