"""Commands and the real server of the page understand each other; only the job is scripted."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import pytest

from headgate.api.job import JobStatus
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.job_directory import announce, entries
from tests.cli.kit import Done, in_process
from tests.host.control_rig import TIMES
from tests.host.endpoint_kit import RecordingJob, served_endpoint
from tests.observe.web.kit import (
    ScriptedJob,
    a_failure,
    five_vertices,
    now_ms,
    serving,
    some_checkpoints,
    until,
)

Headgate = Callable[..., Done]
TOKEN = "only-for-tests"


@dataclass
class Scene:
    """A job with a page that asks for a token, and the command."""

    job: ScriptedJob
    headgate: Headgate


@pytest.fixture
def scene(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Scene]:
    pytest.importorskip("uvicorn")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    job = ScriptedJob(
        five_vertices(),
        job_id="ab12",
        started_at_ms=now_ms() - 60_000,
        checkpoint_records=some_checkpoints(),
    )
    job.fail_once(a_failure(now_ms() - 5_000))
    controlled = RecordingJob("ab12", job.graph.name)
    with (
        serving(job, token=TOKEN) as ask,
        ControlServer(times=TIMES) as server,
        served_endpoint(server, controlled),
    ):
        ((entry, _),) = entries()
        announce(msgspec.structs.replace(entry, web=ask.server.url, token=TOKEN))
        yield Scene(job, partial(in_process, monkeypatch, capsys))


def test_status_and_top_show_what_the_server_says(scene: Scene) -> None:
    done = scene.headgate("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert "orders by customer  running for 1 min" in done.stdout
    assert "checkpoints: 6 completed, 1 failed; checkpoint 7 completed" in done.stdout
    assert "ZeroDivisionError: division by zero in enrich" in done.stdout

    def bar() -> str:
        lines = scene.headgate("top", "--once").stdout.splitlines()
        return "".join(line for line in lines if " x enrich" in line)

    until(lambda: "████" in bar())


def test_status_for_programs_has_every_figure(scene: Scene) -> None:
    until(lambda: json.loads(scene.headgate("status", "--json").stdout)["vertices"][2]["busy"] > 0)
    report = json.loads(scene.headgate("status", "--json").stdout)
    assert (report["state"], report["restarts"], report["checkpoint"]["checkpoint"]) == (
        "running",
        1,
        7,
    )
    enrich = report["vertices"][2]
    assert enrich["name"] == "enrich" and enrich["max_busy"] > 0.9
    assert enrich["latency_p99_ms"] > 0 and enrich["in_per_s"] > 0
    assert enrich["watermark_lag_ms"] > 0 and enrich["state_bytes"] > 0


def test_flame_shows_the_users_lines(scene: Scene, tmp_path: Path) -> None:
    done = scene.headgate("flame", "ab12", "enrich", "--seconds", "0.2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "400 samples of 2 tasks" in done.stdout
    lines = done.stdout.splitlines()
    assert "enrich (shop.py:31)" in lines[2] and "lookup (shop.py:17)" in lines[3]
    assert "recv (socket.py:706)" in lines[5] and "called by your code" in lines[5]
    file = tmp_path / "stacks"
    scene.headgate("flame", "ab12", "enrich", "--subtask", "1", "--folded", file)
    assert "enrich (shop.py:31);lookup (shop.py:17);recv (socket.py:706) 150\n" in file.read_text()
    done = scene.headgate("flame", "ab12", "enrich", "--subtask", "9")
    assert (done.returncode, done.stdout) == (1, "")
    assert "subtask" in done.stderr


def test_why_is_answered_by_the_server(scene: Scene) -> None:
    done = scene.headgate("why", "--quick")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Cannot say yet: ")
    report = json.loads(scene.headgate("why", "ab12", "--json").stdout)
    assert (report["cause"], report["advice"], report["possible-rate"]) == ("unknown", [], -1.0)
    done = scene.headgate("why", "--seconds", "31")
    assert done.returncode == 2 and "--seconds" in done.stderr


def test_peek_shows_waiting_records(scene: Scene) -> None:
    done = scene.headgate("peek", "ab12", "enrich", "--limit", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 records at least wait in front of subtask 0 of 'enrich' in 42 buffers" in done.stdout
    assert "{'order': 2, 'customer': 7}" in done.stdout
    report = json.loads(scene.headgate("peek", "ab12", "enrich", "--json").stdout)
    assert report["entries"][0]["key"] == "7" and report["entries"][0]["timestamp_ms"] > 0
    for words in (("orders",), ("enrich", "--gate", "4"), ("enrich", "--subtask", "9")):
        refused = scene.headgate("peek", "ab12", *words)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("headgate: job ab12 (orders by customer): ")


def test_a_job_that_has_ended_is_still_shown_but_not_looked_into(scene: Scene) -> None:
    scene.job.end(JobStatus.FAILED)
    assert "failed after" in scene.headgate("status").stdout
    assert "is failed; this is how it has ended" in scene.headgate("top", "--once").stdout
    done = scene.headgate("peek", "ab12", "enrich")
    assert done.returncode == 1
    assert "ended" in done.stderr


def test_cancel_ends_the_job_through_the_server(scene: Scene) -> None:
    done = scene.headgate("cancel", "orders by customer")
    assert done == Done(0, "job ab12 (orders by customer) is canceled\n", "")
    assert len(scene.job.reasons) == 1
