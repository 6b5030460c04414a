"""Commands about running jobs: found by what people call them, told in words and in JSON."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from headgate.api.job import JobStatus
from headgate.base.checkpoints import Stop
from headgate.base.errors import HeadgateError
from headgate.cli.jobs import absolute
from headgate.host.driver.control_server import ControlServer
from headgate.host.driver.job_directory import announce
from tests.cli.kit import Done, Headgate
from tests.host.control_rig import TIMES
from tests.host.endpoint_kit import RecordingJob, job_entry, served_endpoint


@pytest.fixture
def job(headgate: Headgate) -> Iterator[RecordingJob]:
    job = RecordingJob("ab12cd", "count orders")
    with ControlServer(times=TIMES) as server, served_endpoint(server, job):
        yield job


def test_where_nothing_runs_nothing_is_listed(headgate: Headgate) -> None:
    assert headgate("list") == Done(0, "", "no job of yours runs on this machine\n")
    assert json.loads(headgate("list", "--json").stdout) == {"jobs": []}


def test_running_jobs_are_listed_for_people_and_for_machines(
    headgate: Headgate, job: RecordingJob
) -> None:
    job.state = JobStatus.RESTARTING
    listed = headgate("list")
    head, line = listed.stdout.splitlines()
    assert head.split() == ["id", "name", "state", "since", "process"]
    assert line.startswith("ab12cd  count orders  restarting  20")
    assert line.endswith(f"Z  {os.getpid()}")
    (row,) = json.loads(headgate("list", "--json").stdout)["jobs"]
    assert (row["job"], row["state"], row["pid"]) == ("ab12cd", "restarting", os.getpid())
    assert row["since_ms"] > 1_600_000_000_000


def test_a_savepoint_prints_its_path_and_nothing_else(
    headgate: Headgate, job: RecordingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = headgate("savepoint", "count orders", "saved")
    assert done.returncode == 0
    assert done.stdout == f"{tmp_path}/saved/savepoint-ab12cd\n", "the driver is elsewhere"
    assert done.stderr == "takes a savepoint of job ab12cd (count orders) …\n"
    assert job.asked == [(f"{tmp_path}/saved", Stop.NO)]


def test_a_savepoint_tells_machines_all_about_it(headgate: Headgate, job: RecordingJob) -> None:
    done = headgate("savepoint", "ab", "--json", "--stop")
    assert json.loads(done.stdout) == {
        "job": "ab12cd",
        "name": "count orders",
        "path": "None/savepoint-ab12cd",
        "state": "finished",
        "problem": "",
    }
    assert job.asked == [(None, Stop.SUSPEND)]


@pytest.mark.parametrize(
    ("words", "stop"),
    [
        (("stop", "ab12cd", "s3://x"), Stop.SUSPEND),
        (("stop", "ab12cd", "s3://x", "--drain"), Stop.DRAIN),
        (("savepoint", "ab12cd", "s3://x", "--drain"), Stop.DRAIN),
    ],
)
def test_a_job_is_stopped_with_a_savepoint(
    headgate: Headgate, job: RecordingJob, words: tuple[str, ...], stop: Stop
) -> None:
    done = headgate(*words)
    assert (done.returncode, done.stdout) == (0, "s3://x/savepoint-ab12cd\n")
    assert "and ends it" in done.stderr
    assert done.stderr.endswith("job ab12cd (count orders) is finished\n")
    assert job.asked == [("s3://x", stop)]


def test_a_savepoint_that_came_to_nothing_exits_with_1(
    headgate: Headgate, job: RecordingJob
) -> None:
    job.slow = Future()
    job.slow.set_exception(HeadgateError("/full: No space left on device; make room there"))
    done = headgate("savepoint", "ab12cd", "/full")
    assert (done.returncode, done.stdout) == (1, "")
    assert "headgate: savepoint has failed: /full: No space left on device" in done.stderr
    stopped = headgate("stop", "ab12cd", "/full", "--json")
    assert stopped.returncode == 1
    assert json.loads(stopped.stdout)["problem"].startswith("/full: No space left")
    assert "headgate: stop has failed: /full: No space left on device" in stopped.stderr


def test_a_job_is_cancelled(headgate: Headgate, job: RecordingJob) -> None:
    done = headgate("cancel", "ab12cd")
    assert done == Done(0, "job ab12cd (count orders) is canceled\n", "")
    assert job.reasons == ["`headgate cancel` was called"]
    job.state = JobStatus.RUNNING
    report = json.loads(headgate("cancel", "ab", "--json").stdout)
    assert report == {"job": "ab12cd", "name": "count orders", "state": "canceled"}
    job.state, job.trouble = JobStatus.RUNNING, RuntimeError("it does not let go")
    refused = headgate("cancel", "ab12cd")
    assert refused.returncode == 1
    assert "job ab12cd was not cancelled: it does not let go" in refused.stderr


@pytest.mark.parametrize("words", [("savepoint",), ("stop",), ("cancel",)])
def test_a_job_that_is_not_there_is_told_with_those_that_are(
    headgate: Headgate, job: RecordingJob, words: tuple[str, ...]
) -> None:
    done = headgate(*words, "nightly")
    assert done == Done(
        2, "", "headgate: 'nightly' is no running job; running are ab12cd (count orders)\n"
    )
    assert job.asked == [] and job.reasons == []


def test_two_ways_to_stop_exclude_each_other(headgate: Headgate, job: RecordingJob) -> None:
    done = headgate("savepoint", "ab12cd", "--stop", "--drain")
    assert done.returncode == 2
    assert "--stop and --drain exclude each other" in done.stderr
    assert job.asked == []


def test_a_folder_that_is_not_the_user_s_own_is_not_trusted(
    headgate: Headgate, tmp_path: Path
) -> None:
    announce(job_entry())
    (tmp_path / "headgate").chmod(0o777)
    done = headgate("list")
    assert done.returncode == 1
    assert "which others may use; remove it, or set XDG_RUNTIME_DIR" in done.stderr


def test_folders_on_this_machine_become_absolute_and_others_stay() -> None:
    assert absolute(None) is None
    assert absolute("s3://bucket/x") == "s3://bucket/x"
    assert absolute("file:/x") == "file:/x"
    assert absolute("a/../b") == f"{os.getcwd()}/b"
