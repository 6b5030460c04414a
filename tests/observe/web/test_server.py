"""The server of the page over real HTTP, with jobs that exist only as figures."""

import http.client
import json
import threading

import pytest

from headgate.api.job import JobStatus
from tests.observe.web.kit import (
    DEADLINE_S,
    ScriptedJob,
    five_vertices,
    serving,
    some_checkpoints,
    until,
)


def test_jobs_are_listed_the_newest_first_with_their_states() -> None:
    older = ScriptedJob(five_vertices(), job_id="older")
    newer = ScriptedJob(five_vertices(), job_id="newer")
    with serving(older, newer) as ask:
        assert ask("/jobs").json == {
            "jobs": [{"id": "newer", "status": "RUNNING"}, {"id": "older", "status": "RUNNING"}]
        }
        older.end(JobStatus.FAILED)
        overview = ask("/overview").json
        assert (overview["jobs-running"], overview["jobs-failed"]) == (1, 1)
        summary = ask("/jobs/overview").json["jobs"][1]
        assert summary["state"] == "FAILED"
        assert summary["tasks"]["failed"] == summary["tasks"]["total"] == 9
        assert summary["end-time"] >= summary["start-time"]


def test_a_job_has_its_graph_with_rates_shares_and_places() -> None:
    job = ScriptedJob(five_vertices())
    with serving(job) as ask:
        until(lambda: ask("/jobs/ab12").json["vertices"][2]["busy"] > 0.9)
        found = ask("/jobs/ab12").json
    assert found["name"] == "orders by customer"
    assert [vertex["column"] for vertex in found["vertices"]] == [0, 1, 2, 3, 4]
    source, slow = found["vertices"][0], found["vertices"][2]
    assert source["is-source"] and source["backpressured"] > 0.9
    assert source["tasks"] == {"RUNNING": 2}
    assert slow["metrics"]["read-records"] > 0
    edge = found["edges"][1]
    assert (edge["source"], edge["target"], edge["ship"]) == ("1", "2", "HASH")
    assert edge["backlog"] == 2 * (42 + 21)


def test_an_unknown_job_vertex_or_path_is_refused_in_one_sentence() -> None:
    with serving(ScriptedJob(five_vertices())) as ask:
        for path, words in {
            "/jobs/nobody": "there is no job 'nobody' here",
            "/jobs/ab12/vertices/7": "the job has no vertex '7'; give 0 to 4",
            "/jobs/ab12/vertices/x": "the job has no vertex 'x'",
            "/nothing": "there is no such path",
            "/jobs/": "there is no such path",
        }.items():
            reply = ask(path)
            assert reply.status == 404, path
            (sentence,) = reply.json["errors"]
            assert words in sentence
        assert ask("/jobs?limit=3").status == 400
        wrong = ask("/jobs", "DELETE", X_Requested_With="test")
        assert wrong.status == 405
        assert wrong.headers["allow"] == "GET, HEAD" or wrong.headers["allow"] == "HEAD, GET"


def test_a_job_is_cancelled_and_stays_to_be_looked_at() -> None:
    job = ScriptedJob(five_vertices())
    with serving(job) as ask:
        assert ask("/jobs/ab12", "PATCH").status == 403, "any page could send that"
        assert ask("/jobs/ab12?mode=stop", "PATCH", X_Requested_With="test").status == 400
        assert not job.reasons
        assert ask("/jobs/ab12?mode=cancel", "PATCH", X_Requested_With="test").status == 202
        assert len(job.reasons) == 1
        assert ask("/jobs/ab12").json["state"] == "CANCELED"
        assert ask("/jobs/ab12").json["vertices"][0]["status"] == "CANCELED"


def test_who_follows_a_job_gets_it_again_and_again_until_it_is_forgotten() -> None:
    job = ScriptedJob(five_vertices())
    with serving(job) as ask:
        connection = http.client.HTTPConnection("127.0.0.1", ask.server.port, timeout=DEADLINE_S)
        connection.request("GET", "/jobs/ab12/events")
        response = connection.getresponse()
        assert response.getheader("content-type", "").startswith("text/event-stream")
        events = [_event(response) for _ in range(3)]
        assert [name for name, _ in events] == ["job"] * 3
        times = [data["now"] for _, data in events]
        assert times == sorted(set(times))
        ask.server.show(ScriptedJob(five_vertices()))  # of the same id
        while (event := _event(response))[0] == "job":
            pass
        assert event[0] == "gone"
        assert response.readline() == b"", "the stream has ended"
        connection.close()


def _event(response: http.client.HTTPResponse) -> tuple[str, dict[str, int]]:
    name = response.readline().decode().strip().removeprefix("event: ")
    data = json.loads(response.readline().decode().removeprefix("data: "))
    assert response.readline() == b"\n"
    return name, data


def test_a_closed_server_leaves_no_thread_and_no_port() -> None:
    before = set(threading.enumerate())
    with serving(ScriptedJob(five_vertices())) as ask:
        connection = http.client.HTTPConnection("127.0.0.1", ask.server.port, timeout=DEADLINE_S)
        connection.request("GET", "/jobs/ab12/events")
        response = connection.getresponse()
        _event(response)
        port = ask.server.port
    response.read()  # to the end of the stream
    connection.close()
    until(lambda: set(threading.enumerate()) <= before)
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S).connect()


def test_metrics_are_listed_by_name_and_asked_for_by_name() -> None:
    job = ScriptedJob(five_vertices(), checkpoint_records=some_checkpoints())
    with serving(job) as ask:
        last = ask("/jobs/ab12/metrics?get=job.checkpoints.last.sync_ms").json
        assert last == [{"id": "job.checkpoints.last.sync_ms", "value": "3.0"}]
        names = {metric["id"] for metric in ask("/jobs/ab12/metrics").json}
        assert {"job.restarts", "Source: orders.1.records_made", "enrich.0.gates.0.credit"} <= names
        assert ask("/jobs/ab12/metrics?get=job.restarts,nothing").json == [
            {"id": "job.restarts", "value": "0"}
        ]
        single = ask("/jobs/ab12/vertices/2/subtasks/1/metrics?get=state_bytes").json
        assert single == [{"id": "state_bytes", "value": "2097152"}]
        (both,) = ask("/jobs/ab12/vertices/2/subtasks/metrics?get=state_bytes").json
        assert (both["sum"], both["min"], both["avg"]) == (4194304.0, 2097152.0, 2097152.0)
        assert ask("/jobs/ab12/vertices/2/subtasks/2/metrics").status == 404
        marks = ask("/jobs/ab12/vertices/2/watermarks").json
        assert [mark["id"] for mark in marks] == [
            "0.currentInputWatermark",
            "1.currentInputWatermark",
        ]
