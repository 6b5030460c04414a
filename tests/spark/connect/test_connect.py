"""Jobs in a session of Spark Connect: the same programs, the same errors."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.spark.connect.conftest import PROGRAM
from tests.spark.connect.server import TOKEN

pytestmark = pytest.mark.timeout(400)  # the first test waits for the answers to all checks
WAIT_S = 60.0
PAGE = Path(__file__).parents[3] / "docs" / "spark-connect.md"
ADDRESS = "sc://localhost:15002"


def test_a_job_runs_and_its_records_come_back(answers: Mapping[str, Any]) -> None:
    assert answers["records"] == [value * 2 for value in range(10)]


def test_an_address_where_no_server_is_is_told_at_once(answers: Mapping[str, Any]) -> None:
    (kind, text, _), *others = answers["no_server"]
    assert kind == "SessionFailed"
    assert "no Spark Connect server answers at sc://127.0.0.1:1 " in text
    for kind, text, _ in others:
        assert kind == "SessionFailed" and text.endswith("write sc://host:port")


def test_a_token_that_the_server_does_not_take_is_said_and_not_shown(
    answers: Mapping[str, Any],
) -> None:
    """That it stands nowhere is checked for all that the program prints."""
    wrong, half, malformed, none = (message for message, _ in answers["wrong_token"])
    for message in (wrong, none):
        assert re.fullmatch(r"the Spark Connect server at sc://localhost:\d+ does not .*", message)
        assert "SPARK_CONNECT_AUTHENTICATE_TOKEN" in message
    for message in (half, malformed):
        assert "'******'" in message and "key-value pair" in message


def test_what_a_job_needs_to_know_of_the_server_is_found_out(answers: Mapping[str, Any]) -> None:
    assert answers["session"] == {
        "total": 4,
        "is_local": True,
        "is_own": False,
        "hosts": ["127.0.0.1", "127.0.0.1"],
        "channel": "",
        "is_stopped": False,
    }


def test_a_failed_job_raises_the_users_error_first(answers: Mapping[str, Any]) -> None:
    kind, text, cause = answers["failing_job"]
    assert (kind, cause) == ("JobFailed", "ValueError")
    assert text.startswith("Traceback (most recent call last):") and "in fail_at_seven" in text
    assert text.endswith("job 'seventh' failed in operator 'Map': ValueError: seven")


def test_a_job_that_is_too_wide_is_refused_before_spark_waits(answers: Mapping[str, Any]) -> None:
    kind, text, _ = answers["slots"]
    assert kind == "SlotsShort" and "needs 9 slots and Spark has 4 free (4 in total" in text


def test_a_cancelled_job_gives_its_slots_back(answers: Mapping[str, Any]) -> None:
    (kind, text, _), status, after = answers["cancelled_job"]
    assert kind == "SlotsShort" and "needs 3 slots and Spark has 2 free" in text
    assert status == "CANCELED" and after == [1]


def test_a_killed_worker_is_replaced_and_every_record_comes_once(
    answers: Mapping[str, Any],
) -> None:
    assert answers["killed_worker"] == [True, True]


def test_dataframes_go_in_and_out(answers: Mapping[str, Any]) -> None:
    assert answers["frames"] == [sum(range(100)) * 2, 3, [0, 1, 2, 3]]


def test_an_action_that_wants_a_few_rows_ends_the_job(answers: Mapping[str, Any]) -> None:
    found, ends_early, cached = answers["few_rows"]
    assert found == [5, False, 3]
    assert ends_early == [True] * 4, "take, isEmpty, a write, a view"
    assert cached == 200, "a limit leaves what is cached whole"


def test_an_action_without_slots_says_so_and_can_be_cancelled(answers: Mapping[str, Any]) -> None:
    reason, [[kind, text, _]], status, rows = answers["waiting_action"]
    assert reason.startswith("waiting for 2 slots; other sessions of the server may have them")
    assert kind == "JobCancelled" and text.endswith("nobody waits")
    assert (status, rows) == ("CANCELED", 5)


def test_transformations_and_reads_of_state_work_and_profiles_are_refused(
    answers: Mapping[str, Any],
) -> None:
    doubled, (kind, text, _), is_read = answers["other_calls"]
    assert (doubled, is_read) == ([0, 2, 4, 6, 8], True)
    assert kind == "PlanInvalid" and "runs no job with a resource profile" in text


def test_an_action_on_a_dataframe_fails_with_the_users_error(answers: Mapping[str, Any]) -> None:
    collected, derived, theirs = answers["failing_action"]
    for kind, text, cause in (collected, derived):
        assert (kind, cause) == ("JobFailed", "ValueError") and "in fail_at_seven" in text
    assert theirs[0] == "SparkRuntimeException" and "theirs" in theirs[1]


def test_modules_and_archives_travel_through_the_server(answers: Mapping[str, Any]) -> None:
    is_a_copy, word, (kind, text, _) = answers["files"]
    assert is_a_copy and word == "gate"
    assert kind == "PathUnusable" and "shipped_module.py" in text and "a new session" in text


def test_another_python_for_the_workers_is_refused(answers: Mapping[str, Any]) -> None:
    kind, text, _ = answers["other_python"]
    assert kind == "SessionFailed" and "start the server with PYSPARK_PYTHON" in text


def test_a_module_that_workers_miss_is_named(answers: Mapping[str, Any]) -> None:
    kind, text, _ = answers["missing_module"]
    assert kind == "JobFailed"
    assert "of_this_machine" in text and "add_python_file" in text


def test_a_file_that_is_not_here_cannot_be_sent(answers: Mapping[str, Any]) -> None:
    kind, text, _ = answers["uri"]
    assert kind == "PathUnusable" and "sends files of this machine only" in text


def test_the_address_that_workers_connect_to_can_be_set(answers: Mapping[str, Any]) -> None:
    address, (kind, text, _) = answers["addresses"]
    assert address == "192.0.2.7"
    assert kind == "SettingsInvalid" and "jobmanager.rpc.address: no-such-host.invalid" in text


def test_state_is_a_table_of_the_server(answers: Mapping[str, Any]) -> None:
    assert answers["state_table"] == [["a", 1], ["b", 2]]


def test_streaming_queries_of_the_server_feed_and_read_jobs(answers: Mapping[str, Any]) -> None:
    assert answers["streams"] == [5, [10, sum(value * value for value in range(10))]]


def test_a_protected_server_is_no_reason_for_a_warning(answers: Mapping[str, Any]) -> None:
    assert "INSECURE" not in answers["stderr"]


def test_workers_end_with_a_client_that_is_killed(
    connect_environ: Mapping[str, str], tmp_path: Path
) -> None:
    """The server would keep the operation for minutes."""
    client = subprocess.Popen(
        [sys.executable, str(PROGRAM), "hold", str(tmp_path)],
        env=dict(connect_environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        workers = _awaited(tmp_path, 2)
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
    deadline = time.monotonic() + WAIT_S
    while any(_runs(pid) for pid in workers):
        assert time.monotonic() < deadline, "workers have outlived the client"
        time.sleep(0.1)


def test_the_command_runs_a_program_in_a_session_of_connect(
    connect_environ: Mapping[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "from headgate import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1, 2]).map(lambda value: value + 40).print()\n"
        "env.execute('small')\n"
        "from headgate.spark.session import find_session\n"
        "print(find_session().session_id)\n"
    )
    environ = {**connect_environ}
    remote = environ.pop("SPARK_REMOTE")
    command = [sys.executable, "-m", "headgate", "run", "--remote", remote, "-p", "1"]
    archives = tmp_path / "archives"
    command += ["--log-level", "debug", "-D", f"jobmanager.archive.fs.dir={archives}", str(script)]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *records, session = done.stdout.split()
    assert records == ["41", "42"]
    log = Path(connect_environ["CONNECT_LOG"]).read_text()
    assert re.search(rf"Closing session .*{session}", log), "it is released at the exit"
    (archive,) = (path for path in archives.rglob("*") if path.is_file())
    recorded = gzip.decompress(archive.read_bytes()).decode()
    assert '"spark.remote"' in recorded, "the settings of the job are in its record"
    assert TOKEN not in recorded + done.stderr


def test_the_doctor_examines_a_server(connect_environ: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headgate", "doctor", "--json"],
        env=dict(connect_environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    findings = {found["check"]: found for found in json.loads(done.stdout)["findings"]}
    assert findings["Spark session"]["found"].startswith("4.")
    assert findings["slots"]["found"] == "4, of which 0 are busy"
    assert findings["workers"]["state"] == "ok", findings["workers"]
    assert "Java" not in findings


def test_programs_of_the_page_run(connect_environ: Mapping[str, str], tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert ADDRESS in program
    script = tmp_path / "page.py"
    script.write_text(program.replace(ADDRESS, connect_environ["SPARK_REMOTE"]))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={key: word for key, word in connect_environ.items() if key != "SPARK_REMOTE"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (shown,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert done.stdout.strip() == shown.strip()


def _awaited(folder: Path, count: int) -> list[int]:
    deadline = time.monotonic() + WAIT_S
    while len(found := [int(path.name) for path in folder.iterdir()]) < count:
        assert time.monotonic() < deadline, "the workers have not come"
        time.sleep(0.1)
    return found


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z" and os.path.exists(f"/proc/{pid}")
