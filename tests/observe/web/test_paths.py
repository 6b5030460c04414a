"""Every path of the API over a scripted job: what it answers, and what it refuses."""

import threading
from concurrent.futures import Future

import pytest

from headgate.api.job import JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.errors import InspectionFailed, SettingsInvalid
from headgate.base.inspections import Found, Inspection, SampleStacks
from tests.observe.web.kit import (
    ScriptedJob,
    a_failure,
    five_vertices,
    serving,
    some_checkpoints,
    some_lines,
    until,
    usual_answers,
)

JOB = "/jobs/ab12"


def test_a_vertex_has_its_subtasks_with_gates_and_figures_of_the_user() -> None:
    with serving(ScriptedJob(five_vertices())) as ask:
        found = ask(f"{JOB}/vertices/2").json
    assert (found["id"], found["name"], found["parallelism"]) == ("2", "enrich", 2)
    assert [subtask["subtask"] for subtask in found["subtasks"]] == [0, 1]
    first = found["subtasks"][0]
    assert first["status"] == "RUNNING"
    assert first["host"] == "worker-1:4711"
    assert first["gates"][0]["queued-buffers"] == 42
    assert first["gates"][0]["exclusive-in-use"] == 4
    assert first["async-calls"][0]["in-flight"] == 97
    assert first["user"][0]["name"] == "hits"
    assert first["state-bytes"] == 2_097_152
    assert first["lag-records"] is None


def test_back_pressure_has_flinks_levels() -> None:
    with serving(ScriptedJob(five_vertices())) as ask:
        levels = [
            ask(f"{JOB}/vertices/{vertex}/backpressure").json["backpressure-level"]
            for vertex in range(5)
        ]
        assert levels == ["high", "high", "ok", "ok", "ok"]
        subtask = ask(f"{JOB}/vertices/0/backpressure").json["subtasks"][1]
    assert subtask["ratio"] == pytest.approx(0.92)
    assert subtask["soft-ratio"] + subtask["hard-ratio"] == pytest.approx(0.92)


def test_settings_are_shown_and_secrets_are_not() -> None:
    job = ScriptedJob(five_vertices(), configuration={"rest.token": "t0ken", "a": "b"})
    with serving(job) as ask:
        assert ask(f"{JOB}/config").json["settings"] == {"rest.token": "******", "a": "b"}


def test_a_plan_is_flinks_json_and_a_drawing() -> None:
    with serving(ScriptedJob(five_vertices())) as ask:
        found = ask(f"{JOB}/plan").json
    assert found["plan"]["type"] == "STREAMING"
    node = found["plan"]["nodes"][2]
    assert (node["id"], node["description"]) == ("2", "enrich")
    assert node["inputs"] == [
        {"num": 0, "id": "1", "ship_strategy": "HASH", "exchange": "pipelined_bounded"}
    ]
    assert found["svg"].startswith("<svg")


def test_failures_have_their_cause_and_place() -> None:
    job = ScriptedJob(five_vertices())
    with serving(job) as ask:
        assert ask(f"{JOB}/exceptions").json == {"exceptions": [], "truncated": False}
        job.fail_once(a_failure())
        (failure,) = ask(f"{JOB}/exceptions").json["exceptions"]
        assert ask(JOB).json["latest-failure"] == failure
    assert failure["kind"] == "builtins.ZeroDivisionError"
    assert (failure["vertex"], failure["subtask"], failure["operator"]) == (2, 1, "enrich")


def test_checkpoints_are_listed_without_parts_and_one_has_them() -> None:
    job = ScriptedJob(five_vertices(), checkpoint_records=some_checkpoints())
    with serving(job) as ask:
        found = ask(f"{JOB}/checkpoints").json
        assert found["counts"] == {"triggered": 7, "completed": 6, "failed": 1, "in-progress": 0}
        assert [record["parts"] for record in found["history"]] == [[], []]
        parts = ask(f"{JOB}/checkpoints/details/7").json["parts"]
        assert [part["task"] for part in parts] == ["0.0", "1.0", "2.0", "3.0", "4.0"]
        for number in ("5", "x", "-1"):
            reply = ask(f"{JOB}/checkpoints/details/{number}")
            assert reply.status == 404
            assert "known are: 7, 6" in reply.json["errors"][0]


def test_the_log_is_read_on_from_where_it_was_left() -> None:
    with serving(ScriptedJob(five_vertices(), lines=some_lines())) as ask:
        first = ask(f"{JOB}/logs?limit=12").json
        rest = ask(f"{JOB}/logs?after={first['next']}").json
        nothing = ask(f"{JOB}/logs?after={rest['next']}").json
        assert ask(f"{JOB}/logs?limit=0").status == 400
    assert [line["number"] for line in first["lines"] + rest["lines"]] == list(range(1, 20))
    assert nothing == {"lines": [], "next": 19}


def test_processes_have_their_tasks() -> None:
    with serving(ScriptedJob(five_vertices())) as ask:
        first, second = ask(f"{JOB}/taskmanagers").json["taskmanagers"]
    assert (first["host"], first["pid"], first["buffers-free"]) == ("worker-1", 4711, 1900)
    assert first["tasks"] == ["0.0", "1.0", "2.0", "3.0", "4.0"]
    assert second["tasks"] == ["0.1", "1.1", "2.1", "3.1"]


def test_a_flame_graph_is_a_tree_of_all_subtasks_or_of_one() -> None:
    with serving(ScriptedJob(five_vertices())) as ask:
        path = f"{JOB}/vertices/2/flamegraph?seconds=0.05"
        both = ask(path).json
        single = ask(f"{path}&subtask=1&type=on_cpu").json
        assert ask(f"{path}&subtask=2").status == 404
        assert ask(f"{path}&subtask=some").status == 400
        assert ask(f"{JOB}/vertices/2/flamegraph?seconds=3600").status == 400
    assert (both["samples"], both["subtasks"]) == (400, [0, 1])
    assert (both["data"]["name"], both["data"]["value"]) == ("enrich", 400)
    assert single["subtasks"] == [1]
    assert single["data"]["value"] == pytest.approx(3.0), "30 ms of CPU, 10 ms a sample"


def test_the_busiest_subtasks_stand_for_a_wide_vertex() -> None:
    with serving(ScriptedJob(five_vertices(100))) as ask:
        found = ask(f"{JOB}/vertices/2/flamegraph?seconds=0.05").json
    assert len(found["subtasks"]) == 32


def test_a_flame_graph_does_without_the_subtasks_that_cannot_be_sampled() -> None:
    def answers(task: str, what: Inspection) -> Found:
        if task == "2.0":
            raise InspectionFailed(task, "it has ended")
        return usual_answers(task, what)

    with serving(ScriptedJob(five_vertices(), answers=answers)) as ask:
        path = f"{JOB}/vertices/2/flamegraph?seconds=0.05"
        assert ask(path).json["subtasks"] == [1]
        refused = ask(f"{path}&subtask=0")
    assert refused.status == 409
    assert refused.json == {"errors": ["task 2.0 cannot be inspected: it has ended"]}


def test_waiting_records_are_shown_of_one_gate() -> None:
    with serving(ScriptedJob(five_vertices())) as ask:
        found = ask(f"{JOB}/vertices/2/peek?subtask=1&limit=3").json
        assert ask(f"{JOB}/vertices/2/peek?gate=1").status == 404
        source = ask(f"{JOB}/vertices/0/peek")
        channels = ask(f"{JOB}/vertices/2/channels?limit=1").json
    assert (found["subtask"], found["buffers"], len(found["entries"])) == (1, 42, 3)
    assert found["entries"][0]["key"] == "7"
    assert "it is a source" in source.json["errors"][0]
    assert (channels["channels"], channels["rows"][0]["backlog"]) == (2, 11)


def test_state_is_read_at_one_key_or_at_several() -> None:
    with serving(ScriptedJob(five_vertices())) as ask:
        single = ask(f"{JOB}/state?uid=totals&state=total&key=7")
        several = ask(f"{JOB}/state?uid=totals&state=total&key=7&key=x&key-type=string")
        refused = [
            ask(f"{JOB}/state?uid=totals&state=total"),
            ask(f"{JOB}/state?uid=totals&state=total" + "&key=7" * 1001),
            ask(f"{JOB}/state?uid=totals&state=sum&key=7"),
            ask(f"{JOB}/state?uid=nobody&state=total&key=7"),
            ask(f"{JOB}/state?uid=totals&state=total&key=x&key-type=int"),
        ]
    assert single.json["values"] == [
        {"key": 7, "found": True, "value": {"n": 0}, "text": "", "problem": ""}
    ]
    assert [value["key"] for value in several.json["values"]] == ["7", "x"]
    assert [reply.status for reply in refused] == [400] * 2 + [404] * 3
    sentences = [reply.json["errors"][0] for reply in refused]
    assert sentences[:2] == ["this path needs key", "key is given more than 1,000 times"]
    assert "it has no state 'sum'; it has 'total' (value)" in sentences[2]
    assert "the job has no operator 'nobody'; it has" in sentences[3]
    assert "the key 'x' is not a int" in sentences[4]


def test_tasks_of_a_job_that_has_ended_are_not_looked_into() -> None:
    job = ScriptedJob(five_vertices())
    job.end(JobStatus.FINISHED)
    with serving(job) as ask:
        reply = ask(f"{JOB}/vertices/2/peek")
        assert reply.status == 409
        assert "the job has ended" in reply.json["errors"][0]
        assert ask(f"{JOB}/vertices/2").json["status"] == "FINISHED"
        assert ask(f"{JOB}/state?uid=totals&state=total&key=7").status == 409
        assert ask(f"{JOB}/savepoints", "POST", body={}).status == 409


@pytest.mark.parametrize(
    ("path", "body", "asked"),
    [
        ("savepoints", {}, (None, Stop.NO)),
        ("savepoints", {"target-directory": "/saved"}, ("/saved", Stop.NO)),
        ("savepoints", {"cancel-job": True}, (None, Stop.SUSPEND)),
        ("stop", {"target-directory": "/saved"}, ("/saved", Stop.SUSPEND)),
        ("stop", {"drain": True}, (None, Stop.DRAIN)),
    ],
)
def test_a_savepoint_is_begun_and_asked_for_later(
    path: str, body: dict[str, object], asked: tuple[str | None, Stop]
) -> None:
    job = ScriptedJob(five_vertices())
    other = ScriptedJob(five_vertices(), job_id="other")
    with serving(job, other) as ask:
        reply = ask(f"{JOB}/{path}", "POST", body=body)
        assert reply.status == 202
        request = reply.json["request-id"]
        future: Future[str]
        directory, stop, future = job.savepoints[0]
        assert (directory, stop) == asked
        result = f"{JOB}/savepoints/{request}"
        assert ask(result).json == {"status": {"id": "IN_PROGRESS"}, "operation": None}
        assert ask(f"/jobs/other/savepoints/{request}").status == 404
        future.set_result("/saved/savepoint-1")
        assert ask(result).json["operation"]["location"] == "/saved/savepoint-1"


def test_a_savepoint_that_fails_says_why_now_or_later() -> None:
    job = ScriptedJob(five_vertices())
    with serving(job) as ask:
        request = ask(f"{JOB}/savepoints", "POST", body={}).json["request-id"]
        job.savepoints[0][2].set_exception(OSError("the disk is full"))
        cause = ask(f"{JOB}/savepoints/{request}").json["operation"]["failure-cause"]
        assert "the disk is full" in cause
        job.savepoint_error = SettingsInvalid("execution.checkpointing.savepoint-dir", "is none")
        refused = ask(f"{JOB}/savepoints", "POST", body={})
        assert refused.status == 400
        assert "savepoint-dir" in refused.json["errors"][0]
        for wrong in ({"where": "x"}, {"drain": "yes"}, [1]):
            assert ask(f"{JOB}/savepoints", "POST", body=wrong).status == 400
        assert ask(f"{JOB}/savepoints/nothing").status == 404


def test_why_names_the_limit_when_it_has_been_watched_long_enough() -> None:
    with serving(ScriptedJob(five_vertices())) as ask:
        early = ask(f"{JOB}/why?quick=true").json
        assert (early["cause"], early["complete"]) == ("unknown", False)
        until(lambda: ask(f"{JOB}/why?quick=true").json["cause"] != "unknown")
        found = ask(f"{JOB}/why?seconds=0.1").json
        assert (found["cause"], found["vertex"]) == ("waits", 2)
        assert found["line"] == "enrich (shop.py:31)"
        assert ask(JOB).json["why"]["vertex"] == 2
        assert "enrich" in ask("/jobs/overview").json["jobs"][0]["why"]
        series = ask(f"{JOB}/series").json
    assert series["vertices"][2] == "enrich"
    assert len(series["points"][-1][6]) == 5


def test_few_tasks_are_looked_at_at_a_time() -> None:
    """The seventeenth is refused at once, and room is made when the others are answered."""
    gate = threading.Event()

    def answers(task: str, what: Inspection) -> Found:
        gate.wait(20)
        return usual_answers(task, what)

    statuses: list[int] = []
    with serving(ScriptedJob(five_vertices(), answers=answers)) as ask:
        path = f"{JOB}/vertices/2/channels"
        threads = [
            threading.Thread(target=lambda: statuses.append(ask(path).status)) for _ in range(17)
        ]
        for thread in threads:
            thread.start()
        until(lambda: statuses == [503])
        gate.set()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [200] * 16 + [503]
        assert ask(path).status == 200


def test_sampling_asks_for_no_more_than_was_wanted() -> None:
    asked: list[Inspection] = []

    def answers(task: str, what: Inspection) -> Found:
        asked.append(what)
        return usual_answers(task, what)

    with serving(ScriptedJob(five_vertices(), answers=answers)) as ask:
        ask(f"{JOB}/vertices/3/flamegraph?subtask=0&seconds=0.1&hertz=50")
    assert asked == [SampleStacks(0.1, 50.0)]


def test_the_settings_of_a_job_are_shown_without_secrets() -> None:
    open_settings = {"pipeline.keys": "a,b", "tokenizer": "bert", "sink.url": "redis://h:6379/0"}
    secrets = {
        "cache.url": "redis://:hUnter2@h",
        "bus.url": "nats://hUnter2@h",
        "blob.url": "https://h/x?sig=hUnter2",
        "lake.url": "s3://key:a/hUnter2@bucket",
        "sink.dsn": "host=h pwd=hUnter2",
        "db.pwd": "hUnter2",
        "http.authorization": "Basic hUnter2",
    }
    job = ScriptedJob(five_vertices(), configuration={**open_settings, **secrets})
    with serving(job) as ask:
        settings = ask(f"{JOB}/config").json["settings"]
    assert settings == {**open_settings, **dict.fromkeys(secrets, "******")}
